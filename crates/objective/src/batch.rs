//! The numbers of one optimiser batch that a policy objective is built from.

use turnwise_core::{ObjectiveError, TurnSpan};

use crate::ObjectiveConfig;

/// Advantages of one sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Advantages {
    /// One per turn span, the same for each of its tokens.
    PerSpan(Vec<f64>),
    /// One per response token (token-level GAE).
    PerToken(Vec<f64>),
}

/// One sequence of the batch. Per-token arrays are aligned with the response tokens in span order.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectiveSequence {
    /// The turn spans, as in [`turnwise_core::TokenSequence::spans`].
    pub spans: Vec<TurnSpan>,
    /// Log-probabilities under the policy that sampled the tokens, in nats.
    pub old_logprobs: Vec<f32>,
    /// Log-probabilities under the reference policy, in nats; needed when
    /// [`ObjectiveConfig::needs_reference_logprobs`].
    pub ref_logprobs: Option<Vec<f32>>,
    /// Advantages of the tokens.
    pub advantages: Advantages,
    /// True if the trajectory solved its task.
    pub success: bool,
    /// Response tokens that count, one entry each; absent: all. A token that does not count changes nothing, not even
    /// a mean or a ratio.
    pub mask: Option<Vec<bool>>,
}

impl ObjectiveSequence {
    /// A sequence with one advantage per span, no reference and no mask.
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

    /// Number of response tokens, those that do not count included.
    pub fn response_tokens(&self) -> usize {
        self.spans.iter().map(TurnSpan::len).sum()
    }

    /// True if response token `token` counts.
    pub(crate) fn counts(&self, token: usize) -> bool {
        self.mask.as_ref().is_none_or(|mask| mask[token])
    }

    /// Index ranges of the spans into the response tokens.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
        self.spans.iter().scan(0, |start, span| {
            let range = *start..*start + span.len();
            *start = range.end;
            Some(range)
        })
    }

    /// One advantage per response token.
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

/// Size of the sequences of an optimiser batch that the learner does not get, because they have no gradient. The loss is a mean
/// over them, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Response tokens that count.
    pub tokens: usize,
    /// Sequences with such tokens.
    pub sequences: usize,
    /// Turns with such tokens.
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

/// The sequences of one optimiser batch, in the order the learner gets them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectiveBatch {
    /// The sequences.
    pub sequences: Vec<ObjectiveSequence>,
    /// Those of the batch that the learner does not get.
    pub left_out: LeftOut,
}

impl ObjectiveBatch {
    /// A batch that the learner gets the whole of.
    pub fn new(sequences: Vec<ObjectiveSequence>) -> Self {
        Self { sequences, left_out: LeftOut::default() }
    }

    /// Refuses arrays of wrong length and numbers that are not finite.
    ///
    /// # Errors
    /// [`ObjectiveError`] names the sequence, the array and the token.
    pub fn check(&self, config: &ObjectiveConfig) -> Result<(), ObjectiveError> {
        self.sequences.iter().enumerate().try_for_each(|(index, sequence)| sequence.check(index, config))
    }
}
