//! Reads trajectories, hand-written or from other frameworks, and writes advantages.
//!
//! Internal to the workspace: nothing here is stable.
//!
//! [`read`] parses a file in any supported format into batches for credit assignment. Data that
//! does not fit into a batch is kept separately: where each trajectory came from, critic values,
//! and credits from an external decomposer. [`write_rows`] writes advantages, one line per
//! trajectory. Both support JSON lines (`.jsonl`, `.jsonl.zst`) and Parquet.
//!
//! Each format is documented in its module: [`turnwise`], [`verl`], [`trl`], [`verifiers`], and in
//! [`conversation`] OpenAI messages, ShareGPT and ATIF. [`read_conversations`] is for SFT and keeps
//! the structure of messages.
//!
//! ```
//! use turnwise_trajectory_io::{ReadOptions, read};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("two.jsonl");
//! let line = r#"{"group": "a", "turns": [{"observation": "s0", "action": "open", "reward": 1}]}"#;
//! std::fs::write(&path, format!("{line}\n{line}\n"))?;
//! let dump = read(&path, &ReadOptions::default())?;
//! let group = &dump.batches[0].batch.groups[0];
//! assert_eq!((group.trajectories.len(), group.trajectories[0].outcome_return()), (2, 1.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod conversation;
pub mod trl;
pub mod turnwise;
pub mod verifiers;
pub mod verl;

mod chat;
mod decoded;
mod dump;
mod error;
pub mod export;
mod format;
mod lines;
mod not_finite;
mod parquet_bounds;
mod parquet_rows;
mod write;

pub use conversation::atif::is_harbor_job;
pub use conversation::{ChatCall, ChatMessage, Conversation, Conversations, read_conversations};
pub use dump::{Dump, DumpBatch, Origin, TurnExtras};
pub use error::DumpError;
pub use export::{ExportFormat, Exported};
pub use format::{Format, ReadOptions, read};
pub use parquet_rows::parquet_rows;
pub use turnwise::from_values;
pub use write::{Row, check_rows_name, write_rows};
