//! Scores of a method's advantages `x` against the estimates `y` of `A*`; each turn counts once.
//!
//! * Pearson's and Spearman's correlation, over all turns and **within trajectories** (after
//!   subtracting the trajectory's mean). The correlations within trajectories are undefined for
//!   methods that give all turns of a trajectory the same advantage (GRPO, RLOO).
//! * Corrected correlations are divided by the square root of the truth's reliability,
//!   `2 r / (1 + r)` (Spearman 1910, Brown 1910). `r` is the correlation of the two half estimates
//!   of `A*` or, for Spearman's correlation, of their ranks.
//! * Signs: the fraction of turns with the same sign of `x` and `y`, among those with `|y|` above
//!   twice its standard error; a turn with `x = 0` counts as half correct.
//! * Slope of the regression of `y` on `x`; noise in the truth does not bias this slope.
//! * Noise: the fraction of the variance of `x` that `A*` does not explain, `1 - r_c^2` with the
//!   corrected correlation `r_c`.
//! * Errors by turn index and outcome: the square root of the mean of `(b x - y)^2 - e^2`, divided
//!   by that of `y^2 - e^2`. `b` is the factor that fits `b x` to `y` over all turns by least
//!   squares, and `e` the standard error of `y`. The error is 0 for the truth itself and 1 for a
//!   method that gives no credit.
//!
//! Intervals are bootstrap percentiles over tasks, because a task's turns are dependent.

use serde::Serialize;

use crate::bootstrap::{Bootstrap, Estimate};
use crate::correlation::{Ranking, Sums, spearman};
use crate::turns::{ScoredTurn, ScoredTurns};

/// Scoring settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoreSettings {
    /// Resamples and seed.
    pub bootstrap: Bootstrap,
    /// Minimum distance of `A*` from 0 for its sign to count, in standard errors.
    pub sign_errors: f64,
}

impl Default for ScoreSettings {
    fn default() -> Self {
        Self { bootstrap: Bootstrap { resamples: 1000, seed: 0 }, sign_errors: 2.0 }
    }
}

/// Continuations from which the true advantages are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// All continuations.
    All,
    /// The second half of the continuations, to score advantages computed from the first half.
    SecondHalf,
}

/// Error on a subset of turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartError {
    /// Subset: `turn 1`, `turns 3-4`, `solved`, ...
    pub part: String,
    /// Number of turns in the subset.
    pub turns: usize,
    /// Root mean square of `A*`, corrected for noise.
    pub truth: f64,
    /// Error relative to `truth`; `None` if the truth is only noise.
    pub error: Option<f64>,
}

/// A method's scores; a score is `None` if it is undefined, such as a correlation with a constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodScore {
    /// Method name.
    pub name: String,
    /// Pearson's correlation over all turns.
    pub pearson: Option<Estimate>,
    /// Pearson's correlation over all turns, corrected for noise.
    pub pearson_corrected: Option<Estimate>,
    /// Spearman's correlation over all turns.
    pub spearman: Option<Estimate>,
    /// Spearman's correlation over all turns, corrected for noise.
    pub spearman_corrected: Option<Estimate>,
    /// Pearson's correlation within trajectories.
    pub within: Option<Estimate>,
    /// Pearson's correlation within trajectories, corrected for noise.
    pub within_corrected: Option<Estimate>,
    /// Spearman's correlation within trajectories.
    pub within_spearman: Option<Estimate>,
    /// Spearman's correlation within trajectories, corrected for noise.
    pub within_spearman_corrected: Option<Estimate>,
    /// Fraction of correct signs.
    pub signs: Option<Estimate>,
    /// Number of turns that `signs` counts: those whose `A*` is far enough from 0.
    pub signed_turns: usize,
    /// Slope of the regression of `A*` on the method's advantage.
    pub slope: Option<Estimate>,
    /// Fraction of the advantages' variance that `A*` does not explain.
    pub noise: Option<f64>,
    /// Errors on subsets of the turns, by turn index and by outcome.
    pub errors: Vec<PartError>,
}

