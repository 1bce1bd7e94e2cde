//! `/sys/kernel/mm/ksm`: the same text in every file, and the figures derived from it.
#![no_main]

use ksmith_core::account::HostTotals;
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::{KernelFileSource, Ksm};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use libfuzzer_sys::fuzz_target;

struct KsmText<'a>(&'a str);

impl KernelFileSource for KsmText<'_> {
    fn text(&mut self, _: &'static str) -> Reading<&str> {
        Reading::Value(self.0)
    }
}

fuzz_target!(|text: &str| {
    let ksm = Ksm::read(&mut KsmText(text));
    for (_, reading) in ksm.entries() {
        let _ = reading.to_string();
    }
    let now = KnobSettings::current(&ksm);
    assert!(now.differing_from(&ksm).is_empty());
    let totals = HostTotals::from_sample(&Sample { page_size: 4096, ksm, ..Sample::default() });
    assert!(totals.profit_bytes <= i64::try_from(totals.saved_bytes).unwrap_or(i64::MAX));
    for knob in Knob::ALL {
        if let Ok(value) = knob.parse_value(text) {
            assert_eq!(knob.parse_value(&knob.text(value)), Ok(value));
        }
    }
    let _ = KernelVersion::parse(text);
});
