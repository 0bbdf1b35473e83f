//! Metrics of one step.

use std::collections::BTreeSet;
use std::time::Instant;

use turnwise_core::{Batch, LOG_RATIO_BOUNDS, PerTurn, TokenSequence, Trajectory, Turn};
use turnwise_env::parse::inadmissible_rate;
use turnwise_objective::Loss;

use crate::TrainError;
use crate::config::Config;
use crate::learners::critic::explained_variance;
use crate::learners::policy::PolicyLearner;
use crate::record::metrics::Metrics;
use crate::record::state::RunState;
use crate::step::credit::Credited;
use crate::step::rewards::ShapedRewards;
use crate::step::training_set::TrainingSet;
use crate::step::update::{UpdateReport, schedule};

#[derive(Debug, Default)]
pub(crate) struct StepMetrics {
    pub(crate) metrics: Metrics,
    seconds: Vec<(&'static str, f64)>,
}

impl StepMetrics {
    pub(crate) fn timed<T>(&mut self, stage: &'static str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        let elapsed = started.elapsed().as_secs_f64();
        match self.seconds.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, seconds)) => *seconds += elapsed,
            None => self.seconds.push((stage, elapsed)),
        }
        result
    }

    fn seconds(&self, stage: &str) -> f64 {
        self.seconds.iter().find(|(known, _)| *known == stage).map_or(0.0, |&(_, seconds)| seconds)
    }

    pub(crate) fn sampled(&mut self, batch: &Batch, mut sampled: Metrics, mismatch_kl: f64, config: &Config) {
        rollout(&mut self.metrics, batch, config.rollout.max_response_tokens);
        if config.prompt.compact_after.is_some() {
            compactions(&mut self.metrics, batch);
        }
        self.metrics.0.append(&mut sampled.0);
        self.metrics.set("rollout/mismatch_kl", mismatch_kl);
    }

    pub(crate) fn credited(&mut self, batch: &Batch, shaped: &ShapedRewards, credited: &Credited) {
        if let Some(turns) = shaped.overlong_turns {
            self.metrics.set("rollout/overlong_turns", turns as f64);
        }
        let advantages = &credited.report.advantages;
        credit(&mut self.metrics, advantages);
        self.metrics.set("credit/same_outcome_frac", same_outcome_frac(batch, advantages));
        for (name, value) in &credited.report.diagnostics {
            // A diagnostic without a prefix could collide with keys such as `step`.
            let tag = if name.contains('/') { name.clone() } else { format!("credit/{name}") };
            self.metrics.set(&tag, *value);
        }
        if let (Some(values), Some(tokens)) = (&credited.values, &credited.report.tokens) {
            self.metrics.set("critic/explained_variance", explained_variance(values, &tokens.returns));
        }
    }

    pub(crate) fn prepared(&mut self, set: &TrainingSet<'_>, batch: &Batch) {
        if let Some(turns) = set.masked_too_long {
            self.metrics.set("outliers/masked_too_long", turns as f64);
        }
        if let Some(sums) = &set.corrected {
            for (tag, value) in [
                ("correction/kl", sums.mean(sums.kl)),
                ("correction/k3", sums.mean(sums.k3)),
                ("correction/weight/mean", sums.mean(sums.weight)),
                ("correction/weight/max", sums.largest),
                ("correction/cut_frac", sums.mean(sums.cut)),
                ("correction/effective_share", sums.effective_share()),
            ] {
                self.metrics.set(tag, value);
            }
        }
        if let Some(filtered) = set.filtered {
            let share = filtered as f64 / batch.trajectories().count().max(1) as f64;
            self.metrics.set("rollout/compact_filtered", share);
        }
    }

    pub(crate) fn updated(&mut self, report: &UpdateReport, mut decomposer: Metrics) {
        let seconds = self.seconds("update");
        updates(&mut self.metrics, report, seconds);
        if let Some(critic) = &report.critic {
            self.metrics.set("critic/loss", critic.loss);
            self.metrics.set("critic/clip_frac", critic.clip_fraction);
            self.metrics.set("critic/grad_norm", critic.grad_norm);
        }
        self.metrics.0.append(&mut decomposer.0);
    }

    pub(crate) fn finish(
        mut self,
        shaped: &ShapedRewards,
        loss: &Loss,
        state: &RunState,
        config: &Config,
    ) -> Metrics {
        if let Some(measured) = shaped.reference_kl {
            self.metrics.set("loss/reference_kl", measured);
        }
        // The selective term may add to the adapting coefficient.
        let kl_coef = loss.config().kl.coef;
        if kl_coef != 0.0 {
            self.metrics.set("train/kl_coef", kl_coef);
        }
        let per_step = (config.train.ppo_epochs * config.train.num_minibatches) as u64;
        let updates_done = (state.position.step + 1).saturating_sub(config.critic.warmup_steps) * per_step;
        let rate = schedule(config).learning_rate(updates_done.saturating_sub(1));
        self.metrics.set("train/learning_rate", rate);
        let mut total = 0.0;
        for (stage, seconds) in &self.seconds {
            self.metrics.set(&format!("perf/{stage}_s"), *seconds);
            total += seconds;
        }
        self.metrics.set("perf/step_s", total);
        self.metrics
    }
}

