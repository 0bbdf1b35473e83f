//! The decomposer: an LLM judge, or TurnRD (HAS, algorithm 1).
//!
//! TurnRD's network does not change within a round, while rollouts fill the replay. At the end of
//! the round, the network is trained on the replay. A resume removes the records of steps that it
//! repeats.

use std::ops::Range;
use std::path::{Path, PathBuf};

use turnwise_core::{Batch, Group, HiddenRequest, Learner, PerTurn, Trajectory};
use turnwise_decompose::turnrd::{Fit, Replay, ReplayRecord, SampleSource as _, TrainReport, TurnRd};
use turnwise_decompose::{Judge, JudgeConfig, JudgeMetrics};
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::config::{Config, DecomposerConfig, TurnRdSettings};
use crate::learners::policy::PolicyLearner;
use crate::learners::turn_tokens::{means_of_ranges, turn_tokens};
use crate::record::directory::RunDirectory;
use crate::record::metrics::Metrics;

pub(crate) enum RunDecomposer {
    Judge(Box<Judge>),
    TurnRd(Box<RunTurnRd>),
}

pub(crate) struct RunTurnRd {
    settings: TurnRdSettings,
    network: TurnRd,
    replay: Replay,
    folder: PathBuf,
    seed: u64,
}

const MEASURED_ROUNDS: u32 = 4;

const MEASURED_RECORDS: usize = 64;

struct Vectors {
    turns: Vec<f32>,
    goal: Vec<f32>,
}

impl RunDecomposer {
    /// Checks the judge's service. Called before SFT, because the judge is not used before RL.
    pub(crate) fn check_service(config: &Config) -> Result<(), TrainError> {
        if let DecomposerConfig::Judge(judge) = &config.decomposer {
            let judge = JudgeConfig { cache: PathBuf::new(), ..judge.clone() };
            Judge::new(judge, config.seed)?.check_service()?;
        }
        Ok(())
    }

    pub(crate) fn open(
        config: &Config,
        directory: &RunDirectory,
        hidden: usize,
        steps: u64,
    ) -> Result<Option<Self>, TrainError> {
        let root = directory.root();
        Ok(match &config.decomposer {
            DecomposerConfig::None => None,
            DecomposerConfig::Judge(judge) => {
                let named = !judge.cache.as_os_str().is_empty();
                let cache = if named { judge.cache.clone() } else { root.join("judge") };
                let judge = JudgeConfig { cache, ..judge.clone() };
                Some(Self::Judge(Box::new(Judge::new(judge, config.seed)?)))
            }
            DecomposerConfig::Turnrd(settings) => {
                let folder = root.join("turnrd");
                crate::record::directory::create_folders(&folder)?;
                let round = settings.round_of(steps);
                let network = if round == 0 {
                    TurnRd::new(settings.network.clone(), hidden, config.seed)?
                } else {
                    TurnRd::load(&round_folder(&folder, round))?
                };
                let replay = Replay::append_to(&folder.join("replay.bin"))?;
                let (settings, seed) = (settings.clone(), config.seed);
                Some(Self::TurnRd(Box::new(RunTurnRd { settings, network, replay, folder, seed })))
            }
        })
    }
}

/// Returns the judge's credits; zeros for groups with equal returns, which HAS skips.
fn judged(judge: &Judge, batch: &Batch, warn: &mut dyn FnMut(String)) -> Result<PerTurn<f64>, TrainError> {
    let differ = |group: &&Group| !group.has_equal_returns();
    let asked = Batch { groups: batch.groups.iter().filter(differ).cloned().collect() };
    let mut found = Vec::from(judge.credits(&asked, warn)?).into_iter();
    let credits = batch.groups.iter().map(|group| {
        let row = |trajectory: &Trajectory| vec![0.0; trajectory.turns.len()];
        let zeros = || group.trajectories.iter().map(row).collect();
        if group.has_equal_returns() { zeros() } else { found.next().unwrap_or_else(zeros) }
    });
    Ok(credits.collect())
}

