//! Traits through which training, evaluation and the CLI use an environment.
//!
//! A [`World`] is an open environment with its tasks and expert. A [`WorldKind`] is a value of
//! `env.kind` and opens a `World`.
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
    /// Splits that will be used, so others may be skipped. Empty means all.
    pub splits: &'a [&'a str],
    /// Turn limit per episode.
    pub max_turns: usize,
    /// Receives log messages, such as the names of skipped files.
    pub note: &'a mut dyn FnMut(String),
}

/// An open environment with its tasks and expert.
pub trait World: Any + Send + Sync {
    /// Returns the tasks and their environments.
    fn task_set(&self) -> &dyn TaskSet;

    /// Returns expert episodes for SFT, or `None` without an expert.
    ///
    /// # Errors
    /// Fails if the split is unknown or playing fails.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let _ = request;
        Ok(None)
    }

    /// Returns false if [`Self::demonstrations`] always returns `None`, to reject SFT early.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns a one-line summary, the SFT target for compaction (`prompt.compact_after`).
    ///
    /// It covers the actions before `turn` and the observations up to that turn. The default is
    /// [`crate::demonstration::latest_actions`].
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

    /// Returns true if a tokenizer trained from scratch should separate names from the numbers
    /// after them.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an expert that advises a human player, if any.
    ///
    /// # Errors
    /// Fails if the expert cannot be created.
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

/// Evaluation settings for those missing in the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Turn limit per episode.
    pub max_turns: usize,
    /// Splits to evaluate on; human players get the last.
    pub splits: &'a [&'a str],
    /// Template for models that reason in free text.
    pub template: &'a str,
    /// ReAct template (a thought and an action), if any.
    pub react_template: Option<&'a str>,
}

impl Default for EvalDefaults<'_> {
    fn default() -> Self {
        Self { max_turns: 50, splits: &["test"], template: "plain", react_template: None }
    }
}

/// A recording of the original environment, and replay options.
pub struct ReplayRequest<'a> {
    /// Name for error messages.
    pub name: &'a str,
    /// The recording in JSON Lines.
    pub recording: Box<dyn BufRead>,
    /// Data used to make the recording, if stored separately.
    pub data: Option<&'a Path>,
    /// Queries without search results in the recording.
    pub unanswered: &'a [String],
    /// Receives the engine's output in the recording's format.
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
/// Its settings are the keys of `[env]` except `kind`, `split`, `max_turns` and `reward_scale`.
/// Field attributes give descriptions and ranges ([`turnwise_settings`]). Every setting needs a
/// default.
pub trait WorldKind: Send + Sync + 'static {
    /// This kind's keys of `[env]`.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the value of `env.kind`.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    fn summary(&self) -> &str;

    /// Returns invalid combinations of settings; each message names keys of `[env]`.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns settings that affect only credit assignment. Runs that differ only in these share
    /// their SFT warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns true if steps may report [`turnwise_core::Step::progress`], which the credit method
    /// HAS requires.
    fn has_progress(&self) -> bool {
        true
    }

    /// Returns true if observations are chat messages
    /// ([`turnwise_core::Observation::conversation`]).
    fn has_conversations(&self) -> bool {
        false
    }

    /// Reads or generates the data and opens the environment.
    ///
    /// # Errors
    /// Fails if the data cannot be read.
    fn open(
        &self,
        settings: &Self::Settings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError>;

    /// Returns each prompt template's name and TOML source ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the evaluation settings used without a config.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Returns the settings for human players: a small environment generated from `seed`, or all
    /// tasks if `whole` is set.
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
    /// Fails without an official format or if writing fails.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Returns the arguments of `turnwise play` that open the files of [`Self::write_files`].
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording and compares all engine outputs.
    ///
    /// # Errors
    /// Fails if replays are not supported or the recording cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
