//! Traits of environments.
//!
//! Most custom environments need only [`crate::dataset`]. Implement these traits for advisors,
//! templates, recordings or lazily read tasks.

use std::any::Any;
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use turnwise_core::{EnvError, Environment, Observation, PendingStep, Step, Task, TaskList, TaskSet};
use turnwise_settings::Problem;

use crate::demonstration::{Demonstration, DemonstrationRequest, Demonstrations, latest_actions};
use crate::replay::ReplayReport;

/// Arguments of [`WorldKind::open`].
pub struct OpenOptions<'a> {
    /// Splits to open; empty means all.
    pub splits: &'a [&'a str],
    /// Turn limit per episode.
    pub max_turns: usize,
    /// Receives log messages.
    pub note: &'a mut dyn FnMut(String),
}

/// An open environment with its tasks and expert.
pub trait World: Any + Send + Sync {
    /// Returns the tasks and their environments.
    fn task_set(&self) -> &dyn TaskSet;

    /// Returns expert episodes for SFT, if there is an expert.
    ///
    /// # Errors
    /// Fails on an unknown split or if playing fails.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let _ = request;
        Ok(None)
    }

    /// Returns false if [`Self::demonstrations`] always returns `None`, so that SFT can be rejected
    /// early.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns a one-line summary of the actions before `turn` and the observations up to it. It is
    /// the SFT target for compaction (`prompt.compact_after`).
    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        latest_actions(episode, turn)
    }

    /// Returns phrases that tokenizers trained from scratch keep as single tokens.
    ///
    /// # Errors
    /// Fails if the environment's texts cannot be read.
    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(Vec::new())
    }

    /// Returns whether tokenizers trained from scratch separate names from the numbers after them.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an advisor for human players, if any.
    ///
    /// # Errors
    /// Fails if it cannot be created.
    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let _ = task;
        Ok(None)
    }
}

/// A world's task set, shared between threads.
pub struct WorldTasks(pub Arc<dyn World>);

impl TaskSet for WorldTasks {
    fn name(&self) -> &str {
        self.0.task_set().name()
    }

    fn splits(&self) -> Vec<String> {
        self.0.task_set().splits()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.0.task_set().tasks(split)
    }

    fn list(&self, split: &str) -> Result<Option<Arc<dyn TaskList>>, EnvError> {
        self.0.task_set().list(split)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        self.0.task_set().environment()
    }

    fn is_instant(&self) -> bool {
        self.0.task_set().is_instant()
    }

    fn free_episodes(&self) -> Option<usize> {
        self.0.task_set().free_episodes()
    }

    fn limits_calls(&self) -> bool {
        self.0.task_set().limits_calls()
    }

    fn batch_limit(&self) -> usize {
        self.0.task_set().batch_limit()
    }

    fn step_many(&self, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
        self.0.task_set().step_many(pending)
    }
}

/// An expert that sees only an episode's observations.
pub trait Advisor {
    /// Returns the next action.
    fn advise(&mut self, observation: &Observation) -> String;
}

/// Defaults for evaluation settings that the config leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Turn limit per episode.
    pub max_turns: usize,
    /// Splits to evaluate on; human players get the last.
    pub splits: &'a [&'a str],
    /// Template for free-text reasoning.
    pub template: &'a str,
    /// ReAct template, if any.
    pub react_template: Option<&'a str>,
}

impl Default for EvalDefaults<'_> {
    fn default() -> Self {
        Self { max_turns: 50, splits: &["test"], template: "plain", react_template: None }
    }
}

/// A recording of the original environment to replay.
pub struct ReplayRequest<'a> {
    /// Name for error messages.
    pub name: &'a str,
    /// The recording in JSON Lines.
    pub recording: Box<dyn BufRead>,
    /// Data of the recording, if stored separately.
    pub data: Option<&'a Path>,
    /// Queries without search results in the recording.
    pub unanswered: &'a [String],
    /// Receives the engine's output as a recording.
    pub dump: Option<&'a mut dyn Write>,
}

impl<'a> ReplayRequest<'a> {
    /// Returns [`Self::data`].
    ///
    /// # Errors
    /// Fails if `data` is `None`.
    pub fn needed_data(&self, what: &str) -> Result<&'a Path, EnvError> {
        self.data.ok_or_else(|| {
            EnvError::Other(format!(
                "a recording of this world needs what it was made on; name {what} with --data"
            ))
        })
    }
}

/// A kind of environment, selected by `env.kind`.
///
/// Its settings are the keys of `[env]` except `kind`, `split`, `max_turns` and `reward_scale`;
/// each needs a default. Field attributes give descriptions and ranges ([`turnwise_settings`]).
pub trait WorldKind: Send + Sync + 'static {
    /// This kind's keys of `[env]`.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the value of `env.kind`.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    fn summary(&self) -> &str;

    /// Returns the problems with combinations of settings; each problem names keys of `[env]`.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns settings that affect only credit assignment; runs that differ only in these share
    /// their SFT warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns whether steps may report [`turnwise_core::Step::progress`], which the credit method
    /// HAS requires.
    fn has_progress(&self) -> bool {
        true
    }

    /// Returns whether observations are chat messages
    /// ([`turnwise_core::Observation::conversation`]).
    fn has_conversations(&self) -> bool {
        false
    }

    /// Opens the environment.
    ///
    /// # Errors
    /// Fails if its data cannot be read.
    fn open(
        &self,
        settings: &Self::Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError>;

    /// Returns the prompt templates as name and TOML ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns evaluation settings for use without a config.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Returns settings for human players: all tasks (`whole`), or a small environment from `seed`.
    fn play_settings(&self, seed: u64, whole: bool) -> Self::Settings {
        let _ = (seed, whole);
        Self::Settings::default()
    }

    /// Returns extra help for human players.
    fn play_help(&self) -> &'static str {
        ""
    }

    /// Writes a generated environment in the official format and returns the number of tasks.
    ///
    /// # Errors
    /// Fails if the kind has no such format or if writing fails.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Returns `turnwise play` arguments that open the files of [`Self::write_files`].
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording and compares all outputs.
    ///
    /// # Errors
    /// Fails if replays are unsupported or the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
