//! Conversations as tokens that grow and are never tokenized twice.
//!
//! A conversation is the tokens of its first prompt, then for every turn the reply exactly as it was
//! sampled and what the template writes between that reply and the next. The text between is tokenized
//! alone. That gives the tokens of the whole where the template closes a reply with a token of its own
//! (`<|im_end|>`), since the tokenizer cuts text there before it does anything else; a template that does
//! not is rejected for conversations of several turns.
//!
//! Templates such as Qwen3's leave the reasoning of earlier replies out when they render a conversation
//! again. Growing keeps it: what was sampled stays. Whoever wants earlier reasoning dropped renders a new
//! conversation for each turn ([`ChatFormat::first`], the windowed layout of training), where it was
//! never put in.

mod messages;
mod tools;
mod training;

use std::sync::Arc;

pub use self::tools::{Answered, Call};
pub use self::training::Stretch;
use super::{ChatTemplate, Message, RenderOptions, Tool};
use crate::{TextError, Tokenizer};

/// Words that stand for a message while the text around it is looked for.
const QUESTION: &str = "the-first-question";
const REPLY: &str = "the-reply-in-question";
const NEXT: &str = "the-next-question";

/// Settings of a chat format.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatSettings {
    /// Instructions before the conversation. Without them the template may put in its own.
    pub system: Option<String>,
    /// `enable_thinking`; without a value the template decides itself.
    pub thinking: Option<bool>,
}

/// Form in which a model's conversations become tokens.
#[derive(Clone, Debug)]
pub struct ChatFormat {
    template: Arc<ChatTemplate>,
    settings: ChatSettings,
    /// The token that the template itself puts after a reply.
    close: Option<u32>,
    /// Its text; empty where there is none.
    close_text: String,
    stop: Vec<u32>,
    opening: String,
    /// Reason why a conversation cannot be grown, where it cannot.
    single_turn: Option<String>,
    takes_tools: bool,
}

impl ChatFormat {
    /// Returns the format of a model with a chat template.
    ///
    /// # Errors
    /// Fails if there is no chat template, it cannot be rendered, or nothing states how a reply ends.
    pub fn new(tokenizer: &Tokenizer, settings: ChatSettings) -> Result<Self, TextError> {
        let Some(template) = tokenizer.chat_template() else {
            return Err(TextError::Chat(
                "the model has no chat template (chat_template in tokenizer_config.json, or chat_template.jinja)"
                    .into(),
            ));
        };
        let mut format = Self {
            template: Arc::clone(template),
            settings,
            close: None,
            close_text: String::new(),
            stop: tokenizer.end_tokens().to_vec(),
            opening: String::new(),
            single_turn: None,
            takes_tools: false,
        };
        format.opening = format.find_opening()?;
        match format.find_close(tokenizer) {
            Ok(close) => {
                format.close = Some(close);
                format.close_text = String::from_utf8_lossy(tokenizer.token_bytes(close)).into_owned();
                format.takes_tools = format.find_tools();
                if !format.stop.contains(&close) {
                    format.stop.push(close);
                }
            }
            Err(reason) => format.single_turn = Some(reason),
        }
        if format.stop.is_empty() {
            return Err(TextError::Chat(
                "nothing says how a reply ends: give generation_config.json an eos_token_id, or \
                 tokenizer_config.json an eos_token"
                    .into(),
            ));
        }
        Ok(format)
    }

    /// Returns the tokens that end a reply: those the model's files name and the one with which the
    /// template closes one.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// Returns the token that a finished reply ends with in training data.
    pub fn close(&self) -> u32 {
        self.close.unwrap_or(self.stop[0])
    }

    /// Returns the template's text of a reply before the model's first token, as far as it belongs to the
    /// reply: an opened `<think>`, or nothing.
    pub fn opening(&self) -> &str {
        &self.opening
    }

    /// Rejects formats whose conversations cannot be grown turn by turn, with the reason.
    ///
    /// # Errors
    /// Returns [`TextError::Chat`]: the template cannot render several turns, leaves replies or what
    /// follows them out, closes a reply with no token of its own, repeats the system message, or writes
    /// after a reply what depends on earlier turns.
    pub fn check_growth(&self) -> Result<(), TextError> {
        match &self.single_turn {
            None => Ok(()),
            Some(reason) => Err(TextError::Chat(format!(
                "this chat template cannot be continued token by token: {reason}; use a layout in which every turn is \
                 a conversation of its own, or no chat template"
            ))),
        }
    }

    /// Returns true if the template reads `enable_thinking` at all.
    ///
    /// # Errors
    /// Fails if the template rejects a single question or cannot be rendered; the error has the line.
    pub fn knows_thinking(&self) -> Result<bool, TextError> {
        let render = |thinking| {
            let options = RenderOptions { add_generation_prompt: true, thinking, ..RenderOptions::default() };
            self.template.render(&[Message::user(QUESTION)], &options)
        };
        Ok(render(Some(true))? != render(Some(false))?)
    }

