//! What kind of program a file is, as far as that decides whether a library can be loaded into it.

/// A program by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
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

/// Type of a program header that names the interpreter.
const PT_INTERP: u32 = 3;

/// Type of a program header that points at notes.
const PT_NOTE: u32 = 4;

/// Go's build id: a note of this type, named `Go`. The linker puts it on the first page.
const GO_BUILD_ID: u32 = 4;

impl Program {
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
        Elf::open(head).map_or(Self::Other, |elf| elf.kind())
    }
}

/// An ELF file's beginning, of either width and byte order.
struct Elf<'a> {
    bytes: &'a [u8],
    is_wide: bool,
    is_little: bool,
}

/// One program header.
struct Header {
    kind: u32,
    offset: u64,
    size: u64,
}

impl<'a> Elf<'a> {
    fn open(bytes: &'a [u8]) -> Option<Self> {
        let is_elf = bytes.starts_with(b"\x7fELF");
        let (class, order) = (*bytes.get(4)?, *bytes.get(5)?);
        (is_elf && matches!(class, 1 | 2) && matches!(order, 1 | 2)).then_some(Self {
            bytes,
            is_wide: class == 2,
            is_little: order == 1,
        })
    }

    fn kind(&self) -> Program {
        let headers = self.headers();
        if headers.iter().filter(|header| header.kind == PT_NOTE).any(|header| self.is_go(header)) {
            Program::Go
        } else if headers.iter().any(|header| header.kind == PT_INTERP) {
            Program::Dynamic
        } else if headers.is_empty() {
            Program::Other
        } else {
            Program::Static
        }
    }

    fn headers(&self) -> Vec<Header> {
        let read = || {
            let (at, size, number) = if self.is_wide {
                (self.long(0x20)?, self.short(0x36)?, self.short(0x38)?)
            } else {
                (self.word(0x1c)?.into(), self.short(0x2a)?, self.short(0x2c)?)
            };
            let header = |index: u16| {
                let at = at.checked_add(u64::from(index) * u64::from(size))?;
                let (offset, length) = if self.is_wide {
                    (self.long(at.checked_add(8)?)?, self.long(at.checked_add(0x20)?)?)
                } else {
                    (self.word(at.checked_add(4)?)?.into(), self.word(at.checked_add(0x10)?)?.into())
                };
                Some(Header { kind: self.word(at)?, offset, size: length })
            };
            Some((0..number).map_while(header).collect())
        };
        read().unwrap_or_default()
    }

    /// Whether Go's build id is among the notes: lengths of name and content, type, then both, padded to 4 bytes.
    fn is_go(&self, notes: &Header) -> bool {
        let mut at = notes.offset;
        let end = notes.offset.saturating_add(notes.size);
        while at < end {
            let (Some(name), Some(content), Some(kind)) =
                (self.word(at), self.word(at.saturating_add(4)), self.word(at.saturating_add(8)))
            else {
                return false;
            };
            let behind = at.saturating_add(12);
            if kind == GO_BUILD_ID && name == 4 && self.slice(behind, 4) == Some(b"Go\0\0") {
                return true;
            }
            let padded = |length: u32| u64::from(length).next_multiple_of(4);
            at = behind.saturating_add(padded(name)).saturating_add(padded(content));
        }
        false
    }

    fn slice(&self, at: u64, length: usize) -> Option<&'a [u8]> {
        let at = usize::try_from(at).ok()?;
        self.bytes.get(at..at.checked_add(length)?)
    }

    fn short(&self, at: u64) -> Option<u16> {
        let bytes = self.slice(at, 2)?.try_into().ok()?;
        Some(if self.is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn word(&self, at: u64) -> Option<u32> {
        let bytes = self.slice(at, 4)?.try_into().ok()?;
        Some(if self.is_little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    fn long(&self, at: u64) -> Option<u64> {
        let bytes = self.slice(at, 8)?.try_into().ok()?;
        Some(if self.is_little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A 64-bit little-endian ELF file with these program headers: type, and bytes that it points at.
    fn elf(headers: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[0x20..0x28].copy_from_slice(&64_u64.to_le_bytes());
        bytes[0x36..0x38].copy_from_slice(&56_u16.to_le_bytes());
        bytes[0x38..0x3a].copy_from_slice(&u16::try_from(headers.len()).unwrap().to_le_bytes());
        let mut content = Vec::new();
        for (kind, data) in headers {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            let at = 64 + 56 * headers.len() + content.len();
            header[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(data.len() as u64).to_le_bytes());
            bytes.extend(header);
            content.extend_from_slice(data);
        }
        bytes.extend(content);
        bytes
    }

    fn note(name: &[u8; 4], kind: u32, content: &[u8]) -> Vec<u8> {
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
        assert_eq!(Program::recognise(&elf(&[(1, b""), (PT_INTERP, b"/lib/ld.so\0")])), Program::Dynamic);
        assert_eq!(Program::recognise(&elf(&[(1, b"")])), Program::Static);
    }

    #[test]
    fn go_is_known_by_its_note_with_and_without_a_c_library() {
        let gnu = note(b"GNU\0", 3, b"abcdefg");
        let go = note(b"Go\0\0", GO_BUILD_ID, b"id");
        let notes = [gnu.clone(), go].concat();
        assert_eq!(Program::recognise(&elf(&[(PT_NOTE, &notes)])), Program::Go);
        assert_eq!(Program::recognise(&elf(&[(PT_INTERP, b"/ld\0"), (PT_NOTE, &notes)])), Program::Go);
        assert_eq!(Program::recognise(&elf(&[(PT_INTERP, b"/ld\0"), (PT_NOTE, &gnu)])), Program::Dynamic);
    }

    /// First pages of what Go 1.26's linker made, stripped: by itself, with a C library, and position-independent.
    #[test]
    fn real_programs_of_go_are_known() {
        let static_ = include_bytes!("../../../testdata/programs/go-static");
        let cgo = include_bytes!("../../../testdata/programs/go-cgo");
        let pie = include_bytes!("../../../testdata/programs/go-pie");
        for (name, head) in [("static", &static_[..]), ("cgo", cgo), ("pie", pie)] {
            assert_eq!(Program::recognise(head), Program::Go, "{name}");
        }
    }

    #[test]
    fn a_script_names_its_interpreter() {
        let script = |text: &str| Program::recognise(text.as_bytes());
        assert_eq!(
            script("#! /usr/bin/env python3\nimport os\n"),
            Program::Script { interpreter: "/usr/bin/env".to_owned() }
        );
        assert_eq!(script("#!\n"), Program::Other);
        assert_eq!(script("text"), Program::Other);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), is_elf: bool) {
            if is_elf && bytes.len() > 6 {
                bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            }
            let _ = Program::recognise(&bytes);
        }
    }
}
