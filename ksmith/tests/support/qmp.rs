//! A client of QEMU's monitor that is none of ksmith's.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// A connection to a monitor, which serves no other meanwhile.
pub struct QmpClient(BufReader<UnixStream>);

impl QmpClient {
    pub fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let mut client = Self(BufReader::new(stream));
        client.execute("qmp_capabilities", json!({}));
        client
    }

    /// Executes a command, which must succeed. Returns its answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Value {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{line}").unwrap();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let told: Value = serde_json::from_str(&line).expect("QEMU answers");
            assert!(told.get("error").is_none(), "{command}: {told}");
            if let Some(answer) = told.get("return") {
                return answer.clone();
            }
        }
    }
}
