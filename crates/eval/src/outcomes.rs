//! Outcomes of a panel's tasks.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use turnwise_core::Trajectory;
use turnwise_train::rollout::is_faulty;

/// Outcome of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOutcome {
    /// Index in the panel.
    pub task: usize,
    /// Task kind.
    pub kind: String,
    /// Whether the task was solved.
    pub success: bool,
    /// Outcome return.
    pub outcome_return: f64,
    /// Number of turns.
    pub turns: usize,
}

/// Outcomes in panel order, without tasks that failed in the environment or sampler. JSON:
/// `{"kinds": ["pick", ...], "task": [0, 1, ...], "kind": [0, ...], "success": [1, 0, ...], "return": [10, 0, ...], "turns": [7, ...]}`;
/// `kind` is an index into `kinds`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcomes(pub Vec<TaskOutcome>);

impl Outcomes {
    pub(crate) fn of(played: &[Trajectory]) -> Self {
        let whole = played.iter().enumerate().filter(|(_, trajectory)| !is_faulty(trajectory));
        let outcome = |(task, trajectory): (usize, &Trajectory)| TaskOutcome {
            task,
            kind: trajectory.task.kind.clone(),
            success: trajectory.success,
            outcome_return: trajectory.outcome_return(),
            turns: trajectory.actions(),
        };
        Self(whole.map(outcome).collect())
    }

    /// Returns true if there are no outcomes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Deref for Outcomes {
    type Target = [TaskOutcome];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Columns {
    kinds: Vec<String>,
    task: Vec<usize>,
    kind: Vec<usize>,
    success: Vec<u8>,
    #[serde(rename = "return")]
    outcome_return: Vec<f64>,
    turns: Vec<usize>,
}

impl Serialize for Outcomes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut kinds: Vec<String> = self.iter().map(|outcome| outcome.kind.clone()).collect();
        kinds.sort();
        kinds.dedup();
        let columns = Columns {
            task: self.iter().map(|outcome| outcome.task).collect(),
            kind: self.iter().map(|outcome| kinds.partition_point(|kind| *kind < outcome.kind)).collect(),
            success: self.iter().map(|outcome| u8::from(outcome.success)).collect(),
            outcome_return: self.iter().map(|outcome| outcome.outcome_return).collect(),
            turns: self.iter().map(|outcome| outcome.turns).collect(),
            kinds,
        };
        // One line, even in an indented file.
        let text = serde_json::to_string(&columns).map_err(serde::ser::Error::custom)?;
        RawValue::from_string(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Outcomes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let columns = Columns::deserialize(deserializer)?;
        let count = columns.task.len();
        let lengths =
            [columns.kind.len(), columns.success.len(), columns.outcome_return.len(), columns.turns.len()];
        if lengths.iter().any(|length| *length != count) {
            return Err(serde::de::Error::custom("outcomes: the columns have different lengths"));
        }
        let outcome = |row: usize| {
            let kind = columns.kinds.get(columns.kind[row]).cloned();
            let kind = kind.ok_or_else(|| serde::de::Error::custom("outcomes: a kind is not in `kinds`"))?;
            Ok(TaskOutcome {
                task: columns.task[row],
                kind,
                success: columns.success[row] != 0,
                outcome_return: columns.outcome_return[row],
                turns: columns.turns[row],
            })
        };
        Ok(Self((0..count).map(outcome).collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_one_line_and_read_back() {
        let outcome = |task: usize, kind: &str, success: bool| TaskOutcome {
            task,
            kind: kind.into(),
            success,
            outcome_return: 0.5 * task as f64,
            turns: task + 3,
        };
        let outcomes =
            Outcomes(vec![outcome(0, "heat", true), outcome(2, "cool", false), outcome(3, "heat", false)]);
        let text = serde_json::to_string_pretty(&vec![&outcomes]).unwrap();
        assert_eq!(
            text.lines().nth(1).unwrap().trim(),
            r#"{"kinds":["cool","heat"],"task":[0,2,3],"kind":[1,0,1],"success":[1,0,0],"return":[0.0,1.0,1.5],"turns":[3,5,6]}"#
        );
        assert_eq!(serde_json::from_str::<Vec<Outcomes>>(&text).unwrap(), [outcomes]);
        for (from, to) in [("[3,5,6]", "[3,5]"), ("[1,0,1]", "[1,0,2]")] {
            let broken = text.replace(from, to);
            assert_ne!(broken, text);
            let error = serde_json::from_str::<Vec<Outcomes>>(&broken).unwrap_err().to_string();
            assert!(error.contains("outcomes: "), "{error}");
        }
    }
}
