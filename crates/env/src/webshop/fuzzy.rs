//! Fuzzy text comparison, equal to `token_set_ratio` of Python's thefuzz 0.20 and later.
//!
//! Let `i` be the words that both texts have, `a` the words of the first text only, and `b` those
//! of the second text only. The words of each list are sorted and joined by spaces. The score is
//! the maximum of `ratio(i + a, i + b)` and, if `i` is not empty, `ratio(i, i + a)` and
//! `ratio(i, i + b)`, rounded half to even. The score is 100 if `i` is not empty and `a` or `b` is
//! empty. Here `ratio(s, t) = 100 (1 - indel(s, t) / (|s| + |t|))`, and `indel` counts inserted and
//! deleted characters.
//!
//! WebShop pins thefuzz 0.19, which also rounds intermediate results, so scores can differ by 1.

use std::sync::LazyLock;

use regex::Regex;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words(Vec<Box<str>>);

static WORD: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{L}\p{N}]$").ok());

fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric();
    }
    let mut buffer = [0; 4];
    WORD.as_ref().is_some_and(|word| word.is_match(character.encode_utf8(&mut buffer)))
}

fn lower(character: char) -> char {
    let mut lowered = character.to_lowercase();
    lowered.next().unwrap_or(character)
}

impl Words {
    /// Prepares a text. Characters from U+0080 to U+00FF are removed, as by `force_ascii` in
    /// thefuzz.
    pub(super) fn new(text: &str) -> Self {
        let kept = text.chars().filter(|character| !('\u{80}'..='\u{ff}').contains(character));
        let clean: String =
            kept.map(|character| if is_word(character) { lower(character) } else { ' ' }).collect();
        let mut words: Vec<Box<str>> = clean.split_ascii_whitespace().map(Box::from).collect();
        // UTF-8 bytes sort like code points.
        words.sort_unstable();
        words.dedup();
        Self(words)
    }

    pub(super) fn token_set_ratio(&self, other: &Self) -> u32 {
        if self.0.is_empty() || other.0.is_empty() {
            return 0;
        }
        let (mut both, mut left, mut right) = (Joined::default(), Joined::default(), Joined::default());
        let (mut mine, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        loop {
            match (mine.peek(), others.peek()) {
                (None, None) => break,
                (Some(word), None) => {
                    left.push(word);
                    mine.next();
                }
                (None, Some(word)) => {
                    right.push(word);
                    others.next();
                }
                (Some(a), Some(b)) => match a.cmp(b) {
                    std::cmp::Ordering::Less => {
                        left.push(a);
                        mine.next();
                    }
                    std::cmp::Ordering::Greater => {
                        right.push(b);
                        others.next();
                    }
                    std::cmp::Ordering::Equal => {
                        both.push(a);
                        mine.next();
                        others.next();
                    }
                },
            }
        }
        let shared = both.0.len();
        if shared > 0 && (left.0.is_empty() || right.0.is_empty()) {
            return 100;
        }
        let gap = usize::from(shared > 0);
        let (with_left, with_right) = (shared + gap + left.0.len(), shared + gap + right.0.len());
        let mut best = ratio(indel(&left.0, &right.0), with_left + with_right);
        if shared > 0 {
            best = best.max(ratio(gap + left.0.len(), shared + with_left));
            best = best.max(ratio(gap + right.0.len(), shared + with_right));
        }
        best.round_ties_even() as u32
    }
}

/// Returns the `token_set_ratio` of two texts, from 0 to 100.
pub fn token_set_ratio(left: &str, right: &str) -> u32 {
    Words::new(left).token_set_ratio(&Words::new(right))
}

#[derive(Default)]
struct Joined(Vec<char>);

impl Joined {
    fn push(&mut self, word: &str) {
        if !self.0.is_empty() {
            self.0.push(' ');
        }
        self.0.extend(word.chars());
    }
}

fn ratio(distance: usize, total: usize) -> f64 {
    if total == 0 { 100.0 } else { 100.0 - 100.0 * distance as f64 / total as f64 }
}

fn indel(left: &[char], right: &[char]) -> usize {
    let start = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let (left, right) = (&left[start..], &right[start..]);
    let end = left.iter().rev().zip(right.iter().rev()).take_while(|(a, b)| a == b).count();
    let (left, right) = (&left[..left.len() - end], &right[..right.len() - end]);
    left.len() + right.len() - 2 * common(left, right)
}

/// Returns the length of the longest common subsequence. The algorithm of Hyyrö (2004) is used if
/// the shorter text has at most 64 characters, else a table.
fn common(left: &[char], right: &[char]) -> usize {
    let (short, long) = if left.len() <= right.len() { (left, right) } else { (right, left) };
    if short.is_empty() {
        return 0;
    }
    if short.len() <= 64 {
        let mut row = u64::MAX;
        for wanted in long {
            let matches = short
                .iter()
                .enumerate()
                .filter(|(_, character)| *character == wanted)
                .fold(0, |bits, (index, _)| bits | 1u64 << index);
            let shared = row & matches;
            row = row.wrapping_add(shared) | (row - shared);
        }
        let used = if short.len() == 64 { u64::MAX } else { (1 << short.len()) - 1 };
        return (!row & used).count_ones() as usize;
    }
    let mut row = vec![0usize; short.len() + 1];
    for wanted in long {
        let mut diagonal = 0;
        for (index, character) in short.iter().enumerate() {
            let above = row[index + 1];
            row[index + 1] = if character == wanted { diagonal + 1 } else { above.max(row[index]) };
            diagonal = above;
        }
    }
    row[short.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_examples() {
        assert_eq!(token_set_ratio("Wash, MACHINE", "machine wash cold"), 100);
        assert_eq!(token_set_ratio("long sleeve", "short sleeve"), 71);
        assert_eq!(token_set_ratio("", "a"), 0);
        assert_eq!(token_set_ratio("a", "!?"), 0);
    }

    #[test]
    fn long_and_short_texts_are_compared_alike() {
        let text = |length: usize, step: usize| -> Vec<char> {
            (0..length).map(|index| char::from(b'a' + (index * index * step % 7) as u8)).collect()
        };
        for length in [1, 30, 63, 64] {
            let (left, right) = (text(length, 1), text(90, 3));
            let mut padded = left.clone();
            // Matches nothing, but forces the table algorithm.
            padded.extend(std::iter::repeat_n('!', 65 - length.min(64)));
            assert_eq!(common(&left, &right), common(&padded, &right), "{length}");
        }
    }
}
