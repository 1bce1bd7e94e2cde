//! Detection of KSM settings in tuned's active profile, or in one that it includes.
//!
//! The search order is tuned's own (`tuned/consts.py`, `tuned/profiles/locator.py`, versions 2.10 to 2.25):
//! `profiles/` is where newer ones look, and the administrator's files win over the distribution's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ksmith_core::other_controllers::TunedProfile;
use ksmith_core::reading::Reading;

use crate::root::Root;

const DIRECTORIES: [&str; 4] = ["etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned"];
const ACTIVE: &str = "etc/tuned/active_profile";
/// The profile that tuned applies after the active ones.
const POST_LOADED: &str = "etc/tuned/post_loaded_profile";
/// The mode of the choice: `auto` if tuned chose the profile by itself.
const MODE: &str = "etc/tuned/profile_mode";
/// Upper bound of included profiles. A profile includes a handful; more is a mistake or a trap.
const MOST_PROFILES: usize = 100;
const MAIN: &str = "main";
const SCRIPT: &str = "script.sh";
const MAIN_FILE: &str = "tuned.conf";

/// Returns the active profiles, if one of them or an included one touches KSM; otherwise the post-loaded one, if it
/// does.
pub(super) fn profile_with_ksm(root: &Root) -> Option<TunedProfile> {
    let of_file = |file: &str, is_post_loaded| {
        let mut active = root.text(file).value().map(|text| words(text)).unwrap_or_default();
        active.retain(|name| is_safe(name));
        let mut seen = Vec::new();
        let options: BTreeSet<_> = active.iter().flat_map(|name| options_on_ksm(root, name, &mut seen)).collect();
        let is_automatic = root.text(MODE).value().is_some_and(|text| text.trim() == "auto");
        let profile = TunedProfile {
            active,
            options: options.into_iter().collect(),
            is_automatic,
            is_post_loaded,
            directory: directory(root),
        };
        (!profile.options.is_empty()).then_some(profile)
    };
    of_file(ACTIVE, false).or_else(|| of_file(POST_LOADED, true))
}

/// Returns the file of an active profile, or of an included one, that names khugepaged's settings.
pub(super) fn file_with_khugepaged(root: &Root) -> Option<PathBuf> {
    let mut waiting: Vec<String> = [ACTIVE, POST_LOADED]
        .iter()
        .flat_map(|file| root.text(file).value().map(|text| words(text)).unwrap_or_default())
        .collect();
    let mut seen = BTreeSet::new();
    while let Some(name) = waiting.pop().filter(|_| seen.len() < MOST_PROFILES) {
        if !seen.insert(name.clone()) {
            continue;
        }
        let Some((directory, text)) = profile(root, &name) else { continue };
        let script = root.text(directory.join(SCRIPT)).value().cloned().unwrap_or_default();
        for (file, text) in [(MAIN_FILE, &text), (SCRIPT, &script)] {
            if lines(text).any(|line| line.contains("max_ptes_") || line.contains("khugepaged")) {
                return Some(Path::new("/").join(&directory).join(file));
            }
        }
        waiting.extend(includes(&text));
    }
    None
}

/// Returns the directory of the administrator's profiles. Since tuned 2.23 it is one of its own, as for the
/// distribution's profiles.
fn directory(root: &Root) -> String {
    let is_new = root.path("usr/lib/tuned/profiles").is_dir();
    format!("/etc/tuned{}", if is_new { "/profiles" } else { "" })
}

/// Returns the options of a profile that touch KSM, each with its section. An option of an included profile counts,
/// unless the profile drops it or replaces its section: as in `tuned/profiles/merger.py`.
fn options_on_ksm(root: &Root, name: &str, seen: &mut Vec<String>) -> BTreeSet<(String, String)> {
    let mut options = BTreeSet::new();
    if seen.iter().any(|known| known == name) || seen.len() >= MOST_PROFILES {
        return options;
    }
    seen.push(name.to_owned());
    let Some((directory, text)) = profile(root, name) else { return options };
    for included in includes(&text) {
        options.append(&mut options_on_ksm(root, &included, seen));
    }
    for (section, key, value) in entries(&text).filter(|(section, ..)| *section != MAIN) {
        match key {
            "replace" if matches!(value, "1" | "true" | "True" | "yes") => options.retain(|(of, _)| of != section),
            "drop" => {
                let dropped = words(value);
                options.retain(|(of, option)| of != section || !dropped.contains(option));
            }
            _ => {}
        }
    }
    for (section, key, value) in entries(&text).filter(|(section, ..)| *section != MAIN) {
        if key != "drop" && (mentions_ksm(key) || mentions_ksm(value)) {
            options.insert((section.to_owned(), key.to_owned()));
        }
    }
    // A profile may do its work in a script beside it.
    if root.text(directory.join(SCRIPT)).value().is_some_and(|script| lines(script).any(mentions_ksm)) {
        options.insert(("script".to_owned(), "script".to_owned()));
    }
    options
}

