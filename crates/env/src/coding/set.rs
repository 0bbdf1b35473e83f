//! Coding tasks by split.

use std::collections::HashMap;
use std::sync::Arc;

use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::environment::CodingEnv;
use super::task::CodingTask;
use super::workshop::{CodingLimits, Workshop};
use crate::splits::{SPLITS, split_of, tasks_of};

pub(super) const DEFAULT_MAX_TURNS: usize = 20;

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 64;
const VALID: u8 = 26;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) workshop: Workshop,
    pub(super) limits: CodingLimits,
    tasks: Vec<CodingTask>,
    places: HashMap<String, usize>,
    splits: [Vec<Task>; 3],
}

impl Shared {
    pub(super) fn task(&self, id: &str) -> Result<&CodingTask, EnvError> {
        let place = self.places.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))?;
        Ok(&self.tasks[*place])
    }
}

/// Coding tasks by split. Generated tasks whose defects are in the same line of a library are in
/// the same split.
#[derive(Clone, Debug)]
pub struct CodingTasks {
    pub(super) shared: Arc<Shared>,
    max_turns: usize,
}

impl CodingTasks {
    /// Creates the task set and assigns the splits.
    ///
    /// # Errors
    /// Fails if a task cannot be serialized.
    pub fn new(tasks: Vec<CodingTask>, workshop: Workshop, limits: CodingLimits) -> Result<Self, EnvError> {
        let mut places = HashMap::new();
        let mut splits: [Vec<Task>; 3] = Default::default();
        for (place, task) in tasks.iter().enumerate() {
            places.insert(task.id.clone(), place);
            let group = task.id.rsplit_once('-').map_or(task.id.as_str(), |(group, _)| group);
            let split = split_of(&turnwise_core::digest([b"coding ", group.as_bytes()]), TEST, VALID);
            let text = serde_json::to_vec(task).map_err(|error| EnvError::Other(error.to_string()))?;
            let digest = turnwise_core::digest([text.as_slice()]);
            splits[split].push(Task { digest, ..Task::new(task.id.clone(), &task.kind, &task.statement) });
        }
        let shared = Shared { workshop, limits, tasks, places, splits };
        Ok(Self { shared: Arc::new(shared), max_turns: DEFAULT_MAX_TURNS })
    }

    /// Sets the turn limit.
    #[must_use]
    pub fn with_max_turns(mut self, max_turns: usize) -> Self {
        self.max_turns = max_turns;
        self
    }

    /// Returns all tasks.
    pub fn all(&self) -> &[CodingTask] {
        &self.shared.tasks
    }

    /// Returns a split's tasks.
    ///
    /// # Errors
    /// Fails on an unknown split.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// Returns a task.
    ///
    /// # Errors
    /// Fails on an unknown task.
    pub fn task(&self, id: &str) -> Result<&CodingTask, EnvError> {
        self.shared.task(id)
    }

    /// Creates an environment.
    pub fn coding(&self) -> CodingEnv {
        CodingEnv::new(Arc::clone(&self.shared), self.max_turns)
    }
}

impl TaskSet for CodingTasks {
    fn name(&self) -> &'static str {
        "coding"
    }

    fn splits(&self) -> Vec<String> {
        SPLITS.map(str::to_owned).to_vec()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.coding()))
    }
}
