//! What to call a process: a guest's own name where its command line gives one, else the program's.
//!
//! Both texts belong to the process, which may have put anything there: control characters and marks that
//! reorder text are taken out, and the length is bounded.

use crate::guest::Kind;
use crate::kernel::CommandLine;

/// The name of a process, and whether it is a guest's hypervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestName {
    /// Fit for a terminal; never empty.
    pub name: String,
    /// Whether the program runs a virtual machine.
    pub is_vm: bool,
}

/// Characters of a name that are kept: libvirt's longest domain names fit.
const NAME_MAX: usize = 80;

/// The kernel cuts a process's name to this many bytes.
const COMM_MAX: usize = 15;

/// Programs that run virtual machines, and where each says the guest's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vmm {
    /// QEMU, also as `kvm` (Proxmox) and `qemu-kvm` (RHEL): `-name guest=NAME,…` or `-name NAME,…`.
    Qemu,
    /// Firecracker: `--id NAME`.
    Firecracker,
    /// cloud-hypervisor has no names: the stem of `--api-socket [path=]FILE` serves.
    CloudHypervisor,
    /// crosvm: `--name NAME`.
    Crosvm,
    /// kvmtool: `--name NAME` or `-n NAME`.
    Kvmtool,
    /// User-mode Linux: `umid=NAME`.
    Uml,
}

impl Vmm {
    fn of_program(program: &str) -> Option<Self> {
        // NixOS wraps programs: the real one is `.qemu-system-x86_64-wrapped`.
        let wrapped = program.strip_prefix('.').unwrap_or(program);
        let is = |name: &str| program == name || (program.len() == COMM_MAX && name.starts_with(program));
        Some(match program {
            _ if wrapped.starts_with("qemu-system-") || is("qemu-kvm") || is("kvm") => Self::Qemu,
            _ if is("firecracker") => Self::Firecracker,
            _ if is("cloud-hypervisor") => Self::CloudHypervisor,
            _ if is("crosvm") => Self::Crosvm,
            _ if is("lkvm") => Self::Kvmtool,
            _ if is("linux") || is("linux.uml") || is("vmlinux") => Self::Uml,
            _ => return None,
        })
    }

    /// Whether the command line starts a guest: a program that happens to be called `linux` does only with an
    /// argument that such a kernel takes.
    fn runs_guest(self, line: &CommandLine) -> bool {
        const UML_ARGUMENTS: [&str; 4] = ["umid=", "ubd", "con0=", "initrd="];
        let is_uml = |argument: &String| UML_ARGUMENTS.iter().any(|known| argument.starts_with(known));
        self != Self::Uml || line.arguments().iter().skip(1).any(is_uml)
    }

    fn guest(self, line: &CommandLine) -> Option<String> {
        let any = |options: &[&str]| options.iter().find_map(|option| line.option(option)).map(str::to_owned);
        match self {
            Self::Qemu => qemu_name(line.option("-name").or_else(|| line.option("--name"))?),
            Self::Firecracker => any(&["--id"]),
            Self::CloudHypervisor => any(&["--api-socket"]).as_deref().and_then(stem),
            Self::Crosvm => any(&["--name"]),
            Self::Kvmtool => any(&["--name", "-n"]),
            Self::Uml => any(&["umid"]),
        }
    }
}

/// Which hypervisor a process runs, if its command line starts a guest.
pub fn kind_of(comm: &str, line: &CommandLine) -> Option<Kind> {
    let hypervisor = Vmm::of_program(line.program()).or_else(|| Vmm::of_program(comm))?;
    hypervisor.runs_guest(line).then_some(match hypervisor {
        Vmm::Qemu => Kind::Qemu,
        Vmm::Firecracker => Kind::Firecracker,
        Vmm::CloudHypervisor => Kind::CloudHypervisor,
        Vmm::Crosvm => Kind::Crosvm,
        Vmm::Kvmtool => Kind::Kvmtool,
        Vmm::Uml => Kind::Uml,
    })
}

/// Whether a process of this name may be a hypervisor, so that its command line is worth a look.
pub fn may_be_vm(comm: &str) -> bool {
    Vmm::of_program(comm).is_some()
}

