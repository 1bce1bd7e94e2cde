//! A guest that chases a pointer through all of its memory: each access is at an address that the one before gives.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::child::BenchChild;
use crate::guest::BenchGuest;
use crate::mixture::{MIXTURES, MemoryMixture};

/// The first argument of this program where it is a guest.
pub const GUEST: &str = "be-a-guest";

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// A process of this program that holds a mixture.
pub struct ChasingGuest(BenchChild);

impl ChasingGuest {
    /// Starts it with `mib` MiB in huge pages, filled on return.
    pub fn start(mixture: MemoryMixture, mib: usize) -> Self {
        let place = MIXTURES.iter().position(|other| other.in_words() == mixture.in_words()).unwrap();
        let mut child = BenchChild::start(&[GUEST, &place.to_string(), &mib.to_string()]);
        assert_eq!(child.reply(), "ready");
        Self(child)
    }
}

impl BenchGuest for ChasingGuest {
    fn pid(&self) -> u32 {
        self.0.pid()
    }

    fn begin(&mut self, time: Duration) {
        self.0.tell(&time.as_secs().to_string());
    }

    fn accesses(&mut self) -> f64 {
        self.0.reply().parse().unwrap()
    }
}

/// Holds a mixture in huge pages, and chases for as many seconds as each line says.
pub fn be_guest(arguments: &[String]) {
    let [place, mib] = arguments else { panic!("mixture, MiB") };
    let (mixture, mib) = (MIXTURES[place.parse::<usize>().unwrap()], mib.parse::<usize>().unwrap());
    let memory = map_huge(mib << 20);
    let pages = memory.len() / PAGE;
    let own = u64::from(std::process::id());
    for (number, page) in memory.chunks_exact_mut(PAGE).enumerate() {
        // Written also where it is empty, so that the huge page is there.
        page[..16].copy_from_slice(&mixture.page_content(number, own).first_bytes());
    }
    let mut out = std::io::stdout();
    writeln!(out, "ready").unwrap();
    let mut state = own << 32 | 1;
    for line in std::io::stdin().lines() {
        let end = Instant::now() + Duration::from_secs(line.unwrap().parse().unwrap());
        let mut accesses = 0_u64;
        while Instant::now() < end {
            for _ in 0..4096 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let page = (state % pages as u64) as usize;
                // The next address waits for this byte, which is 0 wherever it is read.
                state = state.wrapping_add(u64::from(memory[page * PAGE + 64 + (state as usize >> 50) % 3968]));
            }
            accesses += 4096;
        }
        writeln!(out, "{accesses}").unwrap();
    }
}

/// Maps mergeable memory in huge pages.
fn map_huge(length: usize) -> &'static mut [u8] {
    // SAFETY: a new mapping overlaps nothing, and is never unmapped.
    unsafe {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let all = length + HUGE;
        let start =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, flags);
        let start = start.unwrap().cast::<u8>();
        let start = start.add(start.align_offset(HUGE));
        for advice in [Advice::LinuxHugepage, Advice::LinuxMergeable] {
            rustix::mm::madvise(start.cast(), length, advice).unwrap();
        }
        std::slice::from_raw_parts_mut(start, length)
    }
}
