//! Inputs of one optimizer batch.

use std::sync::Arc;

use turnwise_core::{ObjectiveError, TurnSpan};

use crate::ObjectiveConfig;

/// Advantages of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Advantages {
    /// One advantage per turn span.
    PerSpan(Vec<f64>),
    /// One advantage per response token (token-level GAE).
    PerToken(Vec<f64>),
}

/// One sequence, whose per-token arrays have one entry per response token, in span order.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveSequence {
    /// Turn spans, as in [`turnwise_core::TokenSequence::spans`].
    pub spans: Vec<TurnSpan>,
    /// Log-probs under the sampling policy, in nats.
    pub old_logprobs: Vec<f32>,
    /// Log-probs under the reference policy, in nats
    /// ([`ObjectiveConfig::needs_reference_logprobs`]).
    pub ref_logprobs: Option<Vec<f32>>,
    /// Advantages of the tokens.
    pub advantages: Advantages,
    /// Whether the trajectory solved its task.
    pub success: bool,
    /// True for response tokens that count; if absent, all tokens count. Masked tokens affect
    /// neither the loss nor its means nor the ratios.
    pub mask: Option<Vec<bool>>,
}

impl ObjectiveSequence {
    /// Creates a sequence with one advantage per span, no reference and no mask.
    pub fn new(spans: Vec<TurnSpan>, old_logprobs: Vec<f32>, advantages: Vec<f64>) -> Self {
        Self {
            spans,
            old_logprobs,
            ref_logprobs: None,
            advantages: Advantages::PerSpan(advantages),
            success: false,
            mask: None,
        }
    }

    /// Returns the number of response tokens, masked ones included.
    pub fn response_tokens(&self) -> usize {
        self.spans.iter().map(TurnSpan::len).sum()
    }

    pub(crate) fn counts(&self, token: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[token])
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        self.spans.iter().scan(0, |start, span| {
            let range = *start..*start + span.len();
            *start = range.end;
            Some(range)
        })
    }

    pub(crate) fn token_advantages(&self) -> Vec<f64> {
        match &self.advantages {
            Advantages::PerToken(values) => values.clone(),
            Advantages::PerSpan(values) => {
                self.spans.iter().zip(values).flat_map(|(span, &value)| vec![value; span.len()]).collect()
            }
        }
    }

    fn check(&self, sequence: usize, config: &ObjectiveConfig) -> Result<(), ObjectiveError> {
        let tokens = self.response_tokens();
        let length = |what, found, expected| {
            if found == expected {
                Ok(())
            } else {
                Err(ObjectiveError::Length { sequence, what, found, expected })
            }
        };
        length("old_logprobs", self.old_logprobs.len(), tokens)?;
        let (what, found, expected) = match &self.advantages {
            Advantages::PerSpan(values) => ("advantages (one per span)", values.len(), self.spans.len()),
            Advantages::PerToken(values) => ("advantages (one per token)", values.len(), tokens),
        };
        length(what, found, expected)?;
        if let Some(mask) = &self.mask {
            length("mask", mask.len(), tokens)?;
        }
        if let Some(values) = &self.ref_logprobs {
            length("ref_logprobs", values.len(), tokens)?;
        } else if config.needs_reference_logprobs() {
            return Err(ObjectiveError::Setting(format!(
                "kl.coef is {}, so sequence {sequence} needs ref_logprobs; score the batch with the \
                 reference policy or set kl.coef = 0",
                config.kl.coef
            )));
        }
        let finite = |what, values: &mut dyn Iterator<Item = f64>| {
            for (token, value) in values.enumerate() {
                if self.counts(token) && !value.is_finite() {
                    return Err(ObjectiveError::NotFinite { sequence, token, what, value });
                }
            }
            Ok(())
        };
        finite("old_logprobs", &mut self.old_logprobs.iter().copied().map(f64::from))?;
        if let Some(values) = &self.ref_logprobs {
            finite("ref_logprobs", &mut values.iter().copied().map(f64::from))?;
        }
        finite("advantages", &mut self.token_advantages().into_iter())
    }
}

/// Sizes of the sequences without a gradient, which the learner skips but the loss's means count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Unmasked response tokens.
    pub tokens: usize,
    /// Number of sequences with unmasked tokens.
    pub sequences: usize,
    /// Number of turns with unmasked tokens.
    pub turns: usize,
}

impl LeftOut {
    /// Adds a sequence.
    pub fn add(&mut self, sequence: &ObjectiveSequence) {
        let spans = sequence.ranges().map(|range| range.filter(|&token| sequence.counts(token)).count());
        let counted: Vec<usize> = spans.filter(|&count| count > 0).collect();
        self.tokens += counted.iter().sum::<usize>();
        self.turns += counted.len();
        self.sequences += usize::from(!counted.is_empty());
    }
}

/// The sequences of one optimizer batch, in the learner's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectiveBatch {
    /// The sequences, shared with the training set.
    pub sequences: Vec<Arc<ObjectiveSequence>>,
    /// Sizes of the skipped sequences.
    pub left_out: LeftOut,
}

impl ObjectiveBatch {
    /// Creates a batch without skipped sequences.
    pub fn new(sequences: Vec<ObjectiveSequence>) -> Self {
        Self { sequences: sequences.into_iter().map(Arc::new).collect(), left_out: LeftOut::default() }
    }

    /// Rejects arrays of wrong length, NaN and infinity.
    ///
    /// # Errors
    /// Returns the first invalid sequence, with the array and the token.
    pub fn check(&self, config: &ObjectiveConfig) -> Result<(), ObjectiveError> {
        self.sequences.iter().enumerate().try_for_each(|(index, sequence)| sequence.check(index, config))
    }
}
