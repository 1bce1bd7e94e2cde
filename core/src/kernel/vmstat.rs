//! `/proc/vmstat`: event counters of memory management, the few that matter to merging.

use serde::{Deserialize, Serialize};

use super::keyed;
use crate::reading::Malformed;

/// Events since boot. `None`: this kernel does not count them, or the value is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Vmstat {
    /// Merged pages that were copied on a write (5.19), which measures churn.
    pub cow_ksm: Option<u64>,
    /// Pages written to swap.
    pub pswpout: Option<u64>,
    /// Pages read from swap.
    pub pswpin: Option<u64>,
    /// Faults that had to read from a disk.
    pub pgmajfault: Option<u64>,
    /// Huge pages that were split (4.4 as `thp_split_page`).
    pub thp_split_page: Option<u64>,
    /// Processes killed for want of memory (4.13).
    pub oom_kill: Option<u64>,
}

impl Vmstat {
    /// Parses the file, each line by itself: one that is impossible is unknown, and the others keep their meaning.
    ///
    /// # Errors
    /// No line is a name and a number.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut vm = Self::default();
        let mut is_vmstat = false;
        for line in keyed::lines(text) {
            is_vmstat = is_vmstat || line.unsigned().is_ok();
            let field = match line.key {
                "cow_ksm" => &mut vm.cow_ksm,
                "pswpout" => &mut vm.pswpout,
                "pswpin" => &mut vm.pswpin,
                "pgmajfault" => &mut vm.pgmajfault,
                "thp_split_page" => &mut vm.thp_split_page,
                "oom_kill" => &mut vm.oom_kill,
                _ => continue,
            };
            *field = line.events().ok();
        }
        if !is_vmstat {
            return Err(Malformed::new(1, "lines of a name and a number", text));
        }
        Ok(vm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_taken() {
        let vm = Vmstat::parse("nr_free_pages x\npswpout 5\npgmajfault 7\ncow_ksm 32768\n").unwrap();
        assert_eq!(
            vm,
            Vmstat { cow_ksm: Some(32_768), pswpout: Some(5), pgmajfault: Some(7), ..Vmstat::default() }
        );
        assert!(Vmstat::parse("cow_ksm x\n").is_err());
    }

    #[test]
    fn a_counter_below_zero_is_unknown_and_the_others_count() {
        let vm = Vmstat::parse("pswpout 18446744073709551608\npgmajfault x\ncow_ksm 3\n").unwrap();
        assert_eq!(vm, Vmstat { cow_ksm: Some(3), ..Vmstat::default() });
    }
}
