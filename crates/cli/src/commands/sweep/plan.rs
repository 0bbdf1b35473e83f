use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};
use toml::Table;
use turnwise_core::hexadecimal;
use turnwise_train::config::{Config, differences, list_differences};
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::run::warm_start_settings;
use turnwise_train::{Phase, RunDirectory};

use crate::registries::registries;
use crate::worlds::load_of_run;

use super::file::{Entry, SweepFile};
use super::layout::Layout;

#[derive(Clone, Debug)]
pub(super) struct PlannedRun {
    pub(super) entry: Entry,
    pub(super) config: Config,
    /// Name of the SFT warm start, if several runs share it.
    pub(super) warm_start: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnDisk {
    /// Nothing, or only the leftovers of a run that was killed while starting.
    Absent,
    /// The run has begun and can be resumed.
    Begun,
    /// All steps are done.
    Finished,
}

pub(super) fn plan(sweep: &SweepFile, path: &Path) -> anyhow::Result<Vec<PlannedRun>> {
    let mut runs = Vec::new();
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for entry in sweep.entries()? {
        let of_entry = || format!("{}: run `{}`", path.display(), entry.run_name());
        let config = turnwise_train::config::load(&entry.source).with_context(of_entry)?;
        let warm_start =
            warm_start_settings(&config, &registries()).with_context(of_entry)?.map(|text| short_hash(&text));
        if let Some(name) = &warm_start {
            *uses.entry(name.clone()).or_default() += 1;
        }
        runs.push(PlannedRun { entry, config, warm_start });
    }
    for run in &mut runs {
        run.warm_start = run.warm_start.take().filter(|name| uses[name] > 1);
    }
    Ok(runs)
}

fn short_hash(text: &str) -> String {
    hexadecimal(&Sha256::digest(text.as_bytes())[..6])
}

/// Returns how far the run in a folder got.
///
/// # Errors
/// Fails if the run was started with a config other than `config`.
pub(super) fn on_disk(root: &Path, config: Option<&Config>) -> anyhow::Result<OnDisk> {
    let file = root.join("config.toml");
    if !file.is_file() {
        return Ok(OnDisk::Absent);
    }
    let begun = load_of_run(root)?;
    if let Some(config) = config
        && begun != *config
    {
        let differing = differences(&Table::try_from(&begun)?, &Table::try_from(config)?);
        bail!(
            "{}: was begun with other settings than the sweep gives it now (the value it has, then the sweep's): {}; remove or rename \
             the folder to run it anew, or give the sweep another name",
            root.display(),
            list_differences(&differing)
        );
    }
    let status: Option<Status> = RunDirectory::open(root)?.read_json("status.json").ok();
    let done = status.is_some_and(|status| {
        status.state == RunStatus::Finished
            && status.position.phase == Phase::Rl
            && status.position.step >= begun.train.steps
    });
    Ok(if done { OnDisk::Finished } else { OnDisk::Begun })
}

pub(super) fn start_arguments(run: &PlannedRun, layout: &Layout) -> Vec<String> {
    let mut arguments = vec!["train".to_owned()];
    arguments.extend(source_arguments(&run.entry));
    arguments.extend(["--runs".into(), layout.root().display().to_string()]);
    if let Some(name) = &run.warm_start {
        arguments.extend(["--warm-start".into(), warm_folder(layout, name).display().to_string()]);
    }
    arguments
}

/// Returns the arguments for a shared warm start: the arguments of a run that uses it, changed to
/// train only SFT. The warm start evaluates just one task, because every run evaluates the trained
/// policy again.
pub(super) fn warm_arguments(run: &PlannedRun, name: &str, layout: &Layout) -> Vec<String> {
    let mut arguments = vec!["sft".to_owned()];
    arguments.extend(source_arguments(&run.entry));
    arguments.extend([name_argument(name), "eval.tasks=1".into()]);
    arguments.extend(["--runs".into(), layout.warm_starts().display().to_string()]);
    arguments
}

/// Returns a `name=` argument, quoted because TOML would parse digits as a number.
pub(super) fn name_argument(name: &str) -> String {
    format!("name={name:?}")
}

pub(super) fn warm_folder(layout: &Layout, name: &str) -> PathBuf {
    layout.warm_starts().join(name)
}

fn source_arguments(entry: &Entry) -> Vec<String> {
    let mut arguments: Vec<String> =
        entry.source.files.iter().map(|file| file.display().to_string()).collect();
    arguments.extend(entry.source.overrides.iter().cloned());
    if let Some(preset) = &entry.source.preset {
        arguments.extend(["--preset".into(), preset.clone()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use turnwise_train::config::ConfigSource;

    use crate::worlds::load;

    use super::*;

    #[test]
    fn a_name_of_digits_is_a_name() {
        for name in ["324398984747", "12e4", "grpo-seed-0"] {
            let source = ConfigSource { overrides: vec![name_argument(name)], ..ConfigSource::default() };
            assert_eq!(load(source).unwrap().name, name);
        }
    }
}
