//! What is to be done.

use serde::{Deserialize, Serialize};

/// One task of a task set: a start state and a goal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Identifies the task inside its task set; stable across machines and runs.
    pub id: String,
    /// The kind of task that success is reported by, for example `pick_and_place_simple`.
    pub kind: String,
    /// The goal as the agent reads it.
    pub goal: String,
}
