//! Losses and gradients in `f64`.
//!
//! With trajectory weights `q_i`, `Q = sum q_i`, `w = softmax(a)`, `Rhat_i = sum_t w_it V_it`:
//!
//! ```text
//! prediction = 1/Q sum_i q_i (Rhat_i - R_i)^2
//! rank       = sum_{R_i > R_j} q_i q_j max(0, margin - (Rhat_i - Rhat_j)) / sum_{R_i > R_j} q_i q_j
//! prior      = 1/Q sum_i q_i KL(w_i || p_i)      p_i = softmax of the progress changes, or of t/T
//! value      = sum_i q_i sum_{t in M_i} (V_it - g_it)^2 / sum_i q_i |M_i|
//! total      = prediction + rank_weight rank + progress_weight prior + value_weight value
//! ```
//!
//! `M_i` are the turns of trajectory `i` with a progress signal. If any turn lacks a progress
//! signal, the prior uses `t/T` instead (`t` from 1).

use serde::{Deserialize, Serialize};

use super::{Sample, TurnRdConfig, ValueTarget};

/// Loss terms, each a weighted mean over a minibatch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// `prediction + rank_weight rank + progress_weight prior + value_weight value`.
    pub total: f64,
    /// Mean squared error of the estimated return.
    pub prediction: f64,
    /// Rank hinge loss, before multiplication by `rank_weight`.
    pub rank: f64,
    /// KL divergence from the progress prior in nats, before multiplication by `progress_weight`.
    pub prior: f64,
    /// Mean squared error of values against progress, before multiplication by `value_weight`; 0
    /// without progress.
    pub value: f64,
}

