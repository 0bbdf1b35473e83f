//! Scores answers by exact match, F1 and cover match.
//!
//! As in SQuAD's evaluation, Search-R1, verl-agent and FlashRAG, normalization lower-cases texts
//! and removes ASCII punctuation, articles and repeated spaces.

use crate::python::{is_space, strip};

/// Scores of an answer, each the best over all golden answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// Whether the normalized answer equals a normalized golden answer.
    pub exact: bool,
    /// Word-level F1 in `[0, 1]`.
    pub f1: f64,
    /// Whether the normalized answer contains a normalized golden answer.
    pub cover: bool,
}

impl Scores {
    /// Scores an answer.
    pub fn of(answer: &str, golden: &[String]) -> Self {
        let answer = normalize(answer);
        let mut scores = Self::default();
        for golden in golden {
            let golden = normalize(golden);
            scores.exact |= answer == golden;
            scores.cover |= answer.contains(&golden);
            scores.f1 = scores.f1.max(f1(&answer, &golden));
        }
        scores
    }
}

/// Normalizes a text. The result differs from that of Search-R1's Python code if a letter with a
/// combining mark is next to `a`, `an` or `the`, because Unicode tables differ between Rust and
/// Python.
pub fn normalize(text: &str) -> String {
    // Fast path, because passages are normalized at every search.
    let mut bare = if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() };
    bare.retain(|character| !character.is_ascii_punctuation());
    let mut normal = String::with_capacity(bare.len());
    for word in bare.split(is_space).filter(|word| !word.is_empty()) {
        // Removes articles between non-letters, such as dashes, too.
        for piece in pieces(word) {
            if matches!(piece, "a" | "an" | "the") {
                open_word(&mut normal);
            } else {
                normal.push_str(piece);
            }
        }
        open_word(&mut normal);
    }
    normal.truncate(normal.trim_end_matches(' ').len());
    normal
}

/// Returns true if the normalized text contains a golden answer as whole words. Golden answers that
/// are empty after normalization are ignored.
pub(crate) fn stands_in(text: &str, golden: &[String]) -> bool {
    let golden: Vec<String> = golden.iter().map(|golden| normalize(golden)).collect();
    let found = |text: &str| {
        let text = normalize(text);
        golden.iter().any(|golden| has_words(&text, golden))
    };
    // Normalization joins a name and its possessive `s`.
    found(text) || (text.contains(POSSESSIVE) && found(&text.replace(POSSESSIVE, " ")))
}

const POSSESSIVE: &str = "'s";

fn has_words(text: &str, words: &str) -> bool {
    let is_part = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let Some(first) = words.chars().next() else { return false };
    let mut from = 0;
    while let Some(at) = text[from..].find(words).map(|at| from + at) {
        let after = &text[at + words.len()..];
        if !is_part(text[..at].chars().next_back()) && !is_part(after.chars().next()) {
            return true;
        }
        from = at + first.len_utf8();
    }
    false
}

fn open_word(normal: &mut String) {
    if !normal.is_empty() && !normal.ends_with(' ') {
        normal.push(' ');
    }
}

fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Some(std::mem::take(&mut rest));
        }
        let first = rest.chars().next()?.is_alphanumeric();
        let end = rest.find(|character: char| character.is_alphanumeric() != first).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// Returns the F1 over words, counting repetitions: `2 P R / (P + R)` with precision `P` and recall
/// `R`. `yes`, `no` and `noanswer` match only themselves.
fn f1(answer: &str, golden: &str) -> f64 {
    let decided = |text: &str| matches!(text, "yes" | "no" | "noanswer");
    if answer != golden && (decided(answer) || decided(golden)) {
        return 0.0;
    }
    let words: Vec<&str> = answer.split(' ').filter(|word| !word.is_empty()).collect();
    let mut wanted: Vec<&str> = golden.split(' ').filter(|word| !word.is_empty()).collect();
    let (answered, asked) = (words.len(), wanted.len());
    let mut shared = 0;
    for word in words {
        if let Some(at) = wanted.iter().position(|other| *other == word) {
            wanted.swap_remove(at);
            shared += 1;
        }
    }
    if shared == 0 {
        return 0.0;
    }
    let (precision, recall) = (f64::from(shared) / answered as f64, f64::from(shared) / asked as f64);
    2.0 * precision * recall / (precision + recall)
}

