//! Tasks.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::digest;

/// Limits of a task's episodes, which can only lower the run's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskLimits {
    /// Maximum turns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// Maximum response tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_tokens: Option<usize>,
    /// Maximum number of tokens of an observation; longer observations are truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observation_tokens: Option<usize>,
}

impl TaskLimits {
    /// Returns true if no limit is set.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the smaller of this turn limit and `max_turns` (0: no limit); `usize::MAX` if
    /// neither limits the turns.
    pub fn turns_within(&self, max_turns: usize) -> usize {
        let world = if max_turns == 0 { usize::MAX } else { max_turns };
        self.turns.unwrap_or(usize::MAX).min(world)
    }
}

/// A start state and a goal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Stable id within the task set.
    pub id: String,
    /// Kind of task; success is also reported per kind, for example `pick_and_place_simple`.
    pub kind: String,
    /// Goal as the agent reads it.
    pub goal: String,
    /// Data that the policy never sees, such as [`Task::answer`].
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// SHA-256, in lower-case hexadecimal, of the whole task except its id; may be empty
    /// ([`Task::content_digest`]).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Episode limits.
    #[serde(default, skip_serializing_if = "TaskLimits::is_none")]
    pub limits: TaskLimits,
}

impl Task {
    /// [`Task::metadata`] key of the reference answer.
    pub const ANSWER: &'static str = "answer";

    /// [`Task::metadata`] key of the scenario, which variants of a task share.
    pub const SCENARIO: &'static str = "scenario";

    /// Creates a task without metadata, digest or limits.
    pub fn new(id: impl Into<String>, kind: impl Into<String>, goal: impl Into<String>) -> Self {
        Self { id: id.into(), kind: kind.into(), goal: goal.into(), ..Self::default() }
    }

    /// Returns the scenario ([`Task::SCENARIO`]) in the metadata, if any.
    pub fn scenario(&self) -> Option<&str> {
        self.metadata.get(Self::SCENARIO)?.as_str()
    }

    /// Returns the reference answer ([`Task::ANSWER`]) in the metadata, if any.
    pub fn answer(&self) -> Option<&str> {
        self.metadata.get(Self::ANSWER)?.as_str()
    }

    /// Returns [`Task::digest`] or, if that is empty, the SHA-256 of kind, goal, metadata and
    /// limits.
    pub fn content_digest(&self) -> String {
        if !self.digest.is_empty() {
            return self.digest.clone();
        }
        let TaskLimits { turns, response_tokens, observation_tokens } = self.limits;
        let metadata = Value::Object(self.metadata.clone()).to_string();
        let limits = format!("{turns:?} {response_tokens:?} {observation_tokens:?}");
        digest([self.kind.as_bytes(), self.goal.as_bytes(), metadata.as_bytes(), limits.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_everything_but_the_name() {
        let task = Task::new("a", "k", "g");
        assert_eq!(task.content_digest(), Task::new("b", "k", "g").content_digest());
        assert_ne!(task.content_digest(), Task::new("a", "k", "h").content_digest());
        let mut other = task.clone();
        other.metadata.insert("answer".into(), 42.into());
        assert_ne!(task.content_digest(), other.content_digest());
        let mut limited = task.clone();
        limited.limits.turns = Some(3);
        assert_ne!(task.content_digest(), limited.content_digest());
        let given = Task { digest: "d".into(), ..task };
        assert_eq!(given.content_digest(), "d");
    }

    #[test]
    fn the_smaller_limit_of_turns_counts() {
        let limits = |turns| TaskLimits { turns, ..TaskLimits::default() };
        assert_eq!((limits(None).turns_within(0), limits(None).turns_within(4)), (usize::MAX, 4));
        assert_eq!((limits(Some(3)).turns_within(0), limits(Some(3)).turns_within(4)), (3, 3));
        assert_eq!(limits(Some(5)).turns_within(4), 4);
    }

    #[test]
    fn the_short_form_reads() {
        let read: Task = serde_json::from_str(r#"{"id":"a","kind":"k","goal":"g"}"#).unwrap();
        assert_eq!(read, Task::new("a", "k", "g"));
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"{"id":"a","kind":"k","goal":"g"}"#);
    }
}
