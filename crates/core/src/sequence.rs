//! Token sequences and the spans that the policy wrote.
//!
//! Entry `t` of a per-token array belongs to the sampled token `t`. Only the learner shifts indices
//! by one, because a decoder predicts token `t` from the position before it.

use serde::{Deserialize, Serialize};

/// Half-open range of one turn's response tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSpan {
    /// Turn index in the trajectory.
    pub turn: usize,
    /// First token of the response.
    pub start: usize,
    /// One past the last token of the response.
    pub end: usize,
}

impl TurnSpan {
    /// Returns the number of response tokens.
    pub fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Returns true if the span has no response tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Tokens of one forward pass. Per-token arrays have one entry per response token.
///
/// With the layout `windowed`, a sequence has one turn. With `concatenated`, a sequence has all
/// turns up to the next compaction, one span per turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSequence {
    /// Prompt and response token ids, exactly as sampled.
    pub tokens: Vec<u32>,
    /// Ascending, disjoint response spans; none starts at token 0, which is not predicted.
    pub spans: Vec<TurnSpan>,
}

impl TokenSequence {
    /// Returns the number of response tokens.
    pub fn response_tokens(&self) -> usize {
        self.spans.iter().map(TurnSpan::len).sum()
    }

    /// Returns the response token positions in span order.
    pub fn response_positions(&self) -> impl Iterator<Item = usize> + '_ {
        self.spans.iter().flat_map(|span| span.start..span.end)
    }

    /// Checks the spans.
    ///
    /// # Errors
    /// Fails if a span is out of range, overlaps another or starts at 0.
    pub fn check(&self) -> Result<(), String> {
        let mut previous_end = 1;
        for span in &self.spans {
            if span.start < previous_end {
                return Err(format!(
                    "the span of turn {} starts at token {}, before {previous_end}, where it may start",
                    span.turn, span.start
                ));
            }
            if span.end < span.start || span.end > self.tokens.len() {
                return Err(format!(
                    "the span of turn {} ends at token {}, outside {}..={}",
                    span.turn,
                    span.end,
                    span.start,
                    self.tokens.len()
                ));
            }
            previous_end = span.end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(spans: &[(usize, usize)]) -> TokenSequence {
        TokenSequence {
            tokens: (0..10).collect(),
            spans: spans
                .iter()
                .enumerate()
                .map(|(turn, &(start, end))| TurnSpan { turn, start, end })
                .collect(),
        }
    }

    #[test]
    fn positions_follow_the_spans() {
        let sequence = sequence(&[(2, 4), (7, 10)]);
        assert_eq!(sequence.check(), Ok(()));
        assert_eq!(sequence.response_tokens(), 5);
        assert_eq!(sequence.response_positions().collect::<Vec<_>>(), [2, 3, 7, 8, 9]);
    }

    #[test]
    fn bad_spans_are_named() {
        assert!(sequence(&[(0, 2)]).check().unwrap_err().contains("starts at token 0"));
        assert!(sequence(&[(2, 5), (4, 6)]).check().unwrap_err().contains("turn 1 starts at token 4"));
        assert!(sequence(&[(2, 11)]).check().unwrap_err().contains("ends at token 11"));
    }
}