impl GuestName {
    /// Names a process from its `comm` and its command line, which may be empty.
    pub fn of(comm: &str, line: &CommandLine) -> Self {
        let hypervisor = Vmm::of_program(line.program())
            .or_else(|| Vmm::of_program(comm))
            .filter(|hypervisor| hypervisor.runs_guest(line));
        let guest = hypervisor.and_then(|hypervisor| hypervisor.guest(line));
        let name = [guest.as_deref(), Some(comm), Some(line.program())]
            .into_iter()
            .flatten()
            .map(printable)
            .find(|name| !name.is_empty())
            .unwrap_or_else(|| "?".to_owned());
        Self { name, is_vm: hypervisor.is_some() }
    }
}

/// The value of `guest`, or the first value if it has no key. QEMU writes a comma in a value as two.
fn qemu_name(option: &str) -> Option<String> {
    let mut values = vec![String::new()];
    let mut rest = option.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            values.push(String::new());
        } else if let Some(value) = values.last_mut() {
            value.push(c);
        }
    }
    let keyed = values.iter().find_map(|value| value.strip_prefix("guest=").map(str::to_owned));
    keyed.or_else(|| values.into_iter().next().filter(|value| !is_qemu_key(value)))
}

/// Whether a value of `-name` is one of the other settings that may stand there.
fn is_qemu_key(value: &str) -> bool {
    value.starts_with("process=") || value.starts_with("debug-threads=")
}

fn stem(socket: &str) -> Option<String> {
    let path = socket.strip_prefix("path=").unwrap_or(socket);
    let file = path.rsplit('/').next()?;
    Some(file.rsplit_once('.').map_or(file, |(stem, _)| stem).to_owned())
}

/// The text without what a terminal would act upon, cut to [`NAME_MAX`].
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !is_dangerous(*c)).take(NAME_MAX).collect::<String>().trim().to_owned()
}

/// Control characters, line separators, and invisible marks that hide or reorder what follows.
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(comm: &str, arguments: &[&str]) -> (String, bool) {
        let text: Vec<u8> = arguments.iter().flat_map(|word| word.bytes().chain([0])).collect();
        let GuestName { name, is_vm } = GuestName::of(comm, &CommandLine::parse(&text));
        (name, is_vm)
    }

    fn vm(name: &str) -> (String, bool) {
        (name.to_owned(), true)
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
        assert_eq!(named("kvm", &["/usr/bin/kvm", "-id", "100", "-name", "db,debug-threads=on"]), vm("db"));
        assert_eq!(named("qemu-kvm", &["/usr/libexec/qemu-kvm", "--name=x"]), vm("x"));
        assert_eq!(named("qemu-system-x86", &["qemu-system-x86_64", "-name"]), vm("qemu-system-x86"));
    }

    #[test]
    fn other_hypervisors_are_known() {
        assert_eq!(named("firecracker", &["firecracker", "--id", "f1"]), vm("f1"));
        assert_eq!(named("firecracker", &["firecracker", "--id=f2"]), vm("f2"));
        let socket = ["cloud-hypervisor", "--api-socket", "path=/run/ch/web.sock"];
        assert_eq!(named("cloud-hyperviso", &socket), vm("web"));
        assert_eq!(named("cloud-hyperviso", &[]), vm("cloud-hyperviso"));
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
        assert!(!may_be_vm("kvm-nx-lpage-recovery") && !may_be_vm("qemu-img") && !may_be_vm(""));
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
        fn whatever_stands_there_the_name_is_printable_and_bounded(comm: String, line: Vec<u8>) {
            let named = GuestName::of(&comm, &CommandLine::parse(&line));
            prop_assert!(!named.name.is_empty());
            prop_assert!(named.name.chars().count() <= NAME_MAX);
            prop_assert!(!named.name.chars().any(is_dangerous));
        }

        #[test]
        fn any_value_of_qemus_name_is_taken(value in "\\PC{0,20}") {
            let line = CommandLine::parse(format!("qemu-system-x86_64\0-name\0{value}\0").as_bytes());
            prop_assert!(GuestName::of("qemu-system-x86", &line).is_vm);
        }
    }
}
