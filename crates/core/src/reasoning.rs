//! Splits a response into `<think>..</think>` and answer.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A response split at its reasoning.
///
/// ```
/// use turnwise_core::Reasoning;
///
/// assert_eq!(Reasoning::of("<think>a door</think>go north").answer(), Some("go north"));
/// assert_eq!(Reasoning::of("go north").answer(), Some("go north"));
/// // Cut off while it thought: there is no answer, whatever was thought of.
/// assert_eq!(Reasoning::of("<think>go north? or").answer(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning<'a> {
    /// The whole response is the answer.
    None(&'a str),
    /// Reasoning and answer.
    Closed(&'a str, &'a str),
    /// Reasoning without a closing tag, and so without an answer.
    Unclosed(&'a str),
}

impl<'a> Reasoning<'a> {
    /// Splits at the first `<think>` and the first `</think>` after it.
    pub fn of(response: &'a str) -> Self {
        Self::between(response, OPEN, CLOSE)
    }

    /// Like [`Reasoning::of`], with other tags.
    pub fn between(response: &'a str, open: &str, close: &str) -> Self {
        match response.split_once(open) {
            None => Self::None(response),
            Some((_, rest)) => match rest.split_once(close) {
                None => Self::Unclosed(rest),
                Some((reasoning, answer)) => Self::Closed(reasoning, answer),
            },
        }
    }

    /// Like [`Reasoning::of`], but the opening tag may be missing, because some chat templates put
    /// `<think>` into the prompt.
    pub fn of_continued(response: &'a str) -> Self {
        match response.split_once(CLOSE) {
            Some((reasoning, answer)) if !reasoning.contains(OPEN) => Self::Closed(reasoning, answer),
            _ => Self::of(response),
        }
    }

    /// Returns the answer, if any.
    pub fn answer(self) -> Option<&'a str> {
        match self {
            Self::None(answer) | Self::Closed(_, answer) => Some(answer),
            Self::Unclosed(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reasoning::{self, Closed, None, Unclosed};

    #[test]
    fn the_first_block_is_the_reasoning() {
        for (text, split) in [
            ("go", None("go")),
            ("<think>a</think>go", Closed("a", "go")),
            ("So: <think>a</think>go<think>b", Closed("a", "go<think>b")),
            ("<think>a", Unclosed("a")),
            ("a</think>go", None("a</think>go")),
        ] {
            assert_eq!(Reasoning::of(text), split, "{text}");
        }
    }

    #[test]
    fn the_prompt_may_have_opened_it() {
        for (text, split) in [
            ("a</think>go", Closed("a", "go")),
            ("a</think>go<think>b", Closed("a", "go<think>b")),
            ("<think>a</think>go", Closed("a", "go")),
            ("<think>a", Unclosed("a")),
            ("go", None("go")),
        ] {
            assert_eq!(Reasoning::of_continued(text), split, "{text}");
        }
    }
}
