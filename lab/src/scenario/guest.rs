//! The kinds of guests: processes with known memory, QEMU, and any command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::TextFault;
use super::file::{self, PartKind};
use super::size::SizeText;
use crate::filled::page_size;
use crate::{GuestContents, GuestPages, MemoryPart};

/// The kind of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabGuestKind {
    /// A process with known content in every page.
    Memory(GuestContents),
    /// Guests of known memory in transparent huge pages, as a virtual machine's memory is.
    HugeMemory(GuestContents),
    /// A QEMU virtual machine, with memory contents that are not known.
    Qemu(QemuGuest),
    /// A program and its arguments.
    Command(Vec<String>),
}

/// A QEMU virtual machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QemuGuest {
    /// Kernel that is booted directly. Without it the guest boots from `disk`.
    pub kernel: Option<PathBuf>,
    /// Initial root file system.
    pub initrd: Option<PathBuf>,
    /// Command line of the kernel.
    pub append: String,
    /// Disk image, which is opened as a snapshot so that nothing is written to it.
    pub disk: Option<PathBuf>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Accelerator: `tcg` or `kvm`.
    pub accel: String,
    /// The package to install, as a hint for a missing file.
    pub hint: String,
}

impl LabGuestKind {
    /// The most memory that such a guest uses, in bytes. 0 if that is not known.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Memory(contents) | Self::HugeMemory(contents) => contents.pages() as u64 * page_size() as u64,
            // QEMU itself uses about as much memory as a small guest.
            Self::Qemu(qemu) => (qemu.memory_mib + 128) << 20,
            Self::Command(_) => 0,
        }
    }

    /// Returns true if its memory is in transparent huge pages.
    pub fn is_huge(&self) -> bool {
        matches!(self, Self::HugeMemory(_))
    }

    /// Returns the pages that its memory is on, where its contents are known.
    pub fn pages(&self) -> Option<GuestPages> {
        match self {
            Self::Memory(_) => Some(GuestPages::Small),
            Self::HugeMemory(_) => Some(GuestPages::Huge),
            Self::Qemu(_) | Self::Command(_) => None,
        }
    }

    /// Puts known contents on such pages.
    pub(super) fn on_pages(self, pages: GuestPages) -> Self {
        match (self, pages) {
            (Self::Memory(contents) | Self::HugeMemory(contents), GuestPages::Small) => Self::Memory(contents),
            (Self::Memory(contents) | Self::HugeMemory(contents), GuestPages::Huge) => Self::HugeMemory(contents),
            (other, _) => other,
        }
    }

    pub(super) fn missing_files(&self) -> Vec<String> {
        let Self::Qemu(qemu) = self else { return Vec::new() };
        let files = [&qemu.kernel, &qemu.initrd, &qemu.disk];
        let missing = files.into_iter().flatten().filter(|path| !path.exists());
        let hint = if qemu.hint.is_empty() { String::new() } else { format!(" ({})", qemu.hint) };
        missing.map(|path| format!("{}{hint}", path.display())).collect()
    }

    /// Contents of the guest's memory, where they are known.
    pub fn contents(&self) -> Option<&GuestContents> {
        match self {
            Self::Memory(contents) | Self::HugeMemory(contents) => Some(contents),
            Self::Qemu(_) | Self::Command(_) => None,
        }
    }
}

pub(super) fn kinds(
    guests: BTreeMap<String, Spanned<file::GuestTable>>,
    are_huge: bool,
    memory: f64,
) -> Result<BTreeMap<String, LabGuestKind>, TextFault> {
    let mut kinds = BTreeMap::new();
    for (name, guest) in guests {
        let span = guest.span();
        let wrong = |what: String| TextFault(span.clone(), format!("guest {name}: {what}"));
        if name.contains('-') {
            return Err(wrong("a name has no hyphen: NAME-2 is the second guest of this kind".to_owned()));
        }
        let guest = guest.into_inner();
        if guest.huge.is_some() && guest.parts.is_none() {
            return Err(wrong("huge goes with parts".to_owned()));
        }
        let kind = match (guest.parts, guest.qemu, guest.command) {
            (Some(parts), None, None) => {
                let parts = parts.iter().map(|spec| part(spec, memory)).collect::<Result<Vec<_>, _>>();
                let contents = GuestContents(parts.map_err(wrong)?);
                let is_huge = guest.huge.unwrap_or(are_huge);
                if is_huge { LabGuestKind::HugeMemory(contents) } else { LabGuestKind::Memory(contents) }
            }
            (None, Some(qemu), None) => LabGuestKind::Qemu(self::qemu(qemu).map_err(wrong)?),
            (None, None, Some(command)) if !command.is_empty() => LabGuestKind::Command(command),
            _ => return Err(wrong("it needs exactly one of parts, qemu and command".to_owned())),
        };
        kinds.insert(name, kind);
    }
    Ok(kinds)
}

fn part(spec: &file::PartTable, memory: f64) -> Result<MemoryPart, String> {
    let pages = spec.size.pages(memory);
    let (seed, every, percent) = (spec.seed, spec.every_ms, spec.percent);
    match (spec.kind, seed, every, percent) {
        (PartKind::Equal, Some(seed), None, None) => Ok(MemoryPart::Equal { seed, pages }),
        (PartKind::Mixed, Some(seed), None, None) => Ok(MemoryPart::Mixed { seed, pages }),
        (PartKind::Zero, None, None, None) => Ok(MemoryPart::Zero { pages }),
        (PartKind::Unique, None, None, None) => Ok(MemoryPart::Unique { pages }),
        (PartKind::Churn, None, Some(every), None) if every > 0 => {
            Ok(MemoryPart::Churn { pages, every: Duration::from_millis(every) })
        }
        (PartKind::Work, None, None, percent @ (None | Some(0..=100))) => {
            Ok(MemoryPart::Work { pages, percent: percent.unwrap_or(0) })
        }
        _ => Err(
            "a part takes kind and size, and: equal and mixed a seed; churn every_ms, over 0; work perhaps percent, up to \
                  100; nothing else"
                .to_owned(),
        ),
    }
}

fn qemu(spec: file::QemuTable) -> Result<QemuGuest, String> {
    if spec.kernel.is_none() && spec.disk.is_none() {
        return Err("qemu needs a kernel or a disk".to_owned());
    }
    let SizeText(bytes) = spec.memory;
    // The memory of a real system is not scaled: it would not boot in a tenth.
    Ok(QemuGuest {
        kernel: spec.kernel,
        initrd: spec.initrd,
        append: spec.append,
        disk: spec.disk,
        memory_mib: bytes >> 20,
        accel: spec.accel,
        hint: spec.hint,
    })
}
