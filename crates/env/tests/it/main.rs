//! Tests of the environments through their public interface, in one binary to save linking time.

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
