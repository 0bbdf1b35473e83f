//! A custom credit method, defined outside this project's crates: a turn gets a bonus if it made
//! the policy more certain of the answer.
//!
//! `cargo run --release -p turnwise-train --example custom_refinement`
//!
//! With `l_t = mean_j log pi(a_j | prompt of turn t, a_<j)` over the tokens of the answer `a`:
//!
//! * the gain of a turn is `g_t = l_{t+1} - l_t`, and 0 for the last turn, which no prompt follows;
//! * `A_t <- A_t + beta g_t`.
//!
//! The method needs its own forward pass: it requests the log-probs of the answer in place of each
//! turn's response, and the training loop supplies them. (`kind = "igpo"` is the built-in method of
//! this kind.)
#![allow(clippy::print_stdout, dead_code, reason = "an example prints; a test uses a part of it")]

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, PerTurn, Task};
use turnwise_credit::{
    CreditError, CreditInputs, Explanation, Refinement, Registry, RequiredInputs, ScoreRequest,
};
use turnwise_train::{
    Config, ConfigSource, Methods, MetricsLine, NoopObserver, Registries, Run, load, read_metrics,
};

/// Settings of the method: `{ kind = "answer-gain", beta = 1.0 }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AnswerGainConfig {
    /// Weight of a gain, per nat.
    pub(crate) beta: f64,
    /// Text between the prompt and the answer.
    pub(crate) lead: String,
}

impl Default for AnswerGainConfig {
    fn default() -> Self {
        Self { beta: 1.0, lead: String::new() }
    }
}

/// The refinement, and a function that returns a task's answer.
pub(crate) struct AnswerGain {
    config: AnswerGainConfig,
    answer: fn(&Task) -> String,
}

impl AnswerGain {
    pub(crate) fn new(config: AnswerGainConfig, answer: fn(&Task) -> String) -> Result<Self, CreditError> {
        if (0.0..=1000.0).contains(&config.beta) {
            return Ok(Self { config, answer });
        }
        let reason = format!("beta is {} (between 0 and 1000)", config.beta);
        Err(CreditError::Setting { method: "answer-gain", reason })
    }
}

/// Returns the mean log-prob; `None` for a prompt without room for the answer.
fn mean(score: &[f32]) -> Option<f64> {
    (!score.is_empty()).then(|| score.iter().copied().map(f64::from).sum::<f64>() / score.len() as f64)
}

impl Refinement for AnswerGain {
    fn name(&self) -> &'static str {
        "answer-gain"
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs { scores: true, ..RequiredInputs::default() }
    }

    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let mut requests = Vec::new();
        PerTurn::from_fn(batch, |group, trajectory, turn| {
            let answer = (self.answer)(&batch.groups[group].trajectories[trajectory].task);
            let lead = self.config.lead.clone();
            requests.push(ScoreRequest { lead, ..ScoreRequest::of_text(group, trajectory, turn, answer) });
        });
        requests
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        // One score per turn, in the order of the requests.
        let mut scores = inputs.scores().iter();
        let known = PerTurn::from_fn(inputs.batch, |_, _, _| scores.next().and_then(|score| mean(score)));
        let gains = PerTurn::from_fn(inputs.batch, |group, trajectory, turn| {
            let row = &known[(group, trajectory)];
            let pair = row.get(turn + 1).copied().flatten().zip(row[turn]);
            pair.map_or(0.0, |(after, before)| after - before)
        });
        for (advantage, gain) in advantages.values_mut().zip(gains.values()) {
            *advantage += self.config.beta * gain;
        }
        for (index, group) in gains.groups().enumerate() {
            explanation.facts(index, group, |_, _, &gain| vec![("gain", gain)]);
        }
        let sum: f64 = gains.values().map(|gain| gain.abs()).sum();
        explanation.diagnostic("answer_gain/abs_mean", sum / gains.values().count().max(1) as f64);
        Ok(())
    }
}

/// Registers `kind = "answer-gain"`. The household has no reference answers, so the goal's text is
/// used instead.
pub(crate) fn methods() -> Methods {
    let answer = |task: &Task| task.answer().unwrap_or(&task.goal).to_owned();
    let credit =
        Registry::builtin().with_refinement("answer-gain", move |config| AnswerGain::new(config, answer));
    Methods { credit, ..Methods::builtin() }
}

/// Config of a tiny household from scratch, with the method's settings.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom_refinement.toml");

/// Trains in `root`, resumes the run for one more step, and returns the metrics of every step.
pub(crate) fn train(root: &Path) -> Result<Vec<MetricsLine>, Box<dyn Error>> {
    let registries = Registries { methods: methods(), ..Registries::builtin() };
    let source = ConfigSource { files: vec![FILE.into()], registries, ..ConfigSource::default() };
    let mut config = load(&source)?;
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
    for line in train(&folder.path().join("run"))? {
        let of = |tag: &str| line.metrics.get(tag).unwrap_or(f64::NAN);
        let (gain, spread, loss) = (of("answer_gain/abs_mean"), of("credit/advantage/std"), of("loss/total"));
        println!("step {}: mean |gain| {gain:.2e}, advantage std {spread:.3}, loss {loss:.4}", line.step);
    }
    Ok(())
}
