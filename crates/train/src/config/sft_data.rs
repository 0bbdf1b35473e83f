//! Your own conversations for supervised training.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Assistant messages that supervised training takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrainOn {
    /// All of them.
    #[default]
    All,
    /// The last one of each conversation.
    Last,
}

/// Own conversations, instead of an environment's demonstrations. The loss is on the tokens of
/// assistant messages alone, the token that ends them included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SftDataConfig {
    /// The file: OpenAI messages, ShareGPT, ATIF, or trajectories of another format that `turnwise credit`
    /// reads; JSON lines, JSON or Parquet.
    pub path: PathBuf,
    /// Format of the file; `auto` finds it from the file.
    #[schemars(length(min = 1))]
    pub format: String,
    /// Passes over the conversations. They count if `sft.steps` is 0, which is then set to their updates.
    #[schemars(range(min = 1, max = 100000))]
    pub epochs: u64,
    /// Fraction of conversations that are held out and not trained on; 0 holds none out.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub held_out: f64,
    /// Updates between measurements of the held-out loss; 0 measures once an epoch. It is always measured before the first
    /// and after the last update.
    #[schemars(range(max = 1000000000))]
    pub held_out_every: u64,
    /// Assistant messages that are trained on.
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
