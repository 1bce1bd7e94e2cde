//! `/proc/PID/pagemap` and `/proc/kpageflags`: entries of 8 bytes about one page or frame.

/// One page of a process. Source: `Documentation/admin-guide/mm/pagemap.rst`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageEntry(pub u64);

impl PageEntry {
    /// Decodes the file's bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_ne_bytes(bytes))
    }

    /// Returns true if the page is in memory and anonymous, as KSM needs it. Reading it faults nothing in.
    pub fn is_anonymous(self) -> bool {
        self.0 >> 63 & 1 == 1 && self.0 >> 61 & 1 == 0
    }

    /// Returns true if the page is in memory, and of a file or shared.
    pub fn is_of_file(self) -> bool {
        self.0 >> 63 & 1 == 1 && self.0 >> 61 & 1 == 1
    }

    /// Returns true if the page is mapped here only (4.2): neither merged with another nor the kernel's zero page.
    pub fn is_exclusive(self) -> bool {
        self.0 >> 56 & 1 == 1
    }

    /// Returns the frame's number; 0 if the kernel hides it.
    pub fn frame(self) -> u64 {
        self.0 & ((1 << 55) - 1)
    }
}

/// Flags of one frame. Source: `include/uapi/linux/kernel-page-flags.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameFlags(pub u64);

impl FrameFlags {
    /// Returns true if the frame is merged by KSM.
    pub fn is_merged(self) -> bool {
        self.0 >> 21 & 1 == 1
    }

    /// Returns true if the frame is part of a transparent huge page (4.0).
    pub fn is_huge(self) -> bool {
        self.0 >> 22 & 1 == 1
    }

    /// Returns true if the frame is the kernel's zero page, small or huge.
    pub fn is_zero_page(self) -> bool {
        self.0 >> 24 & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_where_the_kernel_documents_them() {
        let anonymous = PageEntry(1 << 63 | 1 << 56 | 0x1234);
        assert!(anonymous.is_anonymous() && anonymous.is_exclusive() && !anonymous.is_of_file());
        assert_eq!(anonymous.frame(), 0x1234);
        let swapped = PageEntry(1 << 62 | 77);
        assert!(!swapped.is_anonymous() && !swapped.is_of_file());
        assert!(PageEntry(1 << 63 | 1 << 61).is_of_file());
        assert!(FrameFlags(1 << 21).is_merged() && !FrameFlags(1 << 21).is_zero_page());
        assert!(FrameFlags(1 << 24).is_zero_page() && FrameFlags(1 << 22).is_huge());
    }
}
