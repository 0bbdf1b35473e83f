//! A credit method of one's own, outside of the project's crates: IGPO, "Information Gain-based Policy Optimization"
//! (arXiv 2510.14967), which pays every turn by how much it raised the policy's probability of the reference answer.
//!
//! `cargo run --release -p turnwise-train --example custom_refinement`
//!
//! With `p_{i,t} = exp(mean_j log pi(a_j | prompt of turn t, a_<j))` over the tokens of the reference answer `a`:
//!
//! * the reward of turn t is its information gain `r_{i,t} = p_{i,t+1} - p_{i,t}`, that of the last turn the outcome;
//! * rewards are standardised over the group: all together (`joint`, the paper) or gains and outcomes each among
//!   themselves (`separate`, a switch of its authors' code);
//! * the advantage is the discounted sum of what follows, `A_{i,t} = sum_{k >= t} gamma^(k-t) r'_{i,k}`.
//!
//! The method needs a model pass of its own: it asks for the score of the answer in the place of every turn's response,
//! and the training loop supplies it. Differs from the paper: the prompt of a turn is taken as it was sampled from,
//! without a sentence in front of the answer; a prompt that leaves no room for the answer gains 0.
#![allow(clippy::print_stdout, dead_code, reason = "an example prints; a test uses a part of it")]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn, Task};
use turnwise_credit::statistics::{Moments, Normalize, Singleton};
use turnwise_credit::{CreditError, Explanation, Inputs, Needs, Refinement, Registry, ScoreRequest};
use turnwise_train::config::{ConfigSource, load_with};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{Methods, NoopObserver, Resume, Run, RunParts};

/// Population that rewards are standardised with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standardise {
    /// Gains and outcomes of the group together.
    #[default]
    Joint,
    /// Gains with gains, outcomes with outcomes.
    Separate,
}

/// The switches of IGPO: `{ kind = "igpo", gamma = 1.0 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct IgpoConfig {
    /// Discount from turn to turn.
    pub(crate) gamma: f64,
    /// Population that rewards are standardised with.
    pub(crate) standardise: Standardise,
    /// Added to the standard deviation.
    pub(crate) epsilon: f64,
}

impl Default for IgpoConfig {
    fn default() -> Self {
        Self { gamma: 1.0, standardise: Standardise::Joint, epsilon: 1e-6 }
    }
}

/// The refinement, with the reference answer of a task.
pub(crate) struct Igpo {
    config: IgpoConfig,
    answer: fn(&Task) -> Option<String>,
}

impl Igpo {
    pub(crate) fn new(config: IgpoConfig, answer: fn(&Task) -> Option<String>) -> Result<Self, CreditError> {
        if (0.0..=1.0).contains(&config.gamma) && config.epsilon >= 0.0 {
            return Ok(Self { config, answer });
        }
        let reason =
            format!("gamma is {} (between 0 and 1), epsilon is {} (0 or more)", config.gamma, config.epsilon);
        Err(CreditError::Setting { method: "igpo", reason })
    }

    /// The information gain of every turn but the last, and the outcome at the last.
    fn rewards(&self, inputs: &Inputs<'_>) -> PerTurn<f64> {
        let mut scores = inputs.scores().iter();
        // One score a turn, in the order of the requests.
        let likelihoods = PerTurn::from_fn(inputs.batch, |group, trajectory, _| {
            let task = &inputs.batch.groups[group].trajectories[trajectory].task;
            (self.answer)(task).and_then(|_| likelihood(scores.next()?))
        });
        PerTurn::from_fn(inputs.batch, |group, trajectory, turn| {
            let data = &inputs.batch.groups[group].trajectories[trajectory];
            let of = |turn: usize| likelihoods[(group, trajectory, turn)];
            if turn + 1 == data.turns.len() {
                data.outcome_return()
            } else {
                of(turn + 1).zip(of(turn)).map_or(0.0, |(after, before)| after - before)
            }
        })
    }

