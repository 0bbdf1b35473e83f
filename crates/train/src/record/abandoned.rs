//! Moves obsolete results aside after a rewind or an interrupted start.

use std::fs;
use std::path::{Path, PathBuf};

use turnwise_policy::base;

use crate::TrainError;
use crate::record::directory::{Position, RunDirectory, create_folders, first_free, sync_folder};

const FOLDER: &str = "abandoned";

fn position_of(path: &Path) -> Option<Position> {
    path.file_name()?.to_str()?.split('.').next()?.parse().ok()
}

/// Moves trajectories and evaluations after a position to `abandoned/N/`, including evaluations
/// started by hand (`turnwise eval --output RUN/FOLDER/`).
pub(crate) fn abandon_results(run: &RunDirectory, position: Position) -> Result<(), TrainError> {
    let mut target: Option<PathBuf> = None;
    for folder in sorted(run.root())? {
        let Some(name) = folder.file_name().filter(|name| folder.is_dir() && *name != FOLDER) else {
            continue;
        };
        let behind = |path: &PathBuf| path.is_file() && position_of(path).is_some_and(|of| of > position);
        for file in sorted(&folder)?.into_iter().filter(behind) {
            let to = target.get_or_insert_with(|| free(run.root())).join(name);
            create_folders(&to)?;
            let to = to.join(file.file_name().unwrap_or_default());
            fs::rename(&file, &to).map_err(|error| TrainError::io(&file, error))?;
        }
        if let Some(to) = target.as_ref().map(|target| target.join(name)).filter(|to| to.is_dir()) {
            // Flush the new name first: a power failure must not lose both.
            sync_folder(&to)?;
            sync_folder(&folder)?;
        }
    }
    Ok(())
}

/// Moves the output of an interrupted start to `abandoned/N/`, because the next start may have
/// other settings.
pub(crate) fn abandon_cut_off_start(root: &Path) -> Result<(), TrainError> {
    let mut target = None;
    for name in ["checkpoints", base::FOLDER, "turnrd", "metrics.jsonl"] {
        let path = root.join(name);
        let is_left = if path.is_dir() { !sorted(&path)?.is_empty() } else { path.is_file() };
        if is_left {
            let to: &PathBuf = target.get_or_insert_with(|| free(root));
            create_folders(to)?;
            fs::rename(&path, to.join(name)).map_err(|error| TrainError::io(&path, error))?;
        }
    }
    if let Some(to) = target {
        sync_folder(&to)?;
        sync_folder(root)?;
    }
    Ok(())
}

fn free(root: &Path) -> PathBuf {
    first_free(|number| root.join(FOLDER).join(number.to_string()))
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let entries = fs::read_dir(folder).map_err(|error| TrainError::io(folder, error))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|error| TrainError::io(folder, error))?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::directory::Phase;

    #[test]
    fn results_behind_the_position_are_kept_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::create(folder.path()).unwrap();
        let put = |name: &str| {
            fs::create_dir_all(run.path(name).parent().unwrap()).unwrap();
            fs::write(run.path(name), name).unwrap();
        };
        let files =
            ["eval/step-000002.json", "trajectories/step-000003.jsonl.zst", "sampled-1/step-000004.json"];
        let stay = [
            "eval/step-000001.json",
            "trajectories/step-000001.jsonl.zst",
            "eval/notes.txt",
            "metrics.jsonl",
        ];
        files.iter().chain(&stay).for_each(|name| put(name));
        let position = Position { phase: Phase::Rl, step: 1 };
        for time in ["1", "2"] {
            abandon_results(&run, position).unwrap();
            for name in files {
                assert!(!run.path(name).exists(), "{name}");
                assert_eq!(fs::read_to_string(run.path("abandoned").join(time).join(name)).unwrap(), name);
                put(name);
            }
        }
        assert!(stay.iter().all(|name| run.path(name).is_file()));
        let left =
            ["checkpoints/step-000000/COMPLETE", "base/config.json", "turnrd/replay.bin", "metrics.jsonl"];
        for name in left {
            put(name);
        }
        abandon_cut_off_start(run.root()).unwrap();
        for name in left {
            assert!(!run.path(name).exists() && run.path("abandoned/3").join(name).is_file(), "{name}");
        }
        abandon_cut_off_start(run.root()).unwrap();
        abandon_results(&run, Position { phase: Phase::Rl, step: 9 }).unwrap();
        assert!(!run.path("abandoned/4").exists());
    }
}
