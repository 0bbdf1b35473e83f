//! Patterns within one part of a path.

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Letter(char),
    One,
    Many,
    Range(Vec<(char, char)>, bool),
}

/// Splits a pattern into pieces; `None` if a bracket is not closed or empty.
pub fn pieces(pattern: &str) -> Option<Vec<Piece>> {
    let letters: Vec<char> = pattern.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        match letters[at] {
            '*' => found.push(Piece::Many),
            '?' => found.push(Piece::One),
            '[' => {
                let length = letters[at..].iter().position(|letter| *letter == ']')?;
                found.push(range(&letters[at + 1..at + length])?);
                at = at + length;
            }
            letter => found.push(Piece::Letter(letter)),
        }
        at = at + 1;
    }
    Some(found)
}

fn range(inner: &[char]) -> Option<Piece> {
    let negated = inner.first() == Some(&'!');
    let inner = if negated { &inner[1..] } else { inner };
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < inner.len() {
        if at + 2 < inner.len() && inner[at + 1] == '-' {
            ranges.push((inner[at], inner[at + 2]));
            at = at + 3;
        } else {
            ranges.push((inner[at], inner[at]));
            at = at + 1;
        }
    }
    if ranges.is_empty() { None } else { Some(Piece::Range(ranges, negated)) }
}

/// Tells whether pieces match a word.
pub fn word_matches(pieces: &[Piece], word: &[char]) -> bool {
    let Some(piece) = pieces.first() else { return word.is_empty() };
    if *piece == Piece::Many {
        return (0..=word.len()).any(|length| word_matches(&pieces[1..], &word[length..]));
    }
    let Some(letter) = word.first() else { return false };
    let same = match piece {
        Piece::Letter(wanted) => wanted == letter,
        Piece::Range(ranges, negated) => {
            let inside = ranges.iter().any(|(first, last)| first <= letter && letter <= last);
            inside != *negated
        }
        _ => true,
    };
    same && word_matches(&pieces[1..], &word[1..])
}
