//! Traits that connect an environment to training, evaluation and the program.
//!
//! | | |
//! |---|---|
//! | [`World`] | an open environment: its tasks, expert and tokenizer phrases |
//! | [`WorldKind`] | a value of `env.kind`: its settings, prompt templates and how it is opened |
//! | [`crate::registry::Registry`] | all known kinds |
//!
//! Most custom environments need only [`crate::dataset`]. Implement these traits for an adviser,
//! templates, recordings or tasks that are read lazily.

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
    /// Splits that will be used; the environment may skip reading others. Empty means all.
    pub splits: &'a [&'a str],
    /// Maximum number of turns of an episode.
    pub max_turns: usize,
    /// Receives notes for the log, such as the names of skipped files.
    pub note: &'a mut dyn FnMut(String),
}

/// An open environment with its tasks and expert.
pub trait World: Any + Send + Sync {
    /// Returns the tasks and their environments.
    fn task_set(&self) -> &dyn TaskSet;

    /// Returns expert episodes for SFT; `None` if the environment has no expert.
    ///
    /// # Errors
    /// Fails if the split is unknown or the request cannot be met.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let _ = request;
        Ok(None)
    }

    /// Returns false if [`Self::demonstrations`] always returns `None`, so that SFT can be rejected
    /// early.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns a one-line summary of an episode, used as the target when SFT teaches compaction
    /// (`prompt.compact_after`).
    ///
    /// The summary covers the actions before `turn` and the observations up to that turn. The
    /// default is [`crate::demonstration::latest_actions`].
    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        latest_actions(episode, turn)
    }

    /// Returns fixed phrases that the tokenizer of a model from scratch should keep as one token.
    ///
    /// # Errors
    /// Fails if the texts cannot be read.
    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(Vec::new())
    }

    /// Returns true if the tokenizer of a model from scratch should separate a name from the number
    /// after it.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an expert that advises a human player; `None` if the environment has no expert.
    ///
    /// # Errors
    /// Fails if the expert cannot be set up.
    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let _ = task;
        Ok(None)
    }
}

/// The task set of a world, shared between threads by reference counting.
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

/// An expert that suggests actions from the observations of an episode alone.
pub trait Advisor {
    /// Returns the next action after this observation.
    fn advise(&mut self, observation: &Observation) -> String;
}

/// Evaluation settings that apply if the configuration sets none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Maximum number of turns of an episode.
    pub max_turns: usize,
    /// Splits to evaluate on; a human player gets the last.
    pub splits: &'a [&'a str],
    /// Prompt template for models that reason in free text.
    pub template: &'a str,
    /// Prompt template in ReAct format (a thought and an action), if there is one.
    pub react_template: Option<&'a str>,
}

impl Default for EvalDefaults<'_> {
    fn default() -> Self {
        Self { max_turns: 50, splits: &["test"], template: "plain", react_template: None }
    }
}

/// A recording of the original environment and the options to replay it with.
pub struct ReplayRequest<'a> {
    /// Name of the recording in error messages.
    pub name: &'a str,
    /// The recording as JSON lines.
    pub recording: Box<dyn BufRead>,
    /// Data that the recording was made on, if the recording does not contain it.
    pub data: Option<&'a Path>,
    /// Queries for which the recording has no search results.
    pub unanswered: &'a [String],
    /// Receives the engine's output as a recording.
    pub dump: Option<&'a mut dyn Write>,
}

impl<'a> ReplayRequest<'a> {
    /// Returns [`Self::data`], for environments that need it.
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
/// The settings of a kind are the keys of `[env]` other than `kind`, `split`, `max_turns` and
/// `reward_scale`. Descriptions and ranges are attributes of the fields ([`turnwise_settings`]).
/// Every setting has a default.
pub trait WorldKind: Send + Sync + 'static {
    /// The keys of `[env]` that only this kind has, with their defaults.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the value of `env.kind` that selects this environment.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    fn summary(&self) -> &str;

    /// Returns messages about combinations of settings that are invalid; each names keys of the
    /// `[env]` table.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns the settings that only credit reads. Runs that differ only in them share their SFT
    /// warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns true if steps may report progress ([`turnwise_core::Step::progress`]), which HAS
    /// needs. If false, HAS is rejected before training.
    fn has_progress(&self) -> bool {
        true
    }

    /// Returns true if observations are the messages of a chat request
    /// ([`turnwise_core::Observation::conversation`]).
    fn has_conversations(&self) -> bool {
        false
    }

    /// Opens the environment: reads or generates its data.
    ///
    /// # Errors
    /// Fails if its data cannot be read.
    fn open(
        &self,
        settings: &Self::Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError>;

    /// Returns the names and TOML sources of the prompt templates ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the evaluation settings to use without a configuration.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Returns default settings for a human player: a small environment with this seed, or one with
    /// all tasks if `whole` is set.
    fn play_settings(&self, seed: u64, whole: bool) -> Self::Settings {
        let _ = (seed, whole);
        Self::Settings::default()
    }

    /// Returns additional help text for players.
    fn play_help(&self) -> &'static str {
        ""
    }

    /// Writes a generated environment as files in the official format and returns the number of
    /// tasks.
    ///
    /// # Errors
    /// Fails if the environment has no such format, or the files cannot be written.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Returns the arguments of `turnwise play` that open the files written by
    /// [`Self::write_files`].
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording and compares every output of the engine with it.
    ///
    /// # Errors
    /// Fails if this environment has no replay, or if the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
