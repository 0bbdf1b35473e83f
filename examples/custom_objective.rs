//! A custom loss term, defined outside this project's crates: the positive-example LM loss of VAPO
//! (Yue et al. 2025, arXiv 2504.05118, section 4.3), which imitates successful responses.
//!
//! `cargo run --release -p turnwise-train --example custom_objective`
//!
//! `L = L_policy + mu L_NLL`,
//! `L_NLL = -1 / (sum of |y_i| over T) sum over T of sum over t of log pi(y_{i,t})`, where T are
//! the sequences of the optimiser batch whose trajectory solved its task; `mu = 0.1`. `L_NLL = 0`
//! if T is empty.
//!
//! Differs from the paper: `examples = "advantage"` imitates turns with a positive advantage
//! instead of solved trajectories.
#![allow(clippy::print_stdout, dead_code, reason = "an example prints; a test uses a part of it")]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use turnwise_core::{Objective, ObjectiveError, TokenGradients, TokenStatistics};
use turnwise_objective::{Advantages, LossTerm, Minibatch, ObjectiveSequence, Registry, TermObjective};
use turnwise_train::{
    Config, ConfigSource, Methods, MetricsLine, NoopObserver, Registries, Run, load, read_metrics,
};

/// Tokens to imitate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Examples {
    /// Every token of a trajectory that solved its task.
    #[default]
    Solved,
    /// Every token whose advantage is positive.
    Advantage,
}

/// Settings of the term: `{ kind = "positive-lm", mu = 0.1 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PositiveLm {
    /// Weight of the term.
    pub(crate) mu: f64,
    /// Tokens to imitate.
    pub(crate) examples: Examples,
}

impl Default for PositiveLm {
    fn default() -> Self {
        Self { mu: 0.1, examples: Examples::Solved }
    }
}

impl PositiveLm {
    /// Returns true for each response token to imitate.
    fn imitated(&self, sequence: &ObjectiveSequence) -> Vec<bool> {
        let counts = |token: usize| sequence.mask.as_ref().is_none_or(|mask| mask[token]);
        let positive: Vec<bool> = match (self.examples, &sequence.advantages) {
            (Examples::Solved, _) => vec![sequence.success; sequence.response_tokens()],
            (Examples::Advantage, Advantages::PerToken(values)) => {
                values.iter().map(|&value| value > 0.0).collect()
            }
            (Examples::Advantage, Advantages::PerSpan(values)) => {
                let spans = sequence.spans.iter().zip(values);
                spans.flat_map(|(span, &value)| vec![value > 0.0; span.len()]).collect()
            }
        };
        positive.into_iter().enumerate().map(|(token, positive)| positive && counts(token)).collect()
    }
}

impl LossTerm for PositiveLm {
    fn kind(&self) -> &'static str {
        "positive-lm"
    }

    /// A solved trajectory is imitated even if its advantage is 0.
    fn acts_without_advantage(&self) -> bool {
        self.mu != 0.0 && self.examples == Examples::Solved
    }

    fn for_minibatch(&self, minibatch: &Minibatch<'_>) -> Result<TermObjective, ObjectiveError> {
        if !(self.mu >= 0.0 && self.mu.is_finite()) {
            return Err(ObjectiveError::Setting(format!(
                "positive-lm.mu is {}; it must be 0 or more",
                self.mu
            )));
        }
        let imitated: Vec<Vec<bool>> =
            minibatch.policy.batch().sequences.iter().map(|sequence| self.imitated(sequence)).collect();
        let count = imitated.iter().flatten().filter(|&&imitated| imitated).count();
        let weight = if count == 0 { 0.0 } else { self.mu / count as f64 };
        Ok(Box::new(OverBatch { imitated, weight }))
    }
}

/// The term for one optimiser batch. Its mean does not depend on the split into micro-batches.
struct OverBatch {
    imitated: Vec<Vec<bool>>,
    /// `mu` divided by the number of imitated tokens.
    weight: f64,
}

impl Objective for OverBatch {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let slopes: Vec<f64> = self.imitated[sequence]
            .iter()
            .map(|&imitated| if imitated { -self.weight } else { 0.0 })
            .collect();
        let loss =
            slopes.iter().zip(tokens.logprobs).map(|(slope, &logprob)| slope * f64::from(logprob)).sum();
        let d_logprobs = slopes.iter().map(|&slope| slope as f32).collect();
        Ok(TokenGradients { loss, d_logprobs, ..TokenGradients::default() })
    }
}

/// Registers `kind = "positive-lm"`.
pub(crate) fn methods() -> Methods {
    let objective = Registry::builtin().with_term("positive-lm", |term: PositiveLm| Ok(term));
    Methods { objective, ..Methods::builtin() }
}

/// Config of a tiny household from scratch, with the term's settings.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom_objective.toml");

/// Trains in `root` with weight `mu`, resumes the run for one more step, and returns the metrics of
/// every step.
pub(crate) fn train(mu: f64, root: &Path) -> Result<Vec<MetricsLine>, Box<dyn Error>> {
    let registries = Registries { methods: methods(), ..Registries::builtin() };
    let term =
        format!("objective.terms=[{{ kind = \"positive-lm\", mu = {mu:?}, examples = \"advantage\" }}]");
    let (files, overrides) = (vec![FILE.into()], vec![term]);
    let mut config = load(&ConfigSource { files, overrides, registries, ..ConfigSource::default() })?;
    let run = |config: Config| Run::builder(config).methods(methods()).directory(root);
    let mut begun = run(config.clone()).start(&mut NoopObserver)?;
    begun.train(&mut NoopObserver, &AtomicBool::new(false))?;
    drop(begun);
    config.train.steps = 3;
    let mut resumed = run(config).resume(&mut NoopObserver)?;
    resumed.train(&mut NoopObserver, &AtomicBool::new(false))?;
    Ok(read_metrics(&root.join("metrics.jsonl"))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    for mu in [0.0, 0.1] {
        for line in train(mu, &folder.path().join(format!("mu-{mu}")))? {
            let of = |tag: &str| line.metrics.get(tag).unwrap_or(f64::NAN);
            let (total, policy) = (of("loss/total"), of("loss/policy"));
            println!("mu {mu}, step {}: loss {total:.4}, of it the policy's {policy:.4}", line.step);
        }
    }
    Ok(())
}