/// Summary of the true advantages and their noise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TruthSummary {
    /// Number of tasks.
    pub tasks: usize,
    /// Number of trajectories.
    pub trajectories: usize,
    /// Fraction of solved trajectories.
    pub solved: f64,
    /// Number of turns with a true advantage.
    pub turns: usize,
    /// Mean number of continuations per state.
    pub continuations: f64,
    /// Standard deviation of the estimates of `A*`, noise included.
    pub deviation: f64,
    /// Root mean square of the standard errors of `A*`.
    pub error: f64,
    /// Reliability over all turns: the fraction of the estimates' variance that is not noise.
    pub reliability: Option<Estimate>,
    /// Reliability within trajectories.
    pub within_reliability: Option<Estimate>,
}

type ByTask = Vec<Sums>;

fn drawn(by_task: &ByTask, tasks: &[usize]) -> Sums {
    let mut sums = Sums::default();
    for &task in tasks {
        sums.add_sums(&by_task[task], 1.0);
    }
    sums
}

fn sums_by_task(turns: &ScoredTurns, x: &[f64], y: &[f64]) -> ByTask {
    let mut sums = vec![Sums::default(); turns.tasks];
    for (turn, (x, y)) in turns.turns.iter().zip(x.iter().zip(y)) {
        sums[turn.task].add(*x, *y, 1.0);
    }
    sums
}

/// Subtracts each trajectory's mean from `values` and sets rounding errors to 0.
fn within(turns: &[ScoredTurn], values: &[f64]) -> Vec<f64> {
    let mut centred = Vec::with_capacity(values.len());
    let mut rest = values;
    for members in turns.chunk_by(|a, b| a.trajectory == b.trajectory) {
        let (own, after) = rest.split_at(members.len());
        rest = after;
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let largest = own.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let less = own.iter().map(|value| value - mean);
        centred.extend(less.map(|value| if value.abs() > 1e-12 * largest { value } else { 0.0 }));
    }
    centred
}

fn reliability(r: f64, against: Against) -> Option<f64> {
    match against {
        Against::All => (r > -1.0).then(|| 2.0 * r / (1.0 + r)),
        Against::SecondHalf => Some(r),
    }
}

/// Corrects a correlation for noise; `halves` is the correlation of the two half estimates.
fn without_noise(r: Option<f64>, halves: Option<f64>, against: Against) -> Option<f64> {
    let reliability = reliability(halves?, against).filter(|reliability| *reliability > 0.0)?;
    Some(r? / reliability.sqrt())
}

