//! Instances by split.

use std::collections::HashMap;
use std::sync::Arc;

use turnwise_core::{EnvError, Environment, Task, TaskSet};

use super::engine::Host;
use super::environment::SweEnv;
use super::instance::SweInstance;
use crate::splits::{SPLITS, split_of, tasks_of};

pub(super) const DEFAULT_MAX_TURNS: usize = 50;

/// Shares of the test and validation splits in 256ths.
const TEST: u8 = 64;
const VALID: u8 = 26;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: Arc<Host>,
    instances: Vec<SweInstance>,
    places: HashMap<String, usize>,
    splits: [Vec<Task>; 3],
}

impl Shared {
    pub(super) fn instance(&self, id: &str) -> Result<&SweInstance, EnvError> {
        let place = self.places.get(id).ok_or_else(|| EnvError::UnknownTask(id.to_owned()))?;
        Ok(&self.instances[*place])
    }
}

/// Instances by split.
#[derive(Clone, Debug)]
pub struct SweTasks {
    pub(super) shared: Arc<Shared>,
    max_turns: usize,
}

impl SweTasks {
    /// Creates the task set. If `for_testing` is `None`, a hash of each id decides the split.
    pub(super) fn new(
        instances: Vec<SweInstance>,
        for_testing: Option<Vec<SweInstance>>,
        host: Arc<Host>,
    ) -> Result<Self, EnvError> {
        let mut places = HashMap::new();
        let mut splits: [Vec<Task>; 3] = Default::default();
        let mut all = Vec::new();
        let given = for_testing.is_some();
        let training = instances.into_iter().map(|instance| (instance, false));
        let testing = for_testing.into_iter().flatten().map(|instance| (instance, true));
        for (instance, is_test) in training.chain(testing) {
            if places.insert(instance.id.clone(), all.len()).is_some() {
                return Err(EnvError::Other(format!(
                    "[env] data and test_data: the instance {} is there twice",
                    instance.id
                )));
            }
            let split = match (given, is_test) {
                (true, true) => 2,
                (true, false) => 0,
                (false, _) => {
                    split_of(&turnwise_core::digest([b"swe ", instance.id.as_bytes()]), TEST, VALID)
                }
            };
            let text = serde_json::to_vec(&instance).map_err(|error| EnvError::Other(error.to_string()))?;
            let digest = turnwise_core::digest([text.as_slice()]);
            let statement = format!(
                "The repository {} has this issue. Fix it in the code, then submit; hidden tests check it.\n\n{}",
                instance.repo,
                instance.statement.trim()
            );
            splits[split].push(Task { digest, ..Task::new(instance.id.clone(), &instance.repo, &statement) });
            all.push(instance);
        }
        let shared = Shared { host, instances: all, places, splits };
        Ok(Self { shared: Arc::new(shared), max_turns: DEFAULT_MAX_TURNS })
    }

    /// Sets the turn limit.
    #[must_use]
    pub fn with_max_turns(mut self, max_turns: usize) -> Self {
        self.max_turns = max_turns;
        self
    }

    /// Returns all instances.
    pub fn all(&self) -> &[SweInstance] {
        &self.shared.instances
    }

    /// Returns a split's tasks.
    ///
    /// # Errors
    /// Fails on an unknown split.
    pub fn split(&self, split: &str) -> Result<&[Task], EnvError> {
        tasks_of(&self.shared.splits, split)
    }

    /// Returns an instance.
    ///
    /// # Errors
    /// Fails if the instance is unknown.
    pub fn instance(&self, id: &str) -> Result<&SweInstance, EnvError> {
        self.shared.instance(id)
    }

    /// Creates an environment.
    pub fn swe(&self) -> SweEnv {
        SweEnv::new(Arc::clone(&self.shared), self.max_turns)
    }
}

impl TaskSet for SweTasks {
    fn name(&self) -> &'static str {
        "swe"
    }

    fn splits(&self) -> Vec<String> {
        SPLITS.map(str::to_owned).to_vec()
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        self.split(split).map(<[Task]>::to_vec)
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.swe()))
    }

    /// Returns true, because commands have their own time limits, and a step that runs tests may
    /// take longer than the general limit allows.
    fn limits_calls(&self) -> bool {
        true
    }
}
