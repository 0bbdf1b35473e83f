//! The run or file behind the pages: its steps, and the trajectories of one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use turnwise_core::{Batch, Group, StageRecord, Trajectory};
use turnwise_credit::CreditConfig;
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::{Phase, Position, RunDirectory};
use turnwise_trajectory_io::{DumpBatch, ReadOptions, read};

use super::explain::{self, Explained};
use super::tokens::TokenTexts;
use crate::commands::credit::table::counted;

/// A method by preset name, with its settings.
pub(super) type Method = (String, CreditConfig);

/// Where the trajectories come from.
pub(super) enum Source {
    /// A run directory, whose steps are read when they are asked for.
    Run { directory: RunDirectory, method: Option<Method> },
    /// A file that was read whole.
    File(File),
}

/// A file of trajectories.
pub(super) struct File {
    path: PathBuf,
    steps: Vec<DumpStep>,
    method: Option<Method>,
    notes: Vec<String>,
}

/// A step of a file: its trajectories, and what a dump knows of them besides.
struct DumpStep {
    number: u64,
    batch: Batch,
    /// The dump's own reading, where the file is no run's.
    dump: Option<DumpBatch>,
}

/// The trajectories of a step with their credit.
pub(super) struct Step {
    pub(super) number: u64,
    pub(super) groups: Vec<Vec<Shown>>,
    /// The method that the advantages are of, as `gigpo, then aem`.
    pub(super) method: Option<String>,
    pub(super) explained: Explained,
    /// Numbers of the batch by name.
    pub(super) diagnostics: BTreeMap<String, f64>,
}

/// A trajectory with its credit.
pub(super) struct Shown {
    pub(super) trajectory: Trajectory,
    /// True if the task was solved; absent where the file does not say.
    pub(super) success: Option<bool>,
    /// One a turn; absent where none were recorded or computed.
    pub(super) advantages: Option<Vec<f64>>,
    /// The stages of every turn; empty where there is no explanation.
    pub(super) explanation: Vec<Vec<StageRecord>>,
}

impl Shown {
    /// The advantage of a turn.
    pub(super) fn advantage(&self, turn: usize) -> Option<f64> {
        self.advantages.as_ref().and_then(|advantages| advantages.get(turn)).copied()
    }

    /// The stages behind it.
    pub(super) fn stages(&self, turn: usize) -> &[StageRecord] {
        self.explanation.get(turn).map_or(&[], Vec::as_slice)
    }

    /// True for a turn that a loss term acts on because its entropy is unusual.
    pub(super) fn is_outlier(&self, turn: usize) -> bool {
        let stages = self.stages(turn).iter();
        stages.filter_map(|stage| stage.facts.get("outlier")).any(|outlier| outlier != 0.0)
    }
}

impl Step {
    /// How much there is, in words.
    pub(super) fn summary(&self) -> String {
        let trajectories: Vec<&Shown> = self.groups.iter().flatten().collect();
        let turns: usize = trajectories.iter().map(|shown| shown.trajectory.turns.len()).sum();
        let known = trajectories.iter().filter_map(|shown| shown.success).count();
        let solved = trajectories.iter().filter(|shown| shown.success == Some(true)).count();
        let mut text = format!(
            "step {}: {} in {}, {}",
            self.number,
            counted(trajectories.len(), "trajectory", "trajectories"),
            counted(self.groups.len(), "group", "groups"),
            counted(turns, "turn", "turns")
        );
        if known > 0 {
            text.push_str(&format!(", {solved} of {known} solved"));
        }
        text
    }
}

