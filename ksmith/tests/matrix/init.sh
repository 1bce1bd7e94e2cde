#!/bin/busybox sh
# The first process of a guest of the matrix: it runs every file of /checks, shows what each said and how it ended, and
# switches the guest off.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /sbin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2> /dev/null
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /run/lock
hostname matrix
echo "@@kernel $(uname -r)"
for check in /checks/*; do
    name=${check##*/}
    echo "@@begin ${name#*-}"
    timeout 1800 sh -c ". /checks.sh; . '$check'" > /tmp/said 2>&1 < /dev/null
    code=$?
    cat /tmp/said
    echo "@@end $code"
    # What a check leaves must not reach the next.
    if [ -e /sys/kernel/mm/ksm/run ]; then
        echo 2 > /sys/kernel/mm/ksm/run
        echo 0 > /sys/kernel/mm/ksm/run
        if [ -e /sys/kernel/mm/ksm/merge_across_nodes ]; then echo 1 > /sys/kernel/mm/ksm/merge_across_nodes; fi
    fi
    rm -rf /run/ksmith /tmp/*
done
echo "@@done"
sync
poweroff -f