impl RunDecomposer {
    pub(crate) fn credits(
        &mut self,
        batch: &Batch,
        step: u64,
        policy: &mut dyn PolicyLearner,
        tokenizer: &Tokenizer,
        warn: &mut dyn FnMut(String),
    ) -> Result<PerTurn<f64>, TrainError> {
        match self {
            Self::Judge(judge) => judged(judge, batch, warn),
            Self::TurnRd(turnrd) => {
                let vectors = vectors(batch, turnrd.settings.pool_tokens, policy, tokenizer)?;
                turnrd.credits(batch, step, vectors)
            }
        }
    }

    /// Discards the records from `step` on, because these steps will be repeated.
    pub(crate) fn abandon_from(&mut self, step: u64) -> Result<(), TrainError> {
        if let Self::TurnRd(turnrd) = self {
            let round_steps = turnrd.settings.round_steps;
            turnrd.replay.cut(|round, id| u64::from(round) * round_steps + (id >> 32) >= step)?;
        }
        Ok(())
    }

    pub(crate) fn judge_counts(&self) -> Option<JudgeMetrics> {
        match self {
            Self::Judge(judge) => Some(judge.metrics()),
            Self::TurnRd(_) => None,
        }
    }

    pub(crate) fn resume_counts(&mut self, counts: JudgeMetrics) {
        if let Self::Judge(judge) = self {
            judge.resume_counts(counts);
        }
    }

    pub(crate) fn end_of_step(&mut self, step: u64, metrics: &mut Metrics) -> Result<(), TrainError> {
        match self {
            Self::TurnRd(turnrd) => turnrd.end_of_step(step, metrics),
            Self::Judge(judge) => {
                for (name, value) in judge.metrics().entries() {
                    metrics.set(name, value);
                }
                Ok(())
            }
        }
    }
}

/// Returns TurnRD's credits for trajectories with token sequences, computed from a policy's hidden
/// states.
///
/// # Errors
/// Fails if the hidden states are wider or narrower than the network expects, if the policy rejects
/// a sequence, if token ids are missing, on too many turns, and on NaN.
pub fn turnrd_credits(
    batch: &Batch,
    network: &TurnRd,
    pool_tokens: usize,
    policy: &mut dyn Learner,
    tokenizer: &Tokenizer,
) -> Result<PerTurn<f64>, TrainError> {
    let width = policy.hidden_size();
    if network.input_dim() != width {
        return Err(TrainError::Config {
            origin: "turnrd".into(),
            reason: format!(
                "the network reads vectors of width {}, the policy's hidden states have {width}; use the policy \
                 that it was trained with",
                network.input_dim()
            ),
        });
    }
    for trajectory in batch.trajectories() {
        let spans: usize = trajectory.sequences.iter().map(|sequence| sequence.spans.len()).sum();
        if spans != trajectory.turns.len() {
            return Err(TrainError::Config {
                origin: "turnrd".into(),
                reason: format!(
                    "the trajectory of task `{}` has {} turns and token ids of {spans}; only trajectories of a \
                     Turnwise run have all of them",
                    trajectory.task.id,
                    trajectory.turns.len()
                ),
            });
        }
    }
    let vectors = vectors(batch, pool_tokens, policy, tokenizer)?;
    credits(batch, network, &vectors)
}

fn credits(batch: &Batch, network: &TurnRd, vectors: &[Vectors]) -> Result<PerTurn<f64>, TrainError> {
    let mut vectors = vectors.iter();
    batch
        .groups
        .iter()
        .map(|group| {
            let members = group.trajectories.iter().zip(vectors.by_ref());
            members
                .map(|(trajectory, Vectors { turns, goal })| {
                    if trajectory.turns.is_empty() {
                        return Ok(Vec::new());
                    }
                    Ok(network.credits(turns, goal, trajectory.outcome_return())?.credits)
                })
                .collect()
        })
        .collect()
}

