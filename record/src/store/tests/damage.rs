//! Files that are damaged, another program's, or of any bytes.

use proptest::prelude::*;

use super::*;

#[test]
fn a_damaged_file_is_set_aside_and_another_programs_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.db");
    fs::write(&path, vec![0x5a; 9000]).unwrap();
    let opened = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap();
    let aside = opened.set_aside.unwrap();
    assert_eq!(fs::read(&aside).unwrap(), vec![0x5a; 9000]);
    drop(opened.store);
    let other = directory.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    let before = fs::read(&other).unwrap();
    let error = HistoryStore::open(&other, "boot", BEGIN, HistoryBounds::default()).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(fs::read(&other).unwrap(), before);
    let error = HistoryReader::open(&other).unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
    let error = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap_err();
    assert!(error.to_string().contains("later version"), "{error}");
}

#[test]
fn damage_in_the_middle_of_the_file_is_an_error_and_opening_again_sets_it_aside() {
    let mut rig = rig();
    let moments: Vec<HistorySnapshot> = (0..20_000).map(|n| host(BEGIN + n * 1000, n as u64, 0)).collect();
    rig.write(&moments).unwrap();
    let StoreRig { directory, store } = rig;
    let path = directory.path().join("history.db");
    store.close(BEGIN).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len();
    bytes[4096..length - 4096].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let opened = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default());
    // Either opening sees it, or the first write does.
    let is_set_aside = match opened {
        Ok(OpenedStore { set_aside: Some(_), .. }) => true,
        Ok(OpenedStore { mut store, set_aside: None }) => {
            let error = store.write(&[host(BEGIN + HOUR * 24, 1, 1)]).unwrap_err();
            assert_eq!(error.fault(), StoreFault::Corrupt, "{error}");
            drop(store);
            HistoryStore::set_aside(&path).is_ok()
        }
        Err(error) => panic!("{error}"),
    };
    assert!(is_set_aside);
    assert!(HistoryReader::open(&path).map(|_| ()).is_ok() || !path.exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_file_of_any_bytes_is_an_error_or_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..5000), keeps_head: bool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("history.db");
        let mut content = if keeps_head { b"SQLite format 3\0".to_vec() } else { Vec::new() };
        content.extend(&bytes);
        fs::write(&path, &content).unwrap();
        if let Ok(reader) = HistoryReader::open(&path) {
            let _ = reader.read_report(&query(0, i64::MAX, &[]));
        }
    }

    /// A file with corrupted bytes causes an error or a result, and the writer continues or sets it aside.
    #[test]
    fn a_file_with_wrong_bytes_never_ends_the_program(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let mut rig = rig();
        let moments: Vec<HistorySnapshot> = (0..300)
            .map(|n| HistorySnapshot { guests: Some(vec![guest("a", n as u64)]), ..host(BEGIN + n * 1000, n as u64, 0) })
            .collect();
        rig.write(&moments).unwrap();
        let StoreRig { directory, store } = rig;
        let path = directory.path().join("history.db");
        store.close(BEGIN).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, &bytes).unwrap();
        if let Ok(reader) = HistoryReader::open(&path) {
            let _ = reader.read_report(&query(0, i64::MAX, &[]));
        }
        if let Ok(OpenedStore { mut store, .. }) = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()) {
            let _ = store.write(&[host(BEGIN + HOUR, 1, 1)]);
        }
    }
}
