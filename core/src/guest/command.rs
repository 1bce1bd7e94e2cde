//! What a hypervisor's command line says of its guest besides the name.

use super::Kind;
use crate::kernel::CommandLine;

const MIB: u64 = 1 << 20;

/// The memory that the guest is given, in bytes.
pub(super) fn memory_bytes(kind: Kind, line: &CommandLine) -> Option<u64> {
    match kind {
        Kind::Qemu => match line.option("-m").or_else(|| line.option("--m")) {
            Some(value) => size(field(value, "size").unwrap_or(first(value)), MIB),
            // QEMU's own default.
            None => Some(128 * MIB),
        },
        Kind::CloudHypervisor => size(field(line.option("--memory")?, "size")?, 1),
        Kind::Crosvm | Kind::Kvmtool => {
            let value = line.option("--mem").or_else(|| line.option("-m"))?;
            size(field(value, "size").unwrap_or(first(value)), MIB)
        }
        Kind::Uml => size(line.option("mem")?, 1),
        Kind::Firecracker | Kind::Service | Kind::Container | Kind::Process => None,
    }
}

/// The UUID that the command line gives.
pub(super) fn uuid(kind: Kind, line: &CommandLine) -> Option<String> {
    let text = match kind {
        Kind::Qemu => line.option("-uuid").or_else(|| line.option("--uuid"))?,
        Kind::CloudHypervisor => field(line.option("--platform")?, "uuid")?,
        _ => return None,
    };
    uuid_text(text)
}

/// A UUID as everybody writes it, or nothing: it comes from a foreign process.
pub(super) fn uuid_text(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|&c| c != '-').collect();
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = digits.to_ascii_lowercase();
    Some(format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]))
}

/// The value of `key` in `a=1,key=value`.
pub(super) fn field<'a>(options: &'a str, key: &str) -> Option<&'a str> {
    options.split(',').find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
}

/// The part before the first comma.
pub(super) fn first(options: &str) -> &str {
    options.split_once(',').map_or(options, |(first, _)| first)
}

/// A size with a suffix; a plain number counts in `unit`.
fn size(text: &str, unit: u64) -> Option<u64> {
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

    fn memory(kind: Kind, arguments: &str) -> Option<u64> {
        memory_bytes(kind, &CommandLine::parse(arguments.replace(' ', "\0").as_bytes()))
    }

    #[test]
    fn each_hypervisor_writes_memory_its_own_way() {
        let mib = |n: u64| Some(n << 20);
        for (kind, line, expected) in [
            (Kind::Qemu, "qemu -m 512", mib(512)),
            (Kind::Qemu, "qemu -m 2G,slots=2,maxmem=8G", mib(2048)),
            (Kind::Qemu, "qemu -m size=262144k,slots=16", mib(256)),
            (Kind::Qemu, "qemu -m 1.5G", mib(1536)),
            (Kind::Qemu, "qemu", mib(128)),
            (Kind::Qemu, "qemu -m many", None),
            (Kind::Uml, "linux mem=256M umid=u", mib(256)),
            (Kind::Uml, "linux umid=u", None),
            (Kind::CloudHypervisor, "cloud-hypervisor --memory size=1G,mergeable=on", mib(1024)),
            (Kind::Crosvm, "crosvm run --mem 300", mib(300)),
            (Kind::Crosvm, "crosvm run --mem size=300", mib(300)),
            (Kind::Firecracker, "firecracker --id a", None),
        ] {
            assert_eq!(memory(kind, line), expected, "{line}");
        }
        assert_eq!(memory(Kind::Qemu, "qemu -m 99999999999999T"), None);
    }

    #[test]
    fn a_uuid_is_one_or_nothing() {
        let text = "0E8DE4A1-1111-2222-3333-444455556666";
        assert_eq!(uuid_text(text).as_deref(), Some("0e8de4a1-1111-2222-3333-444455556666"));
        assert_eq!(uuid_text("0e8de4a1"), None);
        assert_eq!(uuid_text("../../../../../../../../../../etc/x"), None);
        let line = CommandLine::parse(format!("qemu\0-uuid\0{text}\0").as_bytes());
        assert!(uuid(Kind::Qemu, &line).is_some() && uuid(Kind::Uml, &line).is_none());
    }
}
