//! Your own conversations as token sequences.

use std::path::Path;

use serde::{Deserialize, Serialize};
use turnwise_core::{Purpose, Seed, TokenSequence, Tool, TurnSpan, digest};
use turnwise_env::prompt::tool_list;
use turnwise_text::chat::{self, ChatFormat, Stretch};
use turnwise_text::{TextError, Tokenizer};
use turnwise_trajectory_io::{ChatMessage, Conversation, Format, ReadOptions, read_conversations};

use crate::TrainError;
use crate::config::{Config, Registries, SftDataConfig, TrainOn};
use crate::record::observer::{Event, Observer};
use crate::setup;
use crate::sft::{BatchPlan, SftSequence};

pub(crate) const SUMMARY: &str = "sft-data.json";

/// A run's conversations as token sequences.
#[derive(Clone, Debug, PartialEq)]
pub struct SftData {
    /// Training sequences.
    pub sequences: Vec<SftSequence>,
    /// Held-out sequences.
    pub held_out: Vec<SftSequence>,
    /// Summary for the run directory.
    pub summary: SftSummary,
}

/// Summary of a run's conversations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SftSummary {
    /// File path.
    pub path: String,
    /// Training conversations.
    pub conversations: usize,
    /// Held-out conversations.
    pub held_out: usize,
    /// Training sequences: one per conversation, or several if the chat template rewrites earlier
    /// replies.
    pub sequences: usize,
    /// Tokens in the training sequences.
    pub tokens: usize,
    /// Tokens with a loss.
    pub trained_tokens: usize,
    /// SHA-256 of all tokens; a resume rejects other data.
    pub digest: String,
}

impl SftData {
    /// Reads and tokenizes a config's conversations.
    ///
    /// # Errors
    /// Fails if the file is unreadable, the model has no chat template, the template rejects a
    /// conversation, or there is nothing to train on.
    pub fn load(
        config: &Config,
        registries: &Registries,
        data: &SftDataConfig,
        tokenizer: &Tokenizer,
        observer: &mut dyn Observer,
    ) -> Result<Self, TrainError> {
        observer.event(Event::Stage("reading conversations"));
        let path = data.path.as_path();
        let setting =
            |key: &str, reason: String| TrainError::Config { origin: format!("sft.data{key}"), reason };
        let format = match data.format.as_str() {
            "auto" => None,
            name => Some(name.parse::<Format>().map_err(|reason| setting(".format", reason))?),
        };
        let options = ReadOptions { format, ..ReadOptions::default() };
        let read = read_conversations(path, &options).map_err(|error| setting(".path", error.to_string()))?;
        read.notes.into_iter().for_each(|note| observer.event(Event::Note(note)));
        let Some(chat) = setup::chat(config, registries, tokenizer)? else {
            let reason = "conversations are written in the model's chat template, and it has none; take a chat model, or give its \
                          folder a chat_template.jinja";
            return Err(setting("", reason.into()));
        };
        let conversations = read.conversations;
        let total = conversations.len();
        let shown = chat.takes_tools();
        let uses_tools =
            |one: &Conversation| !one.tools.is_empty() || one.messages.iter().any(is_about_tools);
        if !shown && conversations.iter().any(uses_tools) {
            let note = "this chat template shows no tools: they are listed in the first message of the user, calls are written in \
                        <tool_call> tags, and their results are messages of the user";
            observer.event(Event::Note(note.into()));
        }
        let held_out = held_out(conversations.len(), data.held_out, config.seed);
        let mut found = Self { sequences: Vec::new(), held_out: Vec::new(), summary: SftSummary::default() };
        let (mut cut, mut empty) = (0, 0);
        for (index, conversation) in conversations.into_iter().enumerate() {
            let line = conversation.line;
            let conversation = if shown { conversation } else { without_tools(conversation) };
            let sequences = sequences(&conversation, &chat, tokenizer, data.train_on)
                .map_err(|error| TrainError::file(path, format!("line {line}: {error}")))?;
            let before = sequences.len();
            cut +=
                sequences.iter().filter(|one| one.tokens.tokens.len() > config.rollout.max_model_len).count();
            let kept: Vec<SftSequence> =
                sequences.into_iter().filter_map(|one| within(one, config.rollout.max_model_len)).collect();
            empty += usize::from(before > 0 && kept.is_empty());
            if held_out.contains(&index) {
                found.held_out.extend(kept);
            } else {
                found.sequences.extend(kept);
            }
        }
        let longest = config.rollout.max_model_len;
        if cut > 0 {
            let left = if empty > 0 {
                format!("; {empty} conversations have no reply within it and are left out")
            } else {
                String::new()
            };
            observer.event(Event::Note(format!(
                "{cut} sequences are cut to rollout.max_model_len = {longest} tokens{left}"
            )));
        }
        if found.sequences.is_empty() {
            let reason = format!(
                "{}: no assistant message is left to train on within rollout.max_model_len = {longest} tokens",
                path.display()
            );
            return Err(setting("", reason));
        }
        found.summary = SftSummary {
            path: path.display().to_string(),
            conversations: total - held_out.len(),
            held_out: held_out.len(),
            ..found.summary()
        };
        let SftSummary { conversations, held_out, sequences, tokens, trained_tokens, .. } = &found.summary;
        observer.event(Event::Note(format!(
            "{conversations} conversations in {sequences} sequences of {tokens} tokens, of which {trained_tokens} are trained on; \
             {held_out} conversations are held out"
        )));
        Ok(found)
    }

