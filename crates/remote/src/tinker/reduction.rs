//! Measures how a service averages losses over tokens and sequences.
//!
//! With `T_i` weighted targets in sequence `i` of an update, the loss is
//!
//! ```text
//! sum                  L = sum_i sum_t l_it                         SkyRL on FSDP and Megatron, Tinker
//! seq-mean-batch-mean  L = 1/N sum_i 1/T_i sum_t l_it               SkyRL on JAX; N sequences since the last step
//! ```
//!
//! Turnwise's loss coefficients already include the averaging, so [`Reduction::factor`] undoes the
//! service's averaging.

use turnwise_train::config::ReductionSetting;

use super::client::{AdamParams, Client, RemoteModel};
use super::error::TinkerError;
use super::example::Example;
use super::passes::NamedLoss;

/// Number of tokens in the measured sequence. Their ids are 1, 2, and so on, which exist in every
/// model.
const TOKENS: u32 = 9;
/// Maximum relative deviation of a measured ratio of gradient norms from its predicted value.
const TOLERANCE: f64 = 0.02;

/// A service's averaging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    /// True if the loss is averaged over the weighted tokens of each sequence.
    pub sequence_mean: bool,
    /// True if the loss is averaged over all sequences sent since the last optimizer step.
    pub batch_mean: bool,
}

impl Reduction {
    /// No averaging.
    pub const SUM: Self = Self { sequence_mean: false, batch_mean: false };
    /// Averages over a sequence's tokens and over the sequences.
    pub(crate) const SEQ_MEAN_BATCH_MEAN: Self = Self { sequence_mean: true, batch_mean: true };

    /// Returns the configured reduction; `None` for `auto`.
    pub fn of(setting: ReductionSetting) -> Option<Self> {
        match setting {
            ReductionSetting::Auto => None,
            ReductionSetting::Sum => Some(Self::SUM),
            ReductionSetting::SeqMeanBatchMean => Some(Self::SEQ_MEAN_BATCH_MEAN),
        }
    }

    /// Returns the factor that undoes the averaging for a sequence with `counted` weighted tokens
    /// in an update of `sequences` sequences.
    pub fn factor(self, counted: f64, sequences: usize) -> f64 {
        let of_sequence = if self.sequence_mean { counted } else { 1.0 };
        let of_batch = if self.batch_mean { sequences as f64 } else { 1.0 };
        of_sequence * of_batch
    }

    /// Returns the name that notes and settings use for this reduction.
    pub fn name(self) -> &'static str {
        match (self.sequence_mean, self.batch_mean) {
            (false, false) => "sum",
            (true, true) => "seq-mean-batch-mean",
            (true, false) => "seq-mean-batch-sum",
            (false, true) => "token-sum-batch-mean",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Norms {
    /// Gradient norm if one token has a weight.
    one: f64,
    /// Gradient norm if all tokens have a weight.
    weighted: f64,
    /// Gradient norm if a second sequence, without gradient, is sent too.
    beside: f64,
    /// Gradient norm of the negated loss.
    turned: f64,
}

/// Measures the averaging with a temporary model whose weights stay constant.
///
/// Measures the norm of the gradient of one token's log-prob four times: with only this token
/// weighted (`a`), with all `T` targets of its sequence weighted (`b`), with a second sequence
/// (`c`), and with the loss negated (`d`). Depending on the averaging, the ratio `a/b` is 1 or `T`,
/// and `a/c` is 1 or 2; `a/d` must be 1.
///
/// # Errors
/// Fails if the service reports no gradient norms, or if they match no known reduction.
pub(crate) fn calibrate(client: &Client, base_model: &str, rank: usize) -> Result<Reduction, TinkerError> {
    let model = client.create_model(base_model, rank, 1)?;
    let measured = measure(client, &model);
    client.unload_model(&model)?;
    reduction_of(measured?, f64::from(TOKENS - 1))
}

fn measure(client: &Client, model: &RemoteModel) -> Result<Norms, TinkerError> {
    let tokens: Vec<u32> = (1..=TOKENS).collect();
    let targets = tokens.len() - 1;
    let all = Example { tokens, weights: vec![1.0; targets], logprobs: None, advantages: None };
    let logprobs = client.forward(model, std::slice::from_ref(&all))?.remove(0);
    let last = |value: f32| {
        let mut values = vec![0.0; targets];
        values[targets - 1] = value;
        values
    };
    let example = |weights: Vec<f32>, advantage: f32| Example {
        weights,
        logprobs: Some(logprobs.clone()),
        advantages: Some(last(advantage)),
        ..all.clone()
    };
    let norm = |examples: &[Example]| {
        client.forward_backward(model, &NamedLoss::plain("importance_sampling"), examples)?;
        client.optim_step(model, &AdamParams::still())?.ok_or_else(|| {
            TinkerError::Calibration(
                "it says no gradient norm after a step; set policy.learner.reduction to what its documentation says"
                    .into(),
            )
        })
    };
    Ok(Norms {
        one: norm(&[example(last(1.0), 1.0)])?,
        weighted: norm(&[example(vec![1.0; targets], 1.0)])?,
        beside: norm(&[example(last(1.0), 1.0), example(last(1.0), 0.0)])?,
        turned: norm(&[example(last(1.0), -1.0)])?,
    })
}

fn reduction_of(norms: Norms, tokens: f64) -> Result<Reduction, TinkerError> {
    let Norms { one, weighted, beside, turned } = norms;
    let fits = |ratio: f64, expected: f64| (ratio / expected - 1.0).abs() < TOLERANCE;
    let unknown = || {
        TinkerError::Calibration(format!(
            "the norms {one}, {weighted}, {beside} and {turned} fit no known reduction"
        ))
    };
    if !(one.is_finite() && one > 0.0 && fits(one / turned, 1.0)) {
        return Err(unknown());
    }
    let mean = |ratio: f64, count: f64| match (fits(ratio, 1.0), fits(ratio, count)) {
        (true, false) => Ok(false),
        (false, true) => Ok(true),
        _ => Err(unknown()),
    };
    Ok(Reduction { sequence_mean: mean(one / weighted, tokens)?, batch_mean: mean(one / beside, 2.0)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norms_say_which_means_are_taken() {
        let of = |weighted, beside, turned| reduction_of(Norms { one: 4.0, weighted, beside, turned }, 8.0);
        assert_eq!(of(4.0, 4.01, 4.0).unwrap(), Reduction::SUM);
        assert_eq!(of(0.5, 2.0, 4.0).unwrap(), Reduction::SEQ_MEAN_BATCH_MEAN);
        assert_eq!(of(0.5, 4.0, 4.0).unwrap().name(), "seq-mean-batch-sum");
        for (weighted, beside, turned) in [(4.0 / 7.0, 2.0, 4.0), (4.0, 4.0, 0.0), (f64::NAN, 4.0, 4.0)] {
            let error = of(weighted, beside, turned).unwrap_err().to_string();
            assert!(error.contains("fit no known reduction"), "{error}");
        }
        assert!(reduction_of(Norms { one: 0.0, weighted: 0.0, beside: 0.0, turned: 0.0 }, 8.0).is_err());
    }

    #[test]
    fn factors_undo_the_means() {
        assert_eq!(Reduction::SUM.factor(5.0, 3), 1.0);
        assert_eq!(Reduction::SEQ_MEAN_BATCH_MEAN.factor(5.0, 3), 15.0);
    }
}
