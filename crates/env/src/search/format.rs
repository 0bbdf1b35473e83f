use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use turnwise_retrieval::Hit;

use crate::python::{json_string, strip};

/// Format of observations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ObservationFormat {
    /// Search-R1's format (`search_r1/llm_agent/generation.py`), which SORL uses too. The passages
    /// have separate titles, blank lines surround the block, and invalid output gets an error
    /// message. Use this format with multi-turn prompts.
    #[default]
    SearchR1,
    /// verl-agent's format (SkyRL's search tool). The passages form one JSON string in tags,
    /// escaped like Python's `json.dumps`, and invalid output gets no error message. Use this
    /// format with per-turn prompts.
    VerlAgent,
}

/// Search-R1's error message, with which its models were trained.
pub const INVALID: &str = "\nMy previous action is invalid. If I want to search, I should put the query between <search> and \
                           </search>. If I want to give the final answer, I should put the answer between <answer> and \
                           </answer>. Let me try again.\n";

impl ObservationFormat {
    /// Formats retrieved passages, best first.
    pub fn information(self, hits: &[Hit]) -> String {
        let mut passages = String::with_capacity(64 + hits.iter().map(length).sum::<usize>());
        match self {
            Self::SearchR1 => {
                for (number, hit) in (1..).zip(hits) {
                    let (title, text) = (hit.passage.title(), hit.passage.text());
                    let _ = writeln!(passages, "Doc {number}(Title: {title}) {text}");
                }
                format!("\n\n<information>{}</information>\n\n", strip(&passages))
            }
            Self::VerlAgent => {
                for (number, hit) in (1..).zip(hits) {
                    let _ = writeln!(passages, "Doc {number}: {}", strip(&hit.passage.contents));
                }
                let mut out = String::with_capacity(passages.len() + 64);
                out.push_str("<information>{\"result\": ");
                json_string(&mut out, &passages);
                out.push_str("}</information>");
                out
            }
        }
    }

    /// Returns the observation for an invalid action.
    pub fn invalid(self) -> &'static str {
        match self {
            Self::SearchR1 => INVALID,
            Self::VerlAgent => "",
        }
    }
}

/// Extracts the passages from an observation in either format. A truncated JSON string is returned
/// without being decoded.
pub(super) fn shown(observation: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Found {
        result: String,
    }
    let inside = strip(observation).strip_prefix("<information>")?;
    let inside = inside.strip_suffix("</information>").unwrap_or(inside);
    Some(match serde_json::from_str::<Found>(inside) {
        Ok(Found { result }) => Cow::Owned(result),
        Err(_) => Cow::Borrowed(inside),
    })
}

fn length(hit: &Hit) -> usize {
    hit.passage.contents.len() + 24
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use turnwise_retrieval::Passage;

    use super::*;

    fn hit(contents: &str) -> Hit {
        Hit { passage: Arc::new(Passage { id: "0".into(), contents: contents.into() }), score: 1.0 }
    }

    #[test]
    fn blocks_are_those_of_the_originals() {
        let hits = [hit("\"Ada \"\"B\"\" Fenn\"\nBorn in Zürich.\nDied. "), hit("No title")];
        assert_eq!(
            ObservationFormat::SearchR1.information(&hits),
            "\n\n<information>Doc 1(Title: \"Ada \"\"B\"\" Fenn\") Born in Zürich.\nDied. \nDoc 2(Title: No title)</information>\n\n"
        );
        assert_eq!(
            ObservationFormat::VerlAgent.information(&hits),
            r#"<information>{"result": "Doc 1: \"Ada \"\"B\"\" Fenn\"\nBorn in Z\u00fcrich.\nDied.\nDoc 2: No title\n"}</information>"#
        );
        assert_eq!(ObservationFormat::SearchR1.information(&[]), "\n\n<information></information>\n\n");
        assert_eq!(
            ObservationFormat::VerlAgent.information(&[]),
            "<information>{\"result\": \"\"}</information>"
        );
    }

    #[test]
    fn what_is_shown_is_read_back() {
        let hits = [hit("\"Ada \"\"B\"\" Fenn\"\nBorn in Zürich.\nDied. ")];
        for (format, expected) in [
            (ObservationFormat::SearchR1, "Doc 1(Title: \"Ada \"\"B\"\" Fenn\") Born in Zürich.\nDied."),
            (ObservationFormat::VerlAgent, "Doc 1: \"Ada \"\"B\"\" Fenn\"\nBorn in Zürich.\nDied.\n"),
        ] {
            let block = format.information(&hits);
            assert_eq!(shown(&block).unwrap(), expected);
            assert_eq!(shown(&format.information(&[])).unwrap(), "");
            let (cut, _) = block.split_once("Born").unwrap();
            assert!(
                shown(cut).unwrap().starts_with(if cut.contains("result") { "{" } else { "Doc 1" }),
                "{cut}"
            );
            assert_eq!(shown(format.invalid()), None);
        }
        assert_eq!(shown("What is between <information> and </information>?"), None);
    }

    #[test]
    fn strings_are_escaped_as_python_escapes_them() {
        let mut out = String::new();
        json_string(&mut out, "a\"\\/\u{7f}\u{1}é😀\t\u{8}\u{c}\r");
        assert_eq!(out, r#""a\"\\/\u007f\u0001\u00e9\ud83d\ude00\t\b\f\r""#);
    }

    #[test]
    fn a_misread_action_is_answered_as_there() {
        assert!(INVALID.starts_with("\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. If I"));
        assert!(INVALID.ends_with(" between <answer> and </answer>. Let me try again.\n"));
        assert_eq!(ObservationFormat::VerlAgent.invalid(), "");
    }
}
