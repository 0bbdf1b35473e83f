//! Tools of MCP servers: `kind = "mcp"`.
//!
//! | file | subject |
//! |---|---|
//! | `session.rs` | a client session: a child process or streamable HTTP |
//! | `tools.rs` | the tools as the policy sees and calls them |
//! | `tasks.rs` | the lines of task files |
//! | `judge.rs` | rewards: compared answers, or a judging tool |
//! | `settings.rs` | the keys of `[env]` |
//! | `world.rs` | the [`turnwise_core::TaskSet`] |
//!
//! The protocol has no rewards. A task's line has its answers, or names a tool that judges the
//! final state.

mod judge;
mod session;
mod settings;
mod tasks;
mod tools;
mod world;

pub use settings::McpConfig;
pub use world::{McpKind, McpSet};
