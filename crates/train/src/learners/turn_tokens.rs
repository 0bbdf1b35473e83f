//! Tokens whose hidden states represent a turn (HAS, appendix B: observation and action, at most
//! 512).
//!
//! If the prompt contains the observation several times, as part of a history, the last occurrence
//! is used. If the prompt does not contain the observation, the last tokens since the previous
//! response are used.

use std::ops::Range;

use turnwise_core::{Trajectory, TurnSpan};
use turnwise_text::Tokenizer;

/// Returns, for each sequence, the token ranges of each turn, at most `most` tokens per turn.
pub(super) fn turn_tokens(
    trajectory: &Trajectory,
    most: usize,
    tokenizer: &Tokenizer,
) -> Vec<Vec<Vec<Range<usize>>>> {
    let of_sequence = |sequence: &turnwise_core::TokenSequence| {
        let mut before = 0;
        let of_span = |span: &TurnSpan| {
            let prompt = before..span.start;
            before = span.end;
            let words = trajectory.turns.get(span.turn).map_or("", |turn| turn.observation.as_str());
            let response = span.start..span.end;
            if let Some(found) = find(words, &sequence.tokens[prompt.clone()], tokenizer) {
                let observation = prompt.start + found.start..prompt.start + found.end;
                return share(observation, response, most);
            }
            let all = prompt.start.max(span.end.saturating_sub(most))..span.end;
            Vec::from([all])
        };
        sequence.spans.iter().map(of_span).collect()
    };
    trajectory.sequences.iter().map(of_sequence).collect()
}

/// Divides `most` tokens between observation and response: half each, or more for one if the other
/// needs less. Cuts responses at the start, because actions come last.
fn share(observation: Range<usize>, response: Range<usize>, most: usize) -> Vec<Range<usize>> {
    let half = most.div_ceil(2);
    let of_response = response.len().min(half.max(most.saturating_sub(observation.len())));
    let of_observation = observation.len().min(most - of_response);
    let seen = observation.start..observation.start + of_observation;
    let said = response.end - of_response..response.end;
    [seen, said].into_iter().filter(|range| !range.is_empty()).collect()
}

/// Finds the last occurrence of `words`; the first and last token found may include other text.
fn find(words: &str, tokens: &[u32], tokenizer: &Tokenizer) -> Option<Range<usize>> {
    let words = words.trim().as_bytes();
    if words.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    let mut ends = Vec::with_capacity(tokens.len());
    for &token in tokens {
        text.extend_from_slice(tokenizer.token_bytes(token));
        ends.push(text.len());
    }
    let start = text.windows(words.len()).rposition(|window| window == words)?;
    let first = ends.partition_point(|&end| end <= start);
    let last = ends.partition_point(|&end| end < start + words.len());
    Some(first..last + 1)
}

pub(super) fn means_of_ranges<'a>(
    means: &[Vec<f32>],
    turns: impl IntoIterator<Item = &'a Vec<Range<usize>>>,
    width: usize,
) -> Vec<Vec<f32>> {
    let mut means = means.iter();
    let mean_of = |ranges: &Vec<Range<usize>>| {
        let total: usize = ranges.iter().map(Range::len).sum();
        let mut mean = vec![0.0f32; width];
        for (range, part) in ranges.iter().zip(means.by_ref()) {
            let weight = range.len() as f32 / total as f32;
            mean.iter_mut().zip(part).for_each(|(mean, part)| *mean += weight * part);
        }
        mean
    };
    turns.into_iter().map(mean_of).collect()
}

#[cfg(test)]
mod tests {
    use turnwise_core::{Task, TokenSequence, Turn};
    use turnwise_text::TokenizerConfig;

    use super::*;

    fn tokenizer() -> Tokenizer {
        // Without pieces, each token is a byte.
        Tokenizer::train(std::iter::empty(), &TokenizerConfig { max_pieces: 0, ..TokenizerConfig::default() })
            .unwrap()
    }

    #[test]
    fn observation_and_response_come_before_the_rest_of_the_prompt() {
        let tokenizer = tokenizer();
        let text = "Goal: x. History: a room. Now: a room. Answer.";
        let mut tokens = tokenizer.encode(text);
        let start = tokens.len();
        tokens.extend(tokenizer.encode("go north"));
        let turn = Turn { observation: "a room".into(), ..Turn::default() };
        let mut trajectory = Trajectory::new(Task::new("t", "k", "x"), vec![turn]);
        trajectory.sequences.push(TokenSequence {
            spans: vec![TurnSpan { turn: 0, start, end: tokens.len() }],
            tokens: tokens.clone(),
        });
        let words = |trajectory: &Trajectory, most| -> Vec<String> {
            let ranges = turn_tokens(trajectory, most, &tokenizer);
            ranges[0][0].iter().map(|range| tokenizer.decode(&tokens[range.clone()])).collect()
        };
        assert_eq!(words(&trajectory, 100), ["a room", "go north"]);
        assert_eq!(turn_tokens(&trajectory, 100, &tokenizer)[0][0][0].start, text.rfind("a room").unwrap());
        assert_eq!(words(&trajectory, 8), ["a ro", "orth"]);
        assert_eq!(words(&trajectory, 1), ["h"]);
        trajectory.turns[0].observation = "another".into();
        assert_eq!(words(&trajectory, 12), ["wer.go north"]);
    }

    #[test]
    fn means_of_two_ranges_weigh_their_tokens() {
        let last = 7..9;
        let turns = [vec![0..1, 3..6], Vec::from([last])];
        let means = means_of_ranges(&[vec![4.0], vec![0.0], vec![2.0]], &turns, 1);
        assert_eq!(means, [vec![1.0], vec![2.0]]);
    }
}
