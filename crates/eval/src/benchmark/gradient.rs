//! Compares the policy gradient of a method's advantages with the policy gradient of the true
//! advantages.
//!
//! A task's gradient is `g = sum_t A_t grad log pi(a_t | s_t)` over its turns, at the sampling
//! temperature; `g_i` is computed with the method's advantages, `h_i` with `A*`. Means are over
//! tasks or pairs of different tasks:
//!
//! * **cosine**: `<g, h> / (|g| |h|)` of the sums over all tasks. Noise in `A*` makes `|h|` larger;
//!   the *corrected* cosine therefore replaces `|h|^2` by `<h', h''>`, where `h'` and `h''` use the
//!   two half estimates of `A*`.
//! * **signal**: `mean_{i != j} <g_i, g_j> / mean_i |g_i|^2`, the share of a task's gradient that
//!   tasks have in common. The inverse of this share is about the number of tasks at which a mean
//!   gradient has as much signal as noise.
//! * **ascent**: `mean_{i != j} <g_i, h_j> / sqrt(mean_{i != j} <h_i, h_j> E|g|^2)`, where `g` in
//!   `E|g|^2` is the mean over `n` tasks. The ascent is the expected cosine of one step with the
//!   true gradient of the whole distribution. The ascent is `None` if the 95 % interval of the mean
//!   of `<h_i, h_j>` contains 0, because the true gradient is then unknown.

use serde::Serialize;
use turnwise_benchmark::difference::less;
use turnwise_benchmark::{Estimate, ScoreSettings, ScoredTurns, estimate};
use turnwise_core::{
    Learner as _, Objective, ObjectiveError, TokenBatch, TokenGradients, TokenSequence, TokenStatistics,
};
use turnwise_model::NativeLearner;
use turnwise_train::TrainError;

use crate::EvalError;

/// A method's gradient compared with the true gradient.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradientScore {
    /// Method name.
    pub name: String,
    /// Cosine of the method's gradient and the true gradient on the same turns.
    pub cosine: Option<Estimate>,
    /// Cosine, corrected for noise in the true advantages.
    pub corrected: Option<Estimate>,
    /// Share of a task's gradient that tasks have in common.
    pub signal: Option<Estimate>,
    /// Expected cosine of one step with the true gradient, if known.
    pub ascent: Option<Estimate>,
}

/// Differences between a method's and a baseline's scores on the same tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GradientDifference {
    /// Method name.
    pub name: String,
    /// Baseline name.
    pub baseline: String,
    /// Difference of the cosines.
    pub cosine: Option<Estimate>,
    /// Difference of the corrected cosines.
    pub corrected: Option<Estimate>,
    /// Difference of the ascents.
    pub ascent: Option<Estimate>,
}

/// Sequences of one task, with the index of the scored turn of each span.
type ScoredSequences<'a> = Vec<(&'a TokenSequence, Vec<Option<usize>>)>;

/// Computes task gradients for one policy.
pub struct Gradients<'a> {
    learner: NativeLearner,
    tasks: Vec<ScoredSequences<'a>>,
    halves: [Vec<Vec<f32>>; 2],
}

impl<'a> Gradients<'a> {
    /// Computes the gradients of the true advantages.
    ///
    /// # Errors
    /// Fails if a trajectory has no tokens, or if its tokens are those of another policy.
    pub fn new(learner: NativeLearner, turns: &'a ScoredTurns) -> Result<Self, EvalError> {
        let mut tasks = vec![Vec::new(); turns.tasks];
        let mut scored = turns.turns.iter().enumerate().peekable();
        while let Some(&(_, first)) = scored.peek() {
            let [batch, group, member, _] = first.place;
            let trajectory = &turns.batches[batch].1.groups[group].trajectories[member];
            let mut places = vec![None; trajectory.turns.len()];
            while let Some((index, turn)) = scored.next_if(|(_, turn)| turn.trajectory == first.trajectory) {
                places[turn.place[3]] = Some(index);
            }
            if trajectory.sequences.is_empty() {
                let reason = format!("{}: the trajectory has no tokens", trajectory.task.id);
                return Err(TrainError::Config { origin: "truth".into(), reason }.into());
            }
            for sequence in &trajectory.sequences {
                let of_spans = sequence.spans.iter().map(|span| places.get(span.turn).copied().flatten());
                tasks[first.task].push((sequence, of_spans.collect()));
            }
        }
        let mut gradients = Self { learner, tasks, halves: [Vec::new(), Vec::new()] };
        for half in [0, 1] {
            let advantages: Vec<f64> = turns.turns.iter().map(|turn| turn.halves[half]).collect();
            gradients.halves[half] = gradients.of(&advantages)?;
        }
        Ok(gradients)
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.learner.trained_len()
    }

