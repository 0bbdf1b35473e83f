//! Runs of the trainer on tiny models. One binary with a module per subject, because every test binary costs a link of all crates.

mod chat;
mod common;
mod composition;
mod endings;
mod examples;
mod lora;
mod paper;
mod presets;
mod resume;
mod warning;
mod webshop;
