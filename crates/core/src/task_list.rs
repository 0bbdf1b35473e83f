//! A split's tasks, created at once or on demand.

use std::sync::Arc;

use crate::{EnvError, Task, TaskSet};

/// Tasks of a split, created on demand. The tasks' hash and their order in evaluation panels are
/// available before any task is created.
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
    /// Fails on an invalid position or unreadable data.
    fn task(&self, place: usize) -> Result<Task, EnvError>;

    /// Returns the task with this id, if any.
    ///
    /// # Errors
    /// Fails on unreadable data.
    fn find(&self, id: &str) -> Result<Option<Task>, EnvError>;

    /// Returns all positions in the order in which evaluation panels take tasks.
    fn panel_order(&self) -> &[u32];

    /// Returns the hash of all tasks' ids and contents ([`Task::content_digest`]).
    fn hash(&self) -> &str;

    /// Returns the positions of the tasks with this content digest. The result may include other
    /// tasks, because a list may compare only a prefix of the digest.
    fn places_of(&self, content_digest: &str) -> Vec<usize>;
}

/// Tasks of a split.
#[derive(Clone)]
pub enum Tasks {
    /// Created tasks.
    Made(Vec<Task>),
    /// Tasks created on demand.
    Listed(Arc<dyn TaskList>),
}

impl Tasks {
    /// Returns the split's list if the set has one, otherwise all its tasks.
    ///
    /// # Errors
    /// Fails on an unknown split or unreadable data.
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

    /// Returns the task at a position.
    ///
    /// # Errors
    /// Fails on an invalid position or unreadable data.
    pub fn get(&self, place: usize) -> Result<Task, EnvError> {
        match self {
            Self::Made(tasks) => tasks.get(place).cloned().ok_or_else(|| {
                EnvError::Other(format!("there is no task at place {place}; there are {}", tasks.len()))
            }),
            Self::Listed(list) => list.task(place),
        }
    }
}
