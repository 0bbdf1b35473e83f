//! The worlds through their public interface. One binary with a module per subject, because every test binary costs a link of all crates.

mod alfworld;
mod alfworld_conformance;
mod bfcl_conformance;
mod prompts;
mod search;
mod snapshots;
mod tau2;
mod webshop;
mod webshop_conformance;
mod webshop_search;
mod worlds;
