# Sourced by checks that install packages into a clean Debian 12 tree, without a virtual machine: `. packaging/tests/tree.sh`, from
# the top of the sources. It makes the tree once, in target/package/tree-checks. Needs root, mmdebstrap and systemd-nspawn.
# /sys is read-only in there: this host's KSM is left alone.
export LC_ALL=C NO_COLOR=1
made=$PWD/target/package
work=$made/tree-checks
mkdir -p "$work"
chmod 755 "$work"
failures=0
start=$SECONDS

check() { # NAME COMMAND...: says whether the command succeeds
    local name=$1 said; shift
    if said=$("$@" 2>&1); then echo "ok: $name"
    else echo "FAILED: $name: $(tail -n 5 <<< "$said" | tr '\n' ' ')"; failures=$((failures + 1)); fi
}
no() { ! "$@"; }
prints() { local text=$1 said; shift; said=$("$@" 2>&1) && [[ $said = *"$text"* ]]; } # TEXT COMMAND...
refuses() { local text=$1 said; shift; ! said=$("$@" 2>&1) && [[ $said = *"$text"* ]]; } # TEXT COMMAND...
skipped() { echo "SKIPPED, nothing was tested: $1"; [ "${CI:-}" != true ] || failures=$((failures + 1)); }
# A pipe, since man prints each letter of a bold word twice on a terminal.
inside() { systemd-nspawn -q -D "$tree" --as-pid2 --pipe --register=no --keep-unit --private-network --bind-ro="$made:/made" \
    --setenv=DEBIAN_FRONTEND=noninteractive --setenv=LC_ALL=C.UTF-8 "$@" < /dev/null; }
# Every file with what is in it, but for those that apt, dpkg and systemd write on any day.
files() { (cd "$1" && find . -xdev \( -path ./var/log -o -path ./var/cache -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./tmp \
    -o -path ./run -o -path ./etc/machine-id -o -path ./var/lib/systemd -o -path ./proc -o -path ./sys -o -path ./dev -o -path ./made \) -prune \
    -o -printf '%M %U:%G %p %l\n'; find etc usr -type f ! -path etc/machine-id ! -path 'etc/*-' -exec sha256sum {} +) | sort; }
fresh() { rm -rf "${work:?}/$1"; cp -a "$work/base" "$work/$1"; tree=$work/$1; files "$tree" > "$work/$1.before"; }
unchanged() { files "$tree" > "$tree.after"; diff "$tree.before" "$tree.after"; }
# Says how it went: `finish NAME` is the last command.
finish() {
    echo "figure: all checks took $((SECONDS - start)) s"
    echo "$1: $failures failed"
    [ "$failures" = 0 ]
}

if [ ! -e "$work/made" ]; then
    rm -rf "$work/base"
    mmdebstrap --quiet --mode=root --variant=minbase --include=systemd,man-db,bash-completion,python3,gcc,libc6-dev,pkg-config,binutils \
        bookworm "$work/base" && touch "$work/made"
fi