    fn of(&mut self, advantages: &[f64]) -> Result<Vec<Vec<f32>>, EvalError> {
        let mut found = Vec::with_capacity(self.tasks.len());
        for sequences in &self.tasks {
            self.learner.take_gradient();
            let weights = sequences.iter().map(|(sequence, places)| {
                let of_span = |(span, place): (&turnwise_core::TurnSpan, &Option<usize>)| {
                    vec![place.map_or(0.0, |place| advantages[place] as f32); span.len()]
                };
                sequence.spans.iter().zip(places).flat_map(of_span).collect()
            });
            let objective = Weighted(weights.collect());
            if !sequences.is_empty() {
                let tokens = TokenBatch::of(sequences.iter().map(|(sequence, _)| *sequence));
                self.learner.forward_backward(&tokens, &objective).map_err(TrainError::from)?;
            }
            found.push(self.learner.gradient());
        }
        Ok(found)
    }

    /// Returns the inner products of a method's gradients with the true gradients, given one
    /// advantage per turn.
    ///
    /// # Errors
    /// Returns errors of the learner.
    pub fn products(&mut self, advantages: &[f64]) -> Result<Products, EvalError> {
        let own = self.of(advantages)?;
        Ok(Products::new(&own, &self.halves))
    }
}

/// The loss `-sum_t w_t log pi_t`.
struct Weighted(Vec<Vec<f32>>);

impl Objective for Weighted {
    fn evaluate(
        &self,
        sequence: usize,
        tokens: TokenStatistics<'_>,
    ) -> Result<TokenGradients, ObjectiveError> {
        let weights = &self.0[sequence];
        let loss = weights.iter().zip(tokens.logprobs);
        let loss = -loss.map(|(weight, logprob)| f64::from(*weight) * f64::from(*logprob)).sum::<f64>();
        let d_logprobs = weights.iter().map(|weight| -weight).collect();
        Ok(TokenGradients { loss, d_logprobs, ..TokenGradients::default() })
    }
}

/// Inner products `[i][j]` of task `i`'s first gradient and task `j`'s second gradient.
type Matrix = Vec<Vec<f64>>;

fn products(first: &[Vec<f32>], second: &[Vec<f32>]) -> Matrix {
    let product = |a: &[f32], b: &[f32]| {
        // Millions of products lose digits in f32 and are slow in f64.
        let piece = |(a, b): (&[f32], &[f32])| f64::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>());
        a.chunks(256).zip(b.chunks(256)).map(piece).sum::<f64>()
    };
    first.iter().map(|a| second.iter().map(|b| product(a, b)).collect()).collect()
}

/// Inner products of task gradients, from which the scores of any resampled tasks are computed.
pub struct Products {
    own: Matrix,
    with_truth: Matrix,
    truth: Matrix,
    halves: Matrix,
}

impl Products {
    fn new(own: &[Vec<f32>], halves: &[Vec<Vec<f32>>; 2]) -> Self {
        let mean = |a: &Vec<f32>, b: &Vec<f32>| a.iter().zip(b).map(|(a, b)| f32::midpoint(*a, *b)).collect();
        let truth: Vec<Vec<f32>> = halves[0].iter().zip(&halves[1]).map(|(a, b)| mean(a, b)).collect();
        Self {
            own: products(own, own),
            with_truth: products(own, &truth),
            truth: products(&truth, &truth),
            halves: products(&halves[0], &halves[1]),
        }
    }

    fn cosine(&self, drawn: &[usize]) -> Option<f64> {
        over(whole(&self.with_truth, drawn), whole(&self.own, drawn) * whole(&self.truth, drawn))
    }

