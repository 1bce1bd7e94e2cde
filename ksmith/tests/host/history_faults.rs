//! The store of the history on disks that are full, read-only or fail, and after SIGKILL.

use std::path::Path;
use std::process::{Command, Stdio};

use ksmith_core::figures::FigureScalar;
use ksmith_record::{
    HistoryBounds, HistoryReader, HistorySnapshot, HistoryStore, HistoryTier, ReportQuery, ReportResolution,
    StoreFault, columns,
};

use crate::support::own::{in_own_process, on_own_host};
use crate::support::skipped;

/// The beginning of an hour in 2026, in milliseconds.
const BEGIN: i64 = 1_795_467_600_000;

fn moment(second: i64) -> HistorySnapshot {
    let host = columns::host().iter().map(|_| FigureScalar::Unsigned(second.unsigned_abs() << 20)).collect();
    HistorySnapshot { time: BEGIN + second * 1000, host, ..HistorySnapshot::default() }
}

fn open(directory: &Path) -> HistoryStore {
    HistoryStore::open(&directory.join("history.db"), "boot", BEGIN, HistoryBounds::default()).unwrap().store
}

/// The seconds of the rows in the file.
fn seconds(directory: &Path) -> Vec<i64> {
    let query = ReportQuery {
        since: BEGIN,
        until: i64::MAX,
        guest: None,
        columns: Vec::new(),
        resolution: ReportResolution::Tier(HistoryTier::Sample),
    };
    let report = HistoryReader::open(&directory.join("history.db")).unwrap().read_report(&query).unwrap();
    report
        .rows
        .iter()
        .map(|row| (row[0].as_f64().unwrap() * 1000.0) as i64 - BEGIN)
        .map(|time| time / 1000)
        .collect()
}

fn is_sound(directory: &Path) -> bool {
    let sqlite = rusqlite::Connection::open(directory.join("history.db")).unwrap();
    sqlite.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap() == "ok"
}

fn mount(arguments: &[&str]) {
    assert!(Command::new("mount").args(arguments).status().unwrap().success(), "mount {arguments:?}");
}

/// Writes ten seconds at a time until the disk refuses. Returns the seconds that were written.
fn write_until_refused(store: &mut HistoryStore, from: i64) -> i64 {
    let mut second = from;
    loop {
        let ten: Vec<HistorySnapshot> = (second..second + 10).map(moment).collect();
        match store.write(&ten) {
            Ok(()) => second += 10,
            Err(error) => {
                assert_eq!(error.fault(), StoreFault::Passing, "{error}");
                return second;
            }
        }
    }
}

#[test]
fn a_full_disk_loses_what_comes_meanwhile_and_nothing_else() {
    on_own_host(|| {
        let directory = std::env::temp_dir().join("disk");
        std::fs::create_dir(&directory).unwrap();
        let disk = directory.display().to_string();
        mount(&["-t", "tmpfs", "-o", "size=1m", "disk", &disk]);
        let mut store = open(&directory);
        let full = write_until_refused(&mut store, 0);
        assert!(full > 0);
        assert_eq!(seconds(&directory), (0..full).collect::<Vec<_>>());
        mount(&["-o", "remount,size=8m", &disk]);
        // The same store goes on, without being opened again.
        store.write(&[moment(full)]).unwrap();
        assert_eq!(seconds(&directory), (0..=full).collect::<Vec<_>>());
        assert!(is_sound(&directory));
    });
}

