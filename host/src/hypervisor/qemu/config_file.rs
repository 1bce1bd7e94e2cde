//! Files of options that QEMU reads by `-readconfig`, as Incus and LXD write them.
//!
//! Only a file that no one but root can have written or put there is read: a file system of the guest's own user may
//! never answer. Source: QEMU, `util/qemu-config.c` (`qemu_config_foreach`).

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use ksmith_core::kernel::CommandLine;

use crate::root::Root;

/// Groups of such a file that decide over the guest's memory, with the option that each stands for.
const GROUPS: [(&str, &str); 6] = [
    ("memory", "-m"),
    ("machine", "-machine"),
    ("object", "-object"),
    ("device", "-device"),
    ("numa", "-numa"),
    ("smp-opts", "-smp"),
];

/// Returns the command line with the options of its files that concern memory in place of the files' names. A file that
/// can't be read stays named. `None` if the line names no file that can be read.
pub(crate) fn with_config_files(root: &Root, line: &CommandLine) -> Option<CommandLine> {
    let mut is_changed = false;
    let mut words: Vec<String> = Vec::new();
    let mut arguments = line.arguments().iter();
    while let Some(argument) = arguments.next() {
        let option = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')).unwrap_or_default();
        let file = match option.strip_prefix("readconfig") {
            Some("") => arguments.clone().next().map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        match file.and_then(|file| read(root, file)) {
            Some(text) => {
                is_changed = true;
                words.extend(parse_options(&text));
                if option == "readconfig" {
                    arguments.next();
                }
            }
            None => words.push(argument.clone()),
        }
    }
    is_changed.then(|| CommandLine::parse(words.join("\0").as_bytes()))
}

/// Reads a file that only root can have written; `None` if it is none.
fn read(root: &Root, file: &str) -> Option<String> {
    let relative = Path::new(file).strip_prefix("/").ok()?;
    let is_plain = relative.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain || root.is_host() && !is_roots(relative) {
        return None;
    }
    root.text(relative).value().cloned()
}

/// Returns true if the file and each directory above it is root's, and writable by no one else. Whatever lies below
/// another's directory is not touched.
fn is_roots(relative: &Path) -> bool {
    let above: Vec<&Path> = relative.ancestors().collect();
    above.iter().rev().all(|part| {
        let path = Path::new("/").join(part);
        let Ok(found) = path.symlink_metadata() else { return false };
        found.uid() == 0 && found.mode() & 0o022 == 0 && (found.is_dir() || found.is_file())
    })
}

/// Parses the groups `[memory]` and `[object "mem0"]` with their lines `size = "1G"` into options.
fn parse_options(text: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut is_known = false;
    for line in text.lines().map(str::trim) {
        if let Some(heading) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let (group, id) = heading.split_once([' ', '\t']).unwrap_or((heading, ""));
            let option = GROUPS.iter().find(|(known, _)| *known == group);
            is_known = option.is_some();
            let id = id.trim().trim_matches('"');
            if let Some((_, option)) = option {
                let first = if id.is_empty() { String::new() } else { format!("id={}", id.replace(',', ",,")) };
                options.extend([(*option).to_owned(), first]);
            }
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_known && !line.starts_with('#'))
            && let Some(option) = options.last_mut()
        {
            let value = value.trim().trim_matches('"').replace(',', ",,");
            let comma = if option.is_empty() { "" } else { "," };
            option.push_str(&format!("{comma}{}={value}", key.trim()));
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::super::{memory_bytes, obstacle};
    use super::*;
    use crate::root::put_file;

    /// The file of a virtual machine of Incus, shortened.
    const INCUS: &str = "# Machine\n[machine]\ngraphics = \"off\"\ntype = \"q35\"\n\n[memory]\nsize = \"1024M\"\n\n\
        [device \"qemu_gpu\"]\ndriver = \"virtio-vga\"\n\n\
        [object \"mem0\"]\nqom-type = \"memory-backend-memfd\"\nsize = \"1024M\"\nshare = \"on\"\n\n\
        [numa]\ntype = \"node\"\nnodeid = \"0\"\nmemdev = \"mem0\"\n[chardev \"m\"]\nbackend = \"socket\"\n";

    fn line(text: &str) -> CommandLine {
        CommandLine::parse(text.replace(' ', "\0").as_bytes())
    }

    #[test]
    fn a_file_of_options_says_what_the_command_line_would() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        put_file(tree.path(), "run/incus/web/qemu.conf", INCUS);
        put_file(tree.path(), "run/small", "[machine]\n type = pc\n");
        for (text, bytes, expected) in [
            ("kvm -readconfig /run/incus/web/qemu.conf -S", Some(1 << 30), Some("shared")),
            ("kvm --readconfig=/run/incus/web/qemu.conf -S", Some(1 << 30), Some("shared")),
            ("kvm -readconfig /run/incus/web/qemu.conf -m 2G", Some(2 << 30), Some("shared")),
            ("kvm -readconfig /run/small", Some(128 << 20), None),
            ("kvm -readconfig /run/small -readconfig /run/none", None, None),
        ] {
            let line = with_config_files(&root, &line(text)).unwrap();
            assert_eq!((memory_bytes(&line), obstacle(&line)), (bytes, expected), "{text}");
        }
        for text in ["kvm -readconfig /run/none", "kvm -readconfig ../run/small", "kvm -m 1G", "kvm -readconfig"] {
            assert_eq!(with_config_files(&root, &line(text)), None, "{text}");
        }
    }

    #[test]
    fn on_the_host_only_what_root_alone_can_write_is_read() {
        let mine = tempfile::NamedTempFile::new().unwrap();
        assert!(!is_roots(mine.path().strip_prefix("/").unwrap()), "anyone can write to /tmp");
        assert!(!is_roots(Path::new("proc/self/exe")), "a link");
        assert!(is_roots(Path::new("etc/passwd")));
    }
}
