//! The kind of a program file, as far as that decides whether a library can be loaded into it.

use object::Endianness;
use object::elf::{ELFCLASS64, FileHeader32, FileHeader64, NoteType, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};

/// A program by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramKind {
    /// An ELF program with an interpreter (`PT_INTERP`), which heeds `LD_PRELOAD`.
    Dynamic,
    /// An ELF program without one: nothing is ever loaded into it.
    Static,
    /// Built by Go: it obtains memory by system calls of its own, also where a C library is loaded.
    Go,
    /// A script (`#!`), to be judged by this interpreter.
    Script {
        /// The path behind `#!`.
        interpreter: String,
    },
    /// Neither: the kernel will refuse it, or another program is registered for it.
    Other,
}

/// Go's build id: a note of this type, named `Go`. The linker puts it on the first page.
const GO_BUILD_ID: NoteType = NoteType(4);

/// Program headers that are looked at. The kernel takes no program with more than 64 KiB of them.
const MOST_HEADERS: usize = 2048;

impl ProgramKind {
    /// Recognises a program by the beginning of its file: 64 KiB suffice, since linkers put the program headers
    /// and notes in front. Bytes that are missing count as not there.
    pub fn recognise(head: &[u8]) -> Self {
        if let Some(rest) = head.strip_prefix(b"#!") {
            let line = rest.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let words = String::from_utf8_lossy(line).into_owned();
            return match words.split_ascii_whitespace().next() {
                Some(interpreter) => Self::Script { interpreter: interpreter.to_owned() },
                None => Self::Other,
            };
        }
        let is_wide = head.get(4) == Some(&ELFCLASS64.0);
        let kind =
            if is_wide { kind::<FileHeader64<Endianness>>(head) } else { kind::<FileHeader32<Endianness>>(head) };
        kind.unwrap_or(Self::Other)
    }
}

/// The kind of an ELF program, of either byte order. Notes that are not among the bytes count as not there.
fn kind<E: FileHeader<Endian = Endianness>>(head: &[u8]) -> object::Result<ProgramKind> {
    let header = E::parse(head)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, head)?;
    let segments = segments.get(..MOST_HEADERS).unwrap_or(segments);
    let is_go = |segment: &E::ProgramHeader| {
        let mut notes = segment.notes(endian, head).ok()??;
        while let Some(note) = notes.next().ok()? {
            if note.n_type(endian) == GO_BUILD_ID && note.name() == b"Go" {
                return Some(());
            }
        }
        None
    };
    Ok(if segments.iter().any(|segment| is_go(segment).is_some()) {
        ProgramKind::Go
    } else if segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP) {
        ProgramKind::Dynamic
    } else if segments.is_empty() {
        ProgramKind::Other
    } else {
        ProgramKind::Static
    })
}

#[cfg(test)]
mod tests {
    use object::elf::{PT_LOAD, PT_NOTE, ProgramType};
    use proptest::prelude::*;

    use super::*;

    /// A 64-bit little-endian ELF file with these program headers: type, and bytes that it points at.
    fn elf(headers: &[(ProgramType, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[0x20..0x28].copy_from_slice(&64_u64.to_le_bytes());
        bytes[0x36..0x38].copy_from_slice(&56_u16.to_le_bytes());
        bytes[0x38..0x3a].copy_from_slice(&u16::try_from(headers.len()).unwrap().to_le_bytes());
        let mut content = Vec::new();
        for (kind, data) in headers {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.0.to_le_bytes());
            let at = 64 + 56 * headers.len() + content.len();
            header[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(data.len() as u64).to_le_bytes());
            bytes.extend(header);
            content.extend_from_slice(data);
        }
        bytes.extend(content);
        bytes
    }

    fn elf_note(name: &[u8; 4], kind: u32, content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        note.extend(4_u32.to_le_bytes());
        note.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        note.extend(kind.to_le_bytes());
        note.extend(name);
        note.extend(content);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn the_interpreter_tells_dynamic_from_static() {
        assert_eq!(
            ProgramKind::recognise(&elf(&[(PT_LOAD, b""), (PT_INTERP, b"/lib/ld.so\0")])),
            ProgramKind::Dynamic
        );
        assert_eq!(ProgramKind::recognise(&elf(&[(PT_LOAD, b"")])), ProgramKind::Static);
    }

    #[test]
    fn go_is_known_by_its_note_with_and_without_a_c_library() {
        let gnu = elf_note(b"GNU\0", 3, b"abcdefg");
        let go = elf_note(b"Go\0\0", GO_BUILD_ID.0, b"id");
        let notes = [gnu.clone(), go].concat();
        assert_eq!(ProgramKind::recognise(&elf(&[(PT_NOTE, &notes)])), ProgramKind::Go);
        assert_eq!(ProgramKind::recognise(&elf(&[(PT_INTERP, b"/ld\0"), (PT_NOTE, &notes)])), ProgramKind::Go);
        assert_eq!(ProgramKind::recognise(&elf(&[(PT_INTERP, b"/ld\0"), (PT_NOTE, &gnu)])), ProgramKind::Dynamic);
    }

    /// First pages of what Go 1.26's linker made, stripped: by itself, with a C library, and position-independent.
    #[test]
    fn real_programs_of_go_are_known() {
        let static_ = include_bytes!("../../../testdata/programs/go-static");
        let cgo = include_bytes!("../../../testdata/programs/go-cgo");
        let pie = include_bytes!("../../../testdata/programs/go-pie");
        for (name, head) in [("static", &static_[..]), ("cgo", cgo), ("pie", pie)] {
            assert_eq!(ProgramKind::recognise(head), ProgramKind::Go, "{name}");
        }
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let script = |text: &str| ProgramKind::recognise(text.as_bytes());
        assert_eq!(
            script("#! /usr/bin/env python3\nimport os\n"),
            ProgramKind::Script { interpreter: "/usr/bin/env".to_owned() }
        );
        assert_eq!(script("#!\n"), ProgramKind::Other);
        assert_eq!(script("text"), ProgramKind::Other);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), is_elf: bool) {
            if is_elf && bytes.len() > 6 {
                bytes[..4].copy_from_slice(b"\x7fELF");
                (bytes[4], bytes[5], bytes[6]) = (1 + bytes[4] % 2, 1 + bytes[5] % 2, 1);
            }
            let _ = ProgramKind::recognise(&bytes);
        }
    }
}
