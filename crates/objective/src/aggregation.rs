//! Averages per-token losses, using one weight per token for the whole optimizer batch.

use serde::{Deserialize, Serialize};

use crate::ObjectiveBatch;

/// How the loss averages over response tokens. Counts are over the whole optimizer batch. The
/// counts include skipped sequences ([`crate::LeftOut`]), but no masked tokens, and no turns or
/// sequences whose tokens are all masked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Mean over all tokens: weight `1 / tokens`.
    #[default]
    TokenMean,
    /// Mean over sequences of the mean over their tokens: weight `1 / (sequences |y_i|)`.
    SeqMeanTokenMean,
    /// Mean over sequences of the sum over their tokens: weight `1 / sequences`.
    SeqMeanTokenSum,
    /// Mean over turns of the mean over their tokens: weight `1 / (turns |y_k|)`.
    TurnMean,
}

/// Returns each response token's weight, `[sequence][token]`; 0 if masked.
pub fn token_weights(aggregation: Aggregation, batch: &ObjectiveBatch) -> Vec<Vec<f64>> {
    let counted = |sequence: usize, range: std::ops::Range<usize>| {
        range.filter(|&token| batch.sequences[sequence].counts(token)).count()
    };
    let spans: Vec<Vec<usize>> = (0..batch.sequences.len())
        .map(|index| batch.sequences[index].ranges().map(|range| counted(index, range)).collect())
        .collect();
    let per_sequence: Vec<usize> = spans.iter().map(|counts| counts.iter().sum()).collect();
    let left_out = batch.left_out;
    let tokens = left_out.tokens + per_sequence.iter().sum::<usize>();
    let sequences = left_out.sequences + per_sequence.iter().filter(|&&count| count > 0).count();
    let turns = left_out.turns + spans.iter().flatten().filter(|&&count| count > 0).count();
    let inverse = |denominator: usize| if denominator == 0 { 0.0 } else { 1.0 / denominator as f64 };

    batch
        .sequences
        .iter()
        .enumerate()
        .map(|(index, sequence)| {
            let mut weights = Vec::with_capacity(sequence.response_tokens());
            for (span, range) in sequence.ranges().enumerate() {
                let weight = match aggregation {
                    Aggregation::TokenMean => inverse(tokens),
                    Aggregation::SeqMeanTokenMean => inverse(sequences) * inverse(per_sequence[index]),
                    Aggregation::SeqMeanTokenSum => inverse(sequences),
                    Aggregation::TurnMean => inverse(turns) * inverse(spans[index][span]),
                };
                weights.extend(range.map(|token| if sequence.counts(token) { weight } else { 0.0 }));
            }
            weights
        })
        .collect()
}
