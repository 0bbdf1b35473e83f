//! Requests of agents: conversations that the policy continues, and the replies to them.
//!
//! An agent is a program that requests the next message of a conversation. It may have several conversations. Each request is a
//! turn.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::{FinishReason, Tool};

/// A call of a tool in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageCall {
    /// The id that its result refers to.
    pub id: String,
    /// Function name.
    pub name: String,
    /// Arguments as JSON text; chat templates print them as they are written.
    pub arguments: String,
}

/// A message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// The text.
    pub content: String,
    /// Calls that a message of the assistant makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<MessageCall>,
    /// The call that a message of a tool answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

impl ChatMessage {
    /// Creates a message of text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

/// The earlier turn that a request continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// Index of the turn.
    pub turn: usize,
    /// Number of the request's messages up to and including that turn's response.
    pub messages: usize,
}

/// An agent's request for the next message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conversation {
    /// All messages.
    pub messages: Vec<ChatMessage>,
    /// Functions that the reply may call.
    pub tools: Vec<Tool>,
    /// The turn that it continues. Without one its prompt begins a new sequence.
    pub continues: Option<Continued>,
    /// Name of the agent that sent the request, if a program has several.
    pub agent: String,
    /// Maximum tokens of the reply; the run's limit applies if smaller.
    pub max_tokens: Option<usize>,
    /// Strings that end the reply and are left out of its content.
    pub stop: Vec<String>,
    /// The state that the agent says it is in, for credit methods that compare turns by state. Without one, the agent's name and
    /// the newest messages identify it.
    pub state: Option<String>,
}

impl Conversation {
    /// Returns the messages since the last one of the assistant.
    pub fn newest(&self) -> &[ChatMessage] {
        let earlier = self.messages.iter().rposition(|message| message.role == "assistant");
        &self.messages[earlier.map_or(0, |last| last + 1)..]
    }

    /// Returns the key of the state before the reply: the agent's name, and the state that it gave or the newest messages. Calls
    /// of different agents never have the same key.
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
    /// The text beside the calls.
    pub content: String,
    /// Calls of tools.
    pub calls: Vec<MessageCall>,
    /// Why the response ended.
    pub finish: FinishReason,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the response.
    pub response_tokens: usize,
}

/// A reward of one turn, and the rule that gave it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnReward {
    /// Index of the turn.
    pub turn: usize,
    /// The reward.
    pub reward: f64,
    /// The rule, for the reader of a trajectory.
    pub rule: String,
}

/// A trajectory's record of the request that a turn answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentTurn {
    /// Name of the agent that asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of messages of the request.
    pub messages: usize,
    /// The earlier turn whose tokens the prompt continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<usize>,
    /// Rewards that the turn got, each with its rule. Their sum is in the turn's reward.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rewards: Vec<(String, f64)>,
    /// Tools of the request, if they are not those of the trajectory.
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
        // The history does not count, however it came about.
        let one = asked("a", &[("user", "q"), ("assistant", "x"), ("tool", "off"), ("user", "go on")]);
        let other = asked("a", &[("user", "r"), ("assistant", "y"), ("tool", "off"), ("user", "go on")]);
        assert_eq!((one.newest().len(), one.state_key()), (2, other.state_key()));
        // The role and the agent do.
        assert_ne!(asked("a", &[("user", "off")]).state_key(), asked("a", &[("tool", "off")]).state_key());
        assert_ne!(asked("a", &[("user", "off")]).state_key(), asked("b", &[("user", "off")]).state_key());
        let named = Conversation { state: Some("hall".into()), ..one };
        assert_eq!(named.state_key(), "a\nhall");
    }
}
