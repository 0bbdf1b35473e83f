//! Prompts for conversations whose messages the client stores.

use super::{Call, ChatFormat, REPLY};
use crate::chat::{Message, Tool};
use crate::{TextError, Tokenizer};

impl ChatFormat {
    /// Returns the prompt for a conversation. Set `own_system` if the first message has the role
    /// `system`; otherwise the format's system message is added.
    ///
    /// # Errors
    /// Fails with the template's line number if the template cannot render the messages.
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

    /// Returns the tokens between a reply that made `calls` and the next reply. The tokens contain
    /// `following`, the messages after the first reply. `last` is the first reply's last sampled
    /// token.
    ///
    /// # Errors
    /// Fails like [`ChatFormat::next`].
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
        self.after_close(tokenizer, &self.after_message(tools, reply, following)?, last)
    }
}