    /// Returns the prompt of a conversation that starts with these words and in which these tools may be called.
    ///
    /// # Errors
    /// The template refuses these words or cannot be rendered; the error has the line.
    pub fn first(&self, tokenizer: &Tokenizer, tools: &[Tool], user: &str) -> Result<Vec<u32>, TextError> {
        Ok(tokenizer.encode(&self.render(&[Message::user(user)], tools, true)?))
    }

    /// Returns the tokens between a reply and the next one: the reply's end as far as it is missing, the
    /// user's next words, and the start of the next reply. `last` is the last token of the reply that was
    /// sampled.
    ///
    /// # Errors
    /// Fails like [`check_growth`](Self::check_growth), and a template that rejects these words, cannot be
    /// rendered with them, or closes this reply otherwise than others.
    pub fn next(&self, tokenizer: &Tokenizer, user: &str, last: Option<u32>) -> Result<Vec<u32>, TextError> {
        self.check_growth()?;
        self.after_close(tokenizer, &self.after_reply(&[(QUESTION, REPLY)], user)?, last)
    }

    /// Returns the tokens of a text that closes a reply and goes on. The first is left out if `last`, the reply's last
    /// sampled token, has closed it.
    ///
    /// # Errors
    /// The text does not begin with the token that closes replies.
    fn after_close(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        last: Option<u32>,
    ) -> Result<Vec<u32>, TextError> {
        let mut ids = tokenizer.encode(text);
        // The new messages may change what the template writes after a reply, which was checked for others.
        if ids.first().copied() != self.close {
            return Err(TextError::Chat("the chat template closes this reply otherwise than others".into()));
        }
        if last == self.close {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// Returns a reply's text without the token that ended it.
    pub fn reply_text(&self, tokenizer: &Tokenizer, reply: &[u32]) -> String {
        match reply.split_last() {
            Some((last, rest)) if self.stop.contains(last) => tokenizer.decode(rest),
            _ => tokenizer.decode(reply),
        }
    }

    fn render(&self, messages: &[Message], tools: &[Tool], prompt: bool) -> Result<String, TextError> {
        let system = self.settings.system.as_deref().map(Message::system);
        let all: Vec<Message> = system.into_iter().chain(messages.iter().cloned()).collect();
        self.template.render(&all, &self.options(tools, prompt))
    }

    /// Returns the text after the last reply of a conversation that continues with `user`.
    fn after_reply(&self, turns: &[(&str, &str)], user: &str) -> Result<String, TextError> {
        let mut messages = Vec::new();
        for (question, reply) in turns {
            messages.extend([Message::user(question), Message::assistant(reply)]);
        }
        messages.push(Message::user(user));
        let text = self.render(&messages, &[], true)?;
        // The user's words come after the replies, so they cannot be mistaken for one.
        let last = turns.last().map_or("", |(_, reply)| reply);
        match text.split_once(last) {
            Some((_, after)) => Ok(after.to_owned()),
            None => {
                Err(TextError::Chat("the chat template does not show the model's earlier replies".into()))
            }
        }
    }

    /// Returns the token after a reply, or why a conversation cannot be grown.
    fn find_close(&self, tokenizer: &Tokenizer) -> Result<u32, String> {
        let after = self.after_reply(&[(QUESTION, REPLY)], NEXT).map_err(|error| error.to_string())?;
        let first = tokenizer.encode(&after).first().copied();
        let close = first.filter(|&id| {
            let text = tokenizer.token_bytes(id);
            tokenizer.splits_text(id) && !text.is_empty() && after.as_bytes().starts_with(text)
        });
        let Some(close) = close else {
            return Err("it puts no token of its own after a reply".into());
        };
        if !after.contains(NEXT) {
            return Err("it does not show what comes after a reply".into());
        }
        if let Some(system) = self.settings.system.as_deref().filter(|system| !system.trim().is_empty())
            && after.contains(system.trim())
        {
            return Err("it repeats the system message".into());
        }
        let later = self.after_reply(&[("another-question", "another-reply"), (QUESTION, REPLY)], NEXT);
        if later.ok().as_ref() != Some(&after) {
            return Err("what it writes after a reply depends on the turns before".into());
        }
        Ok(close)
    }

    /// Returns an opened `<think>` at the start of a reply.
    fn find_opening(&self) -> Result<String, TextError> {
        let question = [Message::user(QUESTION)];
        let (with, without) = (self.render(&question, &[], true)?, self.render(&question, &[], false)?);
        let prompt = with.strip_prefix(&without).unwrap_or("");
        Ok(match prompt.rfind("<think>") {
            Some(at) if !prompt[at..].contains("</think>") => prompt[at..].to_owned(),
            _ => String::new(),
        })
    }
}
