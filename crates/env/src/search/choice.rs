//! Questions with options, as in medicine: which option an answer names.

use super::answer::normalize;
use crate::python::strip;

/// The options of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Label and text of each, mostly `A` to `D`.
    pub options: Vec<(String, String)>,
    /// Place of the right one.
    pub right: usize,
}

impl Choices {
    /// The option that an answer names: by its label, alone or in front (`B`, `(b)`, `B. text`, `option B: text`), or by its
    /// text. Articles count here, because `A` is one.
    pub fn chosen(&self, answer: &str) -> Option<usize> {
        let answer = strip(answer);
        let text = normalize(answer);
        let by_text = || self.options.iter().position(|(_, option)| normalize(option) == text);
        let bare = answer.trim_start_matches(|character: char| !character.is_alphanumeric());
        let word =
            |text: &str| text.split(|character: char| !character.is_alphanumeric()).next().map(str::len);
        let first = &bare[..word(bare).unwrap_or(0)];
        let (label, after) = if matches!(first.to_lowercase().as_str(), "option" | "answer" | "choice") {
            let rest = bare[first.len()..].trim_start_matches(|character: char| !character.is_alphanumeric());
            rest.split_at(word(rest).unwrap_or(0))
        } else {
            bare.split_at(first.len())
        };
        // A label in front of a text is set off by punctuation: `A patient` is no answer `A`.
        let set_off = after.is_empty() || after.starts_with([')', '.', ':', ',', ']', '}']);
        let by_label = || self.options.iter().position(|(known, _)| known.eq_ignore_ascii_case(label));
        if set_off { by_label().or_else(by_text) } else { by_text() }
    }

    /// The options as a prompt shows them, one a line.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for (label, text) in &self.options {
            for piece in ["\n", label, ": ", text] {
                lines.push_str(piece);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_by_label_or_text() {
        let option = |label: &str, text: &str| (label.to_owned(), text.to_owned());
        let choices = Choices {
            options: vec![
                option("A", "A patient history"),
                option("B", "Radiation"),
                option("C", "B cells"),
                option("D", "the options A and B"),
            ],
            right: 1,
        };
        for (answer, chosen) in [
            ("B", Some(1)),
            (" (b) ", Some(1)),
            ("B. Surgery, whatever the text says", Some(1)),
            ("Option B: Radiation", Some(1)),
            ("radiation.", Some(1)),
            ("A", Some(0)),
            ("A patient history", Some(0)),
            ("A patient", None),
            ("B cells", Some(2)),
            ("The options A and B", Some(3)),
            ("E", None),
            ("", None),
            ("***", None),
        ] {
            assert_eq!(choices.chosen(answer), chosen, "{answer:?}");
        }
        assert!(choices.lines().starts_with("\nA: A patient history\nB: "));
    }
}
