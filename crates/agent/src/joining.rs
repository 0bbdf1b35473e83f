//! Finds the turn that a request continues.
//!
//! A request continues a turn if its messages start with the turn's messages and reply, followed by
//! at least one more message, and if the request and the turn have the same tools. If several turns
//! qualify, the one with the longest match is chosen. Other requests (sub-agents, summarized or
//! edited histories) start a new sequence.

use serde_json::Value;
use turnwise_core::{ChatMessage, Continued, Tool};

/// An answered request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Request messages.
    pub messages: Vec<ChatMessage>,
    /// Request tools.
    pub tools: Vec<Tool>,
    /// Reply in the form in which the agent received it.
    pub reply: ChatMessage,
    /// Agent name.
    pub agent: String,
}

/// Returns the index in `answered` of the turn that these messages continue.
pub fn continued(answered: &[Answered], messages: &[ChatMessage], tools: &[Tool]) -> Option<Continued> {
    let fits = |earlier: &Answered| {
        let before = earlier.messages.len();
        messages.len() > before + 1
            && earlier.tools == tools
            && earlier.messages.iter().zip(messages).all(|(a, b)| same(a, b))
            && same(&earlier.reply, &messages[before])
    };
    let candidates = answered.iter().enumerate().filter(|(_, earlier)| fits(earlier));
    let (turn, earlier) = candidates.max_by_key(|(_, earlier)| earlier.messages.len())?;
    Some(Continued { turn, messages: earlier.messages.len() + 1 })
}

/// Compares messages. Ignores the format of JSON arguments, and white space around an assistant's
/// text, because frameworks change both.
fn same(a: &ChatMessage, b: &ChatMessage) -> bool {
    let content = |message: &ChatMessage| match message.role.as_str() {
        "assistant" => message.content.trim().to_owned(),
        _ => message.content.clone(),
    };
    let arguments = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|_| text.into());
    a.role == b.role
        && a.call_id == b.call_id
        && content(a) == content(b)
        && a.calls.len() == b.calls.len()
        && a.calls.iter().zip(&b.calls).all(|(a, b)| {
            a.id == b.id && a.name == b.name && arguments(&a.arguments) == arguments(&b.arguments)
        })
}

#[cfg(test)]
mod tests {
    use turnwise_core::MessageCall;

    use super::*;

    fn user(text: &str) -> ChatMessage {
        ChatMessage::new("user", text)
    }

    fn assistant(text: &str) -> ChatMessage {
        ChatMessage::new("assistant", text)
    }

    fn turn(messages: &[ChatMessage], reply: &ChatMessage) -> Answered {
        Answered {
            messages: messages.to_vec(),
            tools: Vec::new(),
            reply: reply.clone(),
            agent: String::new(),
        }
    }

    #[test]
    fn a_request_goes_on_from_the_longest_conversation_that_it_extends() {
        let first = turn(&[user("a")], &assistant("b"));
        let second = turn(&[user("a"), assistant("b"), user("c")], &assistant("d"));
        let answered = [first.clone(), second];
        let find = |messages: &[ChatMessage]| continued(&answered, messages, &[]);
        let longest = [user("a"), assistant(" b\n"), user("c"), assistant("d"), user("e")];
        assert_eq!(find(&longest), Some(Continued { turn: 1, messages: 4 }));
        let branch = [user("a"), assistant("b"), user("other")];
        assert_eq!(find(&branch), Some(Continued { turn: 0, messages: 2 }));
        for new in [
            vec![user("a")],
            vec![user("a"), assistant("B"), user("c")],
            vec![user("A"), assistant("b"), user("c")],
            vec![user("a"), assistant("b")],
            vec![user("summary"), user("c")],
        ] {
            assert_eq!(find(&new), None, "{new:?}");
        }
        let twice = [first.clone(), first.clone()];
        assert_eq!(continued(&twice, &branch, &[]).map(|found| found.turn), Some(1));
        let tool = Tool::from_json(r#"{"name":"f"}"#).unwrap();
        assert_eq!(continued(&twice, &branch, &[tool]), None);
    }

    #[test]
    fn calls_are_compared_as_json() {
        let call = |arguments: &str| ChatMessage {
            calls: vec![MessageCall { id: "c".into(), name: "f".into(), arguments: arguments.into() }],
            ..assistant("")
        };
        let answered = [turn(&[user("a")], &call("{\"x\":1,\"y\":2}"))];
        let next = |arguments: &str| {
            let result = ChatMessage { call_id: Some("c".into()), ..ChatMessage::new("tool", "3") };
            continued(&answered, &[user("a"), call(arguments), result], &[]).is_some()
        };
        assert!(next("{\"y\": 2, \"x\": 1}") && !next("{\"x\":1,\"y\":3}"));
    }
}
