use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use turnwise_core::{Batch, Group, Trajectory};
use turnwise_credit::{CreditConfig, Pipeline};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::earlier_configs;
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{Phase, Position, RunDirectory};
use turnwise_trajectory_io::{Dump, DumpBatch, Origin, ReadOptions, read};

use super::beside::{self, Truth};
use super::explain;
use super::pictures::Pictures;
use super::step::Step;
use super::tokens::TokenTexts;
use crate::commands::credit::{self, Reading};
use crate::commands::{is_run, name_of};
use crate::registries::methods;

pub(super) struct Method {
    pub(super) name: String,
    pub(super) config: CreditConfig,
    pub(super) pipeline: Pipeline,
    pub(super) seed: u64,
}

impl Method {
    pub(super) fn new(name: &str, config: CreditConfig, seed: u64) -> anyhow::Result<Self> {
        let pipeline = Pipeline::with_registry(&config, &methods().credit)?;
        Ok(Self { name: name.to_owned(), config, pipeline, seed })
    }
}

pub(super) enum Source {
    /// A run; steps are read on demand.
    Run { directory: RunDirectory, method: Option<Method>, beside: Option<Method> },
    /// Trajectory files, read at startup.
    Files(Files),
}

pub(super) struct Files {
    path: PathBuf,
    steps: Vec<DumpStep>,
    method: Option<Method>,
    beside: Option<Method>,
    notes: Vec<String>,
}

struct DumpStep {
    number: u64,
    batch: Batch,
    /// The parsed dump, with its batch moved out; `None` if the file is from a run.
    dump: Option<DumpBatch>,
    /// True advantages in batch order.
    truth: Option<Truth>,
}

pub(super) type Stamp = (u64, SystemTime);

fn trajectories_of(run: &RunDirectory, number: u64) -> PathBuf {
    run.trajectories(Position { phase: Phase::Rl, step: number })
}