    fn corrected(&self, drawn: &[usize]) -> Option<f64> {
        over(whole(&self.with_truth, drawn), whole(&self.own, drawn) * whole(&self.halves, drawn))
    }

    fn signal(&self, drawn: &[usize]) -> Option<f64> {
        let (same, different) = means(&self.own, drawn)?;
        (same > 0.0).then(|| different / same)
    }

    fn ascent(&self, drawn: &[usize], n: f64) -> Option<f64> {
        let (same, different) = means(&self.own, drawn)?;
        let square = same / n + (1.0 - 1.0 / n) * different;
        over(means(&self.with_truth, drawn)?.1, means(&self.truth, drawn)?.1 * square)
    }

    /// Returns true if the interval of the mean of `<h_i, h_j>` is above 0.
    fn knows_ascent(&self, settings: &ScoreSettings) -> bool {
        let common = estimate(settings, self.own.len(), |drawn| Some(means(&self.truth, drawn)?.1));
        common.is_some_and(|common| common.interval.is_none_or(|interval| interval.low > 0.0))
    }

    /// Scores the method, assuming that a training step averages over `tasks_per_step` tasks.
    pub fn score(&self, name: &str, tasks_per_step: usize, settings: &ScoreSettings) -> GradientScore {
        let of = |statistic: &dyn Fn(&[usize]) -> Option<f64>| {
            estimate(settings, self.own.len(), |drawn| statistic(drawn))
        };
        let knows_ascent = self.knows_ascent(settings);
        GradientScore {
            name: name.to_owned(),
            cosine: of(&|drawn| self.cosine(drawn)),
            corrected: of(&|drawn| self.corrected(drawn)),
            signal: of(&|drawn| self.signal(drawn)),
            ascent: knows_ascent.then(|| of(&|drawn| self.ascent(drawn, tasks_per_step as f64))).flatten(),
        }
    }

    /// Compares the method with a baseline on the same tasks.
    pub fn difference(
        &self,
        name: &str,
        (baseline, base): (&str, &Self),
        tasks_per_step: usize,
        settings: &ScoreSettings,
    ) -> GradientDifference {
        let of = |statistic: &dyn Fn(&Self, &[usize]) -> Option<f64>| {
            estimate(settings, self.own.len(), |drawn| less(statistic(self, drawn), statistic(base, drawn)))
        };
        let knows_ascent = self.knows_ascent(settings);
        let ascent = |products: &Self, drawn: &[usize]| products.ascent(drawn, tasks_per_step as f64);
        GradientDifference {
            name: name.to_owned(),
            baseline: baseline.to_owned(),
            cosine: of(&Self::cosine),
            corrected: of(&Self::corrected),
            ascent: knows_ascent.then(|| of(&ascent)).flatten(),
        }
    }
}

fn over(product: f64, squares: f64) -> Option<f64> {
    (squares > 0.0).then(|| product / squares.sqrt())
}

/// Returns the inner product of the two gradient sums over the drawn tasks.
fn whole(matrix: &Matrix, drawn: &[usize]) -> f64 {
    drawn.iter().flat_map(|&i| drawn.iter().map(move |&j| matrix[i][j])).sum()
}

