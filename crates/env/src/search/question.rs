use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::digest;
use turnwise_retrieval::Passage;

use super::answer::{Scores, stands_in};
use super::choice::Choices;

/// Question with golden answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Id within the dataset.
    pub id: String,
    /// Name of the dataset in reports, such as `nq` or `single-hop`.
    pub dataset: String,
    /// Question without options.
    pub text: String,
    /// All correct answers.
    pub golden: Vec<String>,
    /// Options of a multiple-choice question.
    pub choices: Option<Choices>,
    /// Passages supplied with the question.
    pub passages: Vec<Arc<Passage>>,
    /// Searches that lead to the answer of a generated question.
    pub plan: Vec<PlannedSearch>,
}

/// Planned search on the way to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSearch {
    /// Query.
    pub query: String,
    /// Answer that seems plausible without this search but is usually wrong.
    pub early_answer: String,
}

/// Score used as the reward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SearchReward {
    /// 1 for an exact match, else 0, as in Search-R1, verl-agent and SORL.
    #[default]
    ExactMatch,
    /// Word-level F1.
    F1,
    /// 1 if the answer contains a golden answer, else 0.
    CoverMatch,
}

impl Question {
    /// Returns the question with its options.
    pub fn prompt(&self) -> String {
        match &self.choices {
            None => self.text.clone(),
            Some(choices) => format!("{}{}", self.text, choices.lines()),
        }
    }

    /// Returns the correct option's text for multiple choice, else the first golden answer.
    pub fn answer(&self) -> Option<&str> {
        match &self.choices {
            None => self.golden.first().map(String::as_str),
            Some(choices) => choices.options.get(choices.right).map(|(_, text)| text.as_str()),
        }
    }

    /// Scores an answer. For multiple choice, each score is 1 for the correct option, else 0.
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

    /// Returns the SHA-256 of the prompt and all data that the scores depend on.
    pub fn digest(&self) -> String {
        let prompt = self.prompt();
        let right = self.choices.as_ref().map(|choices| choices.right.to_string()).unwrap_or_default();
        let golden = self.golden.iter().map(String::as_str);
        digest([prompt.as_str(), right.as_str()].into_iter().chain(golden))
    }
}

impl SearchReward {
    /// Returns the reward for these scores.
    pub fn of(self, scores: &Scores) -> f64 {
        match self {
            Self::ExactMatch => f64::from(u8::from(scores.exact)),
            Self::F1 => scores.f1,
            Self::CoverMatch => f64::from(u8::from(scores.cover)),
        }
    }
}

/// Adds a question mark if the text has none, as in Search-R1's data.
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
        // As in the original, only cover match ignores word boundaries.
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
