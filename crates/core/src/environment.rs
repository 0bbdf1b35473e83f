//! Environments and task sets.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Action, EnvError, Observation, Seed, Task, TaskList, Tool, TurnReward};

/// How to merge a metric's values within an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// Keeps the last value.
    #[default]
    Last,
    /// Sums the values.
    Sum,
}

/// A metric reported in addition to the reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Key in the trajectory's metrics.
    pub name: String,
    /// The value.
    pub value: f64,
    /// How to merge the value with this metric's earlier values in the episode.
    pub merge: Merge,
}

impl Metric {
    /// Creates a metric that replaces earlier values.
    pub fn last(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, merge: Merge::Last }
    }

    /// Creates a metric that adds to earlier values.
    pub fn sum(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, merge: Merge::Sum }
    }

    /// Merges the metric into the episode's metrics.
    pub fn merge_into(self, metrics: &mut BTreeMap<String, f64>) {
        match self.merge {
            Merge::Last => {
                metrics.insert(self.name, self.value);
            }
            Merge::Sum => *metrics.entry(self.name).or_default() += self.value,
        }
    }
}

/// Result of one action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Observation after the action.
    pub observation: Observation,
    /// Reward of the action.
    pub reward: f64,
    /// Finished fraction of the task, in `[0, 1]`.
    pub progress: Option<f64>,
    /// Whether the environment's own rules, not a step limit, ended the episode.
    pub terminated: bool,
    /// Whether the step limit cut the episode off.
    pub truncated: bool,
    /// Whether the task is solved.
    pub success: bool,
    /// Whether the environment understood the action; otherwise the state is unchanged.
    pub understood: bool,
    /// Metrics of the action.
    pub metrics: Vec<Metric>,
    /// Additional rewards for this or earlier turns.
    pub rewards: Vec<TurnReward>,
}

/// An episode's serialized state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot(pub Vec<u8>);

/// Plays one episode at a time, without access to tokens, prompts or the policy. Read-only data
/// belongs in the [`TaskSet`].
pub trait Environment: Any + Send {
    /// Starts `task`. All randomness comes from `seed`, which a group's episodes share.
    ///
    /// # Errors
    /// Fails on an unknown task or a failed environment ([`EnvError::is_transient`]).
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError>;

    /// Executes one action. An action that is not understood is an ordinary step, not an error.
    ///
    /// # Errors
    /// Fails if no episode is running, or if the environment failed.
    fn step(&mut self, action: &Action) -> Result<Step, EnvError>;

    /// Returns the episode's tools; called after every reset. Prompts list the tools, so
    /// observations need not list them.
    fn tools(&self) -> &[Tool] {
        &[]
    }

    /// Returns the episode's state; `None` if the environment cannot save states.
    ///
    /// # Errors
    /// Fails if the environment supports saving states but cannot save the current one.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        Ok(None)
    }

    /// Restores exactly the state of an earlier [`Environment::snapshot`].
    ///
    /// # Errors
    /// Fails if the environment cannot restore states, or if another environment wrote the bytes.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let _ = snapshot;
        Err(EnvError::Unsupported("restoring a saved state"))
    }

    /// Ends the episode and releases its resources; called once.
    fn close(&mut self) {}
}

/// An environment and its next action.
pub struct PendingStep<'a> {
    /// The environment.
    pub environment: &'a mut dyn Environment,
    /// The action.
    pub action: &'a Action,
}

/// Tasks in named splits, and their environments.
pub trait TaskSet: Send + Sync {
    /// Returns the environment's name, such as `alfworld`.
    fn name(&self) -> &str;

    /// Returns the splits, training first.
    fn splits(&self) -> Vec<String>;

    /// Returns a split's tasks in a fixed order.
    ///
    /// # Errors
    /// Fails on an unknown split or unreadable data.
    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError>;

