#!/usr/bin/env bash
# Makes the guests of releases.toml: for each release of Debian its kernel, and its minimal system as what that kernel unpacks
# into memory. `sudo examples/lab/releases.sh target/releases`; needs mmdebstrap, cpio and some minutes.
set -euo pipefail
directory=$1
for release in bullseye bookworm trixie; do
    place=$directory/$release
    [ ! -e "$place/initrd" ] || continue
    mkdir -p "$place"
    mmdebstrap --quiet --variant=minbase --include=linux-image-cloud-amd64,systemd-sysv,dbus,python3-minimal \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="cp \"\$1\"/boot/vmlinuz-* '$place/linux'" \
        --customize-hook='rm -rf "$1"/boot/* "$1"/lib/modules/* "$1"/usr/lib/modules/*' \
        --customize-hook="cd \"\$1\" && find . | cpio -o -H newc --quiet | gzip -1 > '$place/initrd.part'" \
        "$release" /dev/null
    mv "$place/initrd.part" "$place/initrd"
done
