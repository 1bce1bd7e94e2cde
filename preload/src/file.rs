//! Reads files of /proc line by line, through the caller's buffer.

use core::ffi::CStr;

use crate::sys::{Errno, OwnedDescriptor};

/// Passes each whole line, without its end, to `each`, until that returns `false`. A line longer than the buffer
/// is skipped.
pub fn lines(path: &CStr, buffer: &mut [u8], each: impl FnMut(&[u8]) -> bool) -> Result<(), Errno> {
    let file = OwnedDescriptor::open(path)?;
    lines_of(|space| file.read(space), buffer, each)
}

/// Passes each line of any source of bytes to `each`, as [`lines`] does.
pub fn lines_of(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    buffer: &mut [u8],
    mut each: impl FnMut(&[u8]) -> bool,
) -> Result<(), Errno> {
    let mut held = 0_usize;
    // Whether the line in the buffer began before the buffer.
    let mut is_cut = false;
    loop {
        let count = match buffer.get_mut(held..) {
            Some(space) if !space.is_empty() => read(space)?,
            _ => {
                held = 0;
                is_cut = true;
                continue;
            }
        };
        let filled = held.saturating_add(count).min(buffer.len());
        let mut start = 0_usize;
        while let Some(rest) = buffer.get(start..filled) {
            let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { break };
            let line = rest.get(..end).unwrap_or_default();
            start = start.saturating_add(end).saturating_add(1);
            if !core::mem::take(&mut is_cut) && !each(line) {
                return Ok(());
            }
        }
        buffer.copy_within(start..filled, 0);
        held = filled.saturating_sub(start);
        if count == 0 {
            if held > 0 && !is_cut {
                each(buffer.get(..held).unwrap_or_default());
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &[u8], step: usize, size: usize) -> Vec<Vec<u8>> {
        let mut rest = text;
        let read = |space: &mut [u8]| {
            let count = step.min(space.len()).min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            Ok(count)
        };
        let mut found = Vec::new();
        lines_of(read, &mut vec![0; size], |line| {
            found.push(line.to_vec());
            true
        })
        .unwrap();
        found
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_come(
            lines in proptest::collection::vec("[a-z ]{0,20}", 0..20), step in 1_usize..50, size in 21_usize..60,
        ) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let expected: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
            prop_assert_eq!(all(text.as_bytes(), step, size), expected);
        }
    }

    #[test]
    fn a_line_too_long_is_left_out_whole() {
        assert_eq!(all(b"ab\n0123456789\ncd\nef", 3, 4), [b"ab".to_vec(), b"cd".to_vec(), b"ef".to_vec()]);
    }

    #[test]
    fn it_ends_when_told_to() {
        let mut seen = 0;
        lines(c"/proc/self/maps", &mut [0; 4096], |_| {
            seen += 1;
            seen < 2
        })
        .unwrap();
        assert_eq!(seen, 2);
        assert_eq!(lines(c"/nowhere", &mut [0; 8], |_| true), Err(libc::ENOENT));
    }
}