/// Returns two mean inner products: of a task's two gradients, and of gradients of two different
/// tasks; `None` for fewer than two tasks.
fn means(matrix: &Matrix, drawn: &[usize]) -> Option<(f64, f64)> {
    let same = drawn.iter().map(|&i| matrix[i][i]).sum::<f64>() / drawn.len() as f64;
    let (mut sum, mut pairs) = (0.0, 0usize);
    for &i in drawn {
        // A task drawn twice is not a pair.
        for &j in drawn.iter().filter(|j| **j != i) {
            sum += matrix[i][j];
            pairs += 1;
        }
    }
    (pairs > 0).then(|| (same, sum / pairs as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: Option<Estimate>, expected: f64) -> bool {
        found.is_some_and(|found| (found.value - expected).abs() < 1e-6)
    }

    #[test]
    fn numbers_are_those_of_their_definitions() {
        let truth = [vec![vec![1.0, 0.0], vec![1.0, 2.0]], vec![vec![3.0, 0.0], vec![1.0, 0.0]]];
        let own = vec![vec![1.0, 1.0], vec![0.0, 1.0]];
        let products = Products::new(&own, &truth);
        let found = products.score("m", 4, &ScoreSettings::default());
        // g = (1, 2), h = (2, 0) + (1, 1) = (3, 1): 5 / sqrt(5 * 10).
        assert!(close(found.cosine, 5.0 / 50.0_f64.sqrt()), "{found:?}");
        // h' = (2, 2), h'' = (4, 0): 8.
        assert!(close(found.corrected, 5.0 / 40.0_f64.sqrt()), "{found:?}");
        // <g_1, g_2> = 1, |g_1|^2 = 2, |g_2|^2 = 1.
        assert!(close(found.signal, 1.0 / 1.5), "{found:?}");
        // <g_1, h_2> = 2, <g_2, h_1> = 0, <h_1, h_2> = 2; E|g|^2 = 1.5 / 4 + 3 / 4.
        let ascent = products.ascent(&[0, 1], 4.0).unwrap();
        assert!((ascent - 1.0 / (2.0 * 1.125_f64).sqrt()).abs() < 1e-6, "{ascent}");
        assert!(!close(found.cosine, 5.0 / 40.0_f64.sqrt()));
    }

    #[test]
    fn a_difference_is_of_the_same_drawn_tasks() {
        let truth = [vec![vec![1.0, 0.0], vec![1.0, 2.0]], vec![vec![3.0, 0.0], vec![1.0, 0.0]]];
        let of = |own: [[f32; 2]; 2]| Products::new(&own.map(Vec::from), &truth);
        let (method, base) = (of([[1.0, 1.0], [0.0, 1.0]]), of([[1.0, -1.0], [0.0, 1.0]]));
        let settings = ScoreSettings::default();
        let found = method.difference("m", ("b", &base), 4, &settings);
        let cosine = |products: &Products| products.score("x", 4, &settings).cosine.unwrap().value;
        assert!(close(found.cosine, cosine(&method) - cosine(&base)), "{found:?}");
        assert!(found.cosine.unwrap().value.abs() > 1e-3);
        // The second tasks are equal.
        assert!((method.cosine(&[1]).unwrap() - base.cosine(&[1]).unwrap()).abs() < 1e-12);
        let itself = base.difference("b", ("b", &base), 4, &settings);
        assert!(itself.cosine.unwrap().interval.unwrap().high.abs() < 1e-12);
    }

    #[test]
    fn ascent_needs_tasks_that_have_a_direction_in_common() {
        // Task k has (1, 0) and a large individual part.
        let rows = |own: f32| -> Vec<Vec<f32>> {
            let row = |task: usize| {
                let sign = if task.is_multiple_of(2) { own } else { -own };
                vec![1.0, sign * (1 + task) as f32]
            };
            (0..8).map(row).collect()
        };
        let of = |own| Products::new(&rows(own), &[rows(own), rows(own)]);
        let settings = ScoreSettings::default();
        assert!(of(0.01).score("m", 8, &settings).ascent.is_some());
        let noisy = of(1.0);
        assert_eq!(noisy.score("m", 8, &settings).ascent, None);
        assert_eq!(noisy.difference("m", ("m", &noisy), 8, &settings).ascent, None);
        assert!(noisy.score("m", 8, &settings).cosine.is_some());
    }

    #[test]
    fn the_truth_itself_has_a_cosine_of_one() {
        let half = vec![vec![1.0, -2.0, 0.5], vec![0.0, 1.0, 4.0], vec![1.0, 1.0, 1.0]];
        let truth = [half.clone(), half.clone()];
        let found = Products::new(&half, &truth).score("m", 8, &ScoreSettings::default());
        assert!(close(found.cosine, 1.0) && close(found.corrected, 1.0), "{found:?}");
        let against: Vec<Vec<f32>> =
            half.iter().map(|row| row.iter().map(|value| -value).collect()).collect();
        assert!(close(Products::new(&against, &truth).score("m", 8, &ScoreSettings::default()).cosine, -1.0));
        let nothing = vec![vec![0.0; 3]; 3];
        let found = Products::new(&nothing, &truth).score("m", 8, &ScoreSettings::default());
        assert_eq!((found.cosine, found.signal, found.ascent), (None, None, None));
    }
}
