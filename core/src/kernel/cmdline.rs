//! `/proc/PID/cmdline`: the arguments of a process, as far as it has kept them.

/// The most arguments that are kept: a process may have any number of empty ones.
const MOST: usize = 8192;

/// The command line of a process. The process owns this text and may have overwritten it with anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandLine(Vec<String>);

impl CommandLine {
    /// Splits the kernel's NUL-separated text. Kernel threads have none.
    pub fn parse(bytes: &[u8]) -> Self {
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        if bytes.is_empty() {
            return Self::default();
        }
        Self(bytes.split(|&b| b == 0).take(MOST).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
    }

    /// Returns the arguments, the program first.
    pub fn arguments(&self) -> &[String] {
        &self.0
    }

    /// Returns the program's file name without its directory: `qemu-system-x86_64`.
    pub fn program(&self) -> &str {
        self.0.first().map_or("", |path| path.rsplit('/').next().unwrap_or_default())
    }

    /// Returns the value of `option` (`-name guest` or `-name=guest`), if it is there.
    pub fn option(&self, option: &str) -> Option<&str> {
        self.0.iter().enumerate().find_map(|(index, argument)| {
            if argument == option {
                return self.0.get(index + 1).map(String::as_str);
            }
            argument.strip_prefix(option)?.strip_prefix('=')
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_both_spellings() {
        let line = CommandLine::parse(b"/usr/bin/qemu-system-x86_64\0-m\x0064\0--umid=one\0");
        assert_eq!(line.program(), "qemu-system-x86_64");
        assert_eq!(line.option("-m"), Some("64"));
        assert_eq!(line.option("--umid"), Some("one"));
        assert_eq!(line.option("-name"), None);
    }

    #[test]
    fn no_more_arguments_are_kept_than_so_many() {
        assert_eq!(CommandLine::parse(&vec![0; 1 << 20]).arguments().len(), MOST);
    }

    #[test]
    fn a_kernel_thread_has_no_arguments() {
        assert_eq!(CommandLine::parse(b"").program(), "");
    }
}
