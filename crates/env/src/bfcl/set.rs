//! BFCL tasks by split.

use std::collections::HashMap;
use std::sync::Arc;

use turnwise_core::{EnvError, Environment, Task, TaskSet, Tool};

use super::apis::Api;
use super::document::{BfclDocuments, tool};
use super::environment::BfclEnv;
use super::package::{BfclTask, Package};
use crate::splits::{SPLITS, split_of};

/// Name of the split that contains all tasks, for results that are comparable with those of
/// `bfcl-eval`.
pub(super) const ALL: &str = "all";

/// Default turn limit, enough for an agent that makes one gold call per reply.
pub(super) const DEFAULT_MAX_TURNS: usize = 60;

/// Default maximum number of replies with calls per user turn, as in the package.
pub(super) const DEFAULT_MAX_STEPS: usize = 20;

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 102;
const VALID: u8 = 26;

pub(super) fn split_by(name: &str) -> usize {
    split_of(&turnwise_core::digest([b"bfcl multi-turn ", name.as_bytes()]), TEST, VALID)
}

const GOAL: &str = "do what the user asks by calling functions";

/// Options of [`BfclTasks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfclOptions {
    /// How the first observation documents the functions.
    pub documents: BfclDocuments,
    /// Maximum replies with calls per user turn.
    pub max_steps: usize,
    /// Whether the first failed turn ends the episode.
    pub stop_at_failed_turn: bool,
}

impl Default for BfclOptions {
    fn default() -> Self {
        Self { documents: BfclDocuments::default(), max_steps: DEFAULT_MAX_STEPS, stop_at_failed_turn: false }
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) package: Package,
    pub(super) options: BfclOptions,
    pub(super) tools: HashMap<Api, Vec<(String, Tool)>>,
    places: HashMap<String, usize>,
    splits: [Vec<Task>; 4],
}

impl Shared {
    pub(super) fn task(&self, id: &str) -> Result<&BfclTask, EnvError> {
        let place = self.places.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))?;
        Ok(&self.package.tasks[*place])
    }
}

/// BFCL's own tasks, or generated tasks.
///
/// A hash of the task number decides the split: `train` (50 %), `valid` (10 %) or `test` (40 %).
/// The variants of a task in the four sets have the same number, so they share a split. Generated
/// tasks are split by a hash of their gold calls instead. `all` contains every task.
#[derive(Clone, Debug)]
pub struct BfclTasks {
    pub(super) shared: Arc<Shared>,
    max_turns: usize,
}

impl BfclTasks {
    /// Creates a task set from a package.
    pub fn new(package: Package, options: BfclOptions) -> Self {
        let mut places = HashMap::new();
        let mut splits: [Vec<Task>; 4] = Default::default();
        for (place, task) in package.tasks.iter().enumerate() {
            places.insert(task.id.clone(), place);
            // Generated tasks have no common number, so their calls decide.
            let (split, digest) = if task.functions.is_some() {
                (split_by(&task.gold.concat().join("\n")), task.digest())
            } else {
                let number = task.id.rsplit_once('_').map_or(task.id.as_str(), |(_, number)| number);
                (
                    split_by(number),
                    turnwise_core::digest([task.id.as_bytes(), task.turns.join("\n").as_bytes()]),
                )
            };
            let entry = Task { digest, ..Task::new(task.id.clone(), &task.kind, GOAL) };
            splits[split].push(entry.clone());
            splits[3].push(entry);
        }
        let tools = package.documents.iter().map(|(api, documents)| {
            let tools =
                documents.iter().filter_map(|(name, text)| Some((name.clone(), tool(name, text)?))).collect();
            (*api, tools)
        });
        let tools = if options.documents == BfclDocuments::Tools { tools.collect() } else { HashMap::new() };
        let shared = Shared { package, options, tools, places, splits };
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
        let names = SPLITS.into_iter().chain([ALL]);
        let found = names.zip(&self.shared.splits).find(|(name, _)| *name == split);
        found.map(|(_, tasks)| tasks.as_slice()).ok_or_else(|| EnvError::UnknownSplit {
            split: split.to_owned(),
            known: format!("{}, {ALL}", SPLITS.join(", ")),
        })
    }

    /// Returns the full task with this id, including its turns and gold calls.
    ///
    /// # Errors
    /// Fails on an unknown task.
    pub fn task(&self, id: &str) -> Result<&BfclTask, EnvError> {
        self.shared.task(id)
    }

    /// Creates an environment.
    pub fn bfcl(&self) -> BfclEnv {
        BfclEnv::new(Arc::clone(&self.shared), self.max_turns)
    }
}

impl TaskSet for BfclTasks {
    fn name(&self) -> &'static str {
        "bfcl"
    }

    fn splits(&self) -> Vec<String> {
        SPLITS.into_iter().chain([ALL]).map(str::to_owned).collect()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn is_instant(&self) -> bool {
        true
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.bfcl()))
    }
}
