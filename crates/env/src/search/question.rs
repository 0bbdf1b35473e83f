//! Questions and answer scoring.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::digest;
use turnwise_retrieval::Passage;

use super::answer::{Scores, stands_in};
use super::choice::Choices;

/// A question with its golden answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Id within the question's dataset.
    pub id: String,
    /// Dataset name used in reports, such as `nq`, `hotpotqa`, or `single-hop` for generated
    /// questions.
    pub dataset: String,
    /// The question text without the options.
    pub text: String,
    /// All right answers.
    pub golden: Vec<String>,
    /// Answer options, for multiple-choice questions.
    pub choices: Option<Choices>,
    /// Passages supplied with the question.
    pub passages: Vec<Arc<Passage>>,
    /// Searches that lead to the answer, in order. Only generated questions have them.
    pub plan: Vec<PlannedSearch>,
}

/// One of the searches that lead to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSearch {
    /// Query text.
    pub query: String,
    /// A plausible but usually wrong answer, which the expert gives if it skips this search.
    pub early_answer: String,
}

/// Which score of an answer is the reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchReward {
    /// 1 for an exact match and 0 otherwise, as in Search-R1, verl-agent and SORL.
    #[default]
    ExactMatch,
    /// F1 over words.
    F1,
    /// 1 if the answer contains a golden answer and 0 otherwise.
    CoverMatch,
}

impl Question {
    /// Returns the question with its options, which is both the goal and the first observation.
    pub fn prompt(&self) -> String {
        match &self.choices {
            None => self.text.clone(),
            Some(choices) => format!("{}{}", self.text, choices.lines()),
        }
    }

    /// Returns a correct answer: the text of the correct option, or the first golden answer.
    pub fn answer(&self) -> Option<&str> {
        match &self.choices {
            None => self.golden.first().map(String::as_str),
            Some(choices) => choices.options.get(choices.right).map(|(_, text)| text.as_str()),
        }
    }

    /// Scores an answer. For multiple-choice questions, each score is 1 if the answer selects the
    /// correct option and 0 otherwise.
    pub fn scores(&self, answer: &str) -> Scores {
        match &self.choices {
            None => Scores::of(answer, &self.golden),
            Some(choices) => {
                let exact = choices.chosen(answer) == Some(choices.right);
                Scores { exact, f1: f64::from(u8::from(exact)), cover: exact }
            }
        }
    }

    /// Returns true if the text contains a golden answer as whole words.
    pub(crate) fn is_answered_in(&self, text: &str) -> bool {
        let golden = match &self.choices {
            None => self.golden.as_slice(),
            Some(choices) => std::slice::from_ref(&choices.options[choices.right].1),
        };
        stands_in(text, golden)
    }

    /// Returns the SHA-256 of the prompt and of all data that affects the scores.
    pub fn digest(&self) -> String {
        let prompt = self.prompt();
        let right = self.choices.as_ref().map(|choices| choices.right.to_string()).unwrap_or_default();
        let golden = self.golden.iter().map(String::as_str);
        digest([prompt.as_str(), right.as_str()].into_iter().chain(golden))
    }
}

impl SearchReward {
    /// Returns the reward for an answer with these scores.
    pub fn of(self, scores: &Scores) -> f64 {
        match self {
            Self::ExactMatch => f64::from(u8::from(scores.exact)),
            Self::F1 => scores.f1,
            Self::CoverMatch => f64::from(u8::from(scores.cover)),
        }
    }
}

/// Appends a question mark if the text lacks one, as in Search-R1's data.
pub(super) fn with_mark(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('?') || text.is_empty() { text.to_owned() } else { format!("{text}?") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_decide_where_there_are_any() {
        let open =
            Question { text: "Where?".into(), golden: vec!["Port Ellis".into()], ..Question::default() };
        assert_eq!(SearchReward::F1.of(&open.scores("the old Ellis")), 0.5);
        assert_eq!(SearchReward::ExactMatch.of(&open.scores("port ellis.")), 1.0);
        assert_eq!(SearchReward::CoverMatch.of(&open.scores("In Port Ellis")), 1.0);
        assert!(open.is_answered_in("born in Port Ellis") && !open.is_answered_in("born in Old Ellis"));
        // As in the original, cover match ignores word boundaries; `is_answered_in` does not.
        let no = Question { golden: vec!["no".into()], ..open.clone() };
        assert!(no.scores("a carcinoma").cover && !no.is_answered_in("a carcinoma"));
        assert!(no.is_answered_in("No, not that.") && !no.is_answered_in(""));
        let options = [("A", "yes"), ("B", "no")].map(|(label, text)| (label.to_owned(), text.to_owned()));
        let choices = Choices { options: options.to_vec(), right: 0 };
        let closed = Question { choices: Some(choices), ..open.clone() };
        assert_eq!(closed.prompt(), "Where?\nA: yes\nB: no");
        assert_eq!((open.answer(), closed.answer()), (Some("Port Ellis"), Some("yes")));
        assert_eq!(SearchReward::F1.of(&closed.scores("A")), 1.0);
        assert_eq!(SearchReward::CoverMatch.of(&closed.scores("the answer yes")), 0.0);
        assert_ne!(open.digest(), closed.digest());
        let other = Question { golden: vec!["Old Ellis".into()], ..open.clone() };
        assert_ne!(open.digest(), other.digest());
    }

    #[test]
    fn questions_end_in_a_question_mark() {
        assert_eq!(with_mark(" who wrote it "), "who wrote it?");
        assert_eq!(with_mark("who wrote it?"), "who wrote it?");
        assert_eq!(with_mark(" "), "");
    }
}
