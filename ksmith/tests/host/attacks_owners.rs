//! A user whose processes do not tell the owner of their user namespace.

use crate::executing::while_processes_execute;
use crate::support::attack::{NEIGHBOUR, RunningAttack};
use crate::support::own::on_own_host;
use ksmith_host::accountable::uid_of_pid;

#[test]
fn a_user_whose_processes_do_not_answer_keeps_no_other_user_in_a_namespace_from_being_known() {
    on_own_host(|| {
        let Some(neighbour) = RunningAttack::own_namespace(NEIGHBOUR) else { return };
        while_processes_execute(9, |attack| {
            for pid in attack.executing() {
                assert_eq!(uid_of_pid(pid), None, "it executes, in a namespace of its user's");
            }
            // In the same second.
            assert_eq!(uid_of_pid(neighbour.pids[0]), Some(NEIGHBOUR.parse().unwrap()));
        });
    });
}
