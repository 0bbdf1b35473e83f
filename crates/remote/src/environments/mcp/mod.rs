//! Tools from MCP servers: `kind = "mcp"`.
//!
//! MCP has no rewards, so each task line has answers or names a tool that judges the final state.

mod judge;
mod program;
mod session;
mod settings;
mod tasks;
mod tools;
mod world;

pub use settings::McpConfig;
pub use world::{McpKind, McpSet};