impl Source {
    /// Opens a run directory, a file or a folder of files.
    ///
    /// # Errors
    /// The error names the path and the problem, for example a missing field that the method
    /// requires.
    pub(super) fn open(
        path: &Path,
        reading: &Reading,
        method: Option<Method>,
        beside: Option<Method>,
    ) -> anyhow::Result<Self> {
        if is_run(path) {
            if !reading.is_automatic() {
                bail!(
                    "{}: is a run directory; --format and --reward are for files of trajectories",
                    path.display()
                );
            }
            return Ok(Self::Run { directory: RunDirectory::open(path)?, method, beside });
        }
        let mut files = Files { path: path.to_owned(), steps: Vec::new(), method, beside, notes: Vec::new() };
        if let Some(method) = &files.method {
            files.notes.extend(credit::settings::notes(
                &method.name,
                &method.pipeline,
                &method.config.encoder,
            ));
        }
        // A trial is a file with one trajectory; a job's trials are compared with each other.
        if turnwise_trajectory_io::is_harbor_job(path) {
            files.add(path, reading)?;
        } else if path.is_dir() {
            let names = dumps_of(path)?;
            for name in &names {
                files.add(name, reading)?;
            }
            let mut numbers: Vec<u64> = files.steps.iter().map(|step| step.number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            if numbers.len() < files.steps.len() {
                bail!(
                    "{}: several of its files have trajectories of the same step; name one file",
                    path.display()
                );
            }
            files.steps.sort_by_key(|step| step.number);
        } else if path.is_file() {
            files.add(path, reading)?;
        } else {
            bail!("{}: is neither a run directory nor a file of trajectories", path.display());
        }
        Ok(Self::Files(files))
    }

    pub(super) fn title(&self) -> String {
        name_of(match self {
            Self::Run { directory, .. } => directory.root(),
            Self::Files(files) => &files.path,
        })
    }

    pub(super) fn method(&self) -> Option<&Method> {
        match self {
            Self::Run { method, .. } => method.as_ref(),
            Self::Files(files) => files.method.as_ref(),
        }
    }

    pub(super) fn has_truth(&self) -> bool {
        matches!(self, Self::Files(files) if files.steps.iter().any(|step| step.truth.is_some()))
    }

    /// Selects GRPO and GiGPO as the methods for a `turnwise benchmark credit` file, which has no
    /// recorded advantages.
    pub(super) fn fill_methods(
        &mut self,
        named: impl Fn(&str) -> anyhow::Result<Method>,
    ) -> anyhow::Result<()> {
        let Self::Files(files) = self else { return Ok(()) };
        if files.method.is_none() {
            files.method = Some(named("grpo")?);
            if files.beside.is_none() {
                files.beside = Some(named("gigpo")?);
            }
        }
        Ok(())
    }

    pub(super) fn steps(&self) -> Vec<u64> {
        match self {
            Self::Run { directory, .. } => directory.trajectory_steps().unwrap_or_default(),
            Self::Files(files) => files.steps.iter().map(|step| step.number).collect(),
        }
    }

    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Run { .. } => &[],
            Self::Files(files) => &files.notes,
        }
    }

    pub(super) fn metrics(&self, number: u64) -> Option<MetricsLine> {
        let Self::Run { directory, .. } = self else { return None };
        let lines = read_metrics(&directory.path("metrics.jsonl")).ok()?;
        lines.into_iter().find(|line| line.phase == Phase::Rl && line.step == number)
    }

    pub(super) fn tokens(&self) -> Option<TokenTexts> {
        match self {
            Self::Run { directory, .. } => TokenTexts::of_run(directory.root()),
            Self::Files(_) => None,
        }
    }

    pub(super) fn file(&self, number: u64) -> Option<PathBuf> {
        let Self::Run { directory, .. } = self else { return None };
        Some(trajectories_of(directory, number))
    }

    pub(super) fn batch(&self, number: u64) -> anyhow::Result<Cow<'_, Batch>> {
        match self {
            Self::Run { directory, .. } => {
                Ok(Cow::Owned(grouped(read_trajectories(&trajectories_of(directory, number))?)))
            }
            Self::Files(files) => Ok(Cow::Borrowed(&files.step(number)?.batch)),
        }
    }

    pub(super) fn pictures(&self) -> Pictures {
        let Self::Run { directory, .. } = self else { return Pictures::default() };
        let config = std::fs::read_to_string(directory.path("config.toml")).unwrap_or_default();
        Pictures::of_config(&config)
    }

    pub(super) fn stamp(&self, number: u64) -> Option<Stamp> {
        let Self::Run { directory, .. } = self else { return None };
        let found = trajectories_of(directory, number).metadata().ok()?;
        Some((found.len(), found.modified().ok()?))
    }

    pub(super) fn step(&self, number: u64) -> anyhow::Result<Step> {
        let batch = self.batch(number)?.into_owned();
        let (path, beside, in_file) = match self {
            Self::Run { directory, beside, .. } => {
                let path = trajectories_of(directory, number);
                check_explanations(&batch, &path)?;
                (path, beside, None)
            }
            Self::Files(files) => (files.path.clone(), &files.beside, Some(files.step(number)?)),
        };
        let dump = in_file.and_then(|step| step.dump.as_ref());
        let by_method = |batch: Batch, method: &Method| {
            explain::by_method(number, batch, dump, method).with_context(|| path.display().to_string())
        };
        let second = beside.as_ref().map(|method| (method, batch.clone()));
        let mut step = match (self.method(), self) {
            (Some(method), _) => by_method(batch, method)?,
            (None, Self::Run { directory, .. }) => {
                let position = Position { phase: Phase::Rl, step: number };
                explain::of_run(number, batch, &earlier_configs::of_position(directory, position)?)?
            }
            (None, Self::Files(_)) => explain::of_file(number, batch, dump),
        };
        if let Some((method, batch)) = second {
            beside::add_method(&mut step, by_method(batch, method)?, &method.name);
        }
        if let Some(truth) = in_file.and_then(|step| step.truth.as_ref()) {
            beside::add_truth(&mut step, truth);
        }
        Ok(step)
    }
}

impl Files {
    fn step(&self, number: u64) -> anyhow::Result<&DumpStep> {
        let step = self.steps.iter().find(|step| step.number == number);
        step.with_context(|| format!("{}: has no step {number}", self.path.display()))
    }