    fn summary(&self) -> SftSummary {
        let bytes = |sequences: &[SftSequence]| -> Vec<u8> {
            let tokens = |sequence: &SftSequence| {
                let TokenSequence { tokens, spans } = &sequence.tokens;
                let spans = spans.iter().flat_map(|span| [span.start as u32, span.end as u32]);
                tokens
                    .iter()
                    .copied()
                    .chain([u32::MAX])
                    .chain(spans)
                    .flat_map(u32::to_le_bytes)
                    .collect::<Vec<u8>>()
            };
            sequences.iter().flat_map(tokens).collect()
        };
        SftSummary {
            sequences: self.sequences.len(),
            tokens: self.sequences.iter().map(|sequence| sequence.tokens.tokens.len()).sum(),
            trained_tokens: self.sequences.iter().map(|sequence| sequence.action.len()).sum(),
            digest: digest([bytes(&self.sequences), bytes(&self.held_out)]),
            ..SftSummary::default()
        }
    }

    pub(crate) fn plan(&self, config: &Config, data: &SftDataConfig) -> BatchPlan {
        let lengths: Vec<usize> =
            self.sequences.iter().map(|sequence| sequence.tokens.tokens.len()).collect();
        let (tokens, seed) = (config.sft.batch_tokens, config.seed);
        let epochs = BatchPlan::of_epochs(&lengths, tokens, data.epochs, seed);
        match config.sft.steps {
            0 => epochs,
            steps if steps == epochs.len() as u64 => epochs,
            steps => BatchPlan::new(&lengths, tokens, steps, seed),
        }
    }
}

fn held_out(count: usize, fraction: f64, seed: u64) -> Vec<usize> {
    if fraction <= 0.0 || count < 2 {
        return Vec::new();
    }
    let held = ((count as f64 * fraction).round() as usize).clamp(1, count - 1);
    let mut order: Vec<usize> = (0..count).collect();
    Seed::derive(seed, Purpose::Shuffle, &[u64::MAX - 1]).rng().shuffle(&mut order);
    order.truncate(held);
    order
}

fn is_about_tools(message: &ChatMessage) -> bool {
    !message.calls.is_empty() || message.role == "tool"
}

/// Returns the sequences of a conversation, with one span per reply.
///
/// # Errors
/// Fails like [`ChatFormat::conversation`].
pub fn sequences(
    conversation: &Conversation,
    chat: &ChatFormat,
    tokenizer: &Tokenizer,
    train_on: TrainOn,
) -> Result<Vec<SftSequence>, TextError> {
    let json = conversation.messages.iter().map(ChatMessage::to_json);
    let messages = json.map(|json| chat::Message::from_json(&json)).collect::<Result<Vec<_>, _>>()?;
    let tools = conversation.tools.iter().map(Tool::json).map(chat::Tool::from_json);
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    let trained = conversation.messages.iter().enumerate();
    let mut replies: Vec<usize> =
        trained.filter(|(_, message)| message.sampled && message.trained).map(|(place, _)| place).collect();
    if train_on == TrainOn::Last {
        replies.drain(..replies.len().saturating_sub(1));
    }
    let sequences = chat.training_sequences(tokenizer, &messages, &replies, &tools)?;
    Ok(sequences.iter().map(|stretches| sequence(stretches)).collect())
}

fn sequence(stretches: &[Stretch]) -> SftSequence {
    let mut tokens = TokenSequence::default();
    for Stretch { ids, reply } in stretches {
        let start = tokens.tokens.len();
        tokens.tokens.extend(ids);
        if *reply && !ids.is_empty() {
            let turn = tokens.spans.len();
            tokens.spans.push(TurnSpan { turn, start, end: tokens.tokens.len() });
        }
    }
    let trained = tokens.response_tokens();
    SftSequence { tokens, action: vec![true; trained], kept: vec![true; trained] }
}

fn within(mut sequence: SftSequence, longest: usize) -> Option<SftSequence> {
    let TokenSequence { tokens, spans } = &mut sequence.tokens;
    tokens.truncate(longest);
    spans.retain(|span| span.start > 0 && span.start < longest);
    for span in spans.iter_mut() {
        span.end = span.end.min(longest);
    }
    let trained = sequence.tokens.response_tokens();
    sequence.action.truncate(trained);
    sequence.kept.truncate(trained);
    (trained > 0).then_some(sequence)
}

/// Returns the conversation for a template without tools: tools are listed before the first user
/// message, calls become tags, and results become user messages.
fn without_tools(mut conversation: Conversation) -> Conversation {
    let tools = std::mem::take(&mut conversation.tools);
    let first = conversation.messages.iter_mut().find(|message| message.role == "user");
    if let Some(first) = first.filter(|_| !tools.is_empty()) {
        first.content = format!("{}\n{}", tool_list(&tools), first.content);
    }
    for message in &mut conversation.messages {
        if message.role == "tool" {
            *message = ChatMessage {
                sampled: false,
                ..ChatMessage::new("user", std::mem::take(&mut message.content))
            };
        }
        for call in std::mem::take(&mut message.calls) {
            if !message.content.is_empty() {
                message.content.push('\n');
            }
            message.content.push_str(&call.to_tagged());
        }
    }
    conversation
}

/// Returns an absolute path, so that a resume can start in another working directory.
pub(crate) fn absolute(path: &Path) -> Result<std::path::PathBuf, TrainError> {
    path.canonicalize().map_err(|error| TrainError::io(path, error))
}
