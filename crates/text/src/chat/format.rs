//! Conversations as token sequences that grow turn by turn.
//!
//! Each turn appends two parts: the reply as sampled, and the template's text up to the next reply.
//! The template's text is tokenized separately. If a single token (`<|im_end|>`) closes a reply,
//! the tokens equal those of the whole text, because tokenizers first split text at such tokens.
//! Templates without such a token are single-turn only.
//!
//! Earlier replies keep their reasoning. To drop reasoning, render a new conversation for each turn
//! ([`ChatFormat::first`]).

mod messages;
mod tools;
mod training;

use std::sync::Arc;

pub use self::tools::{Answered, Call};
pub use self::training::Stretch;
use super::{ChatTemplate, Message, RenderOptions, Tool};
use crate::{TextError, Tokenizer};

const QUESTION: &str = "the-first-question";
const REPLY: &str = "the-reply-in-question";
const NEXT: &str = "the-next-question";

/// Settings of a [`ChatFormat`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatSettings {
    /// System message. If `None`, the template may add a default system message.
    pub system: Option<String>,
    /// Value of `enable_thinking`; `None` leaves the choice to the template.
    pub thinking: Option<bool>,
}

/// Converts the conversations of a model to tokens.
#[derive(Clone, Debug)]
pub struct ChatFormat {
    template: Arc<ChatTemplate>,
    settings: ChatSettings,
    close: Option<u32>,
    close_text: String,
    stop: Vec<u32>,
    opening: String,
    single_turn: Option<String>,
    takes_tools: bool,
}

impl ChatFormat {
    /// Creates the format for a tokenizer with a chat template.
    ///
    /// # Errors
    /// Fails if there is no usable chat template or no token that ends a reply.
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

    /// Returns the tokens that end a reply.
    pub fn stop_tokens(&self) -> &[u32] {
        &self.stop
    }

    /// Returns the token that ends a reply in training data.
    pub fn close(&self) -> u32 {
        self.close.unwrap_or(self.stop[0])
    }

    /// Returns the text that opens a reply, for example `<think>`; often empty.
    pub fn opening(&self) -> &str {
        &self.opening
    }

    /// Checks that appending a turn never changes earlier tokens.
    ///
    /// # Errors
    /// Returns [`TextError::Chat`] if the template cannot render several turns, omits replies or
    /// later text, has no closing token, repeats the system message, or makes the text after a
    /// reply depend on earlier turns.
    pub fn check_growth(&self) -> Result<(), TextError> {
        match &self.single_turn {
            None => Ok(()),
            Some(reason) => Err(TextError::Chat(format!(
                "this chat template cannot be continued token by token: {reason}; use a layout in which every turn is \
                 a conversation of its own, or no chat template"
            ))),
        }
    }

    /// Returns true if the template uses `enable_thinking`.
    ///
    /// # Errors
    /// Fails if the template cannot render a single question.
    pub fn knows_thinking(&self) -> Result<bool, TextError> {
        let render = |thinking| {
            let options = RenderOptions { add_generation_prompt: true, thinking, ..RenderOptions::default() };
            self.template.render(&[Message::user(QUESTION)], &options)
        };
        Ok(render(Some(true))? != render(Some(false))?)
    }

    /// Returns the prompt of a conversation that starts with the user message `user`.
    ///
    /// # Errors
    /// Fails if the template cannot render the message.
    pub fn first(&self, tokenizer: &Tokenizer, tools: &[Tool], user: &str) -> Result<Vec<u32>, TextError> {
        Ok(tokenizer.encode(&self.render(&[Message::user(user)], tools, true)?))
    }

    /// Returns the tokens between two replies, including the message `user`. `last` is the last
    /// token sampled for the first reply; if `last` is the closing token, the result does not
    /// repeat it.
    ///
    /// # Errors
    /// Fails like [`check_growth`](Self::check_growth), or if the template cannot render the
    /// message or does not close the reply with the closing token.
    pub fn next(&self, tokenizer: &Tokenizer, user: &str, last: Option<u32>) -> Result<Vec<u32>, TextError> {
        self.check_growth()?;
        self.after_close(tokenizer, &self.after_reply(&[(QUESTION, REPLY)], user)?, last)
    }

    /// Tokenizes a text that starts by closing a reply, but omits the closing token if it equals
    /// `last`.
    fn after_close(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        last: Option<u32>,
    ) -> Result<Vec<u32>, TextError> {
        let mut ids = tokenizer.encode(text);
        if ids.first().copied() != self.close {
            return Err(TextError::Chat("the chat template closes this reply otherwise than others".into()));
        }
        if last == self.close {
            ids.remove(0);
        }
        Ok(ids)
    }

    /// Returns a reply's text without its end token.
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

    fn after_reply(&self, turns: &[(&str, &str)], user: &str) -> Result<String, TextError> {
        let mut messages = Vec::new();
        for (question, reply) in turns {
            messages.extend([Message::user(question), Message::assistant(reply)]);
        }
        messages.push(Message::user(user));
        let text = self.render(&messages, &[], true)?;
        // `user` follows the replies, so it cannot be mistaken for one.
        let last = turns.last().map_or("", |(_, reply)| reply);
        match text.split_once(last) {
            Some((_, after)) => Ok(after.to_owned()),
            None => {
                Err(TextError::Chat("the chat template does not show the model's earlier replies".into()))
            }
        }
    }

    /// Returns the token that closes a reply, or the reason why conversations cannot be extended.
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
