//! Batches for tests.
#![allow(dead_code, reason = "every test file uses a part of it")]

use turnwise_core::{Batch, Group, Task, Trajectory, Turn};

pub(crate) fn turn(observation: &str, reward: f64) -> Turn {
    Turn { observation: observation.into(), action: "act".into(), valid: true, reward, ..Turn::default() }
}

pub(crate) fn trajectory(group: usize, sample: usize, turns: Vec<Turn>) -> Trajectory {
    Trajectory { group, sample, ..Trajectory::new(Task::new(format!("task-{group}"), "kind", "goal"), turns) }
}

pub(crate) fn group(turns: Vec<Vec<Turn>>) -> Group {
    Group {
        trajectories: turns
            .into_iter()
            .enumerate()
            .map(|(sample, turns)| trajectory(0, sample, turns))
            .collect(),
    }
}

/// Creates the two trajectories of verl-agent's golden numbers.
pub(crate) fn peer_batch() -> Batch {
    let mut batch = Batch {
        groups: vec![group(vec![
            vec![turn("s0", 0.0), turn("s1", 0.0), turn("s2", 10.0)],
            vec![turn("s0", 0.0), turn("s3", 0.0)],
        ])],
    };
    batch.groups[0].trajectories[1].turns[1].valid = false;
    batch
}