/// Returns a statistic over all tasks with its bootstrap interval; undefined resamples count as 0.
pub fn estimate(
    settings: &ScoreSettings,
    tasks: usize,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<Estimate> {
    let all: Vec<usize> = (0..tasks).collect();
    let value = statistic(&all)?;
    let interval = settings
        .bootstrap
        .interval_of_runs(&[tasks], |drawn| drawn.first().and_then(|drawn| statistic(drawn)).unwrap_or(0.0));
    Some(Estimate { value, interval })
}

struct Ranks([Ranking; 4]);

impl Ranks {
    fn new(lists: [&[f64]; 4]) -> Self {
        Self(lists.map(Ranking::new))
    }

    fn correlations(
        &self,
        settings: &ScoreSettings,
        turns: &ScoredTurns,
        against: Against,
    ) -> [Option<Estimate>; 2] {
        let [x, y, first, second] = &self.0;
        let of = |drawn: &[usize], a: &Ranking, b: &Ranking| {
            let mut count = vec![0.0; turns.tasks];
            for &task in drawn {
                count[task] += 1.0;
            }
            spearman(a, b, |index| count[turns.turns[index].task])
        };
        [
            estimate(settings, turns.tasks, |drawn| of(drawn, x, y)),
            estimate(settings, turns.tasks, |drawn| {
                without_noise(of(drawn, x, y), of(drawn, first, second), against)
            }),
        ]
    }
}

/// Sums per task, from which the correlations and signs of any resample are computed.
pub struct Compared {
    against: Against,
    tasks: usize,
    pairs: ByTask,
    pairs_within: ByTask,
    halves: ByTask,
    halves_within: ByTask,
    signs: ByTask,
    signed_turns: usize,
}

impl Compared {
    /// Compares a method's advantages, one per scored turn, with the true advantages.
    pub fn new(turns: &ScoredTurns, advantages: &[f64], against: Against, settings: &ScoreSettings) -> Self {
        let Truth { values, errors, halves: [first, second] } = Truth::of(turns, against);
        let inside = |values: &[f64]| within(&turns.turns, values);
        let (signs, signed_turns) = signs(turns, advantages, &values, &errors, settings.sign_errors);
        Self {
            against,
            tasks: turns.tasks,
            pairs: sums_by_task(turns, advantages, &values),
            pairs_within: sums_by_task(turns, &inside(advantages), &inside(&values)),
            halves: sums_by_task(turns, &first, &second),
            halves_within: sums_by_task(turns, &inside(&first), &inside(&second)),
            signs,
            signed_turns,
        }
    }

    /// Returns the number of tasks.
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Returns Pearson's correlation over drawn tasks.
    pub fn pearson(&self, tasks: &[usize]) -> Option<f64> {
        drawn(&self.pairs, tasks).pearson()
    }

    /// Returns noise-corrected [`Self::pearson`].
    pub fn pearson_corrected(&self, tasks: &[usize]) -> Option<f64> {
        without_noise(self.pearson(tasks), drawn(&self.halves, tasks).pearson(), self.against)
    }

    /// Returns Pearson's correlation within trajectories over drawn tasks.
    pub fn within(&self, tasks: &[usize]) -> Option<f64> {
        drawn(&self.pairs_within, tasks).pearson()
    }

    /// Returns noise-corrected [`Self::within`].
    pub fn within_corrected(&self, tasks: &[usize]) -> Option<f64> {
        without_noise(self.within(tasks), drawn(&self.halves_within, tasks).pearson(), self.against)
    }

    /// Returns the fraction of correct signs over drawn tasks.
    pub fn signs(&self, tasks: &[usize]) -> Option<f64> {
        let sums = drawn(&self.signs, tasks);
        (sums.n > 0.0).then(|| sums.x / sums.n)
    }

    fn slope(&self, tasks: &[usize]) -> Option<f64> {
        drawn(&self.pairs, tasks).slope()
    }
}

struct Truth {
    values: Vec<f64>,
    errors: Vec<f64>,
    halves: [Vec<f64>; 2],
}

impl Truth {
    fn of(turns: &ScoredTurns, against: Against) -> Self {
        let (values, errors) = match against {
            Against::All => turns.turns.iter().map(|turn| (turn.truth, turn.error)).unzip(),
            Against::SecondHalf => {
                turns.turns.iter().map(|turn| (turn.halves[1], turn.error * 2.0_f64.sqrt())).unzip()
            }
        };
        let halves = [0, 1].map(|half| turns.turns.iter().map(|turn| turn.halves[half]).collect());
        Self { values, errors, halves }
    }
}

/// Scores a method's advantages, one per scored turn.
pub fn score(
    name: &str,
    turns: &ScoredTurns,
    advantages: &[f64],
    against: Against,
    settings: &ScoreSettings,
) -> MethodScore {
    let compared = Compared::new(turns, advantages, against, settings);
    let Truth { values, errors, halves: [first, second] } = Truth::of(turns, against);
    let inside = |values: &[f64]| within(&turns.turns, values);
    let ranks = Ranks::new([advantages, &values, &first, &second]);
    let ranks_within = [advantages, &values, &first, &second].map(inside);
    let ranks_within = Ranks::new(ranks_within.each_ref().map(Vec::as_slice));
    let [spearman, spearman_corrected] = ranks.correlations(settings, turns, against);
    let [within_spearman, within_spearman_corrected] = ranks_within.correlations(settings, turns, against);
    let of = |statistic: fn(&Compared, &[usize]) -> Option<f64>| {
        estimate(settings, turns.tasks, |tasks| statistic(&compared, tasks))
    };
    let pearson_corrected = of(Compared::pearson_corrected);
    MethodScore {
        name: name.to_owned(),
        pearson: of(Compared::pearson),
        noise: pearson_corrected.map(|r| (1.0 - r.value * r.value).max(0.0)),
        pearson_corrected,
        spearman,
        spearman_corrected,
        within: of(Compared::within),
        within_corrected: of(Compared::within_corrected),
        within_spearman,
        within_spearman_corrected,
        signs: of(Compared::signs),
        signed_turns: compared.signed_turns,
        slope: of(Compared::slope),
        errors: part_errors(turns, advantages, &values, &errors),
    }
}

/// Returns, for each task, the number `n` of turns whose sign counts and the number `x` of correct
/// signs, and the total of `n` over all tasks.
fn signs(
    turns: &ScoredTurns,
    advantages: &[f64],
    truth: &[f64],
    errors: &[f64],
    sign_errors: f64,
) -> (ByTask, usize) {
    let mut found = vec![Sums::default(); turns.tasks];
    let mut count = 0;
    for (index, turn) in turns.turns.iter().enumerate() {
        let (x, y) = (advantages[index], truth[index]);
        if y.abs() <= sign_errors * errors[index] || y == 0.0 {
            continue;
        }
        count += 1;
        let right = match x * y.signum() {
            agreement if agreement > 0.0 => 1.0,
            agreement if agreement < 0.0 => 0.0,
            _ => 0.5,
        };
        found[turn.task].add(right, 0.0, 1.0);
    }
    (found, count)
}

/// First and last turn number of each error subset, counted from 1.
const PLACES: [(usize, usize); 6] = [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, usize::MAX)];

