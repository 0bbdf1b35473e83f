//! DAPO's overlong shaping: a soft penalty on responses that come near the length limit
//! (Yu et al. 2025, "DAPO", equation 13).
//!
//! With `|y|` the tokens of a response, `limit` the longest possible and `buffer` before it:
//! 0 up to `limit - buffer`, then falling linearly to `-penalty` at `limit`, and `-penalty` beyond.
//!
//! Differs from the paper: every turn is a response of its own, and the shaping is added to its
//! turn's reward before credit is assigned.

use serde::{Deserialize, Serialize};
use turnwise_core::Batch;

use crate::CreditError;

/// The switches of the shaping.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlongConfig {
    /// The longest response, in tokens.
    pub limit: usize,
    /// Tokens before the limit from which on the penalty rises.
    pub buffer: usize,
    /// Penalty of a response of the full length.
    #[serde(default = "one")]
    pub penalty: f64,
}

fn one() -> f64 {
    1.0
}

impl OverlongConfig {
    /// Shaping term of a response of `tokens` tokens, added to its reward: 0 or less.
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

    /// The same for a task whose responses have a shorter limit of their own: limit and buffer in proportion.
    fn within(&self, own: Option<usize>) -> Self {
        let limit = own.map_or(self.limit, |own| own.min(self.limit));
        Self { limit, buffer: self.buffer * limit / self.limit.max(1), penalty: self.penalty }
    }

    /// Adds the shaping to the reward of every turn that credit is assigned from, and returns how many turns it touched. A task's
    /// own limit of a response counts where it is shorter.
    ///
    /// # Errors
    /// A buffer longer than the limit, or a penalty that is negative or not finite.
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
            for turn in &mut trajectory.turns {
                let shaping = own.shaping(turn.response_ids.len());
                touched += usize::from(shaping != 0.0);
                turn.shape_reward(shaping);
            }
        }
        Ok(touched)
    }
}
