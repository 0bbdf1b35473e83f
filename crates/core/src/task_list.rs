//! The tasks of a split: all of them, or a list that makes them one by one.

use std::sync::Arc;

use crate::{EnvError, Task, TaskSet};

/// The tasks of a split that is too large for all of them to be made: each is made when it is asked for, and what panels
/// need to know of all is known without making any.
pub trait TaskList: Send + Sync {
    /// Number of tasks.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task at a place of the split's order, as [`TaskSet::tasks`] has it.
    ///
    /// # Errors
    /// There is no such place, or the task's data cannot be read.
    fn task(&self, place: usize) -> Result<Task, EnvError>;

    /// The task of a name; `None` where the split has none of it.
    ///
    /// # Errors
    /// The task's data cannot be read.
    fn find(&self, id: &str) -> Result<Option<Task>, EnvError>;

    /// The places of all tasks in the order of panels.
    fn panel_order(&self) -> &[u32];

    /// Hash of a panel of all tasks: of their names and their contents ([`Task::content_digest`]).
    fn hash(&self) -> &str;

    /// Places of all tasks whose content has this digest, and perhaps of some others.
    fn places_of(&self, content_digest: &str) -> Vec<usize>;
}

/// The tasks of a split.
#[derive(Clone)]
pub enum Tasks {
    /// All of them.
    Made(Vec<Task>),
    /// A list that makes them.
    Listed(Arc<dyn TaskList>),
}

impl Tasks {
    /// The tasks of a split, made only where the set has no list of them.
    ///
    /// # Errors
    /// There is no such split, or its data cannot be read.
    pub fn of(set: &dyn TaskSet, split: &str) -> Result<Self, EnvError> {
        Ok(match set.list(split)? {
            Some(list) => Self::Listed(list),
            None => Self::Made(set.tasks(split)?),
        })
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        match self {
            Self::Made(tasks) => tasks.len(),
            Self::Listed(list) => list.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task at a place of the split's order.
    ///
    /// # Errors
    /// There is no such place, or the task's data cannot be read.
    pub fn get(&self, place: usize) -> Result<Task, EnvError> {
        match self {
            Self::Made(tasks) => tasks.get(place).cloned().ok_or_else(|| {
                EnvError::Other(format!("there is no task at place {place}; there are {}", tasks.len()))
            }),
            Self::Listed(list) => list.task(place),
        }
    }
}
