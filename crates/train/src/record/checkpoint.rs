//! Checkpoints: written to a temporary folder, then renamed, and never overwritten.
//!
//! The last file, `COMPLETE`, lists all other files with size and CRC-32C. Checkpoints whose files
//! do not match this list are skipped.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use turnwise_decompose::judge::JudgeMetrics;
use turnwise_policy::BaseModel;
use turnwise_policy::manifest::{Check, Manifest};
use turnwise_policy::run_folder::{COMPLETE, checkpoint_folders};

use crate::TrainError;
use crate::record::directory::{
    Position, RunDirectory, create_folders, first_free, sync_folder, write_atomically,
};

const PART: &str = ".part-";
/// Prefix for the folder name of a checkpoint that does not match its manifest.
const BROKEN: &str = ".broken-";
/// Prefix for the folder name of a checkpoint that a rewind abandoned, because it is later than the
/// position to which the run was rewound.
const ABANDONED: &str = "abandoned-";
const STATE: &str = "state.json";

/// State of a run other than weights and optimizer. Random draws are seeded from indices such as
/// the step, so no generator state is saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// Position.
    pub position: Position,
    /// Number of updates in this phase.
    pub weights_version: u64,
    /// Number of tasks drawn from the training order so far; `None` in checkpoints of older
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_drawn: Option<u64>,
    /// KL coefficient, if adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_coef: Option<f64>,
    /// Base model, if only an adapter is trained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<BaseModel>,
    /// Counters of the LLM judge, if the run uses one as its decomposer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<JudgeMetrics>,
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Folder.
    pub path: PathBuf,
    /// Position.
    pub position: Position,
}

impl Checkpoint {
    /// Returns the path of the policy: a Hugging Face model folder or a PEFT adapter.
    pub fn policy(&self) -> PathBuf {
        self.path.join("policy")
    }

    /// Returns the path of the optimizer's state.
    pub fn optimizer(&self) -> PathBuf {
        self.path.join("optimizer.safetensors")
    }

    pub(crate) fn learner_files(&self) -> Result<Vec<OsString>, TrainError> {
        let failed = |error| TrainError::io(&self.path, error);
        let entries = fs::read_dir(&self.path).map_err(failed)?;
        let names: Result<Vec<OsString>, _> =
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect();
        let own = |name: &OsString| name == COMPLETE || name == STATE;
        Ok(names.map_err(failed)?.into_iter().filter(|name| !own(name)).collect())
    }

    /// Returns the path of the critic, a model folder or an adapter; it exists only if the run has
    /// a critic.
    pub fn critic(&self) -> PathBuf {
        self.path.join("critic")
    }

    /// Returns the path of the critic's optimizer state.
    pub(crate) fn critic_optimizer(&self) -> PathBuf {
        self.path.join("critic-optimizer.safetensors")
    }

    /// Reads `state.json`.
    ///
    /// # Errors
    /// Fails if `state.json` is missing or invalid.
    pub fn state(&self) -> Result<CheckpointState, TrainError> {
        read_state(&self.path)
    }
}

/// Writes a checkpoint; `fill` writes policy and optimizer. An existing complete checkpoint is
/// kept, because runs are deterministic.
///
/// # Errors
/// Fails if `fill` or I/O fails; an existing checkpoint is then unchanged.
pub fn write(
    run: &RunDirectory,
    state: &CheckpointState,
    fill: impl FnOnce(&Path) -> Result<(), TrainError>,
) -> Result<Checkpoint, TrainError> {
    let folder = run.checkpoints();
    let label = state.position.label();
    let path = folder.join(&label);
    let checkpoint = Checkpoint { path: path.clone(), position: state.position };
    let there = path.exists();
    if there && verify(&path, Check::Contents).is_ok() {
        return Ok(checkpoint);
    }
    let aside = folder.join(format!("{PART}{label}"));
    remove(&aside)?;
    create_folders(&aside)?;
    fill(&aside)?;
    let text =
        serde_json::to_string_pretty(state).map_err(|error| TrainError::file(&aside, error.to_string()))?;
    write_atomically(&aside.join(STATE), text.as_bytes())?;
    let manifest = Manifest::of(&aside)?;
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| TrainError::file(&aside, error.to_string()))?;
    write_atomically(&aside.join(COMPLETE), text.as_bytes())?;
    // Flush now, because older checkpoints are removed next.
    turnwise_files::sync_all_below(&aside).map_err(|error| TrainError::io(&aside, error))?;
    if there {
        // Rename before removing, in case of a kill.
        let broken = folder.join(format!("{BROKEN}{label}"));
        remove(&broken)?;
        fs::rename(&path, &broken).map_err(|error| TrainError::io(&path, error))?;
    }
    turnwise_files::rename_into_place(&aside, &path).map_err(|error| TrainError::io(&path, error))?;
    Ok(checkpoint)
}

