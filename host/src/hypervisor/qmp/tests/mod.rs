//! Replies of monitors, right and wrong ones.

mod wrong_peer;

use super::*;

/// A monitor that knows these commands.
struct MadeUpMonitor(Value);

impl QmpMonitor for MadeUpMonitor {
    fn execute(&mut self, command: &str, _arguments: Value, _patience: Duration) -> Result<Value, MonitorError> {
        let refused = || MonitorError::Refused { command: command.to_owned(), why: "unknown".to_owned() };
        self.0.get(command).cloned().ok_or_else(refused)
    }
}

#[test]
fn memory_that_the_command_line_leaves_open_is_the_monitors_word() {
    let answers = json!({
        "query-name": {}, "query-uuid": {}, "query-status": {}, "query-memdev": [],
        "query-memory-size-summary": { "base-memory": 1024, "plugged-memory": 512 },
    });
    let mut old = answers.clone();
    old.as_object_mut().unwrap().remove("query-memory-size-summary");
    for (answers, known, expected) in
        [(&answers, None, Some(1536)), (&answers, Some(1), Some(1)), (&old, None, None)]
    {
        let reply = answer(Ok(Box::new(MadeUpMonitor(answers.clone()))), known);
        assert_eq!((reply.memory_bytes, reply.error), (expected, None));
    }
}
