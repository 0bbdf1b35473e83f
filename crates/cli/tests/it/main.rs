//! The `turnwise` program, its files and its documentation, from outside. One binary with a module per subject, because every test binary costs a link of all crates.

mod analyze;
mod chat;
mod cli;
mod crate_boundaries;
mod credit;
mod docs;
mod dry_run;
mod env;
mod eval;
mod evidence;
mod export;
mod index;
mod index_vectors;
mod kill;
mod methods;
mod play;
mod pretrained;
mod puzzles;
mod questions;
mod search;
mod shared_build;
mod sweep;
mod turnrd;
mod turnrd_run;
mod view;
mod webshop;
