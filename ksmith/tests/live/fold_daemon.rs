//! The daemon with `[fold]` over a program with half of its memory empty: the figure is what the program does not need any more, falls
//! when the memory is written to again, and nothing is lost.

use std::fs;
use std::time::Duration;

use ksmith_core::field::KernelVersion;
use rustix::process::Signal;

use crate::scripted::ScriptedProgram;
use crate::support::own::on_own_host;
use crate::support::program::{RunningProgram, status};
use crate::support::{skipped, wait_within};

const MIB: u64 = 1 << 20;

/// Looks are some ten seconds apart, and the child runs only when no other program wants the CPU.
const PATIENCE: Duration = Duration::from_secs(300);

/// Memory of the program. The upper half of each MiB is empty.
const SIZE: u64 = 64 * MIB;

/// Fills its memory, and obeys: `write` fills the empty halves too, `check` compares everything.
const PROGRAM: &str = r#"
import mmap, sys
open("/proc/self/comm", "w").write("qemu-system-x86")
MIB = 1 << 20
size = int(sys.argv[1])
memory = mmap.mmap(-1, size + 2 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
full = [bytes([1 + n % 250]) * (MIB // 2) for n in range(size // MIB)]
upper = [bytes(MIB // 2)] * len(full)
for n, text in enumerate(full):
    memory[n * MIB:n * MIB + MIB // 2] = text
    memory[n * MIB + MIB // 2:(n + 1) * MIB] = upper[n]
print("ready", flush=True)
for line in sys.stdin:
    if line == "write\n":
        upper = full[::-1]
        for n, text in enumerate(upper):
            memory[n * MIB + MIB // 2:(n + 1) * MIB] = text
    same = all(memory[n * MIB:n * MIB + MIB // 2] == full[n] for n in range(len(full)))
    same = same and all(memory[n * MIB + MIB // 2:(n + 1) * MIB] == upper[n] for n in range(len(full)))
    print("same" if same else "differs", flush=True)
"#;

/// The daemon's samples have it as a hypervisor. None of its memory is offered to KSM, which others may use now.
fn start_victim() -> Option<ScriptedProgram> {
    let exec = "import os, sys; os.execv(sys.executable, ['qemu-system-x86_64', '-c', *sys.argv[1:]])";
    ScriptedProgram::start(&["-c", exec, PROGRAM, &SIZE.to_string()])
}

/// The folded memory that the daemon shows.
fn folded() -> Option<u64> {
    status()?["folded_bytes"].as_u64()
}

#[test]
fn the_daemon_shows_what_it_has_folded_until_it_is_written_to() {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let is_new = KernelVersion::parse(&release).is_some_and(|version| version >= KernelVersion::new(6, 12));
    if !is_new || !rustix::process::geteuid().is_root() {
        return skipped("folding needs Linux 6.12 and root");
    }
    on_own_host(|| {
        let Some(mut victim) = start_victim() else { return skipped("there is no Python") };
        if victim.sums().anon_huge.unwrap() < SIZE - 4 * MIB {
            return skipped("the kernel has no huge pages to give now");
        }
        let before = victim.sums().pss.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ksmith.toml");
        let configure = |mode: &str| {
            let text = format!("[policy]\nkind = \"off\"\n[history]\nenabled = false\n[fold]\nmode = \"{mode}\"\n");
            fs::write(&path, text).unwrap();
        };
        configure("off");
        let mut daemon = RunningProgram::start(&["daemon", "--config", path.to_str().unwrap()]);
        daemon.wait_ready();
        assert_eq!(folded(), None, "nothing was looked at");
        configure("all");
        daemon.signal(Signal::HUP);
        let mut shown = (0, 0);
        wait_within(PATIENCE, "half of it is folded, and shown", || {
            shown = (folded().unwrap_or(0), before.saturating_sub(victim.sums().pss.unwrap()));
            shown.1 >= SIZE / 2 - 4 * MIB && shown.0.abs_diff(shown.1) <= shown.1 / 20
        });
        let all = status().unwrap();
        assert_eq!(all["exposure_bytes"], all["saved_bytes"], "{all}");
        assert!(all["saved_bytes"].as_u64() >= Some(shown.0), "{all}");
        assert_eq!(victim.obey("check"), "same");
        // What is folded is looked after also when no more is to be folded.
        configure("off");
        daemon.signal(Signal::HUP);
        assert_eq!(victim.obey("write"), "same");
        wait_within(PATIENCE, "the figure has fallen", || folded().is_some_and(|bytes| bytes <= shown.0 / 20));
        let pid = victim.pid();
        let log = daemon.end();
        assert!(log.contains(&format!("(pid {pid}): ")) && log.contains(&format!("(pid {pid}) for ")), "{log}");
        assert_eq!(victim.obey("check"), "same");
    });
}