/// Returns the complete checkpoints of a run, oldest first.
///
/// # Errors
/// Fails if the folder `checkpoints` cannot be read.
pub fn list(run: &RunDirectory) -> Result<Vec<Checkpoint>, TrainError> {
    Ok(folders(run)?
        .into_iter()
        .filter(|checkpoint| verify(&checkpoint.path, Check::Sizes).is_ok())
        .collect())
}

/// Returns the newest complete checkpoint.
///
/// # Errors
/// Fails if the run has no complete checkpoint.
pub fn latest(run: &RunDirectory) -> Result<Checkpoint, TrainError> {
    list(run)?.pop().ok_or_else(|| nothing_to_resume(run))
}

/// Returns the newest checkpoint with correct checksums; `report` gets a message about each newer
/// checkpoint that is broken.
///
/// # Errors
/// Fails if no checkpoint has correct checksums.
pub(crate) fn latest_verified(
    run: &RunDirectory,
    mut report: impl FnMut(String),
) -> Result<Checkpoint, TrainError> {
    for checkpoint in folders(run)?.into_iter().rev() {
        match verify(&checkpoint.path, Check::Contents) {
            Ok(()) => return Ok(checkpoint),
            Err(reason) => report(format!(
                "{}: {reason}; going on from the checkpoint before it",
                checkpoint.path.display()
            )),
        }
    }
    Err(nothing_to_resume(run))
}

/// Returns the checkpoint of a position, after verifying its files.
///
/// # Errors
/// If the checkpoint is missing, returns the positions that have checkpoints; if it is damaged,
/// returns what is wrong with it.
pub fn at(run: &RunDirectory, position: Position) -> Result<Checkpoint, TrainError> {
    let all = folders(run)?;
    let Some(checkpoint) = all.iter().find(|checkpoint| checkpoint.position == position) else {
        let labels: Vec<String> = all.iter().map(|checkpoint| checkpoint.position.label()).collect();
        return Err(TrainError::file(
            &run.checkpoints(),
            format!("has no checkpoint {}; there are: {}", position.label(), labels.join(", ")),
        ));
    };
    verify(&checkpoint.path, Check::Contents).map_err(|reason| TrainError::file(&checkpoint.path, reason))?;
    Ok(checkpoint.clone())
}

/// Renames the checkpoints after a position, so that they are no longer found.
///
/// # Errors
/// Fails on I/O errors.
pub(crate) fn abandon_after(run: &RunDirectory, position: Position) -> Result<(), TrainError> {
    for checkpoint in folders(run)? {
        if checkpoint.position > position {
            let label = checkpoint.position.label();
            let free = first_free(|number| run.checkpoints().join(format!("{ABANDONED}{number}-{label}")));
            fs::rename(&checkpoint.path, free).map_err(|error| TrainError::io(&checkpoint.path, error))?;
        }
    }
    sync_folder(&run.checkpoints())
}

/// Removes old checkpoints and the remains of killed processes. Keeps the newest `keep` (0: all) of
/// the checkpoints up to `written`, those at `keep_always`, and all that are later than `written`,
/// which a resume skipped as broken.
///
/// # Errors
/// Fails on I/O errors.
pub(crate) fn prune(
    run: &RunDirectory,
    written: Position,
    keep: usize,
    keep_always: &[Position],
) -> Result<(), TrainError> {
    for path in entries(run)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Other folders, such as exports, are never removed.
        let torn = path.is_dir() && name.parse::<Position>().is_ok() && !path.join(COMPLETE).is_file();
        if name.starts_with(PART) || name.starts_with(BROKEN) || torn {
            remove(&path)?;
        }
    }
    if keep == 0 {
        return Ok(());
    }
    let mut checkpoints = list(run)?;
    checkpoints
        .retain(|checkpoint| checkpoint.position <= written && !keep_always.contains(&checkpoint.position));
    let surplus = checkpoints.len().saturating_sub(keep);
    for checkpoint in &checkpoints[..surplus] {
        // Rename first: a partly removed checkpoint would look torn.
        let aside = run.checkpoints().join(format!("{BROKEN}{}", checkpoint.position.label()));
        remove(&aside)?;
        fs::rename(&checkpoint.path, &aside).map_err(|error| TrainError::io(&checkpoint.path, error))?;
        remove(&aside)?;
    }
    Ok(())
}

