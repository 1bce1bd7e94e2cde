//! Processes that share one memory map: made by `clone(CLONE_VM)` without `CLONE_THREAD`, as the helpers of user-mode
//! Linux are. Each shows all of it as its own.
//!
//! A process can keep a comparison waiting for ever. Then no other process of its user is compared for a time: each
//! would cost a wait.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{accountable, reader};

/// The time for which the processes of a user are not compared after one that kept ksmith waiting.
const PAUSE: Duration = Duration::from_secs(10);

/// Users whose processes are not compared, with the end of that time. `None` stands for users that can't be told.
static PAUSED: Mutex<BTreeMap<Option<u32>, Instant>> = Mutex::new(BTreeMap::new());

/// Returns true if two processes share one memory map; false also if that can't be told.
pub(super) fn have_one_memory(one: u32, other: u32) -> bool {
    is_of_any(one, &[other])
}

/// Returns true if a process shares its memory map with one of `others`; false also if that can't be told.
pub(super) fn is_of_any(pid: u32, others: &[u32]) -> bool {
    if others.is_empty() {
        return false;
    }
    let paused = || PAUSED.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let any_paused = {
        let mut paused = paused();
        paused.retain(|_, until| now < *until);
        !paused.is_empty()
    };
    if any_paused && paused().contains_key(&accountable::uid_of_pid(pid)) {
        return false;
    }
    match reader::compare_memory(pid, others) {
        Ok(are_same) => are_same.contains(&true),
        Err(_) => {
            paused().insert(accountable::uid_of_pid(pid), Instant::now() + PAUSE);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_has_its_own_memory_and_we_have_ours() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        assert!(have_one_memory(own, own));
        assert!(!have_one_memory(own, child.id()));
        let many = vec![child.id(); 200];
        assert!(!is_of_any(own, &many) && !is_of_any(own, &[]));
        assert!(is_of_any(own, &[many, vec![own]].concat()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!have_one_memory(own, u32::MAX));
    }
}
