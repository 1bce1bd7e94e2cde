//! The `ksmith` command.

fn main() {}
