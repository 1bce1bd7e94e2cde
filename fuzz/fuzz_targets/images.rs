//! A memory image: raw pages, an ELF core, QEMU's migration stream, and anything else.
#![no_main]

use ksmith_host::estimate::image_fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    image_fuzzing::read_image(bytes);
});
