//! Reads trajectories, whether hand-written or from other frameworks, and writes advantages.
//!
//! Internal to the workspace: nothing here is stable.
//!
//! [`read`] parses JSON lines or Parquet into batches for credit assignment; [`write_rows`] writes
//! advantages in either format. [`read_conversations`] keeps the messages, for SFT. The input
//! formats are [`turnwise`], [`verl`], [`trl`], [`verifiers`], and, in [`conversation`], OpenAI
//! messages, ShareGPT and ATIF.
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
mod json_bounds;
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
