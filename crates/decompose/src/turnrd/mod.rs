//! TurnRD: a small network that learns which turns earned a trajectory's return.
//!
//! Inputs are one vector of width `D` per turn, `h_1 .. h_T` (the policy's mean-pooled hidden
//! state), and one for the goal. With hidden width `H`:
//!
//! ```text
//! x_t  = W h_t + b + p_t                                 learned positions, at most `max_turns`
//! x    = pre-norm transformer layers over all turns      bidirectional
//! z_t  = x_t (1 + gamma) + beta                          FiLM; [gamma, beta] = F goal + f, zero at the start
//! w    = softmax_t(attention head(z_t))                  V_t = value head(z_t)
//! Rhat = sum_t w_t V_t
//! ```
//!
//! Credits (HAS, equation 5): `r_t = clip(V_t, -c, c) - (sum_s clip(V_s, -c, c) - R) / T`, which
//! sum to the return `R`. The setting `credits` can instead shift the values in proportion to
//! `w_t`, or use `w_t R` as credits. Trajectories are concatenated without padding; their credits
//! are independent.
//!
//! Paper: "Hybrid Advantage Shaping with Goal-Aware Attention for Per-Turn Credit Assignment in
//! LLM-Agent Reinforcement Learning", section 3.3 and appendix B.
//!
//! Differs from the paper:
//!
//! * Credits are `w_t R` by default. Equation 5 subtracts the same share of the values' excess over
//!   the return from every turn, so early turns get less credit in successes than in failures.
//! * Each pass reads all new records and half as many old ones, and a round can stop early.
//! * FiLM is `h (1 + gamma) + beta` instead of `gamma h + beta`, so that a zero projector is the
//!   identity, as the paper requires.
//! * Unstated details follow PyTorch's `TransformerEncoderLayer` (layer norm epsilon 1e-5; dropout
//!   after attention, inside and after the feed-forward layer), except GELU's tanh approximation
//!   and no dropout on attention probabilities.
//! * The paper names ALFWorld's progress signal "facts-diff (per-turn)" (table 6) without an
//!   equation. Our values predict the progress after the turn or, with `value_target = "change"`,
//!   its change during the turn.

mod checkpoint;
mod config;
#[cfg(test)]
mod golden_tests;
mod layout;
mod loss;
mod model;
mod network;
mod ops;
mod pass;
mod probes;
mod replay;
mod sample;
#[cfg(test)]
mod tests;

pub use config::{CreditRule, InputNorm, TurnRdConfig, ValueTarget};
pub use loss::Losses;
pub use model::{Credits, EpochReport, Fit, TrainProgress, TrainReport, TurnRd};
pub use probes::{FilmNorms, FilmZeroed, GoalsShuffled};
pub use replay::{Replay, ReplayHealth, ReplayRecord, ReplayView};
pub use sample::{Sample, SampleSource};