fn profile(root: &Root, name: &str) -> Option<(PathBuf, String)> {
    if !is_safe(name) {
        return None;
    }
    DIRECTORIES.iter().find_map(|directory| {
        let directory = Path::new(directory).join(name);
        match root.text(directory.join(MAIN_FILE)) {
            Reading::Value(text) => Some((directory, text)),
            _ => None,
        }
    })
}

/// Returns true if a name is a plain file name, as in tuned's `ProfileLoader.safe_name`. tuned ignores others.
fn is_safe(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)) && !name.starts_with('.')
}

/// Returns the lines that are no comments: those begin with `#` or `;`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']))
}

fn mentions_ksm(text: &str) -> bool {
    text.to_ascii_lowercase().contains("ksm")
}

/// Parses the options of a profile: section, key and value.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    lines(text).filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            section = name.trim();
            return None;
        }
        let (key, value) = line.split_once('=')?;
        Some((section, key.trim(), value.trim()))
    })
}

/// Returns the names after `include=` in `[main]`, the only section in which it has that meaning.
fn includes(text: &str) -> Vec<String> {
    entries(text)
        .filter(|(section, key, _)| *section == MAIN && *key == "include")
        .flat_map(|(_, _, value)| words(value))
        .collect()
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
        profile_with_ksm(&Root::at(tree.path())).map(|profile| profile.names())
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
        assert_eq!(found(&tree), Some("mine".to_owned()));
    }

    #[test]
    fn a_profile_that_drops_or_replaces_what_it_includes_does_not_touch_ksm() {
        let parent = ("usr/lib/tuned/rt/tuned.conf", "[sysfs]\n/sys/kernel/mm/ksm/run = 2\n/sys/a=1\n");
        for (own, is_found) in [
            ("[main]\ninclude=rt\n", true),
            ("[main]\nsummary=no KSM\ninclude=rt\n[sysfs]\ndrop=/sys/a, /sys/kernel/mm/ksm/run\n", false),
            ("[main]\ninclude=rt\n[sysfs]\nreplace=1\n/sys/a=2\n", false),
            ("[main]\ninclude=rt\n[sysfs]\ndrop=/sys/a\n", true),
            ("[main]\ninclude=rt\n[vm]\ndrop=/sys/kernel/mm/ksm/run\n", true),
            ("[main]\ninclude=rt\n[sysfs]\ndrop=/sys/kernel/mm/ksm/run\n/sys/kernel/mm/ksm/run=0\n", true),
        ] {
            let tree = host("mine", &[("etc/tuned/mine/tuned.conf", own), parent]);
            assert_eq!(found(&tree).is_some(), is_found, "{own}");
        }
    }

    #[test]
    fn all_active_profiles_are_told_with_how_tuned_came_to_them_and_where_a_new_one_goes() {
        let ksm = ("usr/lib/tuned/rt/tuned.conf", "[sysfs]\n/sys/kernel/mm/ksm/run = 2\n");
        let base = ("usr/lib/tuned/base/tuned.conf", "[vm]\ndirty_ratio=3\n");
        let tree = host("base rt ../x\n", &[ksm, base, ("etc/tuned/profile_mode", "auto\n")]);
        let profile = profile_with_ksm(&Root::at(tree.path())).unwrap();
        assert_eq!(profile.active, ["base", "rt"]);
        assert!(profile.is_automatic && !profile.is_post_loaded);
        assert_eq!(profile.directory, "/etc/tuned");
        // The layout from tuned 2.23 on, with the profile among the post-loaded ones.
        let files = [("usr/lib/tuned/profiles/rt/tuned.conf", ksm.1), ("etc/tuned/post_loaded_profile", "rt\n")];
        let tree = host("base\n", &files);
        let profile = profile_with_ksm(&Root::at(tree.path())).unwrap();
        assert_eq!((profile.names().as_str(), profile.directory.as_str()), ("rt", "/etc/tuned/profiles"));
        assert!(!profile.is_automatic && profile.is_post_loaded);
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
