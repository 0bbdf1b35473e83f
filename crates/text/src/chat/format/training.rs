//! Token sequences for supervised fine-tuning, in which the replies are marked.
//!
//! Prompts and replies are tokenized separately, as in sampling. If the template changes earlier
//! replies (Qwen3's drops their reasoning), a conversation yields several sequences; each reply is
//! marked in exactly one of them.

use super::ChatFormat;
use crate::chat::{Message, RenderOptions, Tool};
use crate::{TextError, Tokenizer};

/// Consecutive tokens of a prompt or of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Token ids.
    pub ids: Vec<u32>,
    /// True if the tokens are a reply to train on.
    pub reply: bool,
}

impl ChatFormat {
    /// Returns a conversation's sequences as lists of token spans. `replies` contains the indices,
    /// in ascending order, of the messages to train on. Messages after the last reply to train on
    /// are dropped.
    ///
    /// # Errors
    /// Fails if the template rejects a message, or if a reply does not continue its prompt.
    pub fn training_sequences(
        &self,
        tokenizer: &Tokenizer,
        messages: &[Message],
        replies: &[usize],
        tools: &[Tool],
    ) -> Result<Vec<Vec<Stretch>>, TextError> {
        let system =
            self.settings.system.as_deref().filter(|_| !messages.first().is_some_and(Message::is_system));
        let before: Vec<Message> = system.map(Message::system).into_iter().collect();
        let render = |end: usize, prompt: bool| {
            let all: Vec<Message> = before.iter().chain(&messages[..end]).cloned().collect();
            let RenderOptions { tools, thinking, .. } = self.options(tools, prompt);
            self.template.render(&all, &RenderOptions { add_generation_prompt: prompt, tools, thinking })
        };
        let mut sequences: Vec<Vec<Stretch>> = Vec::new();
        let mut written = String::new();
        for &place in replies {
            let (asked, whole) = (render(place, true)?, render(place + 1, false)?);
            let opened = asked.strip_suffix(self.opening()).unwrap_or(&asked);
            let prompt = [asked.as_str(), opened].into_iter().find(|prompt| whole.starts_with(prompt));
            let Some(prompt) = prompt else {
                return Err(TextError::Chat(format!(
                    "message {place}: the chat template writes this reply otherwise than it asks for one"
                )));
            };
            let reply = self.up_to_close(&whole[prompt.len()..]);
            let grows = !written.is_empty() && prompt.starts_with(&written);
            if !grows {
                sequences.push(Vec::new());
            }
            let Some(sequence) = sequences.last_mut() else { continue };
            let new = if grows { &prompt[written.len()..] } else { prompt };
            sequence.push(Stretch { ids: tokenizer.encode(new), reply: false });
            sequence.push(Stretch { ids: tokenizer.encode(reply), reply: true });
            written = format!("{prompt}{reply}");
        }
        Ok(sequences)
    }

    fn up_to_close<'t>(&self, reply: &'t str) -> &'t str {
        let close = self.close_text.as_str();
        if close.is_empty() {
            return reply;
        }
        reply.rfind(close).map_or(reply, |at| &reply[..at + close.len()])
    }
}
