#!/bin/sh
# Installs ksmith from this directory, or removes it. Usage: install.sh [--prefix DIR] [--destdir DIR] [--uninstall [--purge]]
#   --prefix DIR   where the program, its data and its units go (default: /usr/local); /etc/ksmith.toml is there in any case
#   --destdir DIR  put all of it below DIR, for an image or a package; nothing on this host is started or stopped
#   --uninstall    give everything back, stop the units, and remove what was installed; --purge: the configuration and the history too
# The units are not enabled: `ksmith setup` does that.
set -eu
prefix=/usr/local destdir='' action=install purge=''
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix takes a directory}; shift;;
        --prefix=*) prefix=${1#*=};;
        --destdir) destdir=${2:?--destdir takes a directory}; shift;;
        --destdir=*) destdir=${1#*=};;
        --uninstall) action=uninstall;;
        --purge) purge=yes;;
        *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; [ "$1" = --help ] && exit 0; exit 2;;
    esac
    shift
done
case $prefix in /*) prefix=${prefix%/};; *) echo "install.sh: --prefix takes an absolute path, such as /usr/local" >&2; exit 2;; esac
base=$destdir$prefix
list=$base/share/ksmith/installed
tree=$(dirname "$0")/tree
ours="ksmith.service ksmith-serve.socket ksmith-serve.service"
live() { [ -z "$destdir" ] && [ -d /run/systemd/system ]; }

if [ "$action" = uninstall ]; then
    [ -e "$list" ] || { echo "install.sh: nothing is installed below $base: $list is missing" >&2; exit 1; }
    if [ -z "$destdir" ]; then
        "$prefix/bin/ksmith" setup --undo --yes < /dev/null || true
        # shellcheck disable=SC2086 # three units
        ! live || systemctl disable --now $ours 2> /dev/null || true
        [ ! -e /run/ksmith/undo.json ] || "$prefix/bin/ksmith" restore
    fi
    # Both lists are among them.
    files=$(cat "$list") made=$(cat "$list.directories")
    echo "$files" | while read -r path; do rm -f "$base/$path"; done
    # Only directories that the installation made, and that hold nothing any more.
    echo "$made" | sort -ru | while read -r directory; do rmdir "$base/$directory" 2> /dev/null || true; done
    if [ -n "$purge" ]; then
        rm -f "$destdir/etc/ksmith.toml"
        rm -rf "$destdir/var/lib/ksmith" "$destdir/run/ksmith"
        for unit in $ours; do rm -rf "$destdir/etc/systemd/system/$unit.d"; done
        if [ -z "$destdir" ]; then
            for group in ksmith ksmith-view; do ! getent group $group > /dev/null || groupdel $group; done
        fi
    fi
    ! live || systemctl daemon-reload
    exit 0
fi

[ -d "$tree" ] || { echo "install.sh: there is no $tree: run it from the unpacked archive" >&2; exit 1; }
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
directory() { # Makes it with those above it, and notes each that was not there.
    [ ! -d "$base/$1" ] || return 0
    case $1 in */*) directory "${1%/*}";; esac
    mkdir "$base/$1"
    echo "$1" >> "$new/directories"
}
mkdir -p "$base"
: > "$new/directories"
(cd "$tree/usr" && find . -type f | sed 's|^\./||' | LC_ALL=C sort) > "$new/files"
while read -r path; do
    mode=644
    case $path in bin/* | */slurm/*) mode=755;; esac
    directory "$(dirname "$path")"
    # A new file in the place of the old one: the old program may be running. What is there already may be a link.
    rm -f "$base/$path.new"
    cp "$tree/usr/$path" "$base/$path.new"
    chmod $mode "$base/$path.new"
    case $path in
        lib/systemd/* | share/ksmith/systemd/*) sed -i "s|/usr/bin/ksmith|$prefix/bin/ksmith|g" "$base/$path.new";;
        *.pc) sed -i "s|^prefix=/usr\$|prefix=$prefix|" "$base/$path.new";;
    esac
    mv -f "$base/$path.new" "$base/$path"
done < "$new/files"
# What the version before had and this one has not.
[ ! -e "$list" ] || LC_ALL=C comm -23 "$list" "$new/files" | while read -r path; do
    case $path in share/ksmith/installed*) ;; *) rm -f "$base/$path";; esac
done
{ cat "$new/files"; echo share/ksmith/installed; echo share/ksmith/installed.directories; } | LC_ALL=C sort > "$list"
cat "$new/directories" >> "$list.directories"
mkdir -p "$destdir/etc"
[ -e "$destdir/etc/ksmith.toml" ] || install -m 644 "$tree/etc/ksmith.toml" "$destdir/etc/ksmith.toml"
if [ -z "$destdir" ]; then
    ! command -v systemd-sysusers > /dev/null || systemd-sysusers "$prefix/lib/sysusers.d/ksmith.conf"
    ! command -v systemd-tmpfiles > /dev/null || systemd-tmpfiles --create "$prefix/lib/tmpfiles.d/ksmith.conf" || true
fi
if live; then
    systemctl daemon-reload
    for unit in $ours; do
        ! systemctl --quiet is-active "$unit" || systemctl restart "$unit"
    done
fi
[ -n "$destdir" ] || echo "ksmith is installed below $prefix. Nothing has been started: run $prefix/bin/ksmith setup"
