//! The open world of a run, and the episodes of its expert.

use std::ops::Deref;
use std::sync::Arc;

use turnwise_core::{TaskSet, Tasks};
use turnwise_env::demonstration::{DemonstrationRequest, Demonstrations, explore};
use turnwise_env::world::{self, OpenOptions, WorldTasks};

use crate::TrainError;
use crate::config::{Config, EnvConfig};
use crate::setup::prompts::template;

/// The open world of a run, as its config names it.
pub struct World(Arc<dyn world::World>);

impl Deref for World {
    type Target = dyn world::World;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl World {
    /// Opens the world that a config names, for these splits. What had to be left out is said in notes.
    ///
    /// # Errors
    /// The registry has no such world, its settings are wrong, or its data cannot be read.
    pub fn new(
        config: &EnvConfig,
        splits: &[&str],
        note: &mut dyn FnMut(String),
    ) -> Result<Self, TrainError> {
        let mut options = OpenOptions { splits, max_turns: config.max_turns, note };
        Ok(Self(config.worlds.kind(&config.kind)?.open(&config.settings, &mut options)?.into()))
    }

    /// Its tasks and environments, for threads that may outlive a call.
    pub fn shared_task_set(&self) -> Arc<dyn TaskSet> {
        Arc::new(WorldTasks(Arc::clone(&self.0)))
    }

    /// Up to `count` episodes of the expert on the training split.
    ///
    /// # Errors
    /// The split has no tasks, or the world has no expert.
    pub fn demonstrations(&self, config: &Config, count: usize) -> Result<Demonstrations, TrainError> {
        let found = self.0.demonstrations(&self.request(config, count)?)?;
        found.ok_or_else(|| TrainError::Config {
            origin: "sft.steps".into(),
            reason: format!("the world `{}` has no expert to imitate; set sft.steps to 0", config.env.kind),
        })
    }

    /// Episodes whose words a tokenizer is trained on: the expert's, or random ones where there is no expert.
    pub(crate) fn texts(&self, config: &Config, count: usize) -> Result<Demonstrations, TrainError> {
        let request = self.request(config, count)?;
        Ok(match self.0.demonstrations(&request)? {
            Some(found) => found,
            None => explore(self.0.task_set(), &request)?,
        })
    }

    fn request<'a>(&self, config: &'a Config, count: usize) -> Result<DemonstrationRequest<'a>, TrainError> {
        let split = &config.env.split;
        if Tasks::of(self.0.task_set(), split)?.is_empty() {
            return Err(TrainError::Config {
                origin: "env.split".into(),
                reason: format!("the split `{split}` has no tasks, so there is nothing to demonstrate"),
            });
        }
        Ok(DemonstrationRequest {
            split,
            count,
            invalid_action_prob: config.sft.invalid_action_prob,
            max_turns: config.env.max_turns,
            // They are most of the memory.
            keep_admissible: template(config)?.lists_admissible(),
            seed: config.seed,
        })
    }
}
