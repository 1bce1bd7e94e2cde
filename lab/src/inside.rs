//! The process of a memory guest: it fills its memory, prints `ready`, and obeys commands on standard input.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::contents::{GuestContents, MemoryPart};
use super::filled::{FilledPart, lock};
use super::worker::GuestWorker;

/// Runs a memory guest until its standard input ends.
///
/// The guest prints `ready` when its memory holds `contents`. Each line on standard input is a command and gets
/// one line in answer:
///
/// * `verify`: `ok`, or `bad N` with the number of pages that hold wrong content.
/// * `rewrite PART`: writes new content, unique to this guest, into the part with this index.
/// * `refill PART`: restores the part's first content.
/// * `hold PART`: keeps one page in 512 in a pipe, as I/O in flight does. The kernel can then neither merge the
///   page nor split its huge page.
/// * `opt-out`: withdraws all memory of the process from KSM.
/// * `work PERCENT`: sets the load of the worker.
/// * `done`: `done N`, the number of pages that the worker has processed.
///
/// # Errors
/// The memory can't be mapped, or the reader of standard output has closed it.
pub fn serve(
    contents: &GuestContents,
    is_huge: bool,
    commands: impl BufRead,
    mut answers: impl Write,
) -> io::Result<()> {
    die_with_parent()?;
    let mut parts = Vec::new();
    for (index, &part) in contents.0.iter().enumerate() {
        parts.push(Arc::new(Mutex::new(FilledPart::new(part, index, is_huge)?)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for part in &parts {
        if let MemoryPart::Churn { every, .. } = lock(part).part {
            spawn_churn(Arc::clone(part), every, Arc::clone(&stop))?;
        }
    }
    let worker = GuestWorker::start(&parts)?;
    writeln!(answers, "ready")?;
    answers.flush()?;
    for line in commands.lines() {
        let answer = obey(&parts, worker.as_ref(), line?.trim());
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

fn obey(parts: &[Arc<Mutex<FilledPart>>], worker: Option<&GuestWorker>, command: &str) -> String {
    let part = |index: &str| index.parse::<usize>().ok().and_then(|index| parts.get(index));
    match command.split_once(' ') {
        None if command == "verify" => match parts.iter().map(|part| lock(part).wrong_pages()).sum::<usize>() {
            0 => "ok".to_owned(),
            wrong => format!("bad {wrong}"),
        },
        Some(("rewrite", index)) => part(index).map_or("no such part".to_owned(), |part| {
            lock(part).rewrite();
            "ok".to_owned()
        }),
        Some(("hold", index)) => part(index).map_or("no such part".to_owned(), |part| match lock(part).hold() {
            Err(error) => error.to_string(),
            Ok(()) => "ok".to_owned(),
        }),
        None if command == "opt-out" => match super::opt_out::opt_out() {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        },
        Some(("refill", index)) => part(index).map_or("no such part".to_owned(), |part| {
            lock(part).refill();
            "ok".to_owned()
        }),
        Some(("work", percent)) => match (worker, percent.parse::<u8>()) {
            (Some(worker), Ok(percent @ 0..=100)) => {
                worker.set_percent(percent);
                "ok".to_owned()
            }
            _ => "no such work".to_owned(),
        },
        None if command == "done" => format!("done {}", worker.map_or(0, GuestWorker::done)),
        _ => "unknown command".to_owned(),
    }
}

fn spawn_churn(part: Arc<Mutex<FilledPart>>, every: Duration, stop: Arc<AtomicBool>) -> io::Result<()> {
    std::thread::Builder::new().name("churn".to_owned()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            lock(&part).rewrite();
            std::thread::sleep(every);
        }
    })?;
    Ok(())
}

/// A guest must not outlive the program that started it, however that ended.
fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_fills_verifies_and_rewrites() {
        let contents = GuestContents(vec![
            MemoryPart::Equal { seed: 1, pages: 4 },
            MemoryPart::Zero { pages: 2 },
            MemoryPart::Unique { pages: 0 },
        ]);
        let mut answers = Vec::new();
        let commands = "verify\nrewrite 1\nverify\nrefill 1\nrewrite 9\nnonsense\nwork 5\ndone\nverify\n";
        serve(&contents, false, commands.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        assert_eq!(answers, "ready\nok\nok\nok\nok\nno such part\nunknown command\nno such work\ndone 0\nok\n");
    }

    #[test]
    fn a_worker_works_when_told_and_is_counted() {
        let contents = GuestContents(vec![
            MemoryPart::Equal { seed: 1, pages: 4 },
            MemoryPart::Work { pages: 4, percent: 100 },
        ]);
        let parts = contents.0.iter().enumerate();
        let parts: Vec<_> =
            parts.map(|(i, &part)| Arc::new(Mutex::new(FilledPart::new(part, i, false).unwrap()))).collect();
        let worker = GuestWorker::start(&parts).unwrap().unwrap();
        while worker.done() < 100 {
            std::thread::yield_now();
        }
        assert_eq!(obey(&parts, Some(&worker), "work 0"), "ok");
        assert_eq!(obey(&parts, Some(&worker), "work 101"), "no such work");
        assert_eq!(obey(&parts, Some(&worker), "verify"), "ok");
        assert!(obey(&parts, Some(&worker), "done").strip_prefix("done ").unwrap().parse::<u64>().unwrap() >= 100);
    }
}
