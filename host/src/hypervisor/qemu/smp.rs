//! Virtual CPUs on QEMU's command line.

use ksmith_core::kernel::CommandLine;

use super::options::{QemuOptions, values};

/// The levels of a topology, of which a missing one has a single unit.
const LEVELS: [&str; 8] = ["drawers", "books", "sockets", "dies", "clusters", "modules", "cores", "threads"];

/// The most virtual CPUs that are believed: the command line is the word of the guest's own user.
const MOST: u32 = 1 << 16;

/// Returns the virtual CPUs at the guest's start; `None` if the command line leaves them open. Source: QEMU,
/// `hw/core/machine-smp.c` (`machine_parse_smp_config`).
pub(super) fn vcpus(line: &CommandLine) -> Option<u32> {
    // A file may have options.
    if values(line, &["readconfig"]).next().is_some() {
        return None;
    }
    let options = QemuOptions::merged(line, &["smp"], "cpus");
    let machine = QemuOptions::merged(line, &["machine", "M"], "type");
    let number = |key: &str| options.get(key).or(machine.get(&format!("smp.{key}"))).map(str::parse::<u32>);
    // Of a number that QEMU would refuse nothing is known.
    let count = match ["cpus", "maxcpus"].into_iter().find_map(number) {
        Some(count) => count.ok()?,
        None => {
            LEVELS.into_iter().filter_map(number).try_fold(1, |all: u32, level| all.checked_mul(level.ok()?))?
        }
    };
    (1..=MOST).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_cpus_are_those_at_the_start_in_all_forms_of_the_option() {
        for (arguments, expected) in [
            ("", Some(1)),
            ("-smp 4", Some(4)),
            ("-machine q35,smp.cpus=4", Some(4)),
            ("-M smp.sockets=2,smp.cores=3 -smp cores=4", Some(8)),
            ("--smp=cpus=4,maxcpus=8", Some(4)),
            ("-smp 2,sockets=1,cores=2", Some(2)),
            ("-smp maxcpus=8", Some(8)),
            ("-smp sockets=2,cores=4,threads=2", Some(16)),
            ("-smp sockets=2 -smp cpus=3", Some(3)),
            ("-smp 0", None),
            ("-smp many", None),
            ("-smp sockets=65536,cores=65536", None),
            ("-smp 65537", None),
            ("-readconfig vm.cfg", None),
        ] {
            let line = format!("qemu-system-x86_64 {arguments}").trim_end().replace(' ', "\0");
            assert_eq!(vcpus(&CommandLine::parse(line.as_bytes())), expected, "{arguments}");
        }
    }
}
