use serde_json::json;

use super::super::{KeptEntries, UndoEntry};
use super::*;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSetting {
    knob: String,
    original: String,
}

impl UndoEntry for StoredSetting {
    const KIND: EntryKind = EntryKind::Setting;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredGuest {
    name: String,
    /// As entries of guests have it.
    kind: String,
}

impl UndoEntry for StoredGuest {
    const KIND: EntryKind = EntryKind::SwitchedOff;
}

fn directory() -> (tempfile::TempDir, StateDir) {
    let tree = tempfile::tempdir().unwrap();
    let directory = StateDir::at(tree.path().join("state"));
    (tree, directory)
}

fn run(original: &str) -> StoredSetting {
    StoredSetting { knob: "run".to_owned(), original: original.to_owned() }
}

fn guest(name: &str) -> StoredGuest {
    StoredGuest { name: name.to_owned(), kind: "uml".to_owned() }
}

fn add<E: UndoEntry>(directory: &StateDir, entry: E) {
    KeptEntries::open(directory).unwrap().change(|all| all.push(entry)).unwrap();
}

#[test]
fn kinds_share_a_file_and_do_not_overwrite_each_other() {
    let (_tree, directory) = directory();
    let settings = KeptEntries::<StoredSetting>::open(&directory).unwrap();
    let guests = KeptEntries::<StoredGuest>::open(&directory).unwrap();
    settings.change(|all| all.push(run("0"))).unwrap();
    guests.change(|all| all.push(guest("a"))).unwrap();
    settings.change(|all| all.push(run("1"))).unwrap();
    let entries = UndoStore::new(&directory).read().unwrap();
    assert_eq!((entries.count(EntryKind::Setting), entries.count(EntryKind::SwitchedOff)), (2, 1));
    assert_eq!(entries.owner(), Some(identity::own().unwrap()));
    settings.change(Vec::clear).unwrap();
    assert_eq!(UndoStore::new(&directory).read().unwrap().parse_entries::<StoredGuest>().unwrap(), [guest("a")]);
    guests.change(Vec::clear).unwrap();
    assert!(!directory.undo().exists());
}

#[test]
fn threads_change_the_file_in_turn() {
    let (_tree, directory) = directory();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let store = UndoStore::new(&directory);
            scope.spawn(move || {
                store.change(|all| {
                    let mut guests = all.parse_entries::<StoredGuest>()?;
                    guests.push(guest(&n.to_string()));
                    all.set(&guests)
                })
            });
        }
    });
    assert_eq!(UndoStore::new(&directory).read().unwrap().count(EntryKind::SwitchedOff), 8);
}

#[test]
fn kinds_that_are_not_known_stay() {
    let (_tree, directory) = directory();
    add(&directory, run("0"));
    let text = fs::read_to_string(directory.undo()).unwrap();
    fs::write(directory.undo(), text.replace("\"setting\"", "\"of a newer build\"")).unwrap();
    add(&directory, guest("a"));
    assert!(fs::read_to_string(directory.undo()).unwrap().contains("of a newer build"));
}

#[test]
fn entries_from_before_the_boot_are_void() {
    let (_tree, directory) = directory();
    add(&directory, run("0"));
    let mut text: Value = serde_json::from_slice(&fs::read(directory.undo()).unwrap()).unwrap();
    text["boot_id"] = json!("another");
    fs::write(directory.undo(), text.to_string()).unwrap();
    assert!(UndoStore::new(&directory).read().unwrap().is_empty());
}

#[test]
fn a_file_cut_anywhere_is_damaged_and_never_half_believed() {
    let (_tree, directory) = directory();
    add(&directory, run("0"));
    add(&directory, guest("a"));
    let text = fs::read(directory.undo()).unwrap();
    let store = UndoStore::new(&directory);
    for length in 0..text.len() - 1 {
        // Without the closing brace nothing is complete.
        assert!(store.parse(&text[..length]).is_err() || text[..length].ends_with(b"}"), "{length}");
    }
    assert!(store.parse(&text).is_ok());
}

#[test]
fn a_damaged_file_stays_until_it_is_given_up() {
    let (_tree, directory) = directory();
    let store = UndoStore::new(&directory);
    assert_eq!(store.discard().unwrap(), None);
    directory.make().unwrap();
    let path = directory.undo();
    for (n, bad) in ["", "{", "null", r#"{"version":1}"#].into_iter().enumerate() {
        fs::write(&path, bad).unwrap();
        for _ in 0..2 {
            let error = store.read().unwrap_err();
            assert!(matches!(&error, UndoError::Damaged { path: found, .. } if *found == path), "{error}");
            assert!(store.change(|_| Ok(())).is_err(), "a damaged store is never overwritten");
            assert_eq!(fs::read_to_string(&path).unwrap(), bad);
        }
        let aside = store.discard().unwrap().unwrap();
        assert_eq!(aside, path.with_extension(format!("json.discarded-{}", n + 1)));
        assert_eq!(fs::read_to_string(&aside).unwrap(), bad);
        assert!(store.read().unwrap().is_empty());
    }
}

#[test]
fn a_file_of_another_version_is_damaged() {
    let (_tree, directory) = directory();
    add(&directory, run("0"));
    let text = fs::read_to_string(directory.undo()).unwrap();
    fs::write(directory.undo(), text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let error = UndoStore::new(&directory).read().unwrap_err().to_string();
    assert!(error.contains("version 2, this ksmith knows 1"), "{error}");
}

#[test]
fn what_is_not_exact_any_more_is_noted_in_place() {
    let (_tree, directory) = directory();
    let store = UndoStore::new(&directory);
    assert!(store.mark_inexact().is_err(), "there is nothing to be noted about");
    add(&directory, run("0"));
    assert!(store.read().unwrap().is_exact());
    for _ in 0..2 {
        store.mark_inexact().unwrap();
        assert!(!store.read().unwrap().is_exact());
    }
    add(&directory, guest("a"));
    assert!(!store.read().unwrap().is_exact(), "the guest's entry does not change that");
    KeptEntries::<StoredSetting>::open(&directory).unwrap().change(Vec::clear).unwrap();
    assert!(store.read().unwrap().is_exact(), "no setting is left");
}

#[test]
fn discarding_a_sound_store_keeps_what_it_says_about_guests() {
    let (_tree, directory) = directory();
    add(&directory, run("0"));
    add(&directory, guest("a"));
    let store = UndoStore::new(&directory);
    let aside = store.discard().unwrap().unwrap();
    assert!(fs::read_to_string(aside).unwrap().contains("\"run\""));
    let entries = store.read().unwrap();
    assert_eq!((entries.count(EntryKind::Setting), entries.count(EntryKind::SwitchedOff)), (0, 1));
    assert_eq!(store.discard().unwrap(), None);
}

#[test]
fn a_change_that_can_not_be_written_is_an_error_and_not_noted() {
    let (_tree, directory) = directory();
    fs::create_dir_all(directory.path().join("undo.json.new")).unwrap();
    let kept = KeptEntries::open(&directory).unwrap();
    let error = kept.change(|all| all.push(run("0"))).unwrap_err();
    assert!(matches!(error, UndoError::Directory { .. } | UndoError::Write { .. }), "{error}");
    assert!(kept.entries().is_empty());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = UndoStore::new(&StateDir::at("/nonexistent")).parse(&text);
    }
}
