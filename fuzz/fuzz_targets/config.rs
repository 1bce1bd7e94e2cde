//! The operator's files: ksmith's configuration and ksmtuned's.
#![no_main]

use std::path::Path;

use ksmith_core::decide::KsmtunedConfig;
use ksmith_service::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Config::parse(Path::new("ksmith.toml"), text) {
        assert!(!error.to_string().is_empty());
    }
    let _ = KsmtunedConfig::parse(text);
});
