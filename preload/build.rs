//! Linker arguments of libksmith.so and libksmith_blocks.so.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The name that a program linked with -lksmith asks for.
    let blocks = if std::env::var_os("CARGO_FEATURE_BLOCKS").is_some() { "_blocks" } else { "" };
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libksmith{blocks}.so");
    // The program's calls lead into it, and a thread of it may run: it can't be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
