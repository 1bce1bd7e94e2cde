//! A line on either socket of the daemon: a request, and a reply as a client parses it.
#![no_main]

use ksmith_service::control::{ControlReply, ControlRequest};
use ksmith_service::user_socket::protocol::{self, UserRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(request) = UserRequest::parse(text) {
        assert_eq!(UserRequest::parse(&request.to_string()), Ok(request));
    }
    let _ = protocol::figure(text, "passes");
    let _ = protocol::error(text);
    if let Ok(request) = serde_json::from_str::<ControlRequest>(text) {
        let again = serde_json::to_string(&request).unwrap_or_default();
        assert_eq!(serde_json::from_str::<ControlRequest>(&again).ok(), Some(request));
    }
    let _ = serde_json::from_str::<ControlReply>(text);
});
