//! Whether tuned's active profile, or one that it includes, touches KSM.
//!
//! The search order is tuned's own (`tuned/consts.py`, `tuned/profiles/locator.py`, versions 2.10 to 2.25):
//! `profiles/` is where newer ones look, and the administrator's files win over the distribution's.

use std::path::{Path, PathBuf};

use ksmith_core::reading::Reading;

use crate::root::Root;

const DIRECTORIES: [&str; 4] = ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];
const ACTIVE: [&str; 2] = ["etc/tuned/active_profile", "etc/tuned/post_loaded_profile"];
/// A profile includes a handful of others; more is a mistake or a trap.
const MOST_PROFILES: usize = 100;

/// The first profile that touches KSM.
pub(super) fn profile_with_ksm(root: &Root) -> Option<String> {
    let mut waiting: Vec<String> =
        ACTIVE.iter().filter_map(|file| root.text(file).value().map(|text| words(text))).flatten().collect();
    let mut seen = Vec::new();
    while let Some(name) = waiting.pop() {
        if seen.contains(&name) || seen.len() >= MOST_PROFILES {
            continue;
        }
        if let Some((directory, text)) = profile(root, &name) {
            // A profile may do its work in a script beside it.
            let script = root.text(directory.join("script.sh"));
            if mentions_ksm(&text) || script.value().is_some_and(|script| mentions_ksm(script)) {
                return Some(name);
            }
            waiting.extend(includes(&text));
        }
        seen.push(name);
    }
    None
}

fn profile(root: &Root, name: &str) -> Option<(PathBuf, String)> {
    // The name is a file name, as tuned has it (`ProfileLoader.safe_name`).
    let is_safe = name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) && !name.starts_with('.');
    if !is_safe {
        return None;
    }
    DIRECTORIES.iter().find_map(|directory| {
        let directory = Path::new(directory).join(name);
        match root.text(directory.join("tuned.conf")) {
            Reading::Value(text) => Some((directory, text)),
            _ => None,
        }
    })
}

/// Lines that say something: comments begin with `#` or `;`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']))
}

fn mentions_ksm(text: &str) -> bool {
    lines(text).any(|line| line.to_ascii_lowercase().contains("ksm"))
}

/// The names after `include=` in `[main]`, which is the only section where it has that meaning.
fn includes(text: &str) -> Vec<String> {
    let mut section = "";
    let mut names = Vec::new();
    for line in lines(text) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            section = name.trim();
        } else if section == "main"
            && let Some(("include", value)) = line.split_once('=').map(|(key, value)| (key.trim(), value))
        {
            names.extend(words(value));
        }
    }
    names
}

fn words(text: &str) -> Vec<String> {
    let is_between = |c: char| c.is_whitespace() || c == ',' || c == ';';
    text.split(is_between).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    fn host(active: &str, files: &[(&str, &str)]) -> TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in [("etc/tuned/active_profile", active)].iter().chain(files) {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn found(tree: &TempDir) -> Option<String> {
        profile_with_ksm(&Root::at(tree.path()))
    }

    #[test]
    fn an_included_parent_counts() {
        let tree = host(
            "mine\n",
            &[
                ("etc/tuned/profiles/mine/tuned.conf", "[main]\nsummary=x\ninclude = base, rt\n"),
                ("usr/lib/tuned/base/tuned.conf", "[vm]\ntransparent_hugepages=always\n"),
                ("usr/lib/tuned/profiles/rt/tuned.conf", "[service]\nservice.ksm=,disable\n"),
            ],
        );
        assert_eq!(found(&tree), Some("rt".to_owned()));
    }

    #[test]
    fn a_script_beside_the_profile_counts() {
        let tree = host(
            "cpu\n",
            &[
                ("usr/lib/tuned/cpu/tuned.conf", "[script]\nscript=script.sh\n"),
                ("usr/lib/tuned/cpu/script.sh", "disable_ksm\n"),
            ],
        );
        assert_eq!(found(&tree), Some("cpu".to_owned()));
    }

    #[test]
    fn the_administrators_profile_hides_the_distributions() {
        let tree = host(
            "p\n",
            &[("etc/tuned/p/tuned.conf", "[vm]\n# no ksm here\n"), ("usr/lib/tuned/p/tuned.conf", "ksm=1\n")],
        );
        assert_eq!(found(&tree), None);
    }

    #[test]
    fn circles_missing_profiles_and_paths_for_names_end_in_nothing() {
        let tree = host(
            "a ../../secret missing ${var}\n",
            &[
                ("etc/tuned/a/tuned.conf", "[main]\ninclude=b\n"),
                ("etc/tuned/b/tuned.conf", "[main]\ninclude=a\n[other]\ninclude=c\n"),
                ("etc/tuned/c/tuned.conf", "ksm=1\n"),
                ("secret/tuned.conf", "ksm=1\n"),
            ],
        );
        assert_eq!(found(&tree), None);
        assert_eq!(found(&host("", &[])), None);
    }
}
