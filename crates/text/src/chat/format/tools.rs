//! Calls of tools in conversations that grow: the reply that makes calls, and what the template writes of their results.
//!
//! The reply stays as it was sampled. What comes after it is rendered with a stand-in for the calls, because some templates look
//! back at them (for their number, or for the ids of results), and cut off behind the token that closes the reply.

use super::{ChatFormat, NEXT, QUESTION};
use crate::chat::{Message, RenderOptions, Tool};
use crate::{TextError, Tokenizer};

/// Name of the tool whose calls stand for those of a reply.
const TOOL: &str = "the_tool_in_question";
const RESULT: &str = "the-result-in-question";

/// A thought without words, as Qwen3's template writes it.
const EMPTY_THOUGHT: &str = "<think>\n\n</think>\n\n";

/// A call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The name by which its result refers to it.
    pub id: &'a str,
    /// The tool.
    pub name: &'a str,
    /// Its arguments, as JSON.
    pub arguments: &'a str,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered<'a> {
    /// [`Call::id`].
    pub id: &'a str,
    /// The tool that was called.
    pub name: &'a str,
    /// What it answered.
    pub text: &'a str,
}

impl Message {
    /// The model's words and its calls.
    ///
    /// # Errors
    /// Arguments that are not JSON.
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

    /// The result of a call.
    pub fn result(answered: &Answered<'_>) -> Self {
        let Answered { id, name, text } = *answered;
        let entries = [("role", "tool"), ("name", name), ("tool_call_id", id), ("content", text)];
        Self(entries.into_iter().collect())
    }
}

impl ChatFormat {
    /// True if the template shows tools, and their results in messages of the role `tool`, so that a conversation with calls can be
    /// grown. In one that does not, tools and results are words of the user.
    pub fn takes_tools(&self) -> bool {
        self.takes_tools
    }

    /// Returns the text of a reply that makes these calls, as the template writes it in place of the model; what it opens itself
    /// ([`ChatFormat::opening`]) and the token that closes the reply are left out.
    ///
    /// # Errors
    /// The template does not take tools, refuses these calls (Llama 3's refuses several), or cannot be rendered.
    pub fn reply_calling(&self, thought: &str, calls: &[Call<'_>]) -> Result<String, TextError> {
        let question = Message::user(QUESTION);
        let prompt = self.render(std::slice::from_ref(&question), &[], true)?;
        let whole = self.render(&[question, Message::calling(thought, calls)?], &[], false)?;
        // A reply in a conversation may lack what a prompt opens, or the empty thought of a prompt without thinking.
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
        // Qwen3's template puts an empty thought before a last reply that has none.
        Ok(reply.strip_prefix(EMPTY_THOUGHT).unwrap_or(reply).to_owned())
    }

    /// Returns the tokens between a reply that made calls and the next one: the reply's end as far as it is missing, the results of
    /// the calls, the user's words where there are any, and the start of the next reply. `last` is the last token of the reply
    /// that was sampled.
    ///
    /// # Errors
    /// Those of [`ChatFormat::next`], and a template that does not take tools.
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

    /// The text from the end of a reply on that made these calls.
    fn after_calls(
        &self,
        tools: &[Tool],
        answered: &[Answered<'_>],
        user: Option<&str>,
    ) -> Result<String, TextError> {
        let one = self.after_several_calls(tools, answered, user, answered.len());
        // A template that refuses several calls in a reply still shows several results after one that has a single call.
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

    /// Returns the text from the end of this reply on: what closes it, these messages, and the start of the next reply.
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

    /// The text of a reply up to the token that closes it.
    fn before_close<'t>(&self, reply: &'t str) -> Option<&'t str> {
        Some(reply.split_once(self.close_text.as_str())?.0).filter(|_| !self.close_text.is_empty())
    }

    /// True if tools and results are shown by the template, and the text after calls closes their reply as that of others.
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
