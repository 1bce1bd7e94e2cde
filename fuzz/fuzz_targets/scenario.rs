//! The scenarios of the lab, in both forms, and the parts of a guest's memory.
#![no_main]

use std::path::Path;

use ksmith_lab::MemoryPart;
use ksmith_lab::scenario::{ScenarioForm, Scenario};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for form in [ScenarioForm::Long, ScenarioForm::Short] {
        if let Ok(scenario) = Scenario::parse(Path::new("fuzz.toml"), text, form) {
            assert!(scenario.duration.as_secs() <= 86_400);
        }
    }
    let _ = text.parse::<MemoryPart>();
});
