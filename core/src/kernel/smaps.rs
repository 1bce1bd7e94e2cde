//! `/proc/PID/smaps`: the mappings that the process has marked as mergeable (`VmFlags`, 3.8).
//!
//! The file costs the kernel a walk over all page tables of the process: read it rarely.

/// Returns true if this line of the file marks its mapping as mergeable: the flag `mg` among the `VmFlags`.
pub fn says_mergeable(line: &str) -> bool {
    line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "mg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flag_itself_counts() {
        assert!(says_mergeable("VmFlags: rd wr mr mw me ac sd mg"));
        assert!(says_mergeable("VmFlags: mg \n"));
        assert!(!says_mergeable("VmFlags: rd wr mr mw me ac sd"));
        assert!(!says_mergeable("7f00-7f01 r--p 00000000 00:00 0 /tmp/ mg"));
        assert!(!says_mergeable("VmFlags"));
    }
}
