//! Tools of MCP servers: `kind = "mcp"`.
//!
//! | file | subject |
//! |---|---|
//! | `session.rs` | a client of a server: a child process or streamable HTTP |
//! | `tools.rs` | the tools of a server as a policy sees and calls them |
//! | `tasks.rs` | the lines of task files |
//! | `judge.rs` | rewards: answers that are compared, or a tool that judges |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] over servers |
//!
//! The protocol has no rewards. A task's line states what its answer is, or which tool judges the state
//! that the calls have led to.

mod judge;
mod session;
mod settings;
mod tasks;
mod tools;
mod world;

pub use settings::McpConfig;
pub use world::{McpKind, McpSet};
