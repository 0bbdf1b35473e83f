//! Tool calls and results in multi-turn conversations.
//!
//! Replies keep their sampled tokens. The text after a reply is rendered with placeholder calls,
//! because templates may refer to earlier calls.

use super::{ChatFormat, NEXT, QUESTION};
use crate::chat::{Message, RenderOptions, Tool};
use crate::{TextError, Tokenizer};

const TOOL: &str = "the_tool_in_question";
const RESULT: &str = "the-result-in-question";

const EMPTY_THOUGHT: &str = "<think>\n\n</think>\n\n";

/// A tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// Call id.
    pub id: &'a str,
    /// Tool name.
    pub name: &'a str,
    /// Arguments as JSON.
    pub arguments: &'a str,
}

/// Result of a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered<'a> {
    /// Call id, as in [`Call::id`].
    pub id: &'a str,
    /// Tool name.
    pub name: &'a str,
    /// Result text.
    pub text: &'a str,
}

impl Message {
    /// Creates an assistant message with text and tool calls.
    ///
    /// # Errors
    /// Fails if arguments are not JSON.
    pub fn calling(content: &str, calls: &[Call<'_>]) -> Result<Self, TextError> {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let call = |call: &Call<'_>| {
            format!(
                r#"{{"type":"function","id":{},"function":{{"name":{},"arguments":{}}}}}"#,
                quoted(call.id),
                quoted(call.name),
                call.arguments
            )
        };
        let calls = calls.iter().map(call).collect::<Vec<_>>().join(",");
        Self::from_json(&format!(
            r#"{{"role":"assistant","content":{},"tool_calls":[{calls}]}}"#,
            quoted(content)
        ))
    }

    /// Creates a message with a tool call's result.
    pub fn result(answered: &Answered<'_>) -> Self {
        let Answered { id, name, text } = *answered;
        let entries = [("role", "tool"), ("name", name), ("tool_call_id", id), ("content", text)];
        Self(entries.into_iter().collect())
    }
}

impl ChatFormat {
    /// Returns true if the template renders tools and `tool` messages. If false, put tools and tool
    /// results into user messages.
    pub fn takes_tools(&self) -> bool {
        self.takes_tools
    }

    /// Renders a reply with tool calls, without the reply's opening ([`ChatFormat::opening`]) and
    /// closing token.
    ///
    /// # Errors
    /// Fails if the template does not support tools or rejects the calls (Llama 3's template
    /// rejects several calls).
    pub fn reply_calling(&self, thought: &str, calls: &[Call<'_>]) -> Result<String, TextError> {
        let question = Message::user(QUESTION);
        let prompt = self.render(std::slice::from_ref(&question), &[], true)?;
        let whole = self.render(&[question, Message::calling(thought, calls)?], &[], false)?;
        // A reply may lack the opening or empty reasoning of its prompt.
        let prompts = [self.opening(), EMPTY_THOUGHT].map(|end| prompt.strip_suffix(end).unwrap_or(&prompt));
        let reply = std::iter::once(prompt.as_str())
            .chain(prompts)
            .find_map(|prompt| whole.strip_prefix(prompt))
            .and_then(|reply| self.before_close(reply));
        let reply = reply.ok_or_else(|| {
            TextError::Chat(
                "the chat template writes a reply with calls otherwise than it asks for one".into(),
            )
        })?;
        // Qwen3's template adds empty reasoning to a last reply.
        Ok(reply.strip_prefix(EMPTY_THOUGHT).unwrap_or(reply).to_owned())
    }

    /// Returns the tokens between a reply with calls and the next reply: the results and,
    /// optionally, a user message. `last` is the first reply's last sampled token.
    ///
    /// # Errors
    /// Fails like [`ChatFormat::next`], or if the template does not support tools.
    pub fn next_after_calls(
        &self,
        tokenizer: &Tokenizer,
        tools: &[Tool],
        answered: &[Answered<'_>],
        user: Option<&str>,
        last: Option<u32>,
    ) -> Result<Vec<u32>, TextError> {
        self.check_growth()?;
        self.after_close(tokenizer, &self.after_calls(tools, answered, user)?, last)
    }

    fn after_calls(
        &self,
        tools: &[Tool],
        answered: &[Answered<'_>],
        user: Option<&str>,
    ) -> Result<String, TextError> {
        let one = self.after_several_calls(tools, answered, user, answered.len());
        // Templates that reject several calls may accept several results of one call.
        if one.is_err() && answered.len() > 1 {
            return self.after_several_calls(tools, answered, user, 1);
        }
        one
    }

    fn after_several_calls<'a>(
        &self,
        tools: &[Tool],
        answered: &[Answered<'a>],
        user: Option<&str>,
        calls: usize,
    ) -> Result<String, TextError> {
        let stand_in = |answered: &Answered<'a>| Call { id: answered.id, name: TOOL, arguments: "{}" };
        let made: Vec<Call<'a>> = answered.iter().take(calls).map(stand_in).collect();
        let mut messages: Vec<Message> = answered.iter().map(Message::result).collect();
        messages.extend(user.map(Message::user));
        self.after_message(tools, Message::calling("", &made)?, messages)
    }

    pub(super) fn after_message(
        &self,
        tools: &[Tool],
        reply: Message,
        following: Vec<Message>,
    ) -> Result<String, TextError> {
        let question = Message::user(QUESTION);
        let before = self.render(std::slice::from_ref(&question), tools, false)?;
        let messages: Vec<Message> = [question, reply].into_iter().chain(following).collect();
        let whole = self.render(&messages, tools, true)?;
        let reply = whole.strip_prefix(before.as_str());
        let after = reply.and_then(|reply| Some(&reply[self.before_close(reply)?.len()..]));
        after.map(str::to_owned).ok_or_else(|| {
            TextError::Chat("the chat template does not show the model's earlier calls".into())
        })
    }

    fn before_close<'t>(&self, reply: &'t str) -> Option<&'t str> {
        Some(reply.split_once(self.close_text.as_str())?.0).filter(|_| !self.close_text.is_empty())
    }

    /// Returns true if the template renders tools and results, and ends replies with calls in the
    /// same way as replies without calls.
    pub(super) fn find_tools(&self) -> bool {
        let Ok(tool) = Tool::from_json(&format!(
            r#"{{"type":"function","function":{{"name":"{TOOL}","description":"","parameters":{{"type":"object","properties":{{}}}}}}}}"#
        )) else {
            return false;
        };
        let tools = [tool];
        let question = [Message::user(QUESTION)];
        let shown = self.render(&question, &tools, true).is_ok_and(|text| text.contains(TOOL));
        let results = ["a", "b"].map(|id| Answered { id, name: TOOL, text: RESULT });
        let after = |user| self.after_calls(&tools, &results, user);
        let closes =
            |text: &String| !self.close_text.is_empty() && text.starts_with(self.close_text.as_str());
        let grown = after(None).is_ok_and(|text| closes(&text) && text.matches(RESULT).count() == 2);
        let user = after(Some(NEXT)).is_ok_and(|text| closes(&text) && text.contains(NEXT));
        shown && grown && user
    }

    pub(super) fn options(&self, tools: &[Tool], prompt: bool) -> RenderOptions {
        RenderOptions {
            add_generation_prompt: prompt,
            tools: tools.to_vec(),
            thinking: self.settings.thinking,
        }
    }
}
