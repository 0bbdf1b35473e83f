//! Your own conversations for SFT.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Assistant messages to train on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainOn {
    /// All assistant messages.
    #[default]
    All,
    /// The last assistant message of each conversation.
    Last,
}

/// Your own conversations instead of demonstrations. Only assistant messages and their end tokens
/// have a loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftDataConfig {
    /// JSON lines, JSON or Parquet file of OpenAI messages, ShareGPT, ATIF, or another trajectory
    /// format of `turnwise credit`.
    pub path: PathBuf,
    /// Format of the file; `auto` detects it.
    #[schemars(length(min = 1))]
    pub format: String,
    /// Passes over the conversations, which determine the number of updates if `sft.steps` is 0.
    #[schemars(range(min = 1, max = 100000))]
    pub epochs: u64,
    /// Fraction of conversations to hold out; 0: none.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub held_out: f64,
    /// Updates between measurements of the held-out loss; 0: once per epoch. The loss is always
    /// measured before the first and after the last update.
    #[schemars(range(max = 1000000000))]
    pub held_out_every: u64,
    /// Assistant messages to train on.
    pub train_on: TrainOn,
}

impl Default for SftDataConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: "auto".into(),
            epochs: 1,
            held_out: 0.05,
            held_out_every: 0,
            train_on: TrainOn::All,
        }
    }
}
