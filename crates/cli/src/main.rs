//! The turnwise command.
fn main() {}
