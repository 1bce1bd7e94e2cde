//! `/proc/PID/stat`: the few of its 52 numbers that we need.

use crate::reading::Malformed;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PidStat {
    /// The command name, up to 15 bytes, as the process itself set it: any bytes, parentheses included.
    pub comm: String,
    /// The parent's PID. 0 if there is none, or the number is impossible.
    pub parent: u32,
    /// Minor faults: pages obtained without I/O. A guest that grows or changes merged pages has many. 0 if the kernel
    /// shows an impossible number.
    pub minor_faults: u64,
    /// CPU time, user and system, in clock ticks. An impossible number of one counts as 0.
    pub cpu_ticks: u64,
    /// The start of the process, in clock ticks since boot: with the PID this identifies a process for good.
    pub start_ticks: u64,
    /// Number of resident pages. A merged page counts in full in every process that maps it. `None` if the kernel shows
    /// an impossible number, such as that of a sum over CPUs that fell below zero.
    pub rss_pages: Option<u64>,
    /// Bytes of its address space. `None` if the number is impossible, or less than what is resident.
    pub mapped_bytes: Option<u64>,
    /// True for a kernel thread (`PF_KTHREAD`).
    pub is_kernel_thread: bool,
    /// True if it has exited and only waits for its parent (state Z or X): its memory is gone.
    pub is_zombie: bool,
}

/// `PF_KTHREAD` in `include/linux/sched.h`.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Returns true if the process of this `/proc/PID/stat` sleeps and can be woken (state S). Parses nothing else, since
/// it is called thousands of times a second.
pub fn is_asleep(text: &str) -> bool {
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

/// Returns true if the process of this `/proc/PID/stat` runs or waits for a CPU (state R).
pub fn is_running(text: &str) -> bool {
    text.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('R'))
}

impl PidStat {
    /// Parses the file. The name may hold spaces and parentheses, so the fields begin after the last one.
    ///
    /// # Errors
    /// Fields that are missing, or an impossible start. Any other field that is impossible is unknown by itself.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let malformed = || Malformed::new(1, "pid (name) state and 21 numbers", text);
        let (_, rest) = text.split_once('(').ok_or_else(malformed)?;
        let (comm, rest) = rest.rsplit_once(')').ok_or_else(malformed)?;
        let is_zombie = rest.trim_start().starts_with(['Z', 'X', 'x']);
        let mut fields = rest.split_ascii_whitespace();
        // Numbered as in proc(5), where the state is field 3.
        let mut next = 3;
        let mut word = |number: usize| {
            let word = fields.nth(number - next).ok_or_else(malformed);
            next = number + 1;
            word
        };
        let mut at_most = |number, most| Ok(super::unsigned(word(number)?).filter(|value| *value <= most));
        let parent = at_most(4, u64::from(u32::MAX))?.unwrap_or(0);
        let flags = at_most(9, u64::from(u32::MAX))?.unwrap_or(0);
        let minor_faults = at_most(10, super::MOST_EVENTS)?.unwrap_or(0);
        let user = at_most(14, super::MOST_EVENTS)?.unwrap_or(0);
        let system = at_most(15, super::MOST_EVENTS)?.unwrap_or(0);
        let start_ticks = at_most(22, super::MOST_EVENTS)?.ok_or_else(malformed)?;
        let mapped_bytes = at_most(23, super::MOST_MAPPED_BYTES)?;
        let rss_pages = at_most(24, super::MOST_PAGES)?;
        // No page is smaller than 4 KiB.
        let least_bytes = rss_pages.unwrap_or(0).saturating_mul(4096);
        Ok(Self {
            comm: comm.to_owned(),
            parent: u32::try_from(parent).unwrap_or(0),
            minor_faults,
            cpu_ticks: user.saturating_add(system),
            start_ticks,
            rss_pages,
            mapped_bytes: mapped_bytes.filter(|bytes| *bytes >= least_bytes),
            is_kernel_thread: flags & PF_KTHREAD != 0,
            is_zombie,
        })
    }

    /// Parses the addresses at which code and stack of the program begin, from the text of the file. With address
    /// randomisation another program has others. 0 for readers that may not examine the process.
    pub fn program_addresses(text: &str) -> Option<[u64; 2]> {
        let (_, rest) = text.rsplit_once(')')?;
        // Fields 26 and 28; the state is field 3.
        let mut fields = rest.split_ascii_whitespace().map(super::unsigned);
        Some([fields.nth(23)??, fields.nth(1)??])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 1 42 42 0 -1 4194560 77 0 0 0 5 6 0 0 20 0 1 0 900 1000 33 18446744073709551615";
        let stat = PidStat::parse(text).unwrap();
        assert_eq!(stat.comm, "a) b (c");
        assert_eq!((stat.parent, stat.minor_faults, stat.cpu_ticks), (1, 77, 11));
        assert_eq!((stat.start_ticks, stat.rss_pages, stat.mapped_bytes), (900, Some(33), None));
        let larger = PidStat::parse(&text.replace(" 1000 33 ", " 999424 33 ")).unwrap();
        assert_eq!(larger.mapped_bytes, Some(999_424));
        assert!(!stat.is_kernel_thread);
    }

    #[test]
    fn impossible_resident_memory_is_unknown_and_the_other_fields_keep_their_meaning() {
        for (size, resident) in [("1000", "-5"), ("-1", "18446744073709551615")] {
            let text = format!("42 (a) S 1 42 42 0 -1 0 77 0 0 0 5 6 0 0 20 0 1 0 900 {size} {resident} 0");
            assert_eq!(
                PidStat::parse(&text).map(|stat| (stat.start_ticks, stat.rss_pages)),
                Ok((900, None)),
                "{text}"
            );
        }
    }

    #[test]
    fn ksmd_is_a_kernel_thread() {
        let text = "35 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 18446744073709551615";
        assert!(PidStat::parse(text).unwrap().is_kernel_thread);
    }

    #[test]
    fn a_process_that_exited_is_a_zombie() {
        let text = |state| format!("9 (Z) {state} 1 9 9 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 900 0 0");
        assert!(PidStat::parse(&text("Z")).unwrap().is_zombie);
        assert!(!PidStat::parse(&text("S")).unwrap().is_zombie);
    }

    #[test]
    fn addresses_of_the_program_are_found() {
        let text =
            "9 (a) b) S 1 9 9 0 -1 4228108 0 0 0 0 0 0 0 0 20 0 1 0 900 0 0 18446744073709551615 4096 5000 7000 0";
        assert_eq!(PidStat::program_addresses(text), Some([4096, 7000]));
        assert_eq!(PidStat::program_addresses("9 (a) S 1 9"), None);
    }

    #[test]
    fn only_a_process_that_can_be_woken_sleeps() {
        for (state, sleeps) in [("S", true), ("R", false), ("D", false), ("I", false)] {
            assert_eq!(is_asleep(&format!("35 (a) S (ksmd) {state} 2 0 0")), sleeps, "{state}");
        }
        assert!(!is_asleep("S") && !is_asleep(""));
    }

    #[test]
    fn truncated_text_is_malformed() {
        for bad in ["", "42", "42 (a", "42 (a) S 1", ")("] {
            assert!(PidStat::parse(bad).is_err(), "{bad}");
        }
    }
}
