//! Prompts as tokens: the template's text, and the model's chat format around it if there is one.
//!
//! With a chat format, prompts are user messages and responses are replies. A windowed prompt is
//! its own conversation, so template rules for earlier replies (Qwen3 drops their reasoning) never
//! apply. A concatenated sequence is one growing conversation that keeps its replies as sampled. A
//! template with an open reply (Search-R1) makes the whole sequence one reply, with the
//! observations in it.

use std::borrow::Cow;

use turnwise_core::{FinishReason, Observation, Part, Reasoning, Task};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView};
use turnwise_text::TextError;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::config::Layout;

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
    /// Returns the prompt of an episode's first turn, with `preamble` before it.
    ///
    /// # Errors
    /// As [`Prompter::start`].
    pub(crate) fn first(
        &self,
        layout: Layout,
        history: usize,
        task: &Task,
        observation: &Observation,
        preamble: &str,
    ) -> Result<Vec<u32>, TextError> {
        let words = observation.text();
        let seen = (&*words, observation.admissible.as_slice());
        let text = match layout {
            Layout::Concatenated => self.template.render_concatenated_first(&view(task, seen, &[], 0, 0)),
            Layout::Windowed => self.template.render(&view(task, seen, &[], 0, history), PromptKind::Full),
        };
        self.start(&format!("{preamble}{text}"))
    }

    /// The observation within the task's limit of tokens: the texts are cut where it is reached, before a character that does
    /// not fit whole.
    pub(crate) fn shorten(&self, mut observation: Observation, task: &Task) -> Observation {
        let Some(mut room) = task.limits.observation_tokens else { return observation };
        for part in &mut observation.parts {
            let (Part::Text { text } | Part::ToolResult { text, .. }) = part else { continue };
            let tokens = self.tokenizer.encode(text);
            if tokens.len() > room {
                *text = whole_text(self.tokenizer, &tokens[..room]);
            }
            room = room.saturating_sub(tokens.len());
        }
        observation
    }

    /// A prompt that starts a sequence.
    ///
    /// # Errors
    /// Fails if the chat template rejects the text or cannot be rendered. Without a chat format there are none.
    pub fn start(&self, text: &str) -> Result<Vec<u32>, TextError> {
        match self.chat {
            Some(chat) => chat.first(self.tokenizer, text),
            // What this model has seen before every text, as `transformers` and vLLM put it there.
            None => Ok([self.tokenizer.text_prefix(), &self.tokenizer.encode(text)].concat()),
        }
    }

    /// Tokens that a concatenated sequence gets between a response and the next one: `last` is the response's last
    /// token, `finish` why it ended.
    ///
    /// # Errors
    /// Fails if the chat template cannot continue after a reply, rejects the observation, or closes
    /// this reply differently from others. Without a chat format, or with an open reply, it never
    /// fails.
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

    /// Returns a demonstrated response as the model should write it, its end included; `first`: the first
    /// one of its sequence.
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

    /// Returns the text of a sampled response, without the token that ended it.
    pub fn response(&self, ids: &[u32]) -> String {
        match (self.chat, ids.split_last()) {
            (Some(chat), _) => chat.reply_text(self.tokenizer, ids),
            (None, Some((last, rest))) if self.tokenizer.end_tokens().contains(last) => {
                self.tokenizer.decode(rest)
            }
            (None, _) => self.tokenizer.decode(ids),
        }
    }

    /// Returns the response with the text that the chat template wrote before it, such as an
    /// opening `<think>`, for parsing. `first`: the first response of its sequence; later ones of
    /// an open reply have no such text.
    pub fn whole<'t>(&self, response: &'t str, first: bool) -> Cow<'t, str> {
        let opened = first || !self.template.keeps_reply_open();
        match self.chat.map(ChatFormat::opening) {
            Some(opening) if opened && !opening.is_empty() => Cow::Owned(format!("{opening}{response}")),
            _ => Cow::Borrowed(response),
        }
    }
}

/// The text of tokens that a cut has left, without the last ones where those are the beginning of a character.
fn whole_text(tokenizer: &Tokenizer, mut tokens: &[u32]) -> String {
    let is_cut = |tokens: &[u32]| {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
        let rest = bytes.utf8_chunks().last().map_or(b"".as_slice(), |chunk| chunk.invalid());
        // What more bytes could make a character of has no length as an error.
        std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none())
    };
    while let Some((_, before)) = tokens.split_last().filter(|_| is_cut(tokens)) {
        tokens = before;
    }
    tokenizer.decode(tokens)
}

/// The parts of a prompt.
pub(super) fn view<'a>(
    task: &'a Task,
    (text, admissible): (&'a str, &'a [String]),
    history: &'a [(String, String)],
    turn: usize,
    window: usize,
) -> PromptView<'a> {
    PromptView { goal: &task.goal, history, window, observation: text, admissible, step: turn }
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

#[cfg(test)]
mod tests {
    use turnwise_text::TokenizerConfig;

    use super::*;

    #[test]
    fn a_cut_text_ends_with_a_whole_character() {
        // Tokens are bytes.
        let tokenizer = Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap();
        let ids = tokenizer.encode("né日🦙\u{fffd}x");
        let cut = |room: usize| whole_text(&tokenizer, &ids[..room]);
        let expected = ["", "n", "n", "né", "né", "né", "né日", "né日", "né日", "né日", "né日🦙"];
        let found: Vec<String> = (0..expected.len()).map(cut).collect();
        assert_eq!(found, expected);
        // A character that says that there was none is whole, and bytes that are no text further before change nothing.
        assert_eq!(cut(13), "né日🦙\u{fffd}");
        assert_eq!(cut(ids.len()), "né日🦙\u{fffd}x");
        let broken = [&tokenizer.encode("é")[1..], &tokenizer.encode("né")[..2]].concat();
        assert_eq!(whole_text(&tokenizer, &broken), "\u{fffd}n");
    }
}
