//! Finds a run directory's checkpoints without depending on the trainer.

use std::fs;
use std::path::{Path, PathBuf};

use crate::PolicyError;
use crate::manifest::{Check, Manifest};

/// Name of a checkpoint's manifest, the file that is written last.
pub const COMPLETE: &str = "COMPLETE";

/// Returns a run's checkpoint folders, complete or not, oldest first; those of SFT precede those of
/// RL.
///
/// # Errors
/// Fails if the folder `checkpoints` cannot be read.
pub fn checkpoint_folders(run: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let folder = run.join("checkpoints");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(PolicyError::io(&folder))? {
        let path = entry.map_err(PolicyError::io(&folder))?.path();
        if let Some(order) = path.file_name().and_then(|name| order(name.to_str()?)) {
            found.push((order, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Returns a run's complete checkpoints, oldest first.
///
/// # Errors
/// Fails if the folder `checkpoints` cannot be read.
pub fn whole_checkpoints(run: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let mut folders = checkpoint_folders(run)?;
    folders.retain(|path| path.join(COMPLETE).is_file());
    Ok(folders)
}

/// Verifies a checkpoint's policy files and returns their folder.
///
/// # Errors
/// Fails if the manifest does not list the policy, or if a policy file is missing, changed or
/// unlisted.
pub(crate) fn checked_policy(checkpoint: &Path) -> Result<PathBuf, PolicyError> {
    let sound =
        Manifest::read(checkpoint).and_then(|found| found.check(checkpoint, "policy/", Check::Contents));
    sound.map_err(|reason| PolicyError::file(checkpoint, format!("{reason}; name an earlier checkpoint")))?;
    Ok(checkpoint.join("policy"))
}

/// Returns a run's newest complete checkpoint.
///
/// # Errors
/// Fails if the run has no complete checkpoint.
pub(crate) fn newest_checkpoint(run: &Path) -> Result<PathBuf, PolicyError> {
    whole_checkpoints(run)?.pop().ok_or_else(|| {
        PolicyError::file(&run.join("checkpoints"), "has no complete checkpoint; start the run again")
    })
}

/// Returns the label, such as `step-000060`, of the checkpoint that a policy belongs to. For a run
/// directory, returns the label of its newest complete checkpoint. Returns `None` outside a run and
/// for a run's `base`.
pub fn checkpoint_label(policy: &Path) -> Option<String> {
    let policy = policy.canonicalize().ok()?;
    let run = enclosing_run(&policy)?;
    let folder = if policy == run { newest_checkpoint(&run).ok()? } else { policy };
    let mut inside = folder.strip_prefix(&run).ok()?.components().skip(1);
    inside.next()?.as_os_str().to_str().map(str::to_owned)
}

/// Returns whether a folder is a checkpoint, complete or not: it has a manifest or a `state.json`.
pub fn is_checkpoint(folder: &Path) -> bool {
    folder.join(COMPLETE).is_file() || folder.join("state.json").is_file()
}

/// Returns the checkpoint of which a folder is the policy.
pub(crate) fn checkpoint_of(policy: &Path) -> Option<PathBuf> {
    let policy = policy.canonicalize().ok()?;
    let checkpoint = policy.parent().filter(|_| policy.ends_with("policy"))?;
    is_checkpoint(checkpoint).then(|| checkpoint.to_path_buf())
}

/// Returns whether a folder is a run directory.
pub fn is_run(folder: &Path) -> bool {
    folder.join("config.toml").is_file() && folder.join("checkpoints").is_dir()
}

/// Returns the run that a folder belongs to. The folder may be the run directory, its `base`, a
/// checkpoint, or the policy or critic in a checkpoint.
///
/// A `config.toml` does not suffice, because any project may have one: the run must also have
/// pinned tasks (`panel.json`).
pub fn enclosing_run(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let holds = |root: &Path| is_run(root) && root.join("panel.json").is_file();
    folder.ancestors().take(4).find(|root| holds(root) && is_part(&folder, root)).map(Path::to_path_buf)
}

fn is_part(folder: &Path, root: &Path) -> bool {
    let Ok(inside) = folder.strip_prefix(root) else { return false };
    let names: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
    match names.as_deref() {
        Some([] | ["base"]) => true,
        Some(["checkpoints", label] | ["checkpoints", label, "policy" | "critic"]) => order(label).is_some(),
        _ => false,
    }
}

fn order(label: &str) -> Option<(u8, u64)> {
    let (phase, step) = label.split_once('-')?;
    let phase = ["sft", "step"].iter().position(|name| *name == phase)?;
    Some((phase as u8, step.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_checkpoint_is_no_policy() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path();
        fs::create_dir_all(checkpoint.join("policy")).unwrap();
        let model = checkpoint.join("policy/model.safetensors");
        fs::write(&model, b"weights").unwrap();
        fs::write(checkpoint.join("optimizer.safetensors"), b"moments").unwrap();
        let manifest = serde_json::to_string(&Manifest::of(checkpoint).unwrap()).unwrap();
        fs::write(checkpoint.join(COMPLETE), manifest).unwrap();
        assert_eq!(checked_policy(checkpoint).unwrap(), checkpoint.join("policy"));
        fs::write(checkpoint.join("optimizer.safetensors"), b"others!").unwrap();
        assert!(checked_policy(checkpoint).is_ok());
        for (content, reason) in [(&b"weighed"[..], "checksum"), (b"weight", "6 bytes")] {
            fs::write(&model, content).unwrap();
            let error = checked_policy(checkpoint).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("an earlier checkpoint"), "{error}");
        }
    }

    #[test]
    fn a_checkpoint_without_a_full_manifest_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path();
        fs::create_dir_all(checkpoint.join("policy")).unwrap();
        fs::write(checkpoint.join("policy/model.safetensors"), b"weights").unwrap();
        fs::write(checkpoint.join("state.json"), b"{}").unwrap();
        let full = serde_json::to_string(&Manifest::of(checkpoint).unwrap()).unwrap();
        let state_alone = r#"{"files":{"state.json":{"bytes":2,"crc32c":0}}}"#;
        for (manifest, reason) in [
            ("", "lists no files"),
            (" \n", "lists no files"),
            (r#"{"files":{}}"#, "lists no files"),
            (r#"{"files":{"policy"#, "cannot be read"),
            (state_alone, "lists no file of policy/"),
        ] {
            fs::write(checkpoint.join(COMPLETE), manifest).unwrap();
            let error = checked_policy(checkpoint).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("an earlier checkpoint"), "{manifest}: {error}");
        }
        fs::remove_file(checkpoint.join(COMPLETE)).unwrap();
        assert!(checked_policy(checkpoint).unwrap_err().to_string().contains("has no COMPLETE"));
        fs::write(checkpoint.join(COMPLETE), full).unwrap();
        checked_policy(checkpoint).unwrap();
        // Files that tools leave behind are ignored; a file that a reader would open is rejected.
        fs::write(checkpoint.join("policy/.DS_Store"), b"x").unwrap();
        checked_policy(checkpoint).unwrap();
        fs::write(checkpoint.join("policy/chat_template.jinja"), b"x").unwrap();
        let error = checked_policy(checkpoint).unwrap_err().to_string();
        assert!(error.contains("policy/chat_template.jinja is not listed"), "{error}");
    }

    #[test]
    fn the_newest_whole_checkpoint_wins() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        assert!(newest_checkpoint(run).is_err());
        let put = |label: &str, whole: bool| {
            let path = run.join("checkpoints").join(label);
            fs::create_dir_all(&path).unwrap();
            if whole {
                fs::write(path.join(COMPLETE), b"").unwrap();
            }
        };
        put("step-000002", false);
        assert!(newest_checkpoint(run).unwrap_err().to_string().contains("no complete checkpoint"));
        put("sft-000900", true);
        put("step-000001", true);
        put(".part-step-000004", true);
        put("step-000003.old", true);
        let labels = |paths: Vec<PathBuf>| -> Vec<String> {
            paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(labels(whole_checkpoints(run).unwrap()), ["sft-000900", "step-000001"]);
        // Seven digits are still sorted.
        put("step-1000000", true);
        put("step-999999", true);
        assert!(newest_checkpoint(run).unwrap().ends_with("step-1000000"));
    }

    #[test]
    fn only_what_a_run_wrote_belongs_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let inside = [
            "",
            "base",
            "checkpoints/step-000003",
            "checkpoints/sft-000200/policy",
            "checkpoints/step-000003/critic",
        ];
        let outside = [
            "models",
            "models/qwen",
            "checkpoints",
            "checkpoints/mine",
            "checkpoints/step-000003/policy/deeper",
        ];
        for path in inside.iter().chain(&outside) {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        fs::write(root.join("config.toml"), "").unwrap();
        assert_eq!(checkpoint_label(&root.join("checkpoints/step-000003")), None);
        for path in inside.iter().chain(&outside) {
            assert_eq!(enclosing_run(&root.join(path)), None, "{path}");
        }
        fs::write(root.join("panel.json"), "{}").unwrap();
        for path in inside {
            assert_eq!(enclosing_run(&root.join(path)), Some(root.clone()), "{path}");
        }
        for path in outside {
            assert_eq!(enclosing_run(&root.join(path)), None, "{path}");
        }
        assert_eq!(enclosing_run(Path::new("ORG/NAME")), None);
    }
}
