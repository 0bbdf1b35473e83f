//! A domain's tasks and shared data.

use std::collections::HashMap;
use std::sync::Arc;

use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::checkout::Checkout;
use super::environment::Tau2Env;
use super::task::Tau2Task;
use super::user::SharedUser;

/// Default turn limit, enough for the gold calls and the conversation.
pub(super) const DEFAULT_MAX_TURNS: usize = 50;

/// Default limit of failed calls, as in tau2-bench.
pub(super) const DEFAULT_MAX_ERRORS: usize = 10;

const GOAL: &str = "help the user within the policy, by calling tools";

/// Options of [`Tau2Tasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tau2Options {
    /// Whether the first observation starts with the policy.
    pub policy: bool,
    /// Whether the agent must communicate a task's required texts even if the task's reward basis
    /// omits this check.
    pub information: bool,
    /// Number of failed calls at which an episode ends unsolved.
    pub max_errors: usize,
}

impl Default for Tau2Options {
    fn default() -> Self {
        Self { policy: true, information: true, max_errors: DEFAULT_MAX_ERRORS }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) checkout: Checkout,
    pub(super) options: Tau2Options,
    pub(super) user: SharedUser,
    places: HashMap<String, usize>,
    splits: Vec<(String, Vec<Task>)>,
}

impl Shared {
    pub(super) fn task(&self, id: &str) -> Result<&Tau2Task, EnvError> {
        let place = self.places.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))?;
        Ok(&self.checkout.tasks[*place])
    }
}

/// The tasks of one domain.
#[derive(Clone, Debug)]
pub struct Tau2Tasks {
    pub(super) shared: Arc<Shared>,
    max_turns: usize,
}

impl Tau2Tasks {
    /// Creates the tasks of a checkout.
    pub fn new(checkout: Checkout, options: Tau2Options, user: SharedUser) -> Self {
        let name = checkout.domain.name();
        let mut places = HashMap::new();
        let mut entries = HashMap::new();
        for (place, task) in checkout.tasks.iter().enumerate() {
            places.insert(task.id.clone(), place);
            let ticket = task.ticket.clone().unwrap_or_default();
            let texts = [name.to_owned(), task.id.clone(), task.user_scenario.to_string(), ticket];
            let digest = turnwise_core::digest(texts.iter().map(String::as_bytes));
            let kind = kind(&task.id).unwrap_or(name);
            entries.insert(task.id.as_str(), Task { digest, ..Task::new(task.id.clone(), kind, GOAL) });
        }
        let splits = checkout.splits.iter().map(|(split, ids)| {
            let tasks = ids.iter().filter_map(|id| entries.get(id.as_str()).cloned()).collect();
            (split.clone(), tasks)
        });
        let splits = splits.collect();
        let shared = Shared { checkout, options, user, places, splits };
        Self { shared: Arc::new(shared), max_turns: DEFAULT_MAX_TURNS }
    }

    /// Sets the turn limit.
    #[must_use]
    pub fn with_max_turns(mut self, max_turns: usize) -> Self {
        self.max_turns = max_turns;
        self
    }

    /// Returns a split's tasks.
    ///
    /// # Errors
    /// Fails on an unknown split.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        let found = self.shared.splits.iter().find(|(name, _)| name == split);
        found.map(|(_, tasks)| tasks.as_slice()).ok_or_else(|| EnvError::UnknownSplit {
            split: split.to_owned(),
            known: self.splits().join(", "),
        })
    }

    /// Returns the full task with this id, including its scenario and grading criteria.
    ///
    /// # Errors
    /// Fails on an unknown task.
    pub fn task(&self, id: &str) -> Result<&Tau2Task, EnvError> {
        self.shared.task(id)
    }

    pub(super) fn is_solo(&self) -> bool {
        self.shared.checkout.domain.is_solo()
    }

    /// Creates an environment.
    pub fn tau2(&self) -> Tau2Env {
        Tau2Env::new(Arc::clone(&self.shared), self.max_turns)
    }
}

/// Returns the kind of a task; telecom task ids start with the kind in brackets.
fn kind(id: &str) -> Option<&str> {
    id.strip_prefix('[')?.split_once(']').map(|(kind, _)| kind)
}

impl TaskSet for Tau2Tasks {
    fn name(&self) -> &'static str {
        "tau2"
    }

    fn splits(&self) -> Vec<String> {
        self.shared.splits.iter().map(|(name, _)| name.clone()).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn is_instant(&self) -> bool {
        self.is_solo() || self.shared.user.is_instant()
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.tau2()))
    }
}
