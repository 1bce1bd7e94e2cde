//! The format of an image, by its first bytes.

use super::PAGE;
use super::error::ImageFault;

/// A format in which pages lie whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImageFormat {
    /// Page after page: VMware's .vmem, QEMU's `pmemsave`, a copied memory file.
    Raw,
    /// An ELF core: `virsh dump --memory-only`, QEMU's `dump-guest-memory`.
    Elf,
    /// QEMU's migration stream: the state volume of a snapshot of Proxmox VE, `migrate file:`.
    QemuStream,
}

const COMPRESSED: &str = "is compressed: decompress it first";
const KDUMP: &str = "is a compressed dump: take it with `virsh dump --memory-only --format elf`";
const DISK: &str = "is a disk image, not a memory image";
const LIBVIRT_SAVE: &str = "is a state that libvirt saved: take a dump with `virsh dump --memory-only` instead";

/// First bytes of files that are something else, with what is said of them.
const OTHERS: &[(&[u8], &str)] = &[
    (b"LibvirtQemudSave", LIBVIRT_SAVE),
    (b"LibvirtQemudPart", LIBVIRT_SAVE),
    (b"KDUMP   ", KDUMP),
    (b"DISKDUMP", KDUMP),
    (b"makedumpfile", KDUMP),
    (b"PAGEDU64", "is a Windows crash dump: take it with `virsh dump --memory-only --format elf`"),
    (b"QFI\xfb", DISK),
    (b"KDMV", DISK),
    (b"COWD", DISK),
    (b"# Disk DescriptorFile", DISK),
    (b"VMA\0", "is a backup of Proxmox VE, which holds no memory"),
    (b"\x1f\x8b", COMPRESSED),
    (b"BZh", COMPRESSED),
    (b"\xfd7zXZ\0", COMPRESSED),
    (b"\x28\xb5\x2f\xfd", COMPRESSED),
    (b"\x04\x22\x4d\x18", COMPRESSED),
    (b"\x89LZO", COMPRESSED),
    (b"PK\x03\x04", COMPRESSED),
];

impl ImageFormat {
    /// Finds the format of a file with this beginning, of so many bytes.
    pub fn from_head(head: &[u8], bytes: u64) -> Result<Self, ImageFault> {
        if head.starts_with(b"\x7fELF") {
            return Ok(Self::Elf);
        }
        if head.starts_with(b"QEVM") {
            return Ok(Self::QemuStream);
        }
        if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(ImageFault::Other(what));
        }
        // VMware's .vmss and .vmsn: 0xbed2bed0 and its variants.
        if let Some([low, 0xbe, high, 0xbe]) = head.first_chunk::<4>()
            && (0xd0..=0xd3).contains(low)
            && (0xd2..=0xd3).contains(high)
        {
            return Err(ImageFault::Other(
                "is a state of VMware without its memory: name the .vmem file beside it",
            ));
        }
        match bytes {
            0 => Err(ImageFault::Other("is empty")),
            _ if !bytes.is_multiple_of(PAGE as u64) => {
                Err(ImageFault::Other("is not an image of memory: its length is no multiple of 4,096 bytes"))
            }
            _ => Ok(Self::Raw),
        }
    }
}
