//! Tools of MCP servers: `kind = "mcp"`.
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