/// Returns the folder of the network after `round` rounds.
pub fn round_folder(folder: &Path, round: u32) -> PathBuf {
    folder.join(format!("round-{round:04}"))
}

impl RunTurnRd {
    /// Returns the credits, and adds the batch to the replay.
    fn credits(
        &mut self,
        batch: &Batch,
        step: u64,
        vectors: Vec<Vectors>,
    ) -> Result<PerTurn<f64>, TrainError> {
        let credits = credits(batch, &self.network, &vectors)?;
        let first = (step % self.settings.round_steps) << 32;
        for (index, (trajectory, vectors)) in batch.trajectories().zip(vectors).enumerate() {
            if trajectory.turns.is_empty() {
                continue;
            }
            let progress = trajectory.turns.iter().map(|turn| turn.progress.map(|value| value as f32));
            self.replay.append(&ReplayRecord {
                round: self.settings.round_of(step),
                id: first + index as u64,
                ret: trajectory.outcome_return(),
                turns: vectors.turns,
                goal: vectors.goal,
                progress: progress.collect(),
                goal_text: trajectory.task.goal.clone(),
                actions: trajectory.turns.iter().map(|turn| turn.action.clone()).collect(),
            })?;
        }
        self.replay.sync()?;
        Ok(credits)
    }

    pub(crate) fn end_of_step(&mut self, step: u64, metrics: &mut Metrics) -> Result<(), TrainError> {
        let round = self.settings.round_of(step);
        // Later records come from before a resume and will be repeated.
        let now = (round, step % self.settings.round_steps);
        let made = (0..self.replay.len())
            .filter(|&index| (self.replay.round(index), self.replay.id(index) >> 32) <= now);
        metrics.set("turnrd/replay", made.count() as f64);
        metrics.set("turnrd/round", f64::from(round));
        metrics.set("turnrd/replay_corrupt", self.replay.health().corrupt.len() as f64);
        if !(step + 1).is_multiple_of(self.settings.round_steps) {
            return Ok(());
        }
        self.train(round, metrics)?;
        // The next round looks for this name even without training.
        Ok(self.network.save(&round_folder(&self.folder, round + 1))?)
    }

    fn train(&mut self, round: u32, metrics: &mut Metrics) -> Result<(), TrainError> {
        let (mut trained, mut held_out) = self.replay.split(self.settings.hold_out);
        for indices in [&mut trained, &mut held_out] {
            indices.retain(|&index| self.replay.round(index) <= round);
        }
        if trained.is_empty() {
            return Ok(());
        }
        let half_life = self.settings.network.half_life;
        // Measuring all would cost as much as training.
        held_out.retain(|&index| self.replay.round(index) + MEASURED_ROUNDS > round);
        let newest = trained.iter().copied().filter(|&index| self.replay.round(index) == round);
        let newest = newest.take(MEASURED_RECORDS).collect();
        // Fit before training, which tells how well this network predicts the round.
        let mut samples = self.replay.view(held_out, round, half_life)?;
        if !samples.is_empty() {
            let before = self.network.fit(&mut samples)?;
            metrics.set("turnrd/held_out_mse_before", before.mse);
        }
        let held_out = samples.into_indices();
        let mut samples = self.replay.view(trained, round, half_life)?;
        let report = self.network.train(&mut samples, u64::from(round), self.seed, &mut |_| {})?;
        report_training(&report, metrics);
        let mut samples = self.replay.view(newest, round, half_life)?;
        if !samples.is_empty() {
            let fit = self.network.fit(&mut samples)?;
            report_fit("turnrd/", &fit, metrics);
            metrics.set("turnrd/sum_drift", fit.sum_drift);
        }
        let mut samples = self.replay.view(held_out, round, half_life)?;
        if !samples.is_empty() {
            report_fit("turnrd/held_out_", &self.network.fit(&mut samples)?, metrics);
        }
        Ok(())
    }
}

