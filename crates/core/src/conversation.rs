//! Agents' requests and the policy's replies. An agent is a program that requests the next messages
//! of its conversations; each request is a turn.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{FinishReason, Tool};

/// A tool call in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCall {
    /// Id that the tool's result refers to.
    pub id: String,
    /// Function name.
    pub name: String,
    /// Arguments as JSON text, because chat templates print them unchanged.
    pub arguments: String,
}

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// Tool calls of an assistant message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<MessageCall>,
    /// Id of the call that a `tool` message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

impl ChatMessage {
    /// Creates a text message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

/// The earlier turn that a request continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// Index of the earlier turn.
    pub turn: usize,
    /// Number of messages in the new request up to and including the earlier turn's response.
    pub messages: usize,
}

/// Request for a conversation's next message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// All messages.
    pub messages: Vec<ChatMessage>,
    /// Functions that the reply may call.
    pub tools: Vec<Tool>,
    /// The turn that this request continues; `None` starts a new token sequence.
    pub continues: Option<Continued>,
    /// Agent's name in a program with several agents.
    pub agent: String,
    /// Maximum number of tokens in the reply; the run's own limit applies as well.
    pub max_tokens: Option<usize>,
    /// Strings that end the reply and are not part of it.
    pub stop: Vec<String>,
    /// State key for credit methods. If unset, the agent's name and its newest messages form the
    /// key.
    pub state: Option<String>,
}

impl Conversation {
    /// Returns the messages after the last assistant message.
    pub fn newest(&self) -> &[ChatMessage] {
        let earlier = self.messages.iter().rposition(|message| message.role == "assistant");
        &self.messages[earlier.map_or(0, |last| last + 1)..]
    }

    /// Returns the agent's name followed by `state` or, if `state` is unset, by the newest
    /// messages.
    pub fn state_key(&self) -> String {
        let mut key = format!("{}\n", self.agent);
        if let Some(state) = &self.state {
            return key + state;
        }
        for message in self.newest() {
            let _ = writeln!(key, "{}: {}", message.role, message.content);
        }
        key
    }
}

/// The policy's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Text without tool calls.
    pub content: String,
    /// Tool calls.
    pub calls: Vec<MessageCall>,
    /// Why the response ended.
    pub finish: FinishReason,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// Response tokens.
    pub response_tokens: usize,
}

/// A turn's reward and the rule that gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnReward {
    /// Turn index.
    pub turn: usize,
    /// The reward.
    pub reward: f64,
    /// Rule name, shown with the trajectory.
    pub rule: String,
}

/// The request that a recorded turn answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentTurn {
    /// Agent name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of messages in the request.
    pub messages: usize,
    /// Index of the earlier turn whose tokens this turn's prompt extends, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<usize>,
    /// Rewards by rule; the turn's reward includes their sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f64)>,
    /// Tools of this turn, if they differ from the trajectory's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<Tool>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_request_is_its_agent_and_what_is_new() {
        let messages = |texts: &[(&str, &str)]| -> Vec<ChatMessage> {
            texts.iter().map(|&(role, text)| ChatMessage::new(role, text)).collect()
        };
        let asked = |agent: &str, texts: &[(&str, &str)]| Conversation {
            messages: messages(texts),
            agent: agent.into(),
            ..Conversation::default()
        };
        let first = asked("a", &[("system", "s"), ("user", "lamp off")]);
        assert_eq!(first.newest(), first.messages);
        assert_eq!(first.state_key(), "a\nsystem: s\nuser: lamp off\n");
        let one = asked("a", &[("user", "q"), ("assistant", "x"), ("tool", "off"), ("user", "go on")]);
        let other = asked("a", &[("user", "r"), ("assistant", "y"), ("tool", "off"), ("user", "go on")]);
        assert_eq!((one.newest().len(), one.state_key()), (2, other.state_key()));
        assert_ne!(asked("a", &[("user", "off")]).state_key(), asked("a", &[("tool", "off")]).state_key());
        assert_ne!(asked("a", &[("user", "off")]).state_key(), asked("b", &[("user", "off")]).state_key());
        let named = Conversation { state: Some("hall".into()), ..one };
        assert_eq!(named.state_key(), "a\nhall");
    }
}
