//! Observations of environments.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Conversation;

/// Content-addressed reference to an image outside the trajectory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageHandle {
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// Media type, for example `image/png`.
    pub media_type: String,
}

/// Part of an observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(ImageHandle),
    /// Result of a tool call.
    ToolResult {
        /// Call id ([`crate::ToolCall::id`]).
        call_id: String,
        /// The result.
        text: String,
    },
    /// A chat message. Used for observations of several messages, or of one message whose role is
    /// not `user`.
    Message {
        /// Role: `system`, `user` or another.
        role: String,
        /// The text.
        text: String,
    },
}

impl Part {
    /// Returns the text; `None` for an image.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text { text } | Self::ToolResult { text, .. } | Self::Message { text, .. } => Some(text),
            Self::Image(_) => None,
        }
    }

    /// Returns the image; `None` for text.
    pub fn image(&self) -> Option<&ImageHandle> {
        match self {
            Self::Image(image) => Some(image),
            Self::Text { .. } | Self::ToolResult { .. } | Self::Message { .. } => None,
        }
    }
}

/// What the policy sees before a turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Parts in display order.
    pub parts: Vec<Part>,
    /// All actions that the environment would understand in this state.
    pub admissible: Vec<String>,
    /// Identifies the state for credit methods. Default: the text. Set this key if observations of
    /// the same state differ (for example, by a clock), or if different states look alike.
    pub state_key: Option<String>,
    /// The agent's request, if any. The request's messages form the prompt, and the policy answers
    /// with [`crate::Action::Reply`].
    pub conversation: Option<Box<Conversation>>,
}

impl Observation {
    /// Creates an observation of one text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { parts: vec![Part::Text { text: text.into() }], ..Self::default() }
    }

    /// Sets the admissible actions.
    #[must_use]
    pub fn with_admissible(mut self, admissible: Vec<String>) -> Self {
        self.admissible = admissible;
        self
    }

    /// Sets the state key.
    #[must_use]
    pub fn with_state_key(mut self, key: impl Into<String>) -> Self {
        self.state_key = Some(key.into());
        self
    }

    /// Returns all text parts, separated by line breaks.
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.parts.iter().filter_map(Part::text);
        match (texts.next(), texts.next()) {
            (None, _) => Cow::Borrowed(""),
            (Some(only), None) => Cow::Borrowed(only),
            (Some(first), Some(second)) => {
                let mut text = format!("{first}\n{second}");
                for more in texts {
                    text.push('\n');
                    text.push_str(more);
                }
                Cow::Owned(text)
            }
        }
    }

    /// Returns the first image.
    pub fn image(&self) -> Option<&ImageHandle> {
        self.parts.iter().find_map(Part::image)
    }

    /// Like [`Observation::text`], but takes ownership.
    pub fn into_text(mut self) -> String {
        match self.parts.as_mut_slice() {
            [Part::Text { text }] => std::mem::take(text),
            _ => self.text().into_owned(),
        }
    }

    /// Returns true if the observation is a single text.
    pub fn is_plain(&self) -> bool {
        matches!(self.parts.as_slice(), [] | [Part::Text { .. }])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_words_of_all_parts() {
        let image = ImageHandle { sha256: "00".into(), media_type: "image/png".into() };
        let answer = Part::ToolResult { call_id: "1".into(), text: "42".into() };
        let mut seen = Observation::new("a page");
        assert_eq!((seen.text(), seen.is_plain()), (Cow::Borrowed("a page"), true));
        seen.parts.extend([Part::Image(image), answer]);
        assert_eq!((seen.text().as_ref(), seen.is_plain()), ("a page\n42", false));
        assert_eq!(seen.clone().into_text(), "a page\n42");
        assert_eq!(Observation::default().text(), "");
        let json = serde_json::to_string(&seen.parts).unwrap();
        assert_eq!(
            json,
            r#"[{"type":"text","text":"a page"},{"type":"image","sha256":"00","media_type":"image/png"},{"type":"tool_result","call_id":"1","text":"42"}]"#
        );
        assert_eq!(serde_json::from_str::<Vec<Part>>(&json).unwrap(), seen.parts);
    }
}
