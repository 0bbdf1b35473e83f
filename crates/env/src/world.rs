//! Traits through which training, evaluation and the command-line program use an environment.
//!
//! | | |
//! |---|---|
//! | [`World`] | an open environment with its tasks, expert and tokenizer phrases |
//! | [`WorldKind`] | a value of `env.kind`, with its settings, its prompt templates and how to open it |
//! | [`crate::registry::Registry`] | all known kinds |
//!
//! Most custom environments need only [`crate::dataset`]. Implement these traits if you need an
//! advisor, templates, recordings, or tasks that are read lazily.

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
    /// Splits that will be used. The environment may skip the others. Empty means all.
    pub splits: &'a [&'a str],
    /// Maximum number of turns per episode.
    pub max_turns: usize,
    /// Receives messages for the log, such as the names of skipped files.
    pub note: &'a mut dyn FnMut(String),
}

/// An open environment, with its tasks and expert.
pub trait World: Any + Send + Sync {
    /// Returns the tasks and their environments.
    fn task_set(&self) -> &dyn TaskSet;

    /// Returns expert episodes for SFT, or `None` if the environment has no expert.
    ///
    /// # Errors
    /// Fails if the split is unknown or the request cannot be fulfilled.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let _ = request;
        Ok(None)
    }

    /// Returns false if [`Self::demonstrations`] always returns `None`, so that SFT can be rejected
    /// early.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns a one-line summary of an episode, used as the SFT target for learning compaction
    /// (`prompt.compact_after`).
    ///
    /// The summary covers the actions before `turn` and the observations up to that turn. The
    /// default is `crate::demonstration::latest_actions`.
    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        latest_actions(episode, turn)
    }

    /// Returns fixed phrases that a tokenizer trained from scratch should keep as single tokens.
    ///
    /// # Errors
    /// Fails if the environment's texts cannot be read.
    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(Vec::new())
    }

    /// Returns true if a tokenizer trained from scratch should separate names from numbers after
    /// them.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an expert that advises a human player, or `None` if the environment has no expert.
    ///
    /// # Errors
    /// Fails if the expert cannot be created.
    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let _ = task;
        Ok(None)
    }
}

/// A world's task set, which threads share by reference counting.
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

/// An expert that suggests actions based only on an episode's observations.
pub trait Advisor {
    /// Returns the next action for an observation.
    fn advise(&mut self, observation: &Observation) -> String;
}

/// Default evaluation settings, used for settings missing in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Maximum number of turns per episode.
    pub max_turns: usize,
    /// Splits to evaluate on, the last of which is for human players.
    pub splits: &'a [&'a str],
    /// Prompt template for models that reason in free text.
    pub template: &'a str,
    /// Prompt template in ReAct format (a thought and an action), if the environment has one.
    pub react_template: Option<&'a str>,
}

impl Default for EvalDefaults<'_> {
    fn default() -> Self {
        Self { max_turns: 50, splits: &["test"], template: "plain", react_template: None }
    }
}

/// A recording of the original environment and options for replaying it.
pub struct ReplayRequest<'a> {
    /// The recording's name for error messages.
    pub name: &'a str,
    /// The recording, as JSON Lines.
    pub recording: Box<dyn BufRead>,
    /// Data that was used to make the recording, if it is not part of the recording.
    pub data: Option<&'a Path>,
    /// Queries whose search results are missing from the recording.
    pub unanswered: &'a [String],
    /// Receives the engine's output in the recording format.
    pub dump: Option<&'a mut dyn Write>,
}

impl<'a> ReplayRequest<'a> {
    /// Returns [`Self::data`], for environments that require it.
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
/// An environment's settings are the keys of `[env]` other than `kind`, `split`, `max_turns` and
/// `reward_scale`. Field attributes specify descriptions and ranges ([`turnwise_settings`]). Every
/// setting must have a default.
pub trait WorldKind: Send + Sync + 'static {
    /// The keys of `[env]` that are specific to this kind, with defaults.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the value of `env.kind` that selects this environment.
    fn name(&self) -> &str;

    /// Returns a one-line description of the environment.
    fn summary(&self) -> &str;

    /// Returns messages about invalid combinations of settings. Each message names keys of the
    /// `[env]` table.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns the settings that affect only credit assignment. Runs that differ only in these
    /// settings share their SFT warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns true if steps may report progress ([`turnwise_core::Step::progress`]), which the
    /// credit method HAS requires. If false, HAS is rejected before training starts.
    fn has_progress(&self) -> bool {
        true
    }

    /// Returns true if observations consist of chat messages
    /// ([`turnwise_core::Observation::conversation`]).
    fn has_conversations(&self) -> bool {
        false
    }

    /// Opens the environment, which reads or generates its data.
    ///
    /// # Errors
    /// Fails if the data cannot be read.
    fn open(
        &self,
        settings: &Self::Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError>;

    /// Returns the name and TOML source of each prompt template ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the default evaluation settings, used when no config is given.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Returns the default settings for human players: a small environment with the given seed, or
    /// one with all tasks if `whole` is set.
    fn play_settings(&self, seed: u64, whole: bool) -> Self::Settings {
        let _ = (seed, whole);
        Self::Settings::default()
    }

    /// Returns additional help text for human players.
    fn play_help(&self) -> &'static str {
        ""
    }

    /// Writes a generated environment to files in the official format and returns the number of
    /// tasks.
    ///
    /// # Errors
    /// Fails if there is no official format for the environment or the files cannot be written.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Returns the arguments to `turnwise play` that open the files written by
    /// [`Self::write_files`].
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording and compares it with every output of the engine.
    ///
    /// # Errors
    /// Fails if this environment does not support replays or the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
