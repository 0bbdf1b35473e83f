//! The tasks of a split, created at once or on demand.

use std::sync::Arc;

use crate::{EnvError, Task, TaskSet};

/// The tasks of a split that is too large to create at once. Their panel order and hash are known
/// without creating tasks.
pub trait TaskList: Send + Sync {
    /// Returns the number of tasks.
    fn len(&self) -> usize;

    /// Returns true if there are no tasks.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the task at a position of [`TaskSet::tasks`].
    ///
    /// # Errors
    /// Fails if there is no such position, or if the task's data cannot be read.
    fn task(&self, place: usize) -> Result<Task, EnvError>;

    /// Returns the task with this id, or `None`.
    ///
    /// # Errors
    /// Fails if the task's data cannot be read.
    fn find(&self, id: &str) -> Result<Option<Task>, EnvError>;

    /// Returns the positions of all tasks in panel order.
    fn panel_order(&self) -> &[u32];

    /// Returns the hash of a panel of all tasks: their ids and contents ([`Task::content_digest`]).
    fn hash(&self) -> &str;

    /// Returns the positions of all tasks with this content digest; may include other tasks.
    fn places_of(&self, content_digest: &str) -> Vec<usize>;
}

/// The tasks of a split.
#[derive(Clone)]
pub enum Tasks {
    /// All tasks.
    Made(Vec<Task>),
    /// A list that creates them on demand.
    Listed(Arc<dyn TaskList>),
}

impl Tasks {
    /// Returns the tasks of a split: the list if the set has one, else all tasks.
    ///
    /// # Errors
    /// Fails if the split does not exist, or if its data cannot be read.
    pub fn of(set: &dyn TaskSet, split: &str) -> Result<Self, EnvError> {
        Ok(match set.list(split)? {
            Some(list) => Self::Listed(list),
            None => Self::Made(set.tasks(split)?),
        })
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(tasks) => tasks.len(),
            Self::Listed(list) => list.len(),
        }
    }

    /// Returns true if there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the task at a position in the split's order.
    ///
    /// # Errors
    /// Fails if there is no such position, or if the task's data cannot be read.
    pub fn get(&self, place: usize) -> Result<Task, EnvError> {
        match self {
            Self::Made(tasks) => tasks.get(place).cloned().ok_or_else(|| {
                EnvError::Other(format!("there is no task at place {place}; there are {}", tasks.len()))
            }),
            Self::Listed(list) => list.task(place),
        }
    }
}
