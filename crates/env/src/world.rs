//! Worlds: the trait behind which training, evaluation and the program see one.
//!
//! | | |
//! |---|---|
//! | [`World`] | an open world: its tasks and their environments, its expert, the words of its tokenizer |
//! | [`WorldKind`] | a kind of world as `env.kind` names it: its settings, its templates, how it is opened |
//! | [`crate::registry::Registry`] | the kinds there are, one line each |
//!
//! An environment of your own needs neither of these traits ([`crate::dataset`]). Implement them for an adviser,
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

/// The conditions a world is opened under.
pub struct OpenOptions<'a> {
    /// Splits that will be used; others need not be read. Empty: all.
    pub splits: &'a [&'a str],
    /// Turns after which an episode is cut off.
    pub max_turns: usize,
    /// Receives notes for the log, such as files that were left out.
    pub note: &'a mut dyn FnMut(String),
}

/// An open world.
pub trait World: Any + Send + Sync {
    /// Returns the tasks and their environments.
    fn task_set(&self) -> &dyn TaskSet;

    /// Episodes to imitate; `None` if the world has no expert.
    ///
    /// # Errors
    /// Fails if there is no such split, or the request cannot be met.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let _ = request;
        Ok(None)
    }

    /// False where [`Self::demonstrations`] never has any: what wants them is rejected before long work.
    fn has_expert(&self) -> bool {
        true
    }

    /// Returns the one-line summary of an episode that a demonstration of compaction (`prompt.compact_after`) writes.
    ///
    /// It covers the actions before turn `turn` and the observations up to and including that turn's. The default lists the
    /// latest actions ([`crate::demonstration::latest_actions`]).
    fn summarize(&self, episode: &Demonstration, turn: usize) -> String {
        latest_actions(episode, turn)
    }

    /// Fixed phrases of the world's texts, which a small model's tokenizer keeps whole.
    ///
    /// # Errors
    /// Fails if the texts cannot be read.
    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(Vec::new())
    }

    /// Returns true if a small model's tokenizer takes a name and the number after it apart.
    fn split_numbers(&self) -> bool {
        false
    }

    /// Returns an adviser for a person who plays the task; `None` if the world has no expert.
    ///
    /// # Errors
    /// Fails if the expert cannot be set up.
    fn advisor(&self, task: &Task) -> Result<Option<Box<dyn Advisor>>, EnvError> {
        let _ = task;
        Ok(None)
    }
}

/// The task set of a world that several threads share, and that lives as long as the last of them.
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

/// An expert that follows an episode and suggests actions, knowing only what was shown.
pub trait Advisor {
    /// Returns the next action after this observation.
    fn advise(&mut self, observation: &Observation) -> String;
}

/// The usual way to evaluate on a kind of world, if no configuration says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalDefaults<'a> {
    /// Turns of an episode.
    pub max_turns: usize,
    /// Splits of the evaluation; a person plays from the last.
    pub splits: &'a [&'a str],
    /// The template for models that reason in free text.
    pub template: &'a str,
    /// The template of ReAct (a thought and an action), if there is one.
    pub react_template: Option<&'a str>,
}

impl Default for EvalDefaults<'_> {
    fn default() -> Self {
        Self { max_turns: 50, splits: &["test"], template: "plain", react_template: None }
    }
}

/// A recording to be compared with the engine.
pub struct ReplayRequest<'a> {
    /// The recording's name, for errors.
    pub name: &'a str,
    /// The recording, JSON lines.
    pub recording: Box<dyn BufRead>,
    /// Data that the recording was made on, for worlds whose recordings do not hold that themselves.
    pub data: Option<&'a Path>,
    /// Queries that the recording's search knew no answer to.
    pub unanswered: &'a [String],
    /// Writer for the values that the engine gave.
    pub dump: Option<&'a mut dyn Write>,
}

impl<'a> ReplayRequest<'a> {
    /// Data that the recording was made on, for a world that needs it.
    ///
    /// # Errors
    /// Fails if it was not named.
    pub fn needed_data(&self, what: &str) -> Result<&'a Path, EnvError> {
        self.data.ok_or_else(|| {
            EnvError::Other(format!(
                "a recording of this world needs what it was made on; name {what} with --data"
            ))
        })
    }
}

/// A kind of world.
///
/// Its settings are a type: the keys of `[env]` besides `kind`, `split`, `max_turns` and
/// `reward_scale`. Descriptions and ranges are declared at its fields ([`turnwise_settings`]);
/// checks, JSON Schema and reference are made from them. All have defaults, so that a kind alone is
/// a valid environment.
pub trait WorldKind: Send + Sync + 'static {
    /// The world's own keys with their defaults.
    type Settings: Serialize + DeserializeOwned + JsonSchema + Default;

    /// Returns the name, as `env.kind` has it.
    fn name(&self) -> &str;

    /// Returns one line about it.
    fn summary(&self) -> &str;

    /// Rules between the settings, which their ranges cannot state; keys are those of the `[env]` table.
    fn rules(&self, settings: &Self::Settings) -> Vec<Problem> {
        let _ = settings;
        Vec::new()
    }

    /// Returns the settings that only credit reads. SFT does not depend on them, so runs that
    /// differ only in them share their warm start.
    fn credit_keys(&self) -> &[&str] {
        &[]
    }

    /// Returns true if steps may report progress ([`turnwise_core::Step::progress`]), from which
    /// HAS can take credit. If false, such credit is rejected before training.
    fn has_progress(&self) -> bool {
        true
    }

    /// Returns true if observations are an agent's requests
    /// ([`turnwise_core::Observation::conversation`]), so that prompts are made of messages.
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

    /// Its prompt templates: name and TOML source ([`crate::prompt`]).
    fn templates(&self) -> &[(&str, &str)] {
        &[]
    }

    /// Returns the usual evaluation.
    fn eval_defaults(&self) -> EvalDefaults<'_> {
        EvalDefaults::default()
    }

    /// Settings for a person who plays and named none: a small world of this seed. `whole`: one task is looked for by
    /// its name, so all of them must be there.
    fn play_settings(&self, seed: u64, whole: bool) -> Self::Settings {
        let _ = (seed, whole);
        Self::Settings::default()
    }

    /// Additional help text for players.
    fn play_help(&self) -> &'static str {
        ""
    }

    /// Writes a generated world as files of the official format; the number of tasks.
    ///
    /// # Errors
    /// Fails if the world has no such files, or they cannot be written.
    fn write_files(&self, settings: &Self::Settings, folder: &Path) -> Result<usize, EnvError> {
        let _ = (settings, folder);
        Err(EnvError::Unsupported("to be written as files"))
    }

    /// Arguments of `turnwise play` with which a person plays the files that [`Self::write_files`] wrote to a folder.
    fn play_arguments(&self, folder: &Path) -> Vec<String> {
        vec![format!("data={}", folder.display())]
    }

    /// Replays a recording and compares everything the engine says with it.
    ///
    /// # Errors
    /// Fails if there are no recordings of this world, or this one cannot be read.
    fn replay(&self, request: ReplayRequest<'_>) -> Result<ReplayReport, EnvError> {
        let _ = request;
        Err(EnvError::Unsupported("to be held against recordings"))
    }
}
