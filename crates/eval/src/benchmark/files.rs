//! Benchmark data sets as JSON lines of trajectories.

use std::path::Path;

use turnwise_benchmark::TruthLine;
use turnwise_train::TrainError;
use turnwise_train::record::directory::{read_lines, write_lines};

/// Writes a data set, zstd-compressed if the name ends in `.zst`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_truth(path: &Path, lines: &[TruthLine]) -> Result<(), TrainError> {
    write_lines(path, lines.iter())
}

/// Reads a data set.
///
/// # Errors
/// Fails on an unreadable or empty file, or a line without true advantages.
pub fn read_truth(path: &Path) -> Result<Vec<TruthLine>, TrainError> {
    let lines = read_lines(path, |line: &TruthLine| line.trajectory.schema_version)?;
    if lines.is_empty() {
        return Err(TrainError::file(path, "has no trajectory; make one with `turnwise benchmark credit`"));
    }
    for (index, line) in lines.iter().enumerate() {
        line.check().map_err(|reason| TrainError::file(path, format!("line {}: {reason}", index + 1)))?;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use turnwise_benchmark::TruthSource;
    use turnwise_benchmark::truth::truth_of_turns;
    use turnwise_core::{Task, Trajectory, Turn};

    use super::*;

    #[test]
    fn a_data_set_is_read_as_it_was_written_and_by_whoever_reads_trajectories() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("truth.jsonl.zst");
        let turn =
            Turn { entropies: vec![0.1], old_logprobs: vec![-0.1], reward: 1.0 / 3.0, ..Turn::default() };
        let trajectory = Trajectory::new(Task::new("t", "k", "g"), vec![turn]);
        let truth = truth_of_turns(&[1.0 / 3.0], &[&[0.1, 0.7]], 1.0).into_iter().map(Some).collect();
        let source = TruthSource {
            method: "branching".into(),
            policy: "run".into(),
            config: "tiny".into(),
            split: "train".into(),
            gamma: 1.0,
            continuations: 4,
            budget: 0,
            samples: 2,
            tasks: 1,
            seed: 0,
        };
        let mut lines = vec![TruthLine { trajectory, truth, benchmark: source }];
        write_truth(&path, &lines).unwrap();
        assert_eq!(read_truth(&path).unwrap(), lines);
        let plain = turnwise_train::record::directory::read_trajectories(&path).unwrap();
        assert_eq!(plain, [lines[0].trajectory.clone()]);
        lines[0].truth.clear();
        write_truth(&path, &lines).unwrap();
        assert!(read_truth(&path).unwrap_err().to_string().contains("line 1: 1 turns have 0 entries"));
        write_truth(&path, &[]).unwrap();
        assert!(read_truth(&path).unwrap_err().to_string().contains("has no trajectory"));
        std::fs::write(&path, "{}").unwrap();
        assert!(read_truth(&path).unwrap_err().to_string().contains("line 1"));
    }
}