fn nothing_to_resume(run: &RunDirectory) -> TrainError {
    TrainError::file(&run.checkpoints(), "has no complete checkpoint to resume from; start the run again")
}

fn entries(run: &RunDirectory) -> Result<Vec<PathBuf>, TrainError> {
    let folder = run.checkpoints();
    let entries = fs::read_dir(&folder).map_err(|error| TrainError::io(&folder, error))?;
    entries.map(|entry| Ok(entry.map_err(|error| TrainError::io(&folder, error))?.path())).collect()
}

fn folders(run: &RunDirectory) -> Result<Vec<Checkpoint>, TrainError> {
    let named = |path: PathBuf| {
        let position = path.file_name()?.to_str()?.parse().ok()?;
        Some(Checkpoint { path, position })
    };
    Ok(checkpoint_folders(run.root())?.into_iter().filter_map(named).collect())
}

fn read_state(folder: &Path) -> Result<CheckpointState, TrainError> {
    let path = folder.join(STATE);
    let text = fs::read_to_string(&path).map_err(|error| TrainError::io(&path, error))?;
    serde_json::from_str(&text).map_err(|error| TrainError::file(&path, error.to_string()))
}

fn verify(folder: &Path, check: Check) -> Result<(), String> {
    Manifest::read(folder)?.check(folder, "", check)?;
    read_state(folder).map(|_| ()).map_err(|error| error.to_string())
}