    /// Standardises the rewards of one group in place.
    fn standardise(&self, rows: &mut [Vec<f64>]) {
        let last = |row: &[f64], turn: usize| turn + 1 == row.len();
        let mut within = |of: &dyn Fn(&[f64], usize) -> bool| {
            let chosen = |row: &Vec<f64>| -> Vec<f64> {
                (0..row.len()).filter(|&turn| of(row, turn)).map(|turn| row[turn]).collect()
            };
            let moments = Moments::of(&rows.iter().flat_map(chosen).collect::<Vec<_>>(), 1);
            for row in rows.iter_mut() {
                for turn in (0..row.len()).filter(|&turn| of(row, turn)).collect::<Vec<_>>() {
                    let (normalize, epsilon) = (Normalize::MeanStd, self.config.epsilon);
                    row[turn] = moments.standardise(row[turn], normalize, epsilon, Singleton::Zero);
                }
            }
        };
        match self.config.standardise {
            Standardise::Joint => within(&|_, _| true),
            Standardise::Separate => {
                within(&last);
                within(&|row, turn| !last(row, turn));
            }
        }
    }
}

/// `exp` of the mean log-probability; nothing of no tokens.
fn likelihood(score: &[f32]) -> Option<f64> {
    let mean = score.iter().copied().map(f64::from).sum::<f64>() / score.len() as f64;
    (!score.is_empty()).then(|| mean.exp())
}

impl Refinement for Igpo {
    fn name(&self) -> &'static str {
        "igpo"
    }

    fn needs(&self) -> Needs {
        Needs { scores: true, ..Needs::default() }
    }

    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let mut requests = Vec::new();
        PerTurn::from_fn(batch, |group, trajectory, turn| {
            let task = &batch.groups[group].trajectories[trajectory].task;
            let request = |text| ScoreRequest { group, trajectory, turn, text };
            requests.extend((self.answer)(task).map(request));
        });
        requests
    }

    fn refine(
        &self,
        inputs: &Inputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let rewards = self.rewards(inputs);
        for (index, group) in rewards.groups().enumerate() {
            let mut standardised = group.clone();
            self.standardise(&mut standardised);
            explanation.facts(index, group, |row, turn, &reward| {
                vec![("reward", reward), ("standardised", standardised[row][turn])]
            });
            for (advantages, standardised) in advantages[index].iter_mut().zip(&standardised) {
                let mut following = 0.0;
                for (advantage, reward) in advantages.iter_mut().zip(standardised).rev() {
                    following = reward + self.config.gamma * following;
                    *advantage = following;
                }
            }
        }
        let gains: Vec<f64> = rewards
            .rows()
            .flat_map(|row| row.split_last().map_or(&[][..], |(_, gains)| gains))
            .copied()
            .collect();
        let mean = gains.iter().map(|gain| gain.abs()).sum::<f64>() / gains.len().max(1) as f64;
        explanation.diagnostic("igpo/gain_abs_mean", mean);
        Ok(())
    }
}

/// Registry entry that makes `kind = "igpo"` known to configs. The household has no reference answers, as a question has one; here the
/// words of the goal stand for it. A search world keeps the answer in `task.metadata`.
pub(crate) fn methods() -> Methods {
    let answer = |task: &Task| match task.metadata.get("answer").and_then(|answer| answer.as_str()) {
        Some(answer) => Some(answer.to_owned()),
        None => Some(task.goal.clone()),
    };
    let credit = Registry::builtin().with_refinement("igpo", move |config| Igpo::new(config, answer));
    Methods { credit, ..Methods::builtin() }
}

/// A tiny household from scratch, with the method's settings in a file as any others.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom_refinement.toml");

/// Trains in `root`, resumes the run for one step more, and gives the numbers of every step.
pub(crate) fn train(root: &Path) -> Result<Vec<MetricsLine>, Box<dyn Error>> {
    let parts = RunParts { methods: methods(), ..RunParts::default() };
    let source = ConfigSource { files: vec![FILE.into()], ..ConfigSource::default() };
    let config = load_with(&source, &parts.worlds, &parts.methods)?;
    let mut run = Run::start(config, root, &mut NoopObserver)?;
    run.train(&mut NoopObserver, &AtomicBool::new(false))?;
    drop(run);
    let resume = Resume { overrides: vec!["train.steps=3".into()], ..Resume::default() };
    let mut run = Run::resume_with(&parts, root, &resume, &mut NoopObserver)?;
    run.train(&mut NoopObserver, &AtomicBool::new(false))?;
    Ok(read_metrics(&root.join("metrics.jsonl"))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for line in train(&folder.path().join("run"))? {
        let of = |tag: &str| line.metrics.get(tag).unwrap_or(f64::NAN);
        let (gain, spread, loss) = (of("igpo/gain_abs_mean"), of("credit/advantage/std"), of("loss/total"));
        println!("step {}: mean |gain| {gain:.2e}, advantage std {spread:.3}, loss {loss:.4}", line.step);
    }
    Ok(())
}