/// Returns the trimmed content of the last `<answer>..</answer>` block if there are at least
/// `at_least` blocks. `at_least` is 2 for Search-R1, whose prompt contains an example block, and 1
/// for verl-agent.
pub(crate) fn last_answer(text: &str, at_least: usize) -> Option<&str> {
    let (mut found, mut last, mut rest) = (0, None, text);
    while let Some((_, after)) = rest.split_once("<answer>") {
        let Some((answer, after)) = after.split_once("</answer>") else { break };
        found += 1;
        last = Some(strip(answer));
        rest = after;
    }
    last.filter(|_| found >= at_least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_form_is_that_of_the_original() {
        for (text, normal) in [
            ("The Beatles", "beatles"),
            (" An  apple,\u{a0}a day! ", "apple day"),
            ("Theatre", "theatre"),
            ("U.S.A.", "usa"),
            ("A", ""),
            ("the—end", "—end"),
            ("vitamin A—the best", "vitamin — best"),
            ("Lord's", "lords"),
            ("a-b", "ab"),
            ("ÉCOLE", "école"),
            ("", ""),
        ] {
            assert_eq!(normalize(text), normal, "{text:?}");
        }
    }

    fn scores(answer: &str, golden: &[&str]) -> (bool, f64, bool) {
        let golden: Vec<String> = golden.iter().map(|text| (*text).to_owned()).collect();
        let Scores { exact, f1, cover } = Scores::of(answer, &golden);
        (exact, f1, cover)
    }

    #[test]
    fn every_golden_answer_counts_and_the_best_is_taken() {
        assert_eq!(scores("King George VI", &["George VI\n"]), (false, 0.8, true));
        assert_eq!(scores("Wake County", &["78.5", "in Franklin and Wake counties"]).1, 0.28571428571428575);
        assert_eq!(scores("7", &["seven", "7"]), (true, 1.0, true));
        assert_eq!(scores("Copernicus", &["Galilei"]), (false, 0.0, false));
        assert_eq!(scores("no no", &["no no no"]).1, 0.8);
        assert_eq!(scores("anything", &[]), (false, 0.0, false));
    }

    #[test]
    fn an_answer_stands_in_a_text_as_words() {
        let stands = |text: &str, golden: &[&str]| {
            let golden: Vec<String> = golden.iter().map(|text| (*text).to_owned()).collect();
            stands_in(text, &golden)
        };
        for (text, golden, expected) in [
            ("Born in (old) town.", "the Old Town", true),
            ("Born in town, old.", "the Old Town", false),
            ("Born in old townships.", "the Old Town", false),
            ("A carcinoma, nothing else.", "no", false),
            ("Nobody knows. No.", "no", true),
            ("no", "no", true),
            ("It weighs 1,200 grams.", "200", false),
            ("Norway says no", "no", true),
            ("obi wan obi wan obi", "bi wan obi", false),
            ("tora tora torah tora torah", "torah tora torah", true),
            ("atora tora tora", "tora tora", true),
            ("Ada Fenn's teacher", "Ada Fenn", true),
            ("Lord's ground", "Lord's", true),
            ("the Lords ground", "lord", false),
            ("before—Sarn—after", "Sarn", true),
            ("Ärzte", "rzte", false),
            ("anything", "The", false),
            ("", "", false),
        ] {
            assert_eq!(stands(text, &[golden]), expected, "{golden:?} in {text:?}");
        }
        assert!(stands("by the Sarn", &["Ellis", "Sarn"]) && !stands("by the Sarn", &[]));
    }

    #[test]
    fn yes_and_no_share_words_with_nothing_else() {
        assert_eq!(scores("no", &["no way"]), (false, 0.0, false));
        assert_eq!(scores("yes it is", &["yes"]), (false, 0.0, true));
        assert_eq!(scores("Yes.", &["yes"]), (true, 1.0, true));
    }

    #[test]
    fn the_last_answer_counts_if_there_are_enough() {
        let text =
            "For example, <answer> Beijing </answer>. <answer>a</answer><answer>\nb\n</answer> <answer>c";
        assert_eq!(last_answer(text, 2), Some("b"));
        assert_eq!(last_answer(text, 4), None);
        assert_eq!(last_answer("<answer> Beijing </answer>", 2), None);
        assert_eq!(last_answer("<answer> Beijing </answer>", 1), Some("Beijing"));
        assert_eq!(last_answer("<answer>a<answer>b</answer>", 1), Some("a<answer>b"));
        assert_eq!(last_answer("</answer><answer>", 0), None);
    }
}