#[test]
fn a_file_system_that_is_read_only_from_the_start_is_a_passing_fault() {
    on_own_host(|| {
        let directory = std::env::temp_dir().join("disk");
        std::fs::create_dir(&directory).unwrap();
        let disk = directory.display().to_string();
        mount(&["-t", "tmpfs", "-o", "size=4m", "disk", &disk]);
        let mut store = open(&directory);
        store.write(&[moment(1)]).unwrap();
        store.close(BEGIN + 2000).unwrap();
        mount(&["-o", "remount,ro", &disk]);
        let error =
            HistoryStore::open(&directory.join("history.db"), "boot", BEGIN, HistoryBounds::default()).unwrap_err();
        assert_eq!(error.fault(), StoreFault::Passing, "{error}");
        // It can be read all the same.
        assert_eq!(seconds(&directory), [1]);
        mount(&["-o", "remount,rw", &disk]);
        let mut store = open(&directory);
        store.write(&[moment(2)]).unwrap();
        assert_eq!(seconds(&directory), [1, 2]);
    });
}

#[test]
fn a_disk_that_fails_is_a_passing_fault() {
    on_own_host(|| {
        let directory = std::env::temp_dir().join("disk");
        std::fs::create_dir(&directory).unwrap();
        let (disk, image) = (directory.display().to_string(), std::env::temp_dir().join("image"));
        let file = std::fs::File::create(&image).unwrap();
        file.set_len(16 << 20).unwrap();
        let made = Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).stderr(Stdio::null()).status();
        let mounted =
            Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&directory).stderr(Stdio::null()).status();
        if !(made.is_ok_and(|it| it.success()) && mounted.is_ok_and(|it| it.success())) {
            return skipped("no image of a disk can be mounted here (mke2fs, loop devices)");
        }
        let mut store = open(&directory);
        store.write(&[moment(1)]).unwrap();
        // What the image no longer has can be neither read nor written.
        file.set_len(1 << 20).unwrap();
        std::fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
        let mut second = 2;
        let error = loop {
            let many: Vec<HistorySnapshot> = (second..second + 2000).map(moment).collect();
            second += 2000;
            match store.write(&many).and_then(|()| store.tidy(BEGIN + second * 1000)) {
                Ok(()) => assert!(second < 400_000, "the disk fails, and no write does"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.fault(), StoreFault::Passing, "{error}");
        drop(store);
        let _ = Command::new("umount").args(["-l", &disk]).status();
    });
}

/// The environment variable that makes this test the program that is killed.
const WRITER: &str = "KSMITH_TEST_HISTORY";

#[test]
fn what_a_killed_writer_had_written_is_there_and_the_file_is_sound() {
    in_own_process(|| {
        let directory = tempfile::tempdir().unwrap();
        let mut before = 0;
        for round in 0..8 {
            let mut writer = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "history_faults::writes_until_it_is_killed", "--nocapture", "--ignored"])
                .env(WRITER, directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            // It is killed at whatever it does once it has written some more, a little later each time.
            let wanted = before + 100 + 37 * round;
            loop {
                let file = directory.path().join("said");
                let said =
                    std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
                if said >= wanted {
                    break;
                }
                assert!(writer.try_wait().unwrap().is_none(), "the writer has ended");
                std::thread::yield_now();
            }
            writer.kill().unwrap();
            writer.wait().unwrap();
            let there = seconds(directory.path());
            let last = there.last().copied().unwrap();
            assert_eq!(there, (0..=last).collect::<Vec<_>>());
            // Moments come in tens: all of them or none.
            assert_eq!(last % 10, 9);
            assert!(last >= wanted, "{last} of {wanted}");
            assert!(is_sound(directory.path()));
            before = last;
        }
    });
}

#[test]
#[ignore = "it is the program that another test kills"]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(WRITER) else { return };
    let directory = Path::new(&directory);
    let mut second = match directory.join("history.db").exists() {
        true => seconds(directory).last().map_or(0, |last| last + 1),
        false => 0,
    };
    let mut store = open(directory);
    loop {
        let ten: Vec<HistorySnapshot> = (second..second + 10).map(moment).collect();
        store.write(&ten).unwrap();
        store.tidy(BEGIN + second * 1000).unwrap();
        second += 10;
        let beside = directory.join("said.new");
        std::fs::write(&beside, format!("{}\n", second - 1)).unwrap();
        std::fs::rename(beside, directory.join("said")).unwrap();
    }
}