fn remove(path: &Path) -> Result<(), TrainError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TrainError::io(path, error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::directory::Phase;

    fn run() -> (tempfile::TempDir, RunDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        (folder, run)
    }

    fn state(phase: Phase, step: u64, weights_version: u64) -> CheckpointState {
        let position = Position { phase, step };
        CheckpointState {
            position,
            weights_version,
            tasks_drawn: None,
            kl_coef: None,
            base: None,
            judge: None,
        }
    }

    fn put(run: &RunDirectory, phase: Phase, step: u64) -> Checkpoint {
        write(run, &state(phase, step, step), |folder| {
            write_atomically(&folder.join("policy/weights"), format!("weights {step}").as_bytes())
        })
        .unwrap()
    }

    fn steps(run: &RunDirectory) -> Vec<u64> {
        list(run).unwrap().iter().map(|checkpoint| checkpoint.position.step).collect()
    }

    #[test]
    fn the_newest_whole_one_wins() {
        let (_folder, run) = run();
        assert!(latest(&run).unwrap_err().to_string().contains("no complete checkpoint to resume from"));
        put(&run, Phase::Rl, 2);
        put(&run, Phase::Sft, 900);
        assert_eq!(latest(&run).unwrap().position, Position { phase: Phase::Rl, step: 2 });
        fs::create_dir_all(run.checkpoints().join("step-000003")).unwrap();
        fs::create_dir_all(run.checkpoints().join(".part-step-000004")).unwrap();
        fs::write(run.checkpoints().join(".part-step-000004").join(COMPLETE), b"").unwrap();
        assert_eq!(latest(&run).unwrap().state().unwrap().weights_version, 2);
    }

    #[test]
    fn what_the_learners_wrote_is_listed_whatever_it_is() {
        let (_folder, run) = run();
        let written = write(&run, &state(Phase::Sft, 3, 3), |folder| {
            write_atomically(&folder.join("policy/weights"), b"weights")?;
            write_atomically(&folder.join("service.json"), b"{}")
        });
        let mut names = written.unwrap().learner_files().unwrap();
        names.sort();
        assert_eq!(names, ["policy", "service.json"]);
    }

    #[test]
    fn a_checkpoint_that_lost_a_file_falls_back_to_the_one_before() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        let newest = put(&run, Phase::Rl, 2);
        fs::remove_file(newest.path.join("policy/weights")).unwrap();
        assert!(newest.path.join(COMPLETE).is_file());
        let mut reports = Vec::new();
        let found = latest_verified(&run, |text| reports.push(text)).unwrap();
        assert_eq!((found.position.step, latest(&run).unwrap().position.step), (1, 1));
        assert!(reports[0].contains("step-000002") && reports[0].contains("policy/weights is missing"));
        put(&run, Phase::Rl, 2);
        assert_eq!(latest_verified(&run, |_| panic!("whole")).unwrap().position.step, 2);
    }

    #[test]
    fn a_checkpoint_without_a_full_manifest_falls_back_to_the_one_before() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        let newest = put(&run, Phase::Rl, 2);
        let complete = newest.path.join(COMPLETE);
        let full = fs::read_to_string(&complete).unwrap();
        let mut partial: serde_json::Value = serde_json::from_str(&full).unwrap();
        partial["files"].as_object_mut().unwrap().remove("policy/weights").unwrap();
        for (manifest, reason) in [
            ("", "lists no files"),
            (r#"{"files":{}}"#, "lists no files"),
            (&*partial.to_string(), "policy/weights is not listed"),
        ] {
            fs::write(&complete, manifest).unwrap();
            assert_eq!((steps(&run), latest(&run).unwrap().position.step), (vec![1], 1), "{manifest}");
            let mut reports = Vec::new();
            let found = latest_verified(&run, |text| reports.push(text)).unwrap();
            assert_eq!(found.position.step, 1, "{manifest}");
            assert!(reports[0].contains("step-000002") && reports[0].contains(reason), "{reports:?}");
            let error = at(&run, newest.position).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        put(&run, Phase::Rl, 2);
        assert_eq!(fs::read_to_string(&complete).unwrap(), full);
        assert_eq!(latest_verified(&run, |_| panic!("whole")).unwrap().position.step, 2);
    }

    #[test]
    fn a_flipped_byte_is_found_by_its_checksum() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        let newest = put(&run, Phase::Rl, 2);
        fs::write(newest.path.join("policy/weights"), b"weighty 2").unwrap();
        assert_eq!(steps(&run), [1, 2], "the size is right");
        assert_eq!(latest_verified(&run, |_| {}).unwrap().position.step, 1);
        let error = at(&run, newest.position).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        let error = at(&run, Position { phase: Phase::Rl, step: 7 }).unwrap_err().to_string();
        assert!(error.contains("no checkpoint step-000007; there are: step-000001"), "{error}");
    }

    #[test]
    fn a_position_is_written_once() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        let again = write(&run, &state(Phase::Rl, 1, 9), |_| panic!("it is there already")).unwrap();
        assert_eq!(again.state().unwrap().weights_version, 1);
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let (_folder, run) = run();
        put(&run, Phase::Rl, 1);
        assert!(write(&run, &state(Phase::Rl, 2, 2), |_| Err(TrainError::Thread)).is_err());
        assert_eq!(steps(&run), [1]);
    }

    #[test]
    fn pruning_keeps_what_it_must_and_removes_what_kills_left() {
        let (_folder, run) = run();
        for step in 0..5 {
            put(&run, Phase::Rl, step);
        }
        for left in [".part-step-000009", ".broken-step-000001", "step-000007"] {
            fs::create_dir_all(run.checkpoints().join(left)).unwrap();
        }
        fs::create_dir_all(run.checkpoints().join("step-000003-export")).unwrap();
        fs::write(run.checkpoints().join("step-000003.tar.gz"), b"").unwrap();
        let at = |step| Position { phase: Phase::Rl, step };
        prune(&run, at(4), 2, &[at(0)]).unwrap();
        assert_eq!(steps(&run), [0, 3, 4]);
        assert_eq!(fs::read_dir(run.checkpoints()).unwrap().count(), 5);
        // A resume skipped 3 and 4.
        put(&run, Phase::Rl, 2);
        prune(&run, at(2), 1, &[at(0)]).unwrap();
        assert_eq!(steps(&run), [0, 2, 3, 4]);
    }

    #[test]
    fn what_is_abandoned_is_kept_under_another_name() {
        let (_folder, run) = run();
        for step in 0..4 {
            put(&run, Phase::Rl, step);
        }
        abandon_after(&run, Position { phase: Phase::Rl, step: 1 }).unwrap();
        assert_eq!(steps(&run), [0, 1]);
        assert!(run.checkpoints().join("abandoned-1-step-000003/policy/weights").is_file());
    }
}