const MISMATCH_SAMPLE: usize = 4;

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Sets the rollout metrics, except success and rewards, which sampling measures over all groups.
fn rollout(metrics: &mut Metrics, batch: &Batch, longest: usize) {
    let trajectories = || batch.trajectories();
    let turns = || trajectories().flat_map(|trajectory| &trajectory.turns);
    let share = |flag: bool| f64::from(u8::from(flag));
    if batch.groups.is_empty() {
        return;
    }
    metrics.set("rollout/turns/mean", mean(trajectories().map(|trajectory| trajectory.actions() as f64)));
    metrics.set(
        "rollout/tokens/mean",
        mean(trajectories().map(|trajectory| trajectory.response_tokens() as f64)),
    );
    let longest_sequence = |trajectory: &Trajectory| {
        trajectory.sequences.iter().map(|sequence| sequence.tokens.len()).max().unwrap_or(0) as f64
    };
    metrics.set("rollout/context/mean", mean(trajectories().map(longest_sequence)));
    metrics.set("rollout/invalid_action_frac", mean(turns().map(|turn| share(!turn.valid))));
    metrics.set(
        "rollout/equal_return_frac",
        mean(batch.groups.iter().map(|group| share(group.has_equal_returns()))),
    );
    // A response below the limit ended by itself.
    let cut_off = |trajectory: &Trajectory, turn: &Turn| {
        let limit = trajectory.task.limits.response_tokens.map_or(longest, |limit| limit.min(longest));
        share(turn.response_ids.len() >= limit)
    };
    let cut_off = trajectories().flat_map(|trajectory| {
        let actions = trajectory.turns.iter().filter(|turn| !turn.is_compaction());
        actions.map(move |turn| cut_off(trajectory, turn))
    });
    metrics.set("rollout/truncated_rate", mean(cut_off));
    if let Some(rate) = inadmissible_rate(turns()) {
        metrics.set("rollout/inadmissible_rate", rate);
    }
    if turns().any(|turn| !turn.entropies.is_empty()) {
        let entropies = turns().flat_map(|turn| &turn.entropies);
        metrics.set("rollout/entropy", mean(entropies.map(|&entropy| f64::from(entropy))));
    }
    let names: BTreeSet<&String> = trajectories().flat_map(|trajectory| trajectory.metrics.keys()).collect();
    for name in names {
        let of = |trajectory: &Trajectory| trajectory.metrics.get(name).copied().unwrap_or(0.0);
        metrics.set(&format!("train/{name}"), mean(trajectories().map(of)));
    }
}

fn compactions(metrics: &mut Metrics, batch: &Batch) {
    if batch.groups.is_empty() {
        return;
    }
    let summaries =
        || batch.trajectories().flat_map(|trajectory| &trajectory.turns).filter(|turn| turn.is_compaction());
    let trajectories = batch.trajectories().count().max(1);
    metrics.set("rollout/compactions", summaries().count() as f64 / trajectories as f64);
    metrics.set("rollout/summary_tokens/mean", mean(summaries().map(|turn| turn.response_ids.len() as f64)));
}

fn credit(metrics: &mut Metrics, advantages: &PerTurn<f64>) {
    let all = || advantages.values().copied();
    let average = mean(all());
    metrics.set("credit/advantage/mean", average);
    metrics.set("credit/advantage/std", mean(all().map(|value| (value - average).powi(2))).sqrt());
    metrics.set(
        "credit/zero_advantage_group_frac",
        mean(
            advantages
                .groups()
                .map(|group| f64::from(u8::from(group.iter().flatten().all(|&value| value == 0.0)))),
        ),
    );
}

/// Returns the sum of the absolute advantages in groups with equal returns, as a fraction of the
/// sum over all groups. Advantages in groups with equal returns come from differences such as a
/// discount or an invalid-action penalty, so a high fraction means that the method amplifies these
/// differences.
fn same_outcome_frac(batch: &Batch, advantages: &PerTurn<f64>) -> f64 {
    let (mut same, mut all) = (0.0, 0.0);
    for (group, advantages) in batch.groups.iter().zip(advantages.groups()) {
        let size: f64 = advantages.iter().flatten().map(|value| value.abs()).sum();
        if group.has_equal_returns() {
            same += size;
        }
        all += size;
    }
    if all > 0.0 { same / all } else { 0.0 }
}

