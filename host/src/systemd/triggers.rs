//! Units that start others: timers, paths and sockets; and the instances of templates.

use std::collections::BTreeSet;
use std::fs;

use super::UNIT_DIRECTORIES;
use crate::root::Root;

/// Endings of units that start a service, and the line by which they name another than that of their own name.
const TRIGGERS: [(&str, &str); 3] = [(".timer", "Unit"), (".path", "Unit"), (".socket", "Service")];

/// Returns the timers, paths and sockets that start this service: those that name it, and those of its name that name
/// no other (systemd.timer(5), systemd.path(5), systemd.socket(5)).
pub fn triggers(root: &Root, service: &str) -> BTreeSet<String> {
    let Some(own) = service.strip_suffix(".service") else { return BTreeSet::new() };
    let ends =
        |name: &str| TRIGGERS.iter().find_map(|(ending, key)| Some((name.strip_suffix(ending)?.to_owned(), *key)));
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for directory in UNIT_DIRECTORIES {
        for entry in fs::read_dir(root.path(directory)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((stem, key)) = ends(&name) else { continue };
            // Of files with one name the first counts.
            if !seen.insert(name.clone()) {
                continue;
            }
            let text = root.text(std::path::Path::new(directory).join(&name)).value().cloned().unwrap_or_default();
            let value = |key: &str| {
                let mut lines = text.lines().filter_map(|line| line.trim().split_once('='));
                lines.rfind(|(found, _)| found.trim() == key).map(|(_, value)| value.trim().to_owned())
            };
            let starts = match value(key) {
                Some(named) => named == service,
                // A socket that accepts connections itself starts an instance for each.
                None if key == "Service"
                    && value("Accept").is_some_and(|on| ["yes", "true", "on", "1"].contains(&on.as_str())) =>
                {
                    own.strip_suffix('@') == Some(&stem)
                }
                None => own == stem,
            };
            if starts {
                found.insert(name);
            }
        }
    }
    // A link or a missing file of that name starts the service all the same.
    found.extend([format!("{own}.timer")].into_iter().filter(|name| !seen.contains(name)));
    found
}

/// Returns the instances of a template, such as `k@run.service` of `k@.service`, that other units want or that have
/// started.
pub fn instances(root: &Root, template: &str) -> BTreeSet<String> {
    let Some((name, ending)) = template.split_once("@.") else { return BTreeSet::new() };
    let names = |directory: std::path::PathBuf| {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let mut all: Vec<String> = names(root.path("run/systemd/units"));
    for directory in UNIT_DIRECTORIES {
        let within = names(root.path(directory)).into_iter();
        let pulls = within.filter(|name| [".wants", ".requires", ".upholds"].iter().any(|end| name.ends_with(end)));
        all.extend(pulls.flat_map(|within| names(root.path(directory).join(within))));
    }
    let units = all.iter().map(|name| name.strip_prefix("invocation:").unwrap_or(name));
    let is_instance = |unit: &&str| {
        let instance = unit.strip_prefix(name).and_then(|rest| rest.strip_prefix('@'));
        instance.and_then(|rest| rest.strip_suffix(ending)?.strip_suffix('.')).is_some_and(|it| !it.is_empty())
    };
    units.filter(is_instance).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::put_file;

    #[test]
    fn what_starts_a_service_has_its_name_or_names_it() {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("etc/systemd/system/k.path", "[Path]\nPathExists=/run/k\n"),
            ("usr/lib/systemd/system/k.path", "[Path]\nUnit=other.service\n"),
            ("etc/systemd/system/w.path", "[Path]\nPathExists=/run/k\nUnit=k.service\n"),
            ("etc/systemd/system/s.socket", "[Socket]\nListenStream=/run/s\nService=k.service\n"),
            ("etc/systemd/system/a.socket", "[Socket]\nListenStream=/run/a\nAccept=yes\n"),
            ("etc/systemd/system/t.timer", "[Timer]\nOnBootSec=1\nUnit = k.service\n"),
        ] {
            put_file(tree.path(), path, text);
        }
        let root = Root::at(tree.path());
        let of = |unit: &str| triggers(&root, unit).into_iter().collect::<Vec<_>>();
        assert_eq!(of("k.service"), ["k.path", "k.timer", "s.socket", "t.timer", "w.path"]);
        assert_eq!(
            (of("a@.service"), of("a.service")),
            (vec!["a.socket".to_owned(), "a@.timer".to_owned()], vec!["a.timer".to_owned()])
        );
        assert_eq!(of("s.service"), ["s.timer"]);
    }

    #[test]
    fn a_template_has_the_instances_that_are_wanted_or_run() {
        let tree = tempfile::tempdir().unwrap();
        for path in [
            "etc/systemd/system/multi-user.target.wants/k@run.service",
            "run/systemd/units/invocation:k@pages.service",
            "etc/systemd/system/multi-user.target.wants/kk@run.service",
            "etc/systemd/system/multi-user.target.wants/k@.service",
            "etc/systemd/system/k@idle.service",
        ] {
            put_file(tree.path(), path, "");
        }
        let found = instances(&Root::at(tree.path()), "k@.service");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["k@pages.service", "k@run.service"]);
        assert!(instances(&Root::at(tree.path()), "k.service").is_empty());
    }
}
