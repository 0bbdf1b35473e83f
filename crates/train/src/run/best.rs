//! The checkpoint with the best evaluation, named by `checkpoints/best.json`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::TrainError;
use crate::record::checkpoint;
use crate::record::directory::{Phase, Position, RunDirectory};

const MARKER: &str = "checkpoints/best.json";

/// Best checkpoint of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Position of the checkpoint.
    pub position: Position,
    /// Evaluated split.
    pub split: String,
    /// Fraction of solved tasks; failed episodes count as unsolved.
    pub success_rate: f64,
}

/// Returns the best checkpoint, if any.
///
/// # Errors
/// Fails if `best.json` cannot be read.
pub fn read(run: &RunDirectory) -> Result<Option<Best>, TrainError> {
    if run.path(MARKER).is_file() { run.read_json(MARKER).map(Some) } else { Ok(None) }
}

/// Returns a checkpoint's folder by name: `best`, `step-12` or `sft-300`.
///
/// # Errors
/// Returns the existing names if the checkpoint is missing.
pub fn named(run: &RunDirectory, name: &str) -> Result<PathBuf, TrainError> {
    let position = if name == "best" {
        let best = read(run)?.ok_or_else(|| {
            TrainError::file(
                &run.path(MARKER),
                "there is no best checkpoint; set train.keep_best to a split of eval.splits when the run is trained",
            )
        })?;
        best.position
    } else {
        let parsed = name.parse::<Position>();
        parsed.map_err(|reason| TrainError::file(&run.checkpoints(), format!("{reason}, or `best`")))?
    };
    Ok(checkpoint::at(run, position)?.path)
}

/// Returns the success rate. Failed episodes count as unsolved, so a few successes before a server
/// failure cannot win.
fn success_rate(run: &RunDirectory, position: Position, split: &str) -> Result<Option<f64>, TrainError> {
    let name = format!("eval/{}.json", position.label());
    if !run.path(&name).is_file() {
        return Ok(None);
    }
    let results: Value = run.read_json(&name)?;
    let results = results.as_array().map(Vec::as_slice).unwrap_or_default();
    let found = results.iter().find(|result| result["split"].as_str() == Some(split));
    let solved = |result: &Value| {
        let (successes, trials) =
            (result["success"]["successes"].as_f64()?, result["success"]["trials"].as_f64()?);
        let tasks = trials + result["failed"].as_f64().unwrap_or(0.0);
        Some(if tasks > 0.0 { successes / tasks } else { 0.0 })
    };
    Ok(found.and_then(solved))
}

fn best_until(run: &RunDirectory, split: &str, last: Position) -> Result<Option<Best>, TrainError> {
    let mut best: Option<Best> = None;
    for checkpoint in checkpoint::list(run)? {
        let position = checkpoint.position;
        if position.phase != Phase::Rl || position > last {
            continue;
        }
        if let Some(rate) = success_rate(run, position, split)?
            && best.as_ref().is_none_or(|best| rate > best.success_rate)
        {
            best = Some(Best { position, split: split.to_owned(), success_rate: rate });
        }
    }
    Ok(best)
}

pub(crate) fn beats_all_before(
    run: &RunDirectory,
    split: &str,
    position: Position,
) -> Result<bool, TrainError> {
    let Some(rate) = success_rate(run, position, split)? else { return Ok(false) };
    let before = best_until(run, split, position)?.filter(|best| best.position != position);
    Ok(before.is_none_or(|best| rate > best.success_rate))
}

/// Updates `best.json` and returns its new content; `None` if the file is unchanged or was removed.
/// The content depends only on checkpoints and evaluations, so it is the same in killed and rewound
/// runs.
pub(crate) fn update(
    run: &RunDirectory,
    split: &str,
    position: Position,
) -> Result<Option<Best>, TrainError> {
    let best = best_until(run, split, position)?;
    if best == read(run)? {
        return Ok(None);
    }
    if let Some(best) = &best {
        run.write_json(MARKER, best)?;
    } else {
        let path = run.path(MARKER);
        std::fs::remove_file(&path).map_err(|error| TrainError::io(&path, error))?;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::checkpoint::CheckpointState;

    fn position(step: u64) -> Position {
        Position { phase: Phase::Rl, step }
    }

    fn put(run: &RunDirectory, step: u64, rate: f64) {
        let state = CheckpointState {
            position: position(step),
            weights_version: step,
            tasks_drawn: None,
            kl_coef: None,
            base: None,
            judge: None,
        };
        checkpoint::write(run, &state, |folder| {
            std::fs::create_dir(folder.join("policy")).map_err(|error| TrainError::io(folder, error))
        })
        .unwrap();
        let results = serde_json::json!([
            {"split": "easy", "success": {"successes": 10.0 - 10.0 * rate, "trials": 10}, "failed": 0},
            {"split": "hard", "success": {"successes": 10.0 * rate, "trials": 10}, "failed": 0},
        ]);
        run.write_json(&format!("eval/{}.json", position(step).label()), &results).unwrap();
    }

    #[test]
    fn tasks_that_failed_are_not_solved() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let results =
            serde_json::json!([{"split": "hard", "success": {"successes": 3, "trials": 3}, "failed": 97}]);
        run.write_json(&format!("eval/{}.json", position(1).label()), &results).unwrap();
        assert_eq!(success_rate(&run, position(1), "hard").unwrap(), Some(0.03));
        assert_eq!(success_rate(&run, position(1), "easy").unwrap(), None);
        assert_eq!(success_rate(&run, position(2), "hard").unwrap(), None);
    }

    #[test]
    fn the_best_is_kept_through_pruning_and_going_back() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        assert_eq!(read(&run).unwrap(), None);
        assert!(named(&run, "best").unwrap_err().to_string().contains("set train.keep_best"));
        for (step, rate) in [(1, 0.2), (2, 0.6), (3, 0.6), (4, 0.5)] {
            assert_eq!(
                step <= 2,
                {
                    put(&run, step, rate);
                    beats_all_before(&run, "hard", position(step)).unwrap()
                },
                "{step}"
            );
            let changed = update(&run, "hard", position(step)).unwrap();
            assert_eq!(changed.is_some(), step <= 2, "{step}");
            let kept = [read(&run).unwrap().unwrap().position];
            checkpoint::prune(&run, position(step), 1, &kept).unwrap();
        }
        let best = read(&run).unwrap().unwrap();
        assert_eq!((best.position, best.success_rate), (position(2), 0.6));
        assert!(named(&run, "best").unwrap().ends_with("step-000002"));
        assert!(named(&run, "step-4").unwrap().ends_with("step-000004"));
        assert!(named(&run, "worst").unwrap_err().to_string().contains("or `best`"));
        assert_eq!(update(&run, "easy", position(4)).unwrap().unwrap().position, position(4));
        checkpoint::abandon_after(&run, position(2)).unwrap();
        assert_eq!(update(&run, "hard", position(3)).unwrap().unwrap().position, position(2));
    }
}
