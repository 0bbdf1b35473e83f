//! A text world that reacts to whole actions.

use crate::{EnvError, Task};

/// What the agent is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The text. It identifies the state for credit methods that group turns by state.
    pub text: String,
    /// Every action that would be understood now, in the environment's own order.
    pub admissible: Vec<String>,
}

/// What one action brought about.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What the agent sees next.
    pub observation: Observation,
    /// The reward of this action.
    pub reward: f64,
    /// How much of the task is done, in `[0, 1]`, where the environment can tell.
    pub progress: Option<f64>,
    /// The episode ended because of what happened in the world.
    pub terminated: bool,
    /// The episode was cut off (step limit); the world itself could have gone on.
    pub truncated: bool,
    /// The task is solved.
    pub success: bool,
    /// The action changed nothing because the world did not understand it.
    pub understood: bool,
    /// What the environment measured with this action beside the reward, by name; mostly nothing.
    pub metrics: Vec<(&'static str, f64)>,
}

/// One world in which one episode at a time is played.
///
/// An environment knows nothing of tokens, prompts or policies. It is cheap to make and may be
/// reset any number of times; the read-only data behind it is shared by its [`TaskSet`].
pub trait Environment: Send {
    /// Starts `task` from its start state and returns the first observation.
    fn reset(&mut self, task: &Task) -> Result<Observation, EnvError>;

    /// Carries one action out. An action that is not understood is an ordinary step, never an error.
    fn step(&mut self, action: &str) -> Result<Step, EnvError>;

    /// The whole state of the episode as bytes, for resuming.
    fn state(&self) -> Result<Vec<u8>, EnvError>;

    /// The inverse of [`Environment::state`]: after it, the episode goes on exactly as it would have.
    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError>;
}

/// A set of tasks with named splits, and the environments that play them.
pub trait TaskSet: Send + Sync {
    /// The environment's name, for example `alfworld`.
    fn name(&self) -> &str;

    /// The splits there are, training first.
    fn splits(&self) -> Vec<String>;

    /// The tasks of a split, in a defined order that depends on nothing but the data.
    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError>;

    /// A fresh environment over the shared data.
    fn environment(&self) -> Box<dyn Environment>;
}
