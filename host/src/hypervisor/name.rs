//! The name of a process: a guest's own if its command line has one, else the program's.
//!
//! Both texts come from the process and may hold anything: control characters and marks that reorder text are removed,
//! and the length is bounded.

use ksmith_core::kernel::CommandLine;
use ksmith_core::printable::is_obeyed;

use super::{ClaimedIdentity, Hypervisor, REGISTRY};

/// The name of a process, and its role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestName {
    /// Fit for a terminal; never empty.
    pub name: String,
    /// True if the program runs a virtual machine.
    pub is_vm: bool,
    /// The size of that machine.
    pub size: MachineSize,
}

/// The size of a virtual machine by its command line, which its own user wrote. `None` where that does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineSize {
    /// Virtual CPUs at the start.
    pub vcpus: Option<u32>,
    /// Memory at the start. A balloon may have made it less since.
    pub memory_bytes: Option<u64>,
}

/// Characters of a name that are kept: libvirt's longest domain names fit.
const NAME_MAX: usize = 80;

/// The kernel cuts a process's name to this many bytes.
const COMM_MAX: usize = 15;

/// Words behind the name of a program that tell a build of it. NixOS adds `-wrapped`.
const BUILDS: [&str; 8] = ["x86_64", "aarch64", "riscv64", "static", "musl", "debug", "release", "wrapped"];

/// The name of a program, as its command line or the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramName<'a>(pub &'a str);

impl ProgramName<'_> {
    /// Returns true if it is this program. The kernel may have cut the name.
    pub fn is(self, name: &str) -> bool {
        self.0 == name || (self.0.len() == COMM_MAX && name.starts_with(self.0))
    }

    /// Returns true if it is this program, or a build of it with its version, architecture or linkage in its name:
    /// `firecracker-v1.7.0-x86_64`, `cloud-hypervisor-static`.
    pub fn is_release_of(self, name: &str) -> bool {
        let is_cut = self.0.len() == COMM_MAX;
        let is_build = |end: &str| {
            let word = end.strip_prefix(['-', '_', '.']).unwrap_or_default();
            let is_word =
                |build: &&str| word.starts_with(*build) || (is_cut && !word.is_empty() && build.starts_with(word));
            word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()) || BUILDS.iter().any(is_word)
        };
        let own = self.0.strip_prefix('.').unwrap_or(self.0);
        let is_start = is_cut && name.starts_with(own);
        is_start || own.strip_prefix(name).is_some_and(|end| end.is_empty() || is_build(end))
    }

    /// Returns true if its name has this prefix, which the kernel may have cut. NixOS wraps programs: the real one is
    /// `.qemu-system-x86_64-wrapped`.
    pub fn begins(self, prefix: &str) -> bool {
        let own = self.0.strip_prefix('.').unwrap_or(self.0);
        own.starts_with(prefix) || (self.0.len() == COMM_MAX && prefix.starts_with(own))
    }
}

/// Returns the hypervisor that a process runs, with the guest's description on the command line.
pub(super) fn hypervisor(comm: &str, line: &CommandLine) -> Option<(&'static dyn Hypervisor, ClaimedIdentity)> {
    [line.program(), comm].into_iter().find_map(|program| {
        let runs = |hypervisor: &&&'static dyn Hypervisor| hypervisor.is_program(ProgramName(program));
        REGISTRY.iter().filter(runs).find_map(|hypervisor| Some((*hypervisor, hypervisor.recognise(line)?)))
    })
}

/// Returns true if a process of this name may be a hypervisor, so that its command line is worth reading.
pub fn may_be_vm(comm: &str) -> bool {
    REGISTRY.iter().any(|hypervisor| hypervisor.is_program(ProgramName(comm)))
}

impl GuestName {
    /// Names a process from its `comm` and its command line, which may be empty.
    pub fn from_command_line(comm: &str, line: &CommandLine) -> Self {
        let found = hypervisor(comm, line);
        let is_vm = found.is_some();
        let looks = found.map(|(_, looks)| looks).unwrap_or_default();
        let size = MachineSize { vcpus: looks.vcpus, memory_bytes: looks.memory_bytes };
        Self { name: printable_name(looks.name.as_deref(), comm, line), is_vm, size }
    }
}

/// Returns the first of a guest's own name, `comm` and the program that is not empty after [`printable`].
pub(super) fn printable_name(own: Option<&str>, comm: &str, line: &CommandLine) -> String {
    [own, Some(comm), Some(line.program())]
        .into_iter()
        .flatten()
        .map(printable)
        .find(|name| !name.is_empty())
        .unwrap_or_else(|| "?".to_owned())
}

