//! Parsers of option forms that hypervisors' command lines share.

use ksmith_core::kernel::CommandLine;

/// The unit of sizes that are written without one.
pub(super) const MIB: u64 = 1 << 20;

/// Normalizes a UUID to lower case with dashes; `None` if the text is none: it comes from a foreign process.
pub(super) fn uuid_text(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.to_ascii_lowercase();
    Some(format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]))
}

/// Returns the value of `key` in `a=1,key=value`.
pub(super) fn field<'a>(options: &'a str, key: &str) -> Option<&'a str> {
    options.split(',').find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
}

/// Returns all values of an option that takes several: `--option a b`, `--option=a`.
pub(super) fn values<'a>(line: &'a CommandLine, option: &'a str) -> impl Iterator<Item = &'a str> {
    let arguments = line.arguments();
    arguments.iter().enumerate().flat_map(move |(index, argument)| {
        let rest = argument.strip_prefix(option);
        let inline = rest.and_then(|rest| rest.strip_prefix('='));
        let behind = if rest == Some("") { arguments.get(index + 1..) } else { None };
        let behind = behind.unwrap_or_default().iter().take_while(|next| !next.starts_with('-'));
        inline.into_iter().chain(behind.map(String::as_str))
    })
}

/// Returns the part before the first comma.
pub(super) fn first(options: &str) -> &str {
    options.split_once(',').map_or(options, |(first, _)| first)
}

/// Returns true if a path is that of hugetlbfs by its usual mount points: `/dev/hugepages`, `/mnt/huge`,
/// `/var/lib/hugetlbfs`. A guest's own name may stand further down.
pub(super) fn is_huge_path(path: &str) -> bool {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    parts.by_ref().take(2).any(|part| part.starts_with("huge"))
        || parts.next().is_some_and(|part| part == "hugetlbfs" || part == "hugepages")
}

/// Parses the memory in `-m SIZE,…` or `-m size=SIZE,…`. A plain number counts in MiB.
pub(super) fn memory_in_mib(options: &str) -> Option<u64> {
    size(field(options, "size").unwrap_or(first(options)), MIB)
}

/// Parses a size with a suffix; a plain number counts in `unit`.
pub(super) fn size(text: &str, unit: u64) -> Option<u64> {
    // QEMU takes 0x200.
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok()?.checked_mul(unit);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let shift = match suffix.trim_end_matches(['B', 'b', 'i']) {
        "" if suffix.is_empty() => unit.trailing_zeros(),
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    match number.parse::<u64>() {
        Ok(number) => number.checked_mul(1 << shift),
        // QEMU takes 1.5G.
        Err(_) => number.parse::<f64>().ok().map(|number| (number * (1_u64 << shift) as f64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_the_usual_one() {
        let mib = |n: u64| Some(n << 20);
        for (text, unit, expected) in [
            ("512", MIB, mib(512)),
            ("512", 1, Some(512)),
            ("2G", MIB, mib(2048)),
            ("262144k", MIB, mib(256)),
            ("1.5G", MIB, mib(1536)),
            ("1GiB", 1, mib(1024)),
            ("4B", MIB, Some(4)),
            ("0x200", MIB, mib(512)),
            ("0xg", MIB, None),
            ("0xffffffffffffffff", MIB, None),
            ("many", MIB, None),
            ("", MIB, None),
            ("99999999999999T", MIB, None),
        ] {
            assert_eq!(size(text, unit), expected, "{text}");
        }
    }

    #[test]
    fn a_mount_point_of_huge_pages_is_known_and_a_guest_called_so_is_not() {
        for path in ["/dev/hugepages", "/dev/hugepages1G/vm", "/mnt/huge", "/hugepages/vm", "/var/lib/hugetlbfs/x"]
        {
            assert!(is_huge_path(path), "{path}");
        }
        for path in ["/var/lib/libvirt/qemu/ram/3-hugepages/pc.ram", "/srv/vm/huge/ram", "/dev/shm/x", ""] {
            assert!(!is_huge_path(path), "{path}");
        }
    }

    #[test]
    fn a_uuid_is_one_or_nothing() {
        let text = "0E8DE4A1-1111-2222-3333-444455556666";
        assert_eq!(uuid_text(text).as_deref(), Some("0e8de4a1-1111-2222-3333-444455556666"));
        assert_eq!(uuid_text("0e8de4a1"), None);
        assert_eq!(uuid_text("../../../../../../../../../../etc/x"), None);
    }
}
