//! Aggregates of runs with intervals over seeds, and paired tests of two methods.
//!
//! `scores[k][n]` is the score of run `n` on stratum `k` (a kind of task). Means and probability of
//! improvement follow `rliable` (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of
//! the Statistical Precipice", arXiv 2108.13264).

pub mod improvement;
pub mod iqm;
pub mod mcnemar;
pub mod pearson;
pub mod permutation;
pub mod student;

pub use improvement::probability_of_improvement;
pub use iqm::{iqm, mean, mean_of_strata};
pub use mcnemar::{McNemar, mcnemar};
pub use pearson::pearson;
pub use permutation::{PairedTest, paired_permutation};
pub use student::student;
/// Stratified bootstrap with percentile intervals.
pub use turnwise_benchmark::bootstrap;
pub use turnwise_benchmark::{Bootstrap, Interval, Strata, percentile};

#[cfg(test)]
mod golden;