/// Removes the characters that a terminal would interpret, and cuts the text to [`NAME_MAX`].
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !is_obeyed(*c)).take(NAME_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(comm: &str, arguments: &[&str]) -> (String, bool) {
        let text: Vec<u8> = arguments.iter().flat_map(|word| word.bytes().chain([0])).collect();
        let GuestName { name, is_vm, .. } = GuestName::from_command_line(comm, &CommandLine::parse(&text));
        (name, is_vm)
    }

    fn vm(name: &str) -> (String, bool) {
        (name.to_owned(), true)
    }

    #[test]
    fn a_machine_has_the_size_of_its_command_line_and_another_program_has_none() {
        let size = |text: &[u8]| GuestName::from_command_line("x", &CommandLine::parse(text)).size;
        let machine = MachineSize { vcpus: Some(3), memory_bytes: Some(1 << 30) };
        assert_eq!(size(b"/usr/bin/qemu-system-x86_64\0-smp\x003\0-m\x001G"), machine);
        assert_eq!(size(b"/usr/bin/sleep\0-smp\x003\0-m\x001G"), MachineSize::default());
    }

    #[test]
    fn qemu_says_its_guests_name_in_several_ways() {
        let qemu =
            |name: &str| named("qemu-system-x86", &["/usr/bin/qemu-system-x86_64", "-name", name, "-m", "1"]);
        assert_eq!(qemu("guest=web,debug-threads=on"), vm("web"));
        assert_eq!(qemu("web"), vm("web"));
        assert_eq!(qemu("web,process=qemu:web"), vm("web"));
        assert_eq!(qemu("debug-threads=on,guest=a,,b"), vm("a,b"));
        assert_eq!(qemu("debug-threads=on"), vm("qemu-system-x86"));
        assert_eq!(named("kvm", &["kvm", "-name", "a", "-m", "1", "-name", "b"]), vm("b"), "the last counts");
        assert_eq!(named("kvm", &["/usr/bin/kvm", "-id", "100", "-name", "db,debug-threads=on"]), vm("db"));
        for program in
            ["/usr/libexec/qemu-kvm", "/usr/bin/qemu-kvm-one", "kvm-spice", "qemu-virtiofs-system-x86_64"]
        {
            assert_eq!(named("qemu", &[program, "--name=x"]), vm("x"), "{program}");
        }
        assert_eq!(named("qemu", &["/opt/sdk/emulator/qemu-system-x86_64", "-avd", "Pixel_3a"]), vm("Pixel_3a"));
        assert_eq!(named("qemu-vanilla-sy", &["-name", "x"]), vm("x"));
        assert_eq!(named("qemu-system-x86", &["qemu-system-x86_64", "-name"]), vm("qemu-system-x86"));
    }

    #[test]
    fn other_hypervisors_are_known() {
        assert_eq!(named("firecracker", &["firecracker", "--id", "f1"]), vm("f1"));
        assert_eq!(named("firecracker", &["firecracker", "--id=f2"]), vm("f2"));
        let socket = ["cloud-hypervisor", "--api-socket", "path=/run/ch/web.sock"];
        assert_eq!(named("cloud-hyperviso", &socket), vm("web"));
        assert_eq!(named("cloud-hyperviso", &[]), vm("cloud-hyperviso"));
        for program in
            ["firecracker-v1.7.0-x86_64", "firecracker_1.7", ".firecracker-wrapped", "firecracker-static"]
        {
            assert_eq!(named("x", &[program, "--id", "f1"]), vm("f1"), "{program}");
            assert!(may_be_vm(program) && may_be_vm(&program[..program.len().min(15)]), "{program}");
        }
        for program in ["firecracker-containerd", "firecracker-ctr", "firecrackers", "firecracker-vsock"] {
            assert!(!ProgramName(program).is_release_of("firecracker"), "{program}");
        }
        for cut in ["cloud-hyperviso", ".cloud-hypervis"] {
            assert!(ProgramName(cut).is_release_of("cloud-hypervisor"), "{cut}");
        }
        assert_eq!(named("crosvm", &["crosvm", "run", "--name", "c1"]), vm("c1"));
        assert_eq!(named("lkvm", &["lkvm", "run", "-n", "k1"]), vm("k1"));
    }

    #[test]
    fn only_a_linux_with_a_guests_arguments_is_user_mode_linux() {
        assert_eq!(named("linux.uml", &["linux.uml", "mem=256M", "umid=u1"]), vm("u1"));
        assert_eq!(named("linux", &["./linux", "ubd0=disk"]), vm("linux"));
        assert_eq!(named("linux", &["./linux", "--help"]), ("linux".to_owned(), false));
        assert_eq!(named("linux", &[]), ("linux".to_owned(), false));
    }

    #[test]
    fn any_other_program_keeps_its_own_name() {
        assert_eq!(named("redis", &["redis", "-name", "guest=x"]), ("redis".to_owned(), false));
        for program in
            ["kvm-nx-lpage-recovery", "qemu-img", "qemu-ga", "qemu-nbd", "qemu-kvm-init", "qemu-pr-helper", ""]
        {
            assert!(!may_be_vm(program), "{program}");
        }
        assert!(!may_be_vm("qemu-x86_64") && !may_be_vm("qemu-storage-da"), "no machine runs there");
        assert!(
            may_be_vm("qemu-system-x86")
                && may_be_vm(".qemu-system-x8")
                && may_be_vm("cloud-hyperviso")
                && may_be_vm("linux")
        );
    }

    #[test]
    fn foreign_text_can_neither_move_the_cursor_nor_vanish() {
        assert_eq!(named("a\x1b[2Jb\nc", &[]).0, "a[2Jbc");
        assert_eq!(named("a\u{202e}b", &[]).0, "ab");
        assert_eq!(named("\n", &[]).0, "?");
        assert_eq!(named("kvm", &["kvm", "-name", "guest=\x07"]).0, "kvm");
    }

    proptest! {
        #[test]
        fn the_name_of_any_process_is_printable_and_bounded(comm: String, line: Vec<u8>) {
            let named = GuestName::from_command_line(&comm, &CommandLine::parse(&line));
            prop_assert!(!named.name.is_empty());
            prop_assert!(named.name.chars().count() <= NAME_MAX);
            prop_assert!(!named.name.chars().any(is_obeyed));
        }

        #[test]
        fn any_value_of_qemus_name_is_taken(value in "\\PC{0,20}") {
            let line = CommandLine::parse(format!("qemu-system-x86_64\0-name\0{value}\0").as_bytes());
            prop_assert!(GuestName::from_command_line("qemu-system-x86", &line).is_vm);
        }
    }
}
