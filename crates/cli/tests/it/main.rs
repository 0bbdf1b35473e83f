//! Tests of the `turnwise` program, its files and its documentation. There is one binary with a
//! module per subject, because every test binary costs a link of all crates.

mod analyze;
mod benchmark;
mod chat;
mod cli;
mod crate_boundaries;
mod credit;
mod docs;
mod dry_run;
mod earlier_run;
mod env;
mod eval;
mod evidence;
mod export;
#[cfg(target_os = "linux")]
mod faults;
mod fuzz_seeds;
mod index;
mod index_vectors;
mod init;
mod kill;
mod library;
mod messages;
mod methods;
mod outlives;
mod play;
mod pretrained;
mod puzzles;
mod questions;
mod release;
mod search;
mod server;
mod sft;
mod shared_build;
mod sweep;
mod terminal;
mod turnrd;
mod turnrd_run;
mod view;
mod webshop;

/// The output of the program with these arguments.
#[expect(clippy::unwrap_used, reason = "a test may fail loudly")]
fn turnwise(arguments: &[&str]) -> std::process::Output {
    std::process::Command::new(env!("CARGO_BIN_EXE_turnwise")).args(arguments).output().unwrap()
}
