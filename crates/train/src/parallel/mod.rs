//! Data parallel on one machine: several processes train one policy.
//!
//! Every process goes through the same loop with the same batch. Lanes are what is shared out: of
//! `rollout.lanes` and `train.lanes` each process has an equal part, what was sampled is put together on
//! all of them, and the gradients of all lanes are summed in lane order. So a run on several processes
//! gives the bits of a run on one with the same config. Rank 0 writes the run directory.

mod launch;
mod link;
mod tcp;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};
use turnwise_core::{Collective, CollectiveError};
use turnwise_model::Weights;

pub use launch::Launch;
pub use tcp::TcpCollective;

use crate::TrainError;
use crate::config::Config;

/// This process among those of its run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranks(Option<Arc<dyn Collective>>);

impl Ranks {
    /// This process with its peers, or alone.
    pub(crate) fn new(collective: Option<Arc<dyn Collective>>) -> Self {
        Self(collective)
    }

    /// What connects it to its peers.
    pub(crate) fn collective(&self) -> Option<&Arc<dyn Collective>> {
        self.0.as_ref()
    }

    /// Whether this process writes the run directory and speaks for the run.
    pub(crate) fn leads(&self) -> bool {
        self.0.as_ref().is_none_or(|ranks| ranks.rank() == 0)
    }

    /// How many processes there are.
    pub(crate) fn count(&self) -> usize {
        self.0.as_ref().map_or(1, |ranks| ranks.world_size())
    }

    /// The lanes of this process, of `lanes` in all.
    pub(crate) fn share(&self, lanes: usize) -> Range<usize> {
        self.0.as_ref().map_or(0..lanes, |ranks| ranks.share(lanes))
    }

    /// Waits for all.
    pub(crate) fn barrier(&self) -> Result<(), TrainError> {
        Ok(self.0.as_ref().map_or(Ok(()), |ranks| ranks.barrier())?)
    }

    /// Whether any process was asked to stop.
    pub(crate) fn stopping(&self, stop: &AtomicBool) -> Result<bool, TrainError> {
        let here = stop.load(Ordering::Relaxed);
        Ok(self.0.as_ref().map_or(Ok(here), |ranks| ranks.any(here))?)
    }

    /// What every process gave, in order of ranks.
    pub(crate) fn gather<T: Serialize + DeserializeOwned>(&self, value: T) -> Result<Vec<T>, TrainError> {
        let Some(ranks) = &self.0 else { return Ok(vec![value]) };
        ranks.all_gather(&encode(&value)?)?.iter().map(|bytes| decode(bytes)).collect()
    }

    /// What rank 0 gave; the others give nothing.
    pub(crate) fn broadcast<T: Serialize + DeserializeOwned>(
        &self,
        value: Option<T>,
    ) -> Result<T, TrainError> {
        match (&self.0, value) {
            (None, Some(value)) => Ok(value),
            (Some(ranks), value) => decode(&ranks.broadcast(&encode(&value)?)?)
                .and_then(|value: Option<T>| value.ok_or_else(|| garbled(&"rank 0 gave nothing"))),
            (None, None) => Err(garbled(&"there is nobody to tell")),
        }
    }

    /// Refuses a config whose lanes cannot be dealt to the processes evenly.
    pub(crate) fn check(&self, config: &Config) -> Result<(), TrainError> {
        Self::check_lanes(config, self.count())
    }

    /// [`Ranks::check`] for so many processes.
    pub(crate) fn check_lanes(config: &Config, count: usize) -> Result<(), TrainError> {
        for (key, lanes) in [("rollout.lanes", config.rollout.lanes), ("train.lanes", config.train.lanes)] {
            if !lanes.is_multiple_of(count) {
                return Err(TrainError::Config {
                    origin: key.into(),
                    reason: format!(
                        "is {lanes}, and the lanes are dealt to {count} processes; set it to a multiple of {count}"
                    ),
                });
            }
        }
        Ok(())
    }

    /// Refuses to go on where the processes do not have the same program, config and weights.
    pub(crate) fn agree(&self, config: &Config, weights: &Weights) -> Result<(), TrainError> {
        if self.0.is_none() {
            return Ok(());
        }
        let hash = format!("{:?}", Sha256::digest(config.to_toml()?).as_slice());
        self.same(&[
            ("program", env!("CARGO_PKG_VERSION").into()),
            ("config", hash),
            ("weights", fingerprint(&weights.base.data)),
            (
                "adapter",
                weights.adapter.as_ref().map_or_else(String::new, |adapter| fingerprint(&adapter.data)),
            ),
        ])
    }

    /// Refuses to go on where the processes' weights have come apart.
    pub(crate) fn agree_on_weights(&self, weights: &Weights) -> Result<(), TrainError> {
        if self.0.is_none() {
            Ok(())
        } else {
            self.same(&[("trained weights", fingerprint(weights.trained()))])
        }
    }

    fn same(&self, facts: &[(&str, String)]) -> Result<(), TrainError> {
        let mine: Vec<String> = facts.iter().map(|(_, fact)| fact.clone()).collect();
        let all = self.gather(mine)?;
        let rank = self.0.as_ref().map_or(0, |ranks| ranks.rank());
        for (peer, theirs) in all.iter().enumerate() {
            for ((what, _), (theirs, first)) in facts.iter().zip(theirs.iter().zip(&all[0])) {
                if theirs != first {
                    let reason = format!("its {what} is not that of rank 0; start all processes alike");
                    return Err(CollectiveError::OutOfStep { rank, peer, reason }.into());
                }
            }
        }
        Ok(())
    }
}

/// A number that differs where any bit of the weights does (all but surely).
fn fingerprint(weights: &[f32]) -> String {
    let sum = weights.iter().enumerate().fold(0u64, |sum, (place, value)| {
        // An odd factor for every place, so that no two of them can be exchanged.
        let factor = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        sum.wrapping_add(u64::from(value.to_bits()).wrapping_mul(factor))
    });
    format!("{}:{sum:016x}", weights.len())
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, TrainError> {
    serde_json::to_vec(value).map_err(|error| garbled(&error))
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, TrainError> {
    serde_json::from_slice(bytes).map_err(|error| garbled(&error))
}

fn garbled(error: &dyn std::fmt::Display) -> TrainError {
    TrainError::Config { origin: "message between processes".into(), reason: error.to_string() }
}
