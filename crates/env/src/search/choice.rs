//! Multiple-choice questions.

use super::answer::normalize;
use crate::python::strip;

/// Options of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choices {
    /// Label (usually `A` to `D`) and text of each option.
    pub options: Vec<(String, String)>,
    /// Index of the correct option.
    pub right: usize,
}

impl Choices {
    /// Returns the option that an answer selects: by its text, its label, or a label and more text
    /// (`B`, `(b)`, `B. text`, `option B: text`). An option's text takes precedence over its label,
    /// as in `C. difficile colitis`. If several options have the same text, the first is selected.
    pub fn chosen(&self, answer: &str) -> Option<usize> {
        let answer = strip(answer);
        let label = label(answer);
        let by_text = self.with_text(answer, label);
        if let [only] = by_text.as_slice() {
            return Some(*only);
        }
        let by_label =
            self.options.iter().position(|(known, _)| label.is_some_and(|label| same(known, label)));
        by_label.or_else(|| by_text.first().copied())
    }

    /// Returns the options whose text is the answer. If normalization removes the answer's label
    /// `A` as an article, the option's text must also start with `A`. An answer that consists of a
    /// label does not match any text.
    fn with_text(&self, answer: &str, label: Option<&str>) -> Vec<usize> {
        let text = normalize(answer);
        if text.is_empty() || self.options.iter().any(|(label, _)| same(label, &text)) {
            return Vec::new();
        }
        let article = label.filter(|label| normalize(label).is_empty());
        let is_text = |option: &str| {
            normalize(option) == text && article.is_none_or(|label| same(first_word(bare(option)), label))
        };
        (0..self.options.len()).filter(|place| is_text(&self.options[*place].1)).collect()
    }

    /// Formats the options for a prompt, one per line.
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

fn bare(text: &str) -> &str {
    text.trim_start_matches(|character: char| !character.is_alphanumeric())
}

fn first_word(text: &str) -> &str {
    text.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default()
}

fn same(left: &str, right: &str) -> bool {
    left.eq_ignore_ascii_case(right)
}

/// Returns the answer's label: the first word, if nothing or only punctuation follows it directly.
/// `A patient` has no label.
fn label(answer: &str) -> Option<&str> {
    let mut rest = bare(answer);
    let mut label = first_word(rest);
    if ["option", "answer", "choice"].iter().any(|word| same(word, label)) {
        rest = bare(&rest[label.len()..]);
        label = first_word(rest);
    }
    let after = &rest[label.len()..];
    (after.is_empty() || after.starts_with([')', '.', ':', ',', ']', '}'])).then_some(label)
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

    #[test]
    fn an_options_own_text_is_no_label() {
        let chosen = |texts: [&str; 4], answer: &str| {
            let options = ["A", "B", "C", "D"].into_iter().zip(texts);
            let options = options.map(|(label, text)| (label.to_owned(), text.to_owned())).collect();
            Choices { options, right: 0 }.chosen(answer)
        };
        let texts =
            ["C. difficile colitis", "D, antagonist", "A.Decrease in Km", "B. fragilis is an anaerobe"];
        for (place, text) in texts.into_iter().enumerate() {
            assert_eq!(chosen(texts, text), Some(place), "{text}");
            assert_eq!(chosen(texts, &format!(" {} ", text.to_uppercase())), Some(place), "{text}");
            let labelled = format!("{}. {text}", ["A", "B", "C", "D"][place]);
            assert_eq!(chosen(texts, &labelled), Some(place), "{labelled}");
        }
        for (place, label) in ["A", "B", "C", "D"].into_iter().enumerate() {
            for answer in
                [label.to_owned(), format!("({})", label.to_lowercase()), format!("Answer: {label}.")]
            {
                assert_eq!(chosen(texts, &answer), Some(place), "{answer}");
            }
        }
        let others = ["salmonella", "an agonist", "an increase", "E. coli"];
        for (text, place) in texts.into_iter().zip([2, 3, 0, 1]) {
            assert_eq!(chosen(others, text), Some(place), "{text}");
        }
        assert_eq!(chosen(texts, "B. fragilis is an anaerobe, mostly"), Some(1));
        assert_eq!(chosen(["surgery", "radiation", "C", "D"], "A. Radiation"), Some(0));
        assert_eq!(chosen(["surgery", "radiation", "C", "D"], "C. Radiation"), Some(2));
        assert_eq!(chosen(["D", "C", "B", "A"], "B"), Some(1));
        let twice = ["group B", "B, group", "Group B.", "none"];
        assert_eq!(chosen(twice, "B. group"), Some(1));
        assert_eq!(chosen(twice, "group B"), Some(0));
        assert_eq!(chosen(["B, group", "none", "B. Group", "all"], "B. group"), Some(1));
        assert_eq!(chosen(["+", "-", "?", "!"], "***"), None);
    }
}