    /// Returns a list that creates a split's tasks on demand; useful if creating all of them takes
    /// long. Returns `None` if the task set creates all tasks at once.
    ///
    /// # Errors
    /// Fails like [`TaskSet::tasks`].
    fn list(&self, split: &str) -> Result<Option<Arc<dyn TaskList>>, EnvError> {
        let _ = split;
        Ok(None)
    }

    /// Creates an environment.
    ///
    /// # Errors
    /// Fails, for example, if the environment's program does not start
    /// ([`EnvError::is_transient`]).
    fn environment(&self) -> Result<Box<dyn Environment>, EnvError>;

    /// Returns true if environment calls never wait for another process. Environments that may wait
    /// run on separate threads, with a timeout.
    fn is_instant(&self) -> bool {
        false
    }

    /// Returns how many episodes can start now; `None` if unlimited.
    fn free_episodes(&self) -> Option<usize> {
        None
    }

    /// Returns true if the environment enforces a time limit on its calls, not counting time in a
    /// queue. Otherwise, the caller enforces a time limit that includes the queue.
    fn limits_calls(&self) -> bool {
        false
    }

    /// Returns the maximum number of steps in one call of [`TaskSet::step_many`].
    fn batch_limit(&self) -> usize {
        1
    }

    /// Steps several environments of this set and returns the results in the same order. Override
    /// this method if many actions can be executed at once; `<dyn Any>::downcast_mut` recovers the
    /// type of each environment.
    ///
    /// # Errors
    /// An entry is an error if [`Environment::step`] fails, or if its environment belongs to
    /// another set.
    fn step_many(&self, pending: &mut [PendingStep<'_>]) -> Vec<Result<Step, EnvError>> {
        pending.iter_mut().map(|pending| pending.environment.step(pending.action)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_add_up_or_replace() {
        let mut metrics = BTreeMap::new();
        for value in [1.0, 2.0] {
            Metric::last("score", value).merge_into(&mut metrics);
            Metric::sum("searches", value).merge_into(&mut metrics);
        }
        assert_eq!(metrics, BTreeMap::from([("score".to_owned(), 2.0), ("searches".to_owned(), 3.0)]));
    }

    struct Echo(usize);

    impl Environment for Echo {
        fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
            Ok(Observation::new(task.goal.clone()))
        }

        fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
            self.0 += 1;
            Ok(Step { observation: Observation::new(action.text()), ..Step::default() })
        }
    }

    #[test]
    fn what_a_world_cannot_do_it_says() {
        let mut echo = Echo(0);
        assert_eq!(echo.snapshot().unwrap(), None);
        let error = echo.restore(&Snapshot(Vec::new())).unwrap_err();
        assert!(matches!(error, EnvError::Unsupported(_)) && !error.is_transient());
    }

    struct Echoes;

    impl TaskSet for Echoes {
        fn name(&self) -> &'static str {
            "echo"
        }

        fn splits(&self) -> Vec<String> {
            Vec::new()
        }

        fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
            Err(EnvError::UnknownSplit { split: split.to_owned(), known: String::new() })
        }

        fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
            Ok(Box::new(Echo(0)))
        }
    }

    #[test]
    fn many_steps_are_those_of_each() {
        let mut environments = [Echoes.environment().unwrap(), Echoes.environment().unwrap()];
        let actions = [Action::from("a"), Action::from("b")];
        let mut pending: Vec<PendingStep<'_>> = environments
            .iter_mut()
            .zip(&actions)
            .map(|(environment, action)| PendingStep { environment: &mut **environment, action })
            .collect();
        let steps = Echoes.step_many(&mut pending);
        let texts: Vec<String> =
            steps.into_iter().map(|step| step.unwrap().observation.into_text()).collect();
        assert_eq!(texts, ["a", "b"]);
        let any: &mut dyn Any = &mut *environments[0];
        assert_eq!(any.downcast_mut::<Echo>().unwrap().0, 1);
    }
}
