//! Processes for benches: real ones, forked from the bench, with mergeable memory or without.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

/// Children that sleep until this is dropped.
pub struct SleepingChildren(Vec<rustix::process::Pid>);

impl SleepingChildren {
    pub fn fork(mergeable: usize, plain: usize) -> Self {
        let mut pids: Vec<_> = (0..plain).map(|_| fork_sleeper()).collect();
        if mergeable > 0 {
            let memory = MergeableMapping::map();
            pids.extend((0..mergeable).map(|_| fork_sleeper()));
            drop(memory);
        }
        Self(pids)
    }
}

impl Drop for SleepingChildren {
    fn drop(&mut self) {
        for pid in &self.0 {
            rustix::process::kill_process(*pid, rustix::process::Signal::KILL).unwrap();
        }
        for pid in &self.0 {
            rustix::process::waitpid(Some(*pid), rustix::process::WaitOptions::empty()).unwrap();
        }
    }
}

/// Mergeable memory of this process, which children inherit.
struct MergeableMapping(*mut std::ffi::c_void);

const MERGEABLE_BYTES: usize = 16 * 4096;

impl MergeableMapping {
    #[allow(unsafe_code, reason = "system calls")]
    fn map() -> Self {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        // SAFETY: a new private mapping, which nothing else points to.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), MERGEABLE_BYTES, ProtFlags::READ, MapFlags::PRIVATE).unwrap()
        };
        // SAFETY: the mapping just made; the advice does not change what it holds.
        unsafe { madvise(memory, MERGEABLE_BYTES, Advice::LinuxMergeable).unwrap() };
        Self(memory)
    }
}

impl Drop for MergeableMapping {
    #[allow(unsafe_code, reason = "a system call")]
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, of which no reference was ever taken.
        unsafe { rustix::mm::munmap(self.0, MERGEABLE_BYTES).unwrap() };
    }
}

/// Forks a child that sleeps, and dies with this process.
#[allow(unsafe_code, reason = "fork, without another program to execute")]
fn fork_sleeper() -> rustix::process::Pid {
    // SAFETY: the child only makes system calls that are safe after a fork, and never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: plain system calls without pointers; `_exit` runs no destructors of the parent's objects.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::pause();
            libc::_exit(0)
        }
    }
    rustix::process::Pid::from_raw(pid).expect("a child")
}