impl Source {
    /// Opens a run directory or reads a file.
    ///
    /// # Errors
    /// The path and what is wrong with it.
    pub(super) fn open(path: &Path, method: Option<Method>) -> anyhow::Result<Self> {
        if path.is_dir() {
            let directory = RunDirectory::open(path)?;
            return Ok(Self::Run { directory, method });
        }
        if !path.is_file() {
            bail!("{}: is neither a run directory nor a file of trajectories", path.display());
        }
        // A run's own file says more of a turn than the fields that all formats have.
        if let Ok(trajectories) = read_trajectories(path)
            && !trajectories.is_empty()
        {
            let mut steps: BTreeMap<u64, Vec<Trajectory>> = BTreeMap::new();
            for trajectory in trajectories {
                steps.entry(trajectory.step).or_default().push(trajectory);
            }
            let step = |(number, trajectories)| DumpStep { number, batch: grouped(trajectories), dump: None };
            let steps = steps.into_iter().map(step).collect();
            return Ok(Self::File(File { path: path.to_owned(), steps, method, notes: Vec::new() }));
        }
        let dump = read(path, &ReadOptions::default())?;
        let step = |mut step: DumpBatch| {
            let batch = std::mem::take(&mut step.batch);
            DumpStep { number: step.step, batch, dump: Some(step) }
        };
        let steps = dump.batches.into_iter().map(step).collect();
        Ok(Self::File(File { path: dump.path, steps, method, notes: dump.notes }))
    }

    /// The name for people.
    pub(super) fn title(&self) -> String {
        let path = match self {
            Self::Run { directory, .. } => directory.root(),
            Self::File(file) => &file.path,
        };
        let name = path.canonicalize().ok().and_then(|path| Some(path.file_name()?.display().to_string()));
        name.unwrap_or_else(|| path.display().to_string())
    }

    /// The steps that there are trajectories of, in order; those of a run that is under way grow.
    pub(super) fn steps(&self) -> Vec<u64> {
        match self {
            Self::Run { directory, .. } => run_steps(&directory.path("trajectories")),
            Self::File(file) => file.steps.iter().map(|step| step.number).collect(),
        }
    }

    /// What is to be said about how a file was read.
    pub(super) fn notes(&self) -> &[String] {
        match self {
            Self::Run { .. } => &[],
            Self::File(file) => &file.notes,
        }
    }

    /// The texts of token ids, where the source has a tokenizer.
    pub(super) fn tokens(&self) -> Option<TokenTexts> {
        match self {
            Self::Run { directory, .. } => TokenTexts::of_run(directory.root()),
            Self::File(_) => None,
        }
    }

    /// The trajectories of a step with their credit.
    ///
    /// # Errors
    /// A file that cannot be read; a method that is named and needs what the trajectories do not have.
    pub(super) fn step(&self, number: u64) -> anyhow::Result<Step> {
        match self {
            Self::Run { directory, method } => {
                let position = Position { phase: Phase::Rl, step: number };
                let path = directory.path("trajectories").join(format!("{}.jsonl.zst", position.label()));
                let batch = grouped(read_trajectories(&path)?);
                match method {
                    Some(method) => explain::by_method(number, batch, None, method)
                        .with_context(|| path.display().to_string()),
                    None => explain::of_run(number, batch, &directory.config_of(position)?),
                }
            }
            Self::File(file) => {
                let step = file.steps.iter().find(|step| step.number == number);
                let step = step.with_context(|| format!("{}: has no step {number}", file.path.display()))?;
                let batch = step.batch.clone();
                match &file.method {
                    Some(method) => explain::by_method(number, batch, step.dump.as_ref(), method)
                        .with_context(|| file.path.display().to_string()),
                    None => Ok(explain::of_file(number, batch, step.dump.as_ref())),
                }
            }
        }
    }
}

/// The steps whose trajectories a run has, in order.
fn run_steps(folder: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let label = |name: &str| name.strip_suffix(".jsonl.zst")?.parse::<Position>().ok();
    let found = entries.filter_map(|entry| label(entry.file_name().to_str()?));
    let mut steps: Vec<u64> =
        found.filter(|found| found.phase == Phase::Rl).map(|found| found.step).collect();
    steps.sort_unstable();
    steps
}

/// Trajectories by group, in order of the groups' indices.
fn grouped(trajectories: Vec<Trajectory>) -> Batch {
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for trajectory in trajectories {
        groups.entry(trajectory.group).or_default().trajectories.push(trajectory);
    }
    Batch { groups: groups.into_values().collect() }
}
