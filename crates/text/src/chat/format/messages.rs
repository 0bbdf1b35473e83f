//! Conversations that somebody else keeps: prompts of their messages, and the text between a reply and the messages after it.

use super::{Call, ChatFormat, REPLY};
use crate::chat::{Message, Tool};
use crate::{TextError, Tokenizer};

impl ChatFormat {
    /// Returns the prompt of a conversation with these messages. The format's instructions come before them unless the first message
    /// has the role `system`, which `own_system` says.
    ///
    /// # Errors
    /// The template refuses these messages or cannot be rendered; the error has the line.
    pub fn conversation(
        &self,
        tokenizer: &Tokenizer,
        tools: &[Tool],
        messages: &[Message],
        own_system: bool,
    ) -> Result<Vec<u32>, TextError> {
        let text = if own_system {
            self.template.render(messages, &self.options(tools, true))?
        } else {
            self.render(messages, tools, true)?
        };
        Ok(tokenizer.encode(&text))
    }

    /// Returns the tokens between a reply that made these calls and the next one, with these messages between them. `last` is the
    /// last token of the reply that was sampled.
    ///
    /// # Errors
    /// Those of [`ChatFormat::next`].
    pub fn next_messages(
        &self,
        tokenizer: &Tokenizer,
        tools: &[Tool],
        calls: &[Call<'_>],
        following: Vec<Message>,
        last: Option<u32>,
    ) -> Result<Vec<u32>, TextError> {
        self.check_growth()?;
        let reply = if calls.is_empty() { Message::assistant(REPLY) } else { Message::calling("", calls)? };
        let mut ids = tokenizer.encode(&self.after_message(tools, reply, following)?);
        if ids.first().copied() != self.close {
            return Err(TextError::Chat("the chat template closes this reply otherwise than others".into()));
        }
        if last == self.close {
            ids.remove(0);
        }
        Ok(ids)
    }
}
