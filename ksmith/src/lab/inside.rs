//! What runs inside a memory guest: fill the memory, say `ready`, then do as told on standard input.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::contents::{Contents, Part};
use super::region::{Kind, Region};

/// The host's page size: what ksmd compares.
fn page_size() -> usize {
    rustix::param::page_size()
}

/// One part in memory. `generation` counts rewrites: it is part of the content of what was rewritten.
struct Filled {
    part: Part,
    index: u64,
    generation: u64,
    region: Option<Region>,
}

/// Runs a memory guest until its standard input ends.
///
/// It prints `ready` when its memory holds what `contents` says. Then each line on standard input is a command,
/// answered with one line: `verify` (`ok`, or `bad N` with the number of pages that are not what they should
/// be), `rewrite PART` (gives the part with that index new content of this guest's own), `refill PART` (puts
/// the first content back), `hold PART` (keeps one page in 512 in a pipe, as I/O in flight does, so that it can't be
/// merged nor its huge page be split), `opt-out` (takes all memory of the process back from KSM).
///
/// # Errors
/// No memory, or the other end of standard output is gone.
pub fn serve(contents: &Contents, commands: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    die_with_parent()?;
    let mut parts = Vec::new();
    for (index, &part) in contents.0.iter().enumerate() {
        let region = match part.pages() {
            0 => None,
            pages => Some(Region::of_kind(kind(part), pages * page_size())?),
        };
        let mut filled = Filled { part, index: index as u64, generation: 0, region };
        filled.fill();
        parts.push(Arc::new(Mutex::new(filled)));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for part in &parts {
        if let Part::Churn { every, .. } = lock(part).part {
            spawn_churn(Arc::clone(part), every, Arc::clone(&stop))?;
        }
    }
    writeln!(answers, "ready")?;
    answers.flush()?;
    for line in commands.lines() {
        let answer = obey(&parts, line?.trim());
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

fn kind(part: Part) -> Kind {
    match part {
        Part::Shared { .. } => Kind::Shared,
        Part::Unmarked { .. } => Kind::Unmarked,
        Part::Hugetlb { .. } => Kind::Hugetlb,
        Part::Huge { .. } => Kind::Huge,
        _ => Kind::Mergeable,
    }
}

fn obey(parts: &[Arc<Mutex<Filled>>], command: &str) -> String {
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
        Some(("hold", index)) => part(index).map_or("no such part".to_owned(), |part| {
            match lock(part).region.as_mut().map(Region::hold) {
                Some(Err(error)) => error.to_string(),
                _ => "ok".to_owned(),
            }
        }),
        None if command == "opt-out" => match super::opt_out::opt_out() {
            Ok(()) => "ok".to_owned(),
            Err(error) => error.to_string(),
        },
        Some(("refill", index)) => part(index).map_or("no such part".to_owned(), |part| {
            let mut part = lock(part);
            part.generation = 0;
            part.fill();
            "ok".to_owned()
        }),
        _ => "unknown command".to_owned(),
    }
}

fn spawn_churn(part: Arc<Mutex<Filled>>, every: Duration, stop: Arc<AtomicBool>) -> io::Result<()> {
    std::thread::Builder::new().name("churn".to_owned()).spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            lock(&part).rewrite();
            std::thread::sleep(every);
        }
    })?;
    Ok(())
}

fn lock(part: &Mutex<Filled>) -> std::sync::MutexGuard<'_, Filled> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guest must not outlive the program that started it, however that ended.
fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

impl Filled {
    fn rewrite(&mut self) {
        self.generation += 1;
        self.fill();
    }

    fn fill(&mut self) {
        let (part, index, generation) = (self.part, self.index, self.generation);
        let Some(region) = &mut self.region else { return };
        for (number, page) in region.bytes_mut().chunks_exact_mut(page_size()).enumerate() {
            match stream(part, index, generation, number) {
                None => page.fill(0),
                Some(stream) => {
                    for (word, bytes) in stream.zip(page.chunks_exact_mut(8)) {
                        bytes.copy_from_slice(&word.to_ne_bytes());
                    }
                }
            }
        }
    }

    fn wrong_pages(&self) -> usize {
        let Some(region) = &self.region else { return 0 };
        let is_wrong =
            |(number, page): &(usize, &[u8])| match stream(self.part, self.index, self.generation, *number) {
                None => page.iter().any(|&byte| byte != 0),
                Some(stream) => {
                    stream.zip(page.chunks_exact(8)).any(|(word, bytes)| bytes != word.to_ne_bytes().as_slice())
                }
            };
        region.bytes().chunks_exact(page_size()).enumerate().filter(is_wrong).count()
    }
}

/// The words of one page, or `None` for a page of zeros. Streams that should differ do so in every word.
fn stream(part: Part, index: u64, generation: u64, number: usize) -> Option<impl Iterator<Item = u64>> {
    let number = number as u64;
    let own = || mix(u64::from(std::process::id()) << 32 | index << 16).wrapping_add(mix(generation));
    let origin = match part {
        Part::Zero { .. } if generation == 0 => return None,
        Part::Equal { seed, .. } | Part::Huge { seed, .. } if generation == 0 => {
            mix(seed ^ 0x6b73_6d69_7468).wrapping_add(number << 16)
        }
        Part::Same { seed, .. } if generation == 0 => mix(seed ^ 0x7361_6d65),
        _ => own().wrapping_add(number << 16),
    };
    Some((0..).map(move |word: u64| mix(origin.wrapping_add(word))))
}

/// SplitMix64's output function (Steele, Lea and Flood, OOPSLA 2014): a bijection, so distinct inputs give
/// distinct words.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(part: Part, generation: u64, number: usize) -> Option<u64> {
        stream(part, 0, generation, number).and_then(|mut words| words.next())
    }

    #[test]
    fn equal_pages_depend_on_seed_and_number_only() {
        let part = |seed| Part::Equal { seed, pages: 2 };
        assert_eq!(first(part(1), 0, 0), first(part(1), 0, 0));
        assert_ne!(first(part(1), 0, 0), first(part(1), 0, 1));
        assert_ne!(first(part(1), 0, 0), first(part(2), 0, 0));
        assert_ne!(first(part(1), 0, 0), first(part(1), 1, 0));
        assert_eq!(first(Part::Zero { pages: 1 }, 0, 0), None);
    }

    #[test]
    fn a_guest_fills_verifies_and_rewrites() {
        let contents =
            Contents(vec![Part::Equal { seed: 1, pages: 4 }, Part::Zero { pages: 2 }, Part::Unique { pages: 0 }]);
        let mut answers = Vec::new();
        let commands = "verify\nrewrite 1\nverify\nrefill 1\nrewrite 9\nnonsense\nverify\n";
        serve(&contents, commands.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        assert_eq!(answers, "ready\nok\nok\nok\nok\nno such part\nunknown command\nok\n");
    }

    #[test]
    fn verify_counts_pages_that_are_not_what_they_should_be() {
        let part = Part::Equal { seed: 1, pages: 4 };
        let mut filled = Filled {
            part,
            index: 0,
            generation: 0,
            region: Some(Region::of_kind(Kind::Mergeable, 4 * page_size()).unwrap()),
        };
        filled.fill();
        filled.region.as_mut().unwrap().bytes_mut()[2 * page_size() + 5] ^= 1;
        assert_eq!(filled.wrong_pages(), 1);
    }
}
