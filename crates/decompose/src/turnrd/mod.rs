//! TurnRD: a small network that learns which turns earned the return of a trajectory.
//!
//! | file | subject |
//! |---|---|
//! | `checkpoint.rs` | checkpoints of the network |
//! | `config.rs` | settings |
//! | `layout.rs` | tensors in the flat parameter buffer, and their initialization |
//! | `loss.rs` | losses and their gradients |
//! | `model.rs` | training, credits and goodness of fit |
//! | `network.rs` | forward and backward pass over packed trajectories |
//! | `ops.rs` | GELU, attention, dropout |
//! | `pass.rs` | selection and weights of the samples in a pass |
//! | `probes.rs` | probes of the paper's section 5.2 |
//! | `replay/` | file with training trajectories |
//! | `sample.rs` | training data |
//!
//! Inputs are one vector per turn, `h_1 .. h_T` (the policy's mean-pooled hidden state), and one
//! vector for the goal. All have width `D`. With `H` the hidden width:
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
//! sum to the return `R`. The setting `credits` can also shift the values in proportion to `w_t`,
//! or use `w_t R`.
//!
//! Trajectories of different lengths are concatenated without padding. [`TurnRd::credits`] runs one
//! trajectory at a time, so its credits do not depend on other trajectories.
//!
//! Paper: "Hybrid Advantage Shaping with Goal-Aware Attention for Per-Turn Credit Assignment in
//! LLM-Agent Reinforcement Learning", section 3.3 and appendix B.
//!
//! Differs from the paper:
//!
//! * Credits are `w_t R` by default. Equation 5 subtracts the same amount from every turn: the
//!   excess of the values over the return. Early turns therefore get less credit in successes than
//!   in failures.
//! * Each pass reads all new records and half as many old ones, and a round can stop early
//!   (`pass.rs`).
//! * FiLM is `h (1 + gamma) + beta` instead of `gamma h + beta`, so that a zero projector is the
//!   identity, as the paper requires.
//! * Details missing from the paper follow PyTorch's `TransformerEncoderLayer`: layer norm has
//!   epsilon 1e-5, and dropout is applied after attention, inside the feed-forward layer and after
//!   it. Two details differ: GELU uses the tanh approximation, and attention probabilities have no
//!   dropout.
//! * The paper names ALFWorld's progress signal "facts-diff (per-turn)" (table 6) but gives no
//!   equation. By default, values are trained to predict progress after the turn. With
//!   `value_target = "change"`, they predict the change in progress.

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