fn report_fit(prefix: &str, fit: &Fit, metrics: &mut Metrics) {
    metrics.set(&format!("{prefix}mse"), fit.mse);
    if let Some(r2) = fit.r2 {
        metrics.set(&format!("{prefix}r2"), r2);
    }
}

fn report_training(report: &TrainReport, metrics: &mut Metrics) {
    if let Some(last) = report.epochs.last() {
        metrics.set("turnrd/loss", last.losses.total);
        metrics.set("turnrd/loss_prediction", last.losses.prediction);
        metrics.set("turnrd/loss_rank", last.losses.rank);
        metrics.set("turnrd/loss_prior", last.losses.prior);
        metrics.set("turnrd/loss_value", last.losses.value);
        metrics.set("turnrd/grad_norm", last.grad_norm);
        metrics.set("turnrd/passes", report.epochs.len() as f64);
    }
}

/// Returns the mean last hidden states of each turn's [`turn_tokens`] and of the goal's last `most`
/// tokens.
fn vectors(
    batch: &Batch,
    most: usize,
    learner: &mut (impl Learner + ?Sized),
    tokenizer: &Tokenizer,
) -> Result<Vec<Vectors>, TrainError> {
    let (width, longest) = (learner.hidden_size(), learner.max_model_len());
    let turns = turn_states(batch, most, learner, tokenizer)?;
    let mut goals: Vec<&str> = Vec::new();
    for trajectory in batch.trajectories() {
        if !goals.contains(&trajectory.task.goal.as_str()) {
            goals.push(&trajectory.task.goal);
        }
    }
    let requests: Vec<HiddenRequest> = goals
        .iter()
        .map(|goal| {
            let mut tokens = tokenizer.encode(goal);
            tokens.truncate(longest);
            let all = tokens.len().saturating_sub(most)..tokens.len();
            (tokens, if all.is_empty() { Vec::new() } else { Vec::from([all]) })
        })
        .collect();
    let goal_states: Vec<Vec<f32>> = learner
        .mean_hidden(&requests)?
        .into_iter()
        .map(|mut of_goal| of_goal.pop().unwrap_or_else(|| vec![0.0; width]))
        .collect();
    Ok(batch
        .trajectories()
        .zip(turns)
        .map(|(trajectory, turns)| {
            let goal = goals.iter().position(|goal| *goal == trajectory.task.goal).unwrap_or(0);
            Vectors { turns: turns.concat(), goal: goal_states[goal].clone() }
        })
        .collect())
}

pub(crate) fn hidden_states(
    batch: &Batch,
    most: usize,
    policy: &mut dyn PolicyLearner,
    tokenizer: &Tokenizer,
) -> Result<PerTurn<Vec<f32>>, TrainError> {
    Ok(PerTurn::from_rows(batch, turn_states(batch, most, policy, tokenizer)?))
}

fn turn_states(
    batch: &Batch,
    most: usize,
    learner: &mut (impl Learner + ?Sized),
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<Vec<f32>>>, TrainError> {
    let ranges: Vec<Vec<Vec<Vec<Range<usize>>>>> =
        batch.trajectories().map(|trajectory| turn_tokens(trajectory, most, tokenizer)).collect();
    let sequences = batch.trajectories().flat_map(|trajectory| &trajectory.sequences);
    let requests: Vec<HiddenRequest> = sequences
        .zip(ranges.iter().flatten())
        .map(|(sequence, turns)| (sequence.tokens.clone(), turns.concat()))
        .collect();
    let width = learner.hidden_size();
    let mut states = learner.mean_hidden(&requests)?.into_iter();
    Ok(ranges
        .iter()
        .map(|sequences| {
            let own = sequences.iter().zip(states.by_ref());
            own.flat_map(|(turns, means)| means_of_ranges(&means, turns, width)).collect()
        })
        .collect())
}