fn updates(metrics: &mut Metrics, report: &UpdateReport, seconds: f64) {
    let sums = &report.metrics;
    metrics.set("loss/total", report.loss);
    metrics.set("loss/policy", sums.policy_loss / (report.updates.max(1)) as f64);
    metrics.set("loss/kl", sums.kl_loss / (report.updates.max(1)) as f64);
    metrics.set("loss/entropy", sums.entropy_loss / (report.updates.max(1)) as f64);
    metrics.set("loss/clip_frac", report.share_of_tokens(sums.clipped_low + sums.clipped_high));
    metrics.set("loss/clip_frac_low", report.share_of_tokens(sums.clipped_low));
    metrics.set("loss/clip_frac_high", report.share_of_tokens(sums.clipped_high));
    metrics.set("loss/approx_kl", sums.mean(sums.approx_kl));
    metrics.set("loss/reference_kl", sums.mean(sums.reference_kl));
    if sums.masked_contexts > 0.0 {
        metrics.set("loss/masked_context", sums.masked_context_loss / (report.updates.max(1)) as f64);
        metrics.set("masked_context/kl", sums.masked_context_kl / sums.masked_contexts);
        metrics.set("masked_context/reference_kl", sums.masked_context_reference_kl / sums.masked_contexts);
    }
    for (tag, value) in &report.scaling {
        metrics.set(tag, *value);
    }
    metrics.set("loss/ratio/mean", sums.mean(sums.ratio));
    metrics.set("loss/log_ratio/max", sums.max_log_ratio);
    for (tokens, bound) in sums.log_ratio_above.iter().zip(LOG_RATIO_BOUNDS) {
        metrics.set(&format!("loss/log_ratio/above_{bound}"), sums.mean(*tokens));
    }
    metrics.set("loss/grad_norm", report.grad_norm);
    metrics.set("train/updates", report.updates as f64);
    metrics.set("perf/train_tokens_per_s", report.tokens as f64 / seconds.max(1e-9));
    metrics.set("perf/tokens_computed", (report.tokens - report.shared_tokens) as f64);
    metrics.set("perf/tokens_saved", report.shared_tokens as f64);
}

/// Returns the KL (k3) between sampler and learner, measured on the first few trajectories. Sampler
/// and learner differ in numerics and, with `rollout.max_staleness`, in their weights.
pub(crate) fn mismatch(policy: &mut dyn PolicyLearner, batch: &Batch) -> Result<f64, TrainError> {
    let mut sequences: Vec<&TokenSequence> = Vec::new();
    let mut sampled: Vec<Vec<f32>> = Vec::new();
    for trajectory in batch.trajectories().take(MISMATCH_SAMPLE) {
        for sequence in &trajectory.sequences {
            sampled.push(
                sequence
                    .spans
                    .iter()
                    .flat_map(|span| &trajectory.turns[span.turn].old_logprobs)
                    .copied()
                    .collect(),
            );
            sequences.push(sequence);
        }
    }
    let scored = policy.logprobs(&sequences)?;
    Ok(mean(sampled.iter().flatten().zip(scored.iter().flatten()).map(|(&old, &new)| {
        let log_ratio = f64::from(new) - f64::from(old);
        log_ratio.exp_m1() - log_ratio
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::{Group, Task, Turn};

    #[test]
    fn advantages_without_news_of_the_outcome_are_counted() {
        let trajectory = |reward: f64| {
            let turns = vec![Turn::default(), Turn { reward, ..Turn::default() }];
            Trajectory::new(Task::new("task", "kind", "goal"), turns)
        };
        let group = |rewards: [f64; 2]| Group { trajectories: rewards.map(trajectory).to_vec() };
        let batch = Batch { groups: vec![group([1.0, 0.0]), group([0.0, 0.0])] };
        let frac = |mixed: [f64; 2], same: [f64; 2]| {
            let mut advantages = PerTurn::default();
            for [early, late] in [mixed, same] {
                advantages.push(vec![vec![early, late], vec![-early, -late]]);
            }
            same_outcome_frac(&batch, &advantages)
        };
        assert_eq!(frac([1.0, 1.0], [0.0, 0.0]), 0.0);
        assert_eq!(frac([1.0, 2.0], [-0.5, 0.5]), 0.25);
        assert_eq!(frac([0.0, 0.0], [0.0, 0.0]), 0.0);
        let batch = Batch { groups: vec![group([0.3, 0.1 + 0.2])] };
        let mut advantages = PerTurn::default();
        advantages.push(vec![vec![0.0, 1.0], vec![0.0, -1.0]]);
        assert_eq!(same_outcome_frac(&batch, &advantages), 1.0);
    }
}
