//! Custom environments, each built from an [`Environment`] type and its tasks.
//!
//! ```
//! use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task};
//! use turnwise_env::dataset::{Dataset, NoSettings};
//! use turnwise_env::registry::Registry;
//!
//! #[derive(Default)]
//! struct Coin {
//!     side: String,
//! }
//!
//! impl Environment for Coin {
//!     fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
//!         self.side = task.id.clone();
//!         Ok(Observation::new("Heads or tails?"))
//!     }
//!
//!     fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
//!         let success = action.text() == self.side;
//!         let reward = f64::from(u8::from(success));
//!         Ok(Step { reward, success, terminated: true, understood: true, ..Step::default() })
//!     }
//! }
//!
//! let worlds = Registry::builtin().with_environment("coin", |_: &NoSettings| {
//!     let task = |side: &str| Task::new(side, "coin", "guess the side");
//!     Ok(Dataset::new(Coin::default)
//!         .split("train", vec![task("heads"), task("tails")])
//!         .split("test", vec![task("heads")])
//!         .expert(|coin, _| coin.side.clone()))
//! });
//! assert_eq!(worlds.kind("coin")?.name(), "coin");
//! # Ok::<(), turnwise_settings::SettingsError>(())
//! ```

use std::marker::PhantomData;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use turnwise_core::{EnvError, Environment, Observation, Seed, Task, TaskSet};

use crate::demonstration::{DemonstrationRequest, Demonstrations, play_all, play_episode};
use crate::world::{OpenOptions, World, WorldKind};

/// Empty settings, for environments without their own keys in `[env]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoSettings {}

type Make<E> = dyn Fn() -> E + Send + Sync;
type Expert<E> = dyn Fn(&E, &Observation) -> String + Send + Sync;

/// An environment and its tasks by split; register it with
/// [`crate::registry::Registry::with_environment`]. The environment runs on the sampling thread and
/// blocks it; if `step` waits for another process, implement [`TaskSet`] instead.
pub struct Dataset<E> {
    name: String,
    make: Box<Make<E>>,
    splits: Vec<(String, Vec<Task>)>,
    expert: Option<Box<Expert<E>>>,
    phrases: Vec<String>,
}

impl<E: Environment> Dataset<E> {
    /// Creates a dataset without splits; `make` creates each environment.
    pub fn new(make: impl Fn() -> E + Send + Sync + 'static) -> Self {
        let (splits, phrases) = (Vec::new(), Vec::new());
        Self { name: String::new(), make: Box::new(make), splits, expert: None, phrases }
    }

    /// Adds a split; the training split must come first.
    #[must_use]
    pub fn split(mut self, name: impl Into<String>, tasks: Vec<Task>) -> Self {
        self.splits.push((name.into(), tasks));
        self
    }

    /// Sets the expert for the SFT warm start. The expert's unsuccessful episodes are dropped.
    #[must_use]
    pub fn expert(mut self, act: impl Fn(&E, &Observation) -> String + Send + Sync + 'static) -> Self {
        self.expert = Some(Box::new(act));
        self
    }

    /// Sets phrases that a tokenizer trained from scratch keeps as single tokens
    /// ([`World::phrases`]).
    #[must_use]
    pub fn phrases(mut self, phrases: Vec<String>) -> Self {
        self.phrases = phrases;
        self
    }

    fn split_tasks(&self, split: &str) -> Result<&[Task], EnvError> {
        let found = self.splits.iter().find(|(name, _)| name == split);
        found
            .map(|(_, tasks)| &tasks[..])
            .ok_or_else(|| EnvError::UnknownSplit { split: split.into(), known: self.splits().join(", ") })
    }
}

impl<E: Environment> TaskSet for Dataset<E> {
    fn name(&self) -> &str {
        &self.name
    }

    fn splits(&self) -> Vec<String> {
        self.splits.iter().map(|(name, _)| name.clone()).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split_tasks(split).map(<[Task]>::to_vec)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new((self.make)()))
    }
}