    fn add(&mut self, path: &Path, reading: &Reading) -> anyhow::Result<()> {
        if reading.is_automatic()
            && let Some(lines) = beside::truth_of(path)?
        {
            for (step, lines) in by_key(lines, |line| line.trajectory.step) {
                let (batch, truth) = beside::grouped(lines);
                self.add_recorded(step, batch, Some(truth), path)?;
            }
            return Ok(());
        }
        if reading.is_automatic()
            && let Ok(trajectories) = read_trajectories(path)
            && !trajectories.is_empty()
        {
            for (step, trajectories) in by_key(trajectories, |trajectory| trajectory.step) {
                self.add_recorded(step, grouped(trajectories), None, path)?;
            }
            return Ok(());
        }
        let dump = self.read(path, &reading.options())?;
        self.notes
            .extend(dump.notes.iter().filter(|note| !self.notes.contains(note)).cloned().collect::<Vec<_>>());
        self.steps.extend(dump.batches.into_iter().map(|mut step| {
            let batch = std::mem::take(&mut step.batch);
            DumpStep { number: step.step, batch, dump: Some(step), truth: None }
        }));
        Ok(())
    }

    fn add_recorded(
        &mut self,
        step: u64,
        batch: Batch,
        truth: Option<Truth>,
        path: &Path,
    ) -> anyhow::Result<()> {
        check_explanations(&batch, path)?;
        // A run's files are named by the number of finished steps.
        self.steps.push(DumpStep { number: step + 1, batch, dump: None, truth });
        Ok(())
    }

    fn read(&self, path: &Path, options: &ReadOptions) -> anyhow::Result<Dump> {
        let dump = read(path, options)?;
        if let Some(method) = &self.method {
            dump.require_rewards()?;
            for (stage, field) in method.pipeline.fields() {
                credit::require(&dump, &method.name, stage, field)?;
            }
        }
        Ok(dump)
    }
}

fn is_dump(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let plain = name.strip_suffix(".zst").unwrap_or(name);
    let ending = Path::new(plain).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    path.is_file() && matches!(ending, "jsonl" | "parquet")
}

pub(super) fn has_dumps(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    turnwise_trajectory_io::is_harbor_job(folder)
        || entries.map(|entry| entry.path()).any(|path| is_dump(&path))
}

/// Returns the trajectory files in a folder that is not a run, e.g. verl's `rollout_data_dir`.
///
/// # Errors
/// Fails if the folder has no trajectory files, or if it is a folder of runs.
fn dumps_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let dumps: Vec<PathBuf> = paths.iter().filter(|path| is_dump(path)).cloned().collect();
    if !dumps.is_empty() {
        return Ok(dumps);
    }
    let runs = paths.iter().filter(|path| is_run(path));
    let runs: Vec<String> = runs.map(|path| path.display().to_string()).collect();
    match runs.as_slice() {
        [] => bail!("{}: is neither a run directory nor a folder of trajectories", folder.display()),
        runs => bail!(
            "{}: holds runs; serve their list without other options, or name one of them: {}",
            folder.display(),
            runs.join(", ")
        ),
    }
}

fn check_explanations(batch: &Batch, path: &Path) -> anyhow::Result<()> {
    for trajectory in batch.trajectories() {
        let turns = trajectory.turns.len();
        for (what, count) in [
            ("explanation", trajectory.explanation.as_ref().map_or(turns, Vec::len)),
            ("advantages", trajectory.advantages.as_ref().map_or(turns, Vec::len)),
        ] {
            if count != turns {
                bail!(
                    "{}: group {}, sample {}: `{what}` has {count} entries and there are {turns} turns",
                    path.display(),
                    trajectory.group,
                    trajectory.sample
                );
            }
        }
    }
    Ok(())
}

fn grouped(trajectories: Vec<Trajectory>) -> Batch {
    let groups = by_key(trajectories, |trajectory| trajectory.group).into_values();
    Batch { groups: groups.map(|trajectories| Group { trajectories }).collect() }
}

pub(super) fn by_key<T, K: Ord>(items: Vec<T>, key: impl Fn(&T) -> K) -> BTreeMap<K, Vec<T>> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for item in items {
        groups.entry(key(&item)).or_default().push(item);
    }
    groups
}

pub(super) fn origin_in_words(trajectory: &Trajectory, origin: Option<&Origin>) -> (String, String) {
    match origin {
        Some(origin) => {
            let group = origin.group.as_str().map_or_else(|| origin.group.to_string(), str::to_owned);
            (group, format!("line {}", origin.line))
        }
        None => (trajectory.group.to_string(), format!("sample {}", trajectory.sample)),
    }
}
