//! Sequences in the service's format.
//!
//! Targets are shifted: for a sequence `x` of `T` tokens, inputs are `x[0..T-1]` and targets
//! `x[1..T]`. Loss arrays follow the targets, so entry `t` of Turnwise's arrays is entry `t - 1` of
//! the service's.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use turnwise_core::TokenSequence;

use super::proto::{Chunk, Datum, EncodedText, Tensor, token_bytes};

/// A sequence and its loss arrays, with one entry per target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Example {
    pub(crate) tokens: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    /// Log-probs in the importance ratios' denominator.
    pub(crate) logprobs: Option<Vec<f32>>,
    pub(crate) advantages: Option<Vec<f32>>,
}

impl Example {
    /// Gives response tokens weight 1, others 0.
    pub(crate) fn of(sequence: &TokenSequence) -> Self {
        let mut weights = vec![0.0; sequence.tokens.len().saturating_sub(1)];
        sequence.response_positions().for_each(|position| weights[position - 1] = 1.0);
        Self { tokens: sequence.tokens.clone(), weights, logprobs: None, advantages: None }
    }

    pub(crate) fn counted(&self) -> f64 {
        self.weights.iter().filter(|weight| **weight != 0.0).count() as f64
    }

    pub(crate) fn bytes(&self) -> usize {
        let arrays = 1 + usize::from(self.logprobs.is_some()) + usize::from(self.advantages.is_some());
        self.tokens.len() * (12 + 4 * arrays) + 128
    }

    fn arrays(&self) -> impl Iterator<Item = (&'static str, &Vec<f32>)> {
        let rest = [("logprobs", &self.logprobs), ("advantages", &self.advantages)];
        std::iter::once(("weights", &self.weights))
            .chain(rest.into_iter().filter_map(|(name, values)| Some((name, values.as_ref()?))))
    }

    pub(crate) fn datum(&self) -> Datum {
        let input = EncodedText { tokens: token_bytes(&self.tokens[..self.tokens.len() - 1]) };
        let mut inputs: BTreeMap<String, Tensor> =
            self.arrays().map(|(name, values)| (name.to_owned(), Tensor::floats(values))).collect();
        inputs.insert("target_tokens".into(), Tensor::integers(&self.tokens[1..]));
        Datum { model_input: vec![Chunk { encoded_text: Some(input) }], loss_fn_inputs: inputs }
    }

    pub(crate) fn json(&self) -> Value {
        let mut inputs: serde_json::Map<String, Value> =
            self.arrays().map(|(name, values)| (name.to_owned(), json!({ "data": values }))).collect();
        inputs.insert("target_tokens".into(), json!({ "data": &self.tokens[1..] }));
        let chunk = json!({ "type": "encoded_text", "tokens": &self.tokens[..self.tokens.len() - 1] });
        json!({ "model_input": { "chunks": [chunk] }, "loss_fn_inputs": inputs })
    }
}

/// Selects the entries at response tokens.
pub(crate) fn at_responses(sequence: &TokenSequence, per_target: &[f32]) -> Vec<f32> {
    sequence.response_positions().map(|position| per_target[position - 1]).collect()
}

/// Puts values at the response tokens and zeros elsewhere.
pub(crate) fn spread(sequence: &TokenSequence, per_response: impl IntoIterator<Item = f32>) -> Vec<f32> {
    let mut per_target = vec![0.0; sequence.tokens.len().saturating_sub(1)];
    for (position, value) in sequence.response_positions().zip(per_response) {
        per_target[position - 1] = value;
    }
    per_target
}

#[cfg(test)]
mod tests {
    use turnwise_core::TurnSpan;

    use super::*;

    #[test]
    fn arrays_are_aligned_with_the_token_after() {
        let spans = vec![TurnSpan { turn: 0, start: 2, end: 3 }, TurnSpan { turn: 1, start: 4, end: 6 }];
        let sequence = TokenSequence { tokens: vec![10, 11, 12, 13, 14, 15], spans };
        let example = Example::of(&sequence);
        assert_eq!(example.weights, [0.0, 1.0, 0.0, 1.0, 1.0]);
        let value = example.json();
        assert_eq!(value["model_input"]["chunks"][0]["tokens"], json!([10, 11, 12, 13, 14]));
        assert_eq!(value["loss_fn_inputs"]["target_tokens"]["data"], json!([11, 12, 13, 14, 15]));
        // Token 12 is the target at index 1.
        assert_eq!(at_responses(&sequence, &[1.0, 2.0, 3.0, 4.0, 5.0]), [2.0, 4.0, 5.0]);
        assert_eq!(spread(&sequence, [7.0, 8.0, 9.0]), [0.0, 7.0, 0.0, 8.0, 9.0]);
        let datum = example.datum();
        assert_eq!(datum.loss_fn_inputs["weights"], Tensor::floats(&example.weights));
        assert_eq!(datum.loss_fn_inputs["target_tokens"].dense.len(), 5 * 8);
    }
}
