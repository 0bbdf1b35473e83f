//! Saves each finished task in `OUTPUT.parts/`, so that a rerun measures only the rest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use turnwise_eval::benchmark::{TruthLine, TruthSource, read_truth, write_truth};
use turnwise_train::record::directory::write_atomically;

pub(super) struct Parts(PathBuf);

impl Parts {
    /// Fails if the output file exists, or if its folder `OUTPUT.parts/` has tasks measured with
    /// other settings.
    pub(super) fn open(output: &Path, source: &TruthSource) -> anyhow::Result<Self> {
        if output.exists() {
            bail!("--output {}: is there already; name another file or delete it", output.display());
        }
        let mut folder = output.as_os_str().to_owned();
        folder.push(".parts");
        let folder = PathBuf::from(folder);
        let settings = folder.join("settings.json");
        let shown = || settings.display().to_string();
        if settings.is_file() {
            let text = fs::read_to_string(&settings).with_context(shown)?;
            let earlier: serde_json::Value = serde_json::from_str(&text).with_context(shown)?;
            let now = serde_json::to_value(source)?;
            let fields = now.as_object().into_iter().flatten();
            if let Some((key, value)) =
                fields.into_iter().find(|(key, value)| earlier[key.as_str()] != **value)
            {
                bail!(
                    "{}: has tasks that were measured with other settings ({key} was {}, now {value}); use those again, name \
                     another --output, or delete the folder",
                    folder.display(),
                    earlier[key.as_str()]
                );
            }
        } else {
            let text = serde_json::to_string_pretty(source)? + "\n";
            write_atomically(&settings, text.as_bytes())?;
        }
        Ok(Self(folder))
    }

    fn file(&self, task: usize) -> PathBuf {
        self.0.join(format!("task-{task:06}.jsonl.zst"))
    }

    pub(super) fn has(&self, task: usize) -> bool {
        self.file(task).is_file()
    }

    pub(super) fn write(&self, task: usize, lines: &[TruthLine]) -> anyhow::Result<()> {
        Ok(write_truth(&self.file(task), lines)?)
    }

    pub(super) fn join(self, tasks: usize, output: &Path) -> anyhow::Result<Vec<TruthLine>> {
        let mut lines = Vec::new();
        for task in 0..tasks {
            lines.extend(read_truth(&self.file(task))?);
        }
        write_truth(output, &lines)?;
        fs::remove_dir_all(&self.0).with_context(|| self.0.display().to_string())?;
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Task, Trajectory};

    use super::*;

    fn source() -> TruthSource {
        TruthSource {
            method: "branching".into(),
            policy: "run/step-000001".into(),
            config: "digest".into(),
            split: "train".into(),
            gamma: 1.0,
            continuations: 4,
            budget: 0,
            samples: 2,
            tasks: 2,
            seed: 0,
        }
    }

    #[test]
    fn tasks_are_kept_until_all_are_there_and_only_under_the_same_settings() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("truth.jsonl.zst");
        let line = |task: &str| TruthLine {
            trajectory: Trajectory::new(Task::new(task, "k", "g"), Vec::new()),
            truth: Vec::new(),
            benchmark: source(),
        };
        let parts = Parts::open(&output, &source()).unwrap();
        parts.write(1, &[line("b")]).unwrap();
        assert_eq!((parts.has(0), parts.has(1)), (false, true));
        let other = TruthSource { seed: 1, ..source() };
        let error = Parts::open(&output, &other).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("seed was 0, now 1") && error.contains("delete the folder"), "{error}");
        let parts = Parts::open(&output, &source()).unwrap();
        assert!(parts.has(1));
        parts.write(0, &[line("a")]).unwrap();
        assert_eq!(parts.join(2, &output).unwrap(), [line("a"), line("b")]);
        assert_eq!(read_truth(&output).unwrap(), [line("a"), line("b")]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let error = Parts::open(&output, &source()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
    }
}