fn part_errors(turns: &ScoredTurns, advantages: &[f64], truth: &[f64], errors: &[f64]) -> Vec<PartError> {
    let all = advantages.iter().zip(truth);
    let (xx, xy) = all.fold((0.0, 0.0), |(xx, xy), (x, y)| (xx + x * x, xy + x * y));
    let factor = if xx > 0.0 { xy / xx } else { 0.0 };
    let part = |name: String, is_in: &dyn Fn(&ScoredTurn) -> bool| {
        let (mut count, mut of_truth, mut of_method) = (0, 0.0, 0.0);
        for (index, _) in turns.turns.iter().enumerate().filter(|(_, turn)| is_in(turn)) {
            let (y, noise) = (truth[index], errors[index] * errors[index]);
            count += 1;
            of_truth += y * y - noise;
            of_method += (factor * advantages[index] - y).powi(2) - noise;
        }
        let mean = of_truth / f64::from(count).max(1.0);
        PartError {
            part: name,
            turns: count as usize,
            truth: mean.max(0.0).sqrt(),
            error: (of_truth > 0.0).then(|| (of_method / of_truth).max(0.0).sqrt()),
        }
    };
    let place = |&(first, last): &(usize, usize)| {
        let name = match last {
            _ if first == last => format!("turn {first}"),
            usize::MAX => format!("turns {first} and later"),
            _ => format!("turns {first} to {last}"),
        };
        part(name, &|turn| (first..=last).contains(&(turn.place[3] + 1)))
    };
    let mut parts: Vec<PartError> = PLACES.iter().map(place).collect();
    parts.push(part("solved".into(), &|turn| turn.success));
    parts.push(part("not solved".into(), &|turn| !turn.success));
    parts.retain(|part| part.turns > 0);
    parts
}

/// Summarizes the true advantages of a data set.
pub fn summarise(turns: &ScoredTurns, settings: &ScoreSettings) -> TruthSummary {
    let of = |number: &dyn Fn(&ScoredTurn) -> f64| turns.turns.iter().map(number).collect::<Vec<f64>>();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let truth = of(&|turn| turn.truth);
    let centre = mean(&truth);
    let deviation = mean(&truth.iter().map(|value| (value - centre).powi(2)).collect::<Vec<_>>()).sqrt();
    let (first, second) = (of(&|turn| turn.halves[0]), of(&|turn| turn.halves[1]));
    let halves = sums_by_task(turns, &first, &second);
    let inside = |values: &[f64]| within(&turns.turns, values);
    let halves_within = sums_by_task(turns, &inside(&first), &inside(&second));
    let reliability_of = |halves: &ByTask| {
        estimate(settings, turns.tasks, |tasks| reliability(drawn(halves, tasks).pearson()?, Against::All))
    };
    TruthSummary {
        tasks: turns.tasks,
        trajectories: turns.trajectories,
        solved: turns.solved as f64 / turns.trajectories.max(1) as f64,
        turns: turns.turns.len(),
        continuations: mean(&of(&|turn| turn.k as f64)),
        deviation,
        error: mean(&of(&|turn| turn.error * turn.error)).sqrt(),
        reliability: reliability_of(&halves),
        within_reliability: reliability_of(&halves_within),
    }
}

#[cfg(test)]
mod tests;
