# What the checks share. Each runs in a shell of its own.
KSM=/sys/kernel/mm/ksm
started=
trap 'kill -KILL $started 2> /dev/null' EXIT
trap 'exit 143' TERM

# guest NAME PART...: a process with known memory, once it holds it; in the cgroup CGROUP, if that is set.
guest() {
    guest_name=$1; shift
    mkfifo /tmp/$guest_name.in
    : > /tmp/$guest_name.out
    (
        if [ -n "$CGROUP" ]; then echo 0 > $CGROUP/cgroup.procs; fi
        exec ${GUEST:-ksmith} memory-guest --name $guest_name "$@"
    ) < /tmp/$guest_name.in > /tmp/$guest_name.out &
    started="$started $!"
    eval "$guest_name=$!"
    sleep 1000000 > /tmp/$guest_name.in &
    started="$started $!"
    within 600 grep -q ready /tmp/$guest_name.out
}

# within SECONDS COMMAND...: waits until the command succeeds.
within() {
    within_end=$(($(date +%s) + $1)); shift
    until "$@"; do
        if [ "$(date +%s)" -ge "$within_end" ]; then
            echo "waited too long until: $*"
            settings
            ksmith status
            cat /tmp/daemon.log
            exit 99
        fi
        usleep 50000
    done
}

# All settings of KSM, for a comparison.
settings() {
    for knob in run pages_to_scan sleep_millisecs merge_across_nodes max_page_sharing use_zero_pages smart_scan advisor_mode \
        advisor_max_cpu advisor_min_pages_to_scan advisor_max_pages_to_scan advisor_target_scan_time; do
        if [ -e $KSM/$knob ]; then echo "$knob $(cat $KSM/$knob)"; fi
    done
}

# start_daemon ARGUMENT...: the daemon, once it answers. Without one the check ends with the daemon's exit code and words.
start_daemon() {
    before=$(settings)
    ksmith daemon "$@" > /tmp/daemon.log 2>&1 &
    daemon=$!
    started="$started $daemon"
    within 600 answers_or_ended
    if ! is_running $daemon; then
        wait $daemon
        code=$?
        cat /tmp/daemon.log
        exit $code
    fi
}

answers_or_ended() {
    ! is_running $daemon || has_status "\"pid\": *$daemon"
}

# Whether a process runs: one that has ended and was not waited for has no program.
is_running() {
    readlink /proc/$1/exe > /dev/null
}

has_status() {
    ksmith status --json 2> /dev/null | grep -q "$1"
}

# Ends the daemon; it must end well and put all settings back.
end_daemon() {
    kill -TERM $daemon
    wait $daemon
    code=$?
    if [ $code != 0 ]; then
        cat /tmp/daemon.log
        exit $code
    fi
    same_settings
}

same_settings() {
    if [ "$(settings)" != "$before" ]; then
        echo "settings before: $before; after: $(settings)"
        exit 98
    fi
}

# merged PAGES: so many pages are saved.
merged() {
    [ "$(cat $KSM/pages_sharing)" -ge "$1" ]
}

# passed COUNT: ksmd has made so many passes.
passed() {
    [ "$(cat $KSM/full_scans)" -ge "$1" ]
}

# Whether settings are not as they were before the daemon started.
changed() {
    [ "$(settings)" != "$before" ]
}

not_guarded() {
    ! has_status '"state": *"guarded"'
}
