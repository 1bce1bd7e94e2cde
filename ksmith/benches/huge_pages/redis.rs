//! A Redis server that holds a mixture, one page a value, and a client that reads 16 bytes of values at random, half of the time.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::guest::BenchGuest;
use crate::mixture::MemoryMixture;
use crate::opt_in::opt_in;

/// The length of a value that fills a page: Redis puts 5 bytes before it (`sdshdr16` of src/sds.h) and one after, and its
/// allocator rounds up to 4096.
const VALUE: usize = 4086;

/// Requests that are sent before their replies are read.
const PIPELINE: usize = 64;

/// The length of a reply with 16 bytes.
const REPLY: usize = 23;

/// A Redis server with mergeable memory in huge pages.
pub struct RedisGuest {
    server: Child,
    directory: tempfile::TempDir,
    values: usize,
    client: Option<JoinHandle<f64>>,
}

impl RedisGuest {
    /// Starts it with `mib` MiB of values, filled on return.
    pub fn start(mixture: MemoryMixture, mib: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let mut command = Command::new("redis-server");
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--disable-thp", "no", "--unixsocket"])
            .arg(&socket)
            .env("MALLOC_CONF", "thp:always,narenas:1")
            .stdout(Stdio::null());
        let server = opt_in(&mut command)
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server (Debian: redis-server): {error}"));
        let guest = Self { server, directory, values: (mib << 20) / 4096, client: None };
        guest.fill(mixture);
        guest
    }

    fn fill(&self, mixture: MemoryMixture) {
        let mut stream = self.connect();
        let mut value = vec![0; VALUE];
        let mut replies = [0; PIPELINE * 5];
        let numbers: Vec<usize> = (0..self.values).collect();
        for numbers in numbers.chunks(PIPELINE) {
            let mut requests = Vec::with_capacity(PIPELINE * 4200);
            for number in numbers {
                // In the middle, away from Redis' own bytes.
                value[64..80].copy_from_slice(&mixture.page_content(*number, u64::from(self.pid())).first_bytes());
                write!(requests, "*3\r\n$3\r\nSET\r\n$8\r\n{number:08}\r\n${VALUE}\r\n").unwrap();
                requests.extend(&value);
                requests.extend(b"\r\n");
            }
            stream.write_all(&requests).unwrap();
            let replies = &mut replies[..5 * numbers.len()];
            stream.read_exact(replies).unwrap();
            assert!(replies.chunks(5).all(|reply| reply == b"+OK\r\n"));
        }
    }

    fn connect(&self) -> UnixStream {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match UnixStream::connect(self.directory.path().join("socket")) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < end, "redis-server: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl BenchGuest for RedisGuest {
    fn pid(&self) -> u32 {
        self.server.id()
    }

    fn begin(&mut self, time: Duration) {
        let (stream, values) = (self.connect(), self.values as u64);
        self.client = Some(std::thread::spawn(move || read_at_random(stream, values, time)));
    }

    fn accesses(&mut self) -> f64 {
        self.client.take().unwrap().join().unwrap()
    }
}

impl Drop for RedisGuest {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Reads values at random for this time, sleeping half of it, and returns the number that was read.
fn read_at_random(mut stream: UnixStream, values: u64, time: Duration) -> f64 {
    let end = Instant::now() + time;
    let (mut state, mut accesses) = (1_u64, 0);
    let mut replies = [0; PIPELINE * REPLY];
    while Instant::now() < end {
        let begun = Instant::now();
        let mut requests = Vec::with_capacity(PIPELINE * 64);
        for _ in 0..PIPELINE {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = state % values;
            write!(requests, "*4\r\n$8\r\nGETRANGE\r\n$8\r\n{key:08}\r\n$4\r\n2048\r\n$4\r\n2063\r\n").unwrap();
        }
        stream.write_all(&requests).unwrap();
        stream.read_exact(&mut replies).unwrap();
        assert!(replies.starts_with(b"$16\r\n"), "{}", String::from_utf8_lossy(&replies[..REPLY]));
        accesses += PIPELINE;
        // Clients that never rest would leave ksmd no CPU, and nothing would merge under any competitor.
        std::thread::sleep(begun.elapsed());
    }
    accesses as f64
}
