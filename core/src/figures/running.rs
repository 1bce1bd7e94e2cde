//! Figures of the status: its verdict, and the daemon's policy, controller, balance, history and sketch.

use super::figure::figures;
use crate::model::{BalanceStatus, DaemonStatus, HistoryStatus, HostVerdict, SketchStatus};

figures! {
    /// The parts of the verdict on the host.
    VERDICT of HostVerdict {
        "level": String, Text State (2 6), "the gravest finding among figures, domains, balance and errors",
            "Level of the verdict: fine, look or act.",
            |verdict| verdict.level.word().to_owned();
        "sentence": String, Text State (2 6), "the gravest finding among figures, domains, balance and errors",
            "The gravest finding with its remedy, or what merging saves, in a sentence.",
            |verdict| verdict.sentence.clone();
    }
}

figures! {
    /// Figures of the policy in charge.
    POLICY of DaemonStatus {
        "policy": String, Text State (2 6), "[policy] in the configuration",
            "Name of the policy in charge.",
            |daemon| daemon.policy.clone();
        "state": String, Text State (2 6), "the policy's last decision",
            "State of the policy, in a word.",
            |daemon| daemon.state.clone();
        "reason": String, Text State (2 6), "the policy's last decision",
            "Reason of the policy's last decision, in a short line.",
            |daemon| daemon.reason.clone();
        "reason_detail": String, Text State (2 6), "the policy's last decision",
            "Arithmetic behind that reason, if there is any.",
            |daemon| daemon.reason_detail.clone();
    }
}

figures! {
    /// Figures of the daemon itself.
    CONTROLLER of DaemonStatus {
        "pid": u64, Count State (2 6), "getpid()",
            "PID of the daemon.",
            |daemon| u64::from(daemon.pid);
        "cpu_seconds": f64, Seconds Counter (2 6), "getrusage()",
            "CPU time that the daemon has used.",
            |daemon| daemon.cpu_seconds;
        "rss_bytes": u64, Bytes Gauge (2 6), "/proc/self/statm",
            "Resident memory of the daemon.",
            |daemon| daemon.rss_bytes;
        "uptime_seconds": f64, Seconds Counter (2 6), "the clock",
            "Time since the daemon started.",
            |daemon| daemon.uptime_seconds;
        "limit.cpu_percent": f64, Percent State (2 6), "[limits] in the configuration",
            "CPU time that ksmd may use at most, in per cent of one CPU.",
            |daemon| daemon.max_cpu.map(|part| part * 100.0);
        "paused_until": f64, Seconds State (2 6), "ksmith pause, and the clock",
            "Time at which the pause of merging ends, in seconds since 1970.",
            |daemon| daemon.paused_until;
    }
}

figures! {
    /// Figures of balance in a daemon's status.
    BALANCE of BalanceStatus {
        "policy": String, Text State (2 6), "[balance] in the configuration",
            "Name of the policy of balance.",
            |balance| balance.policy.clone();
        "state": String, Text State (2 6), "the policy's last plan",
            "State of balance, in a word.",
            |balance| balance.state.clone();
        "reason": String, Text State (2 6), "the policy's last plan",
            "Reason of the last plan, in a sentence.",
            |balance| balance.reason.clone();
        "taken_bytes": u64, Bytes Gauge (2 6), "sum of whole_bytes - given_bytes over guests",
            "Memory that was taken from guests and not given back.",
            |balance| balance.taken_bytes;
        "exposed": String, Text State (2 6), "exposure_bytes > headroom_bytes",
            "Why no more memory is offered to merging, while that is so.",
            |balance| balance.exposed.clone();
    }
}

figures! {
    /// Figures of the history in a daemon's status.
    HISTORY of HistoryStatus {
        "path": String, Text State (2 6), "[history] in the configuration",
            "File of the history.",
            |history| history.path.clone();
        "file_bytes": u64, Bytes Gauge (2 6), "the file and its write-ahead log",
            "Size of the history on the disk.",
            |history| history.bytes;
        "recorded_moments": u64, Count Counter (2 6), "the daemon",
            "Moments that this daemon recorded.",
            |history| history.recorded;
        "lost_moments": u64, Count Counter (2 6), "the daemon",
            "Moments that this daemon lost: the disk refused them, or was too slow.",
            |history| history.lost;
        "problem": String, Text State (2 6), "SQLite and the kernel",
            "Why nothing can be recorded now, in a sentence.",
            |history| history.problem.clone();
    }
}

figures! {
    /// Figures of the sketch file in a daemon's status.
    SKETCH of SketchStatus {
        "path": String, Text State (2 6), "[sketch] in the configuration",
            "The sketch file of this host.",
            |sketch| sketch.path.clone();
        "file_bytes": u64, Bytes Gauge (2 6), "the file",
            "Size of the sketch file as it was last written.",
            |sketch| sketch.bytes;
        "guests": u64, Count Gauge (2 6), "the daemon",
            "Guests with a sketch.",
            |sketch| sketch.guests;
        "missing_guests": u64, Count Gauge (2 6), "the daemon",
            "Guests without a sketch: not read yet, or they can't be read.",
            |sketch| sketch.missing;
        "written_files": u64, Count Counter (2 6), "the daemon",
            "Sketch files that this daemon wrote.",
            |sketch| sketch.written;
        "cpu_seconds": f64, Seconds Counter (2 6), "clock_gettime(2) of the thread",
            "CPU time that sketches took.",
            |sketch| sketch.cpu_seconds;
        "memory_bytes": u64, Bytes Gauge (2 6), "the daemon",
            "Memory of all sketches.",
            |sketch| sketch.memory_bytes;
        "problem": String, Text State (2 6), "the kernel",
            "Why no sketch file is written now, in a sentence.",
            |sketch| sketch.problem.clone();
    }
}
