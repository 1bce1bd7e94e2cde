//! Child processes that hold memory, as guests of a benchmark.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use ksmith_core::sketch::mix;

/// A child process of this program that holds a given number of MiB, all pages different. Killed on drop.
pub struct HolderProcess(Child);

impl HolderProcess {
    /// Starts a child, and waits until its memory is written.
    pub fn start(number: u64, mib: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["hold", &number.to_string(), &mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Self(child)
    }

    /// Returns its PID.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for HolderProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs as such a child if the arguments say so: holds its memory until its input ends.
pub fn hold() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, word, number, mib] = &arguments[..] else { return };
    if word != "hold" {
        return;
    }
    let (number, mib): (u64, usize) = (number.parse().unwrap(), mib.parse().unwrap());
    let mut memory = vec![0_u8; mib << 20];
    for (at, word) in memory.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = mix(at as u64 ^ number << 40).to_le_bytes();
    }
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    std::hint::black_box(memory);
    std::process::exit(0);
}

/// Returns a number from the environment, or the default.
pub fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}
