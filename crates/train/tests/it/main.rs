//! Training runs with tiny models.

mod branches;
mod chat;
mod clipping;
mod common;
mod compaction;
mod composition;
mod correction;
#[path = "../../../../examples/custom_environment.rs"]
#[expect(dead_code, reason = "the example's `main` is for the terminal")]
mod custom_environment;
mod endings;
mod examples;
mod foreign_learner;
mod imports;
mod invariants;
mod judge;
mod lora;
mod paper;
mod pictures;
mod presets;
mod process;
mod puzzles;
mod resume;
mod rollout;
mod search;
mod shared_warm_start;
mod staleness;
mod tool_tasks;
mod tools;
mod warning;
mod webshop;
mod worlds;