impl Losses {
    pub(super) fn add(&mut self, other: &Self, share: f64) {
        self.total += share * other.total;
        self.prediction += share * other.prediction;
        self.rank += share * other.rank;
        self.prior += share * other.prior;
        self.value += share * other.value;
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Prediction {
    /// `ln w_t`.
    log_weights: Vec<f64>,
    /// `w_t`.
    pub(super) weights: Vec<f64>,
    /// `V_t`.
    pub(super) values: Vec<f64>,
    /// `Rhat`.
    pub(super) estimate: f64,
}

impl Prediction {
    pub(super) fn new(scores: impl Iterator<Item = f64>, values: impl Iterator<Item = f64>) -> Self {
        let log_weights = log_softmax(scores);
        let weights: Vec<f64> = log_weights.iter().map(|log| log.exp()).collect();
        let values: Vec<f64> = values.collect();
        let estimate = weights.iter().zip(&values).map(|(w, v)| w * v).sum();
        Self { log_weights, weights, values, estimate }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Derivatives {
    pub(super) scores: Vec<f64>,
    pub(super) values: Vec<f64>,
}

fn log_softmax(scores: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut scores: Vec<f64> = scores.collect();
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let log_sum = max + scores.iter().map(|score| (score - max).exp()).sum::<f64>().ln();
    for score in &mut scores {
        *score -= log_sum;
    }
    scores
}

/// Returns the change of progress at each turn; `None` for a turn if the progress before or after
/// it is unknown.
fn changes(progress: &[Option<f32>]) -> Vec<Option<f64>> {
    let mut before = Some(0.0f32);
    let change = |&now: &Option<f32>| {
        let change = before.zip(now).map(|(before, now)| f64::from(now) - f64::from(before));
        before = now;
        change
    };
    progress.iter().map(change).collect()
}

pub(super) fn value_targets(config: &TurnRdConfig, progress: &[Option<f32>]) -> Vec<Option<f64>> {
    match config.value_target {
        ValueTarget::Level => progress.iter().map(|level| level.map(f64::from)).collect(),
        ValueTarget::Change => changes(progress),
    }
}

fn log_prior(progress: &[Option<f32>], turns: usize) -> Vec<f64> {
    let known: Option<Vec<f64>> = changes(progress).into_iter().collect();
    match known.filter(|known| known.len() == turns) {
        Some(known) => log_softmax(known.into_iter()),
        None => log_softmax((1..=turns).map(|turn| turn as f64 / turns as f64)),
    }
}

pub(super) fn losses(
    config: &TurnRdConfig,
    predictions: &[Prediction],
    samples: &[Sample],
) -> (Losses, Vec<Derivatives>) {
    let mut losses = Losses::default();
    let total_weight: f64 = samples.iter().map(|sample| sample.weight).sum();
    let shares: Vec<f64> = samples.iter().map(|sample| sample.weight / total_weight).collect();
    let mut d_estimates = vec![0.0; samples.len()];
    for (((prediction, sample), share), d) in
        predictions.iter().zip(samples).zip(&shares).zip(&mut d_estimates)
    {
        let error = prediction.estimate - sample.ret;
        losses.prediction += share * error * error;
        *d = 2.0 * share * error;
    }
    rank(config, predictions, samples, &mut losses, &mut d_estimates);
    let targets: Vec<Vec<Option<f64>>> =
        samples.iter().map(|sample| value_targets(config, &sample.progress)).collect();
    let supervised: f64 = targets
        .iter()
        .zip(samples)
        .map(|(targets, sample)| sample.weight * targets.iter().flatten().count() as f64)
        .sum();
    let mut derivatives = Vec::with_capacity(samples.len());
    for (index, (prediction, sample)) in predictions.iter().zip(samples).enumerate() {
        let prior = log_prior(&sample.progress, prediction.weights.len());
        let mut d_weights: Vec<f64> =
            prediction.values.iter().map(|value| d_estimates[index] * value).collect();
        let mut d_values: Vec<f64> = prediction.weights.iter().map(|w| d_estimates[index] * w).collect();
        for (turn, d) in d_weights.iter_mut().enumerate() {
            let distance = prediction.log_weights[turn] - prior[turn];
            // A weight that underflowed to 0 contributes its limit, 0.
            losses.prior += shares[index] * prediction.weights[turn] * distance;
            *d += config.progress_weight * shares[index] * (distance + 1.0);
        }
        for ((d, &value), target) in d_values.iter_mut().zip(&prediction.values).zip(&targets[index]) {
            let Some(target) = target else { continue };
            let share = sample.weight / supervised;
            losses.value += share * (value - target) * (value - target);
            *d += config.value_weight * 2.0 * share * (value - target);
        }
        let pull: f64 = prediction.weights.iter().zip(&d_weights).map(|(w, d)| w * d).sum();
        let scores = prediction.weights.iter().zip(&d_weights).map(|(w, d)| w * (d - pull)).collect();
        derivatives.push(Derivatives { scores, values: d_values });
    }
    losses.total = losses.prediction
        + config.rank_weight * losses.rank
        + config.progress_weight * losses.prior
        + config.value_weight * losses.value;
    (losses, derivatives)
}

fn rank(
    config: &TurnRdConfig,
    predictions: &[Prediction],
    samples: &[Sample],
    losses: &mut Losses,
    d_estimates: &mut [f64],
) {
    let mut pairs = Vec::new();
    for (better, a) in samples.iter().enumerate() {
        for (worse, b) in samples.iter().enumerate() {
            // Rounding errors must not rank trajectories.
            if a.ret - b.ret > 1e-9 * (1.0 + a.ret.abs().max(b.ret.abs())) {
                pairs.push((better, worse, a.weight * b.weight));
            }
        }
    }
    let sum = |pairs: &[(usize, usize, f64)]| pairs.iter().map(|(.., weight)| weight).sum::<f64>();
    let mut total = sum(&pairs);
    if total == 0.0 {
        // Products of old records' weights underflow; only ratios matter.
        let largest = samples.iter().map(|sample| sample.weight).fold(f64::MIN_POSITIVE, f64::max);
        for (better, worse, weight) in &mut pairs {
            *weight = samples[*better].weight / largest * (samples[*worse].weight / largest);
        }
        total = sum(&pairs);
    }
    for (better, worse, weight) in pairs {
        let short = config.rank_margin - (predictions[better].estimate - predictions[worse].estimate);
        if short > 0.0 {
            let share = weight / total;
            losses.rank += share * short;
            d_estimates[better] -= config.rank_weight * share;
            d_estimates[worse] += config.rank_weight * share;
        }
    }
}
