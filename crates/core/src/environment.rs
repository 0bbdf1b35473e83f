//! Environments: the trait behind which a world is played, and the set of tasks that it is played on.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Action, EnvError, Observation, Seed, Task, TaskList, Tool};

/// The merge rule of a metric: what an episode's number is, of several steps that give one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// The last one.
    #[default]
    Last,
    /// Their sum.
    Sum,
}

/// A number that an environment measured beside the reward.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name, which becomes a key of the trajectory's metrics.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Rule by which it joins the earlier ones of the episode.
    pub merge: Merge,
}

impl Metric {
    /// A number that replaces the earlier ones.
    pub fn last(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, merge: Merge::Last }
    }

    /// A number that is added to the earlier ones.
    pub fn sum(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, merge: Merge::Sum }
    }

    /// Puts the number among those of its episode.
    pub fn merge_into(self, metrics: &mut BTreeMap<String, f64>) {
        match self.merge {
            Merge::Last => {
                metrics.insert(self.name, self.value);
            }
            Merge::Sum => *metrics.entry(self.name).or_default() += self.value,
        }
    }
}

/// The outcome of one action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Observation after the action.
    pub observation: Observation,
    /// The reward of this action.
    pub reward: f64,
    /// Share of the task that is done, in `[0, 1]`, where the environment knows it.
    pub progress: Option<f64>,
    /// The episode ended because of what happened in the world.
    pub terminated: bool,
    /// The episode was cut off (step limit); the world itself could have gone on.
    pub truncated: bool,
    /// The task is solved.
    pub success: bool,
    /// The world understood the action; one that it did not understand changed nothing.
    pub understood: bool,
    /// Measurements of this action beside the reward; mostly none.
    pub metrics: Vec<Metric>,
}

/// The whole state of an episode as bytes that only its own world reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Snapshot(pub Vec<u8>);

/// One world in which one episode at a time is played.
///
/// An environment knows nothing of tokens, prompts or policies. It may be reset any number of times; the read-only
/// data behind it is shared by its [`TaskSet`].
pub trait Environment: Any + Send {
    /// Starts `task` from its start state and returns the first observation. Whatever is random in the episode comes
    /// from `seed`, which the trajectories of one group share.
    ///
    /// # Errors
    /// The task is not known, or the world failed ([`EnvError::is_transient`]).
    fn reset(&mut self, task: &Task, seed: Seed) -> Result<Observation, EnvError>;

    /// Carries one action out. An action that is not understood is an ordinary step, never an error.
    ///
    /// # Errors
    /// There is no episode under way, or the world failed ([`EnvError::is_transient`]).
    fn step(&mut self, action: &Action) -> Result<Step, EnvError>;

    /// Returns the functions that actions of the episode may call; asked for after every reset. By default none.
    ///
    /// A chat template that takes tools gets them as its `tools`, and results of calls as messages of the role `tool`;
    /// any other prompt begins with a list of them. So an observation need not name them.
    fn tools(&self) -> &[Tool] {
        &[]
    }

    /// The state of the episode, where the world can save it.
    ///
    /// # Errors
    /// The world can save states, and not this one.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        Ok(None)
    }

    /// The inverse of [`Environment::snapshot`]: after it, the episode goes on exactly as it would have.
    ///
    /// # Errors
    /// The world has no such capability, or the bytes are none of its snapshots.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let _ = snapshot;
        Err(EnvError::Unsupported("restoring a saved state"))
    }

    /// Ends the episode and gives back what it holds outside of this process. Called once after the last step; a reset
    /// may follow.
    fn close(&mut self) {}
}

/// One environment and the action that it is to carry out.
pub struct PendingStep<'a> {
    /// The environment.
    pub environment: &'a mut dyn Environment,
    /// The action.
    pub action: &'a Action,
}

/// A set of tasks with named splits, and the environments that play them.
pub trait TaskSet: Send + Sync {
    /// The environment's name, for example `alfworld`.
    fn name(&self) -> &str;

    /// The splits there are, training first.
    fn splits(&self) -> Vec<String>;

    /// The tasks of a split, in a defined order that depends on nothing but the data.
    ///
    /// # Errors
    /// There is no such split, or its data cannot be read.
    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError>;

    /// The tasks of a split as a list that makes them one by one, where making all of them takes long; by default there
    /// is none.
    ///
    /// # Errors
    /// There is no such split, or its data cannot be read.
    fn list(&self, split: &str) -> Result<Option<Arc<dyn TaskList>>, EnvError> {
        let _ = split;
        Ok(None)
    }

    /// A fresh environment over the shared data.
    ///
    /// # Errors
    /// It cannot be made ([`EnvError::is_transient`]), for example because the program behind it does not start.
    fn environment(&self) -> Result<Box<dyn Environment>, EnvError>;

    /// True if resets and steps are done at once, without waiting for anything outside of this process. Those of such
    /// a world are called in place, by whoever drives the sampler; those of others on threads of their own, with a
    /// timeout.
    fn is_instant(&self) -> bool {
        false
    }

    /// Number of episodes that can begin now, where there is a limit: servers of environments have room for few. An episode
    /// that cannot begin yet waits without holding anything up.
    fn free_episodes(&self) -> Option<usize> {
        None
    }

    /// True if the world itself ends every reset and step that takes too long: it lets calls wait while it works on as many
    /// as it can, and counts the time of each from its turn. Nobody else then gives a call up, which would count the wait
    /// and leave the call in the queue; calls of other worlds are given up by whoever makes them.
    fn limits_calls(&self) -> bool {
        false
    }

    /// Most steps that [`TaskSet::step_many`] should be given.
    fn batch_limit(&self) -> usize {
        1
    }

    /// Steps several environments of this set; the results come in the order of `pending`.
    ///
    /// A capability of worlds that can carry out many actions at once (`<dyn Any>::downcast_mut` gives them their own
    /// type back); by default one after the other.
    ///
    /// # Errors
    /// Those of [`Environment::step`], each in the place of its own environment; also an environment that is of
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
