//! Prompts as tokens: the template's text, and the model's chat format around it where there is one.
//!
//! With a chat format every prompt is what the user says and every response a reply. A windowed prompt is a
//! conversation of its own, so what the chat template does to earlier replies (Qwen3's drops their reasoning) never
//! comes to pass; a concatenated sequence is one conversation that grows and keeps its replies as they were sampled. A template
//! that keeps the reply open (Search-R1's) makes one reply of the whole sequence, with the observations inside.

use std::borrow::Cow;

use turnwise_core::{FinishReason, Reasoning};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::{PromptTemplate, PromptView};
use turnwise_text::TextError;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

/// Makes tokens of prompts and text of responses.
#[derive(Clone, Copy)]
pub struct Prompter<'a> {
    /// The environment's prompts.
    pub template: &'a PromptTemplate,
    /// Text to ids and back.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat format; without it prompts are plain text.
    pub chat: Option<&'a ChatFormat>,
}

impl Prompter<'_> {
    /// A prompt that starts a sequence.
    ///
    /// # Errors
    /// The chat template refuses the text or cannot be rendered. Without a chat format there are none.
    pub fn start(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match self.chat {
            Some(chat) => chat.first(self.tokenizer, &[], text),
            // What this model has seen before every text, as `transformers` and vLLM put it there.
            None => Ok([self.tokenizer.text_prefix(), &self.tokenizer.encode(text)].concat()),
        }
    }

    /// Tokens that a concatenated sequence gets between a response and the next one: `last` is the response's last
    /// token, `finish` why it ended.
    ///
    /// # Errors
    /// The chat template cannot be continued after a reply, refuses the observation, or closes this reply otherwise
    /// than others. Without a chat format, and where the reply is kept open, there are none.
    pub fn between(
        &self,
        view: &PromptView<'_>,
        last: Option<u32>,
        finish: FinishReason,
    ) -> Result<Vec<u32>, TextError> {
        // A reply that stays open goes on after the observation as plain text does.
        if let Some(chat) = self.chat.filter(|_| !self.template.keeps_reply_open()) {
            // The blanks that set an observation off from the text before it mean nothing in a message.
            let text = self.template.render_concatenated_next(view, true);
            return chat.next(self.tokenizer, text.trim_start(), last);
        }
        // An end token is not the text that a response to this template ends with.
        let ended = last.is_some_and(|last| self.tokenizer.end_tokens().contains(&last));
        let closed = finish == FinishReason::Stop && !ended;
        Ok(self.tokenizer.encode(&self.template.render_concatenated_next(view, closed)))
    }

    /// A demonstrated response as the model should write it, its end included; `first`: the first one of its sequence.
    pub fn demonstrated(&self, action: &str, first: bool) -> Vec<u32> {
        let text = self.template.response(action);
        let stops = self.template.stop();
        let Some(chat) = self.chat else {
            let mut ids = self.tokenizer.encode(&text);
            // Where the prompt template ends no response, the model's own end token does.
            ids.extend(self.tokenizer.end_tokens().first().filter(|_| stops.is_empty()));
            return ids;
        };
        if self.template.keeps_reply_open() {
            // Later ones stand after an observation and not after what opened the reply.
            let opening = if first { chat.opening() } else { "" };
            return self.tokenizer.encode(text.strip_prefix(opening).unwrap_or(&text));
        }
        // A reply ends with the token that closes it, and not before with what would end a plain text, unless that is a part of the
        // action, such as a closing tag.
        let parser = ActionParser::new(self.template.rules().clone(), false);
        let bare = stops.iter().find_map(|stop| text.strip_suffix(stop.as_str()));
        let bare = bare.filter(|bare| parser.parse(bare, &[]) == parser.parse(&text, &[]));
        let mut ids = self.tokenizer.encode(&after_opening(chat.opening(), bare.unwrap_or(&text)));
        ids.push(chat.close());
        ids
    }

    /// The text of a sampled response, without the token that ended it.
    pub fn response(&self, ids: &[u32]) -> String {
        match (self.chat, ids.split_last()) {
            (Some(chat), _) => chat.reply_text(self.tokenizer, ids),
            (None, Some((last, rest))) if self.tokenizer.end_tokens().contains(last) => {
                self.tokenizer.decode(rest)
            }
            (None, _) => self.tokenizer.decode(ids),
        }
    }

    /// The response with what the chat template wrote of it before the model did, such as an opened `<think>`: what
    /// the action is read from. `first`: the first one of its sequence; later ones of a reply that stays open have nothing of it.
    pub fn whole<'t>(&self, response: &'t str, first: bool) -> Cow<'t, str> {
        let opened = first || !self.template.keeps_reply_open();
        match self.chat.map(ChatFormat::opening) {
            Some(opening) if opened && !opening.is_empty() => Cow::Owned(format!("{opening}{response}")),
            _ => Cow::Borrowed(response),
        }
    }
}

/// The rest of a reply after what the chat template has written of it: of a thought that is open there, its rest or its end.
fn after_opening<'t>(opening: &str, text: &'t str) -> Cow<'t, str> {
    if let Some(rest) = text.strip_prefix(opening) {
        return Cow::Borrowed(rest);
    }
    if !matches!(Reasoning::of(opening), Reasoning::Unclosed(_)) {
        return Cow::Borrowed(text);
    }
    match text.trim_start().strip_prefix("<think>") {
        Some(thought) => Cow::Borrowed(thought),
        None => Cow::Owned(format!("\n</think>\n\n{}", text.trim_start())),
    }
}
