//! How libksmith.so is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The name that a program linked with -lksmith asks for.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libksmith.so");
    // The program's calls lead into it, and a thread of it may run: it can't be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
