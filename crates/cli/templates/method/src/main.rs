//! Adds the credit method `NAME` to `turnwise`.
//!
//! ```sh
//! cargo test                                         # tests the method
//! cargo run --release -- train method.toml           # trains with it
//! cargo run --release -- credit dump.jsonl --preset NAME
//! cargo run --release -- sweep | view | benchmark ...
//! ```

mod method;

use std::process::ExitCode;

use turnwise_cli::Registries;

use crate::method::{Method, PRESET};

/// The registries of turnwise with the method and its preset.
fn registries() -> Registries {
    let mut known = turnwise_cli::builtin();
    let credit = known.methods.credit;
    known.methods.credit = credit.with_refinement(method::KIND, Method::new).with_preset(PRESET);
    known
}

fn main() -> ExitCode {
    turnwise_cli::run(registries())
}