impl<E: Environment> World for Dataset<E> {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    fn has_expert(&self) -> bool {
        self.expert.is_some()
    }

    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let Some(expert) = &self.expert else { return Ok(None) };
        let made = play_all(self.split_tasks(request.split)?, request, |task, seed: Seed| {
            let mut environment = (self.make)();
            let act = |environment: &E, seen: &Observation| Some((expert(environment, seen), true));
            play_episode(&mut environment, task, seed, request, act, |step| step.success)
        })?;
        Ok(Some(made))
    }

    fn phrases(&self) -> Result<Vec<String>, EnvError> {
        Ok(self.phrases.clone())
    }
}

pub(crate) struct EnvironmentKind<S, E, F> {
    name: String,
    open: F,
    types: PhantomData<fn(&S) -> E>,
}

impl<S, E, F> EnvironmentKind<S, E, F> {
    pub(crate) fn new(name: &str, open: F) -> Self {
        Self { name: name.to_owned(), open, types: PhantomData }
    }
}

impl<S, E, F> WorldKind for EnvironmentKind<S, E, F>
where
    S: Serialize + DeserializeOwned + JsonSchema + Default + 'static,
    E: Environment,
    F: Fn(&S) -> Result<Dataset<E>, EnvError> + Send + Sync + 'static,
{
    type Settings = S;

    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &'static str {
        "an environment of this program"
    }

    fn open(&self, settings: &S, _: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        let set = (self.open)(settings)?;
        Ok(Box::new(Dataset { name: self.name.clone(), ..set }))
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Action, Step};

    use super::*;
    use crate::registry::Registry;

    #[derive(Default)]
    struct Count {
        left: usize,
    }

    impl Environment for Count {
        fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
            self.left = task.id.len();
            Ok(Observation::new(format!("{} left", self.left)))
        }

        fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
            let understood = action.text() == "count";
            self.left -= usize::from(understood);
            let done = self.left == 0;
            let observation = Observation::new(format!("{} left", self.left));
            Ok(Step { observation, terminated: done, success: done, understood, ..Step::default() })
        }
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(default, deny_unknown_fields)]
    struct Settings {
        #[schemars(range(min = 1, max = 9))]
        most: usize,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self { most: 3 }
        }
    }

    fn worlds() -> Registry {
        Registry::empty().with_environment("count", |settings: &Settings| {
            let task = |number: usize| Task::new("x".repeat(number), "count", "count");
            let set = Dataset::new(Count::default)
                .split("train", (1..=settings.most).map(task).collect())
                .split("test", vec![task(2)]);
            Ok(set.expert(|_, _| "count".to_owned()).phrases(vec!["left".into()]))
        })
    }

    #[test]
    fn an_environment_and_its_tasks_are_a_world() {
        let worlds = worlds();
        let mut note = |_| {};
        let mut options = OpenOptions { splits: &[], max_turns: 9, note: &mut note };
        let settings: toml::Table = "most = 5".parse().unwrap();
        let world = worlds.kind("count").unwrap().open(&settings, &mut options).unwrap();
        let set = world.task_set();
        assert_eq!((set.name(), set.splits()), ("count", vec!["train".to_owned(), "test".to_owned()]));
        assert_eq!(set.tasks("train").unwrap().len(), 5);
        let error = set.tasks("valid").unwrap_err().to_string();
        assert!(error.contains("valid") && error.contains("train, test"), "{error}");
        assert!(world.has_expert());
        assert_eq!(world.phrases().unwrap(), ["left"]);
        let request = DemonstrationRequest { count: 5, max_turns: 4, ..DemonstrationRequest::default() };
        let made = world.demonstrations(&request).unwrap().unwrap();
        assert_eq!((made.episodes.len(), made.dropped), (4, 1));
        assert_eq!(made.episodes[2].turns.len(), 3);
        assert_eq!(made.episodes[2].turns[0].observation, "3 left");
        assert_eq!(made.episodes[2].final_observation, "0 left");
    }

    #[test]
    fn settings_are_checked_by_their_schema() {
        let worlds = worlds();
        let kind = worlds.kind("count").unwrap();
        let error = kind.resolve(&"most = 10".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("most"), "{error}");
        let error = kind.resolve(&"mots = 2".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("most"), "{error}");
    }
}
