//! Checkpoints: written aside, renamed when whole, so that a kill at any moment leaves the last one.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turnwise_policy::BaseModel;

use crate::TrainError;
use crate::run::directory::{Phase, Position, RunDirectory, write_atomically};

/// Marks a checkpoint as whole; written last.
const COMPLETE: &str = "COMPLETE";

/// What a checkpoint knows besides weights and optimiser state. All random draws come from
/// coordinates, so that there is no generator state to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// How far the run had come.
    pub position: Position,
    /// Version of the weights: updates done in this phase.
    pub weights_version: u64,
    /// Tasks drawn from the training order. Absent in runs of before there was a choice of groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_drawn: Option<u64>,
    /// The KL coefficient, where it adapts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_coef: Option<f64>,
    /// The model that the policy's adapter stands on, where only an adapter is trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseModel>,
}

/// A whole checkpoint on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// How far the run had come.
    pub position: Position,
}

impl Checkpoint {
    /// The policy as a Hugging Face folder, or its adapter as PEFT's.
    pub fn policy(&self) -> PathBuf {
        self.path.join("policy")
    }

    /// The optimiser's state.
    pub fn optimizer(&self) -> PathBuf {
        self.path.join("optimizer.safetensors")
    }

    /// The critic, or its adapter, likewise, in runs that have one.
    pub fn critic(&self) -> PathBuf {
        self.path.join("critic")
    }

    /// The critic's optimiser's state.
    pub fn critic_optimizer(&self) -> PathBuf {
        self.path.join("critic-optimizer.safetensors")
    }

    /// The rest of the state.
    pub fn state(&self) -> Result<CheckpointState, TrainError> {
        let path = self.path.join("state.json");
        let text = fs::read_to_string(&path).map_err(|error| TrainError::io(&path, error))?;
        serde_json::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))
    }
}

/// Writes a checkpoint: `fill` puts policy and optimiser into the folder it is given.
pub fn write(
    run: &RunDirectory,
    state: &CheckpointState,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<Checkpoint, TrainError> {
    let folder = run.checkpoints();
    let path = folder.join(state.position.label());
    let aside = folder.join(format!(".part-{}", state.position.label()));
    let clear = |path: &Path| match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TrainError::io(path, error)),
        _ => Ok(()),
    };
    clear(&aside)?;
    fs::create_dir_all(&aside).map_err(|error| TrainError::io(&aside, error))?;
    fill(&aside)?;
    let text =
        serde_json::to_string_pretty(state).map_err(|error| TrainError::file(&aside, error.to_string()))?;
    write_atomically(&aside.join("state.json"), text.as_bytes())?;
    write_atomically(&aside.join(COMPLETE), b"")?;
    clear(&path)?;
    fs::rename(&aside, &path).map_err(|error| TrainError::io(&path, error))?;
    Ok(Checkpoint { path, position: state.position })
}

/// The whole checkpoints of a run, oldest first. Unfinished ones are left out.
pub fn list(run: &RunDirectory) -> Result<Vec<Checkpoint>, TrainError> {
    let folder = run.checkpoints();
    let entries = fs::read_dir(&folder).map_err(|error| TrainError::io(&folder, error))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| TrainError::io(&folder, error))?.path();
        if path.join(COMPLETE).is_file() && !is_part(&path) {
            let mut checkpoint = Checkpoint { path, position: Position { phase: Phase::Sft, step: 0 } };
            checkpoint.position = checkpoint.state()?.position;
            found.push(checkpoint);
        }
    }
    found.sort_by_key(|checkpoint| checkpoint.position);
    Ok(found)
}

fn is_part(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".part-"))
}

/// The newest whole checkpoint.
pub fn latest(run: &RunDirectory) -> Result<Checkpoint, TrainError> {
    list(run)?.pop().ok_or_else(|| {
        TrainError::file(
            &run.checkpoints(),
            "holds no whole checkpoint, so there is nothing to resume; start anew",
        )
    })
}

/// Removes old checkpoints but the newest `keep`, those at `keep_always`, and leftovers of a kill.
pub fn prune(run: &RunDirectory, keep: usize, keep_always: &[Position]) -> Result<(), TrainError> {
    if keep == 0 {
        return Ok(());
    }
    let mut checkpoints = list(run)?;
    checkpoints.retain(|checkpoint| !keep_always.contains(&checkpoint.position));
    let surplus = checkpoints.len().saturating_sub(keep);
    for checkpoint in &checkpoints[..surplus] {
        fs::remove_dir_all(&checkpoint.path).map_err(|error| TrainError::io(&checkpoint.path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (tempfile::TempDir, RunDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        (folder, run)
    }

    fn at_start() -> CheckpointState {
        let position = Position { phase: Phase::Rl, step: 0 };
        CheckpointState { position, weights_version: 0, tasks_drawn: None, kl_coef: None, base: None }
    }

    fn put(run: &RunDirectory, phase: Phase, step: u64) -> Checkpoint {
        let state =
            CheckpointState { position: Position { phase, step }, weights_version: step, ..at_start() };
        write(run, &state, |folder| write_atomically(&folder.join("weights"), b"w")).unwrap()
    }

    #[test]
    fn the_newest_whole_one_wins() {
        let (_folder, run) = run();
        assert!(latest(&run).unwrap_err().to_string().contains("nothing to resume"));
        put(&run, Phase::Rl, 2);
        put(&run, Phase::Sft, 900);
        assert_eq!(latest(&run).unwrap().position, Position { phase: Phase::Rl, step: 2 });
        // One that a kill left unfinished does not count.
        fs::create_dir_all(run.checkpoints().join("step-000003")).unwrap();
        fs::create_dir_all(run.checkpoints().join(".part-step-000004")).unwrap();
        fs::write(run.checkpoints().join(".part-step-000004").join(COMPLETE), b"").unwrap();
        assert_eq!(latest(&run).unwrap().state().unwrap().weights_version, 2);
    }

    #[test]
    fn pruning_keeps_what_it_must() {
        let (_folder, run) = run();
        for step in 0..5 {
            put(&run, Phase::Rl, step);
        }
        prune(&run, 2, &[Position { phase: Phase::Rl, step: 0 }]).unwrap();
        let left: Vec<u64> = list(&run).unwrap().iter().map(|checkpoint| checkpoint.position.step).collect();
        assert_eq!(left, [0, 3, 4]);
    }

    #[test]
    fn a_failed_write_leaves_the_old_one() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        let state = CheckpointState {
            position: Position { phase: Phase::Rl, step: 1 },
            weights_version: 9,
            ..at_start()
        };
        assert!(write(&run, &state, |_| Err(TrainError::Thread)).is_err());
        assert_eq!(latest(&run).unwrap().state().unwrap().weights_version, 1);
    }
}
