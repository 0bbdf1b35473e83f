//! Traits of environments.
//!
//! Most custom environments need only [`crate::dataset`]. Implement the traits of this module if
//! your environment has an advisor for human players, its own prompt templates, recordings to
//! replay, or tasks that are read on demand.

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

    /// Returns false if [`Self::demonstrations`] always returns `None`. If the result is false, a
    /// config with SFT is rejected before any work.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns a one-line summary of the actions before `turn` and the observations up to it. SFT
    /// trains the policy to write this summary when a prompt is compacted (`prompt.compact_after`).
    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        latest_actions(episode, turn)
    }

    /// Returns phrases that a tokenizer trained from scratch keeps as single tokens.
    ///
    /// # Errors
    /// Fails if the environment's texts cannot be read.
    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(Vec::new())
    }

    /// Returns whether a tokenizer trained from scratch splits a name from the number after it, as
    /// in `drawer 1`.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an advisor for human players, or `None` if the environment has none.
    ///
    /// # Errors
    /// Fails if the advisor cannot be created.
    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let _ = task;
        Ok(None)
    }
}

/// An environment's task set, shared between threads.
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

/// An expert that chooses actions from an episode's observations alone, without access to the
/// environment's state.
pub trait Advisor {
    /// Returns the next action.
    fn advise(&mut self, observation: &Observation) -> String;
}

/// Defaults for evaluation settings that the config leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Turn limit per episode.
    pub max_turns: usize,
    /// Splits to evaluate on; human players get tasks of the last split.
    pub splits: &'a [&'a str],
    /// Prompt template for free-text reasoning.
    pub template: &'a str,
    /// ReAct prompt template, if the kind has one.
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
    /// Data with which the recording was made, if it is not part of the recording.
    pub data: Option<&'a Path>,
    /// Search queries for which the recording contains no results.
    pub unanswered: &'a [String],
    /// Receives the output of the replay, in the format of a recording.
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
/// A kind's settings are the keys of `[env]` except `kind`, `split`, `max_turns` and
/// `reward_scale`; each setting needs a default. Doc comments of the fields become descriptions,
/// and attributes define ranges ([`turnwise_settings`]).
pub trait WorldKind: Send + Sync + 'static {
    /// Settings of this kind: its keys of `[env]`.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the value of `env.kind`.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    fn summary(&self) -> &str;

    /// Returns the invalid combinations among the settings; each problem names the keys of `[env]`
    /// that it concerns.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns the keys that affect only credit assignment. Runs whose settings differ only in
    /// these keys share one SFT warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns whether steps may report [`turnwise_core::Step::progress`]; the credit method HAS
    /// requires it.
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
    /// Fails if the environment's data cannot be read.
    fn open(
        &self,
        settings: &Self::Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError>;

    /// Returns the embedded prompt templates, each as its name and its TOML text
    /// ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the defaults for evaluation settings that the config leaves out.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Returns settings for human players: for all tasks if `whole` is true, otherwise for a small
    /// environment generated from `seed`.
    fn play_settings(&self, seed: u64, whole: bool) -> Self::Settings {
        let _ = (seed, whole);
        Self::Settings::default()
    }

    /// Returns extra help for human players.
    fn play_help(&self) -> &'static str {
        ""
    }

    /// Writes the tasks of a generated environment in the file format of the original data, and
    /// returns their number.
    ///
    /// # Errors
    /// Fails if the kind cannot write its tasks as files or if writing fails.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Returns the arguments with which `turnwise play` opens the files that [`Self::write_files`]
    /// wrote.
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording of the original environment and compares all outputs.
    ///
    /// # Errors
    /// Fails if the kind does not support replays or the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
