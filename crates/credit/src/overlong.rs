//! DAPO's overlong shaping, a soft length penalty (Yu et al. 2025, "DAPO", equation 13). The
//! penalty is 0 up to `limit - buffer` tokens, grows linearly to `penalty` at `limit` tokens, and
//! stays there for longer responses.
//!
//! Differs from the paper: each turn is a response, and the penalty is subtracted from its reward
//! before credit assignment. History summaries have their own limit (`prompt.max_summary_tokens`)
//! and no penalty.

use serde::{Deserialize, Serialize};
use turnwise_core::Batch;

use crate::CreditError;

/// Settings of overlong shaping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongConfig {
    /// Maximum response tokens.
    pub limit: usize,
    /// Number of tokens before the limit over which the penalty grows.
    pub buffer: usize,
    /// Penalty at and above the limit.
    #[serde(default = "one")]
    pub penalty: f64,
}

fn one() -> f64 {
    1.0
}

impl OverlongConfig {
    /// Returns the reward term, at most 0, for a response length.
    pub fn shaping(&self, tokens: usize) -> f64 {
        let begin = self.limit.saturating_sub(self.buffer);
        if tokens <= begin {
            0.0
        } else if tokens >= self.limit {
            -self.penalty
        } else {
            -self.penalty * (tokens - begin) as f64 / (self.limit - begin) as f64
        }
    }

    /// Returns the settings with the task's own limit if that is shorter; the buffer is scaled in
    /// proportion.
    fn within(&self, own: Option<usize>) -> Self {
        let limit = own.map_or(self.limit, |own| own.min(self.limit));
        Self { limit, buffer: self.buffer * limit / self.limit.max(1), penalty: self.penalty }
    }

    /// Applies the penalty, using a task's own limit if that is shorter, and returns the number of
    /// penalized turns.
    ///
    /// # Errors
    /// Fails if the buffer exceeds the limit, or the penalty is negative, NaN or infinite.
    pub fn apply(&self, batch: &mut Batch) -> Result<usize, CreditError> {
        let Self { limit, buffer, penalty } = *self;
        if buffer > limit || !(penalty >= 0.0 && penalty.is_finite()) {
            let reason = format!(
                "buffer is {buffer} of limit {limit} (it must fit), penalty is {penalty} (0 or more)"
            );
            return Err(CreditError::Setting { method: "overlong", reason });
        }
        let mut touched = 0;
        let members = batch.groups.iter_mut().flat_map(|group| &mut group.trajectories);
        for trajectory in members {
            let own = self.within(trajectory.task.limits.response_tokens);
            for turn in trajectory.turns.iter_mut().filter(|turn| !turn.is_compaction()) {
                let shaping = own.shaping(turn.response_ids.len());
                touched += usize::from(shaping != 0.0);
                turn.shape_reward(shaping);
            }
        }
        Ok(touched)
    }
}
