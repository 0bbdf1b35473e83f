//! Prompts as tokens: the template's text, in the model's chat format if it has one.
//!
//! With a chat format, prompts are user messages and responses are replies. Each windowed prompt is
//! its own conversation, so chat templates may change earlier replies (Qwen3's drops their
//! reasoning). A concatenated sequence is one growing conversation, or one open reply that contains
//! the observations (Search-R1's template).

use std::borrow::Cow;

use turnwise_core::{FinishReason, ImageHandle, Observation, Reasoning, Task, Tool, ToolCall, TurnKind};
use turnwise_env::parse::{ActionParser, Style, calls_of_words};
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView, tool_list};
use turnwise_model::vision::VisionConfig;
use turnwise_text::TextError;
use turnwise_text::Tokenizer;
use turnwise_text::chat::{self, ChatFormat};

use crate::TrainError;
use crate::config::{Config, Layout, Registries};
use crate::rollout::arguments::in_declared_order;
use crate::rollout::observations::Results;
use crate::rollout::pictures::PicturePrompts;
use crate::setup;

/// The configured parts of prompts.
pub struct PromptParts {
    /// Prompt template.
    pub template: PromptTemplate,
    /// Chat format, if used.
    pub chat: Option<ChatFormat>,
    /// Pictures in prompts, if used.
    pub pictures: Option<PicturePrompts>,
}

impl PromptParts {
    /// Creates the parts for a model's tokenizer and vision tower.
    ///
    /// # Errors
    /// Fails like [`setup::template`], [`setup::chat`] and [`PicturePrompts::new`].
    pub fn new(
        config: &Config,
        registries: &Registries,
        tokenizer: &Tokenizer,
        vision: Option<&VisionConfig>,
    ) -> Result<Self, TrainError> {
        Ok(Self {
            template: setup::template(config, registries)?,
            chat: setup::chat(config, registries, tokenizer)?,
            pictures: PicturePrompts::new(config, vision)?,
        })
    }

    /// Returns the prompter that uses these parts.
    pub fn prompter<'a>(&'a self, tokenizer: &'a Tokenizer) -> Prompter<'a> {
        let Self { template, chat, pictures } = self;
        Prompter { template, tokenizer, chat: chat.as_ref(), pictures: pictures.as_ref() }
    }
}

/// Encodes prompts and decodes responses.
#[derive(Clone, Copy)]
pub struct Prompter<'a> {
    /// Prompt template.
    pub template: &'a PromptTemplate,
    /// The policy's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Chat format; `None`: plain text.
    pub chat: Option<&'a ChatFormat>,
    /// Pictures; `None`: text only.
    pub pictures: Option<&'a PicturePrompts>,
}

impl Prompter<'_> {
    /// Returns a prompt that starts a sequence and lists these tools.
    ///
    /// # Errors
    /// Fails if the chat template rejects the text or tools, or if it formats calls differently
    /// from the prompt template. Never fails without a chat format.
    pub fn start(&self, text: &str, tools: &[Tool]) -> Result<Vec<u32>, TextError> {
        if let Some(chat) = self.chat_with(tools) {
            self.check_calls(chat)?;
            return chat.first(self.tokenizer, &template_tools(tools)?, text);
        }
        let listed = match tools {
            [] => Cow::Borrowed(text),
            tools => Cow::Owned(format!("{}\n{text}", tool_list(tools))),
        };
        match self.chat {
            Some(chat) => chat.first(self.tokenizer, &[], &listed),
            // BOS, like `transformers` and vLLM.
            None => Ok([self.tokenizer.text_prefix(), &self.tokenizer.encode(&listed)].concat()),
        }
    }

    /// Like [`Prompter::start`], with the observation's picture if prompts show pictures.
    ///
    /// # Errors
    /// Fails like [`Prompter::start`] and [`PicturePrompts::insert`].
    pub fn start_seeing(
        &self,
        text: &str,
        image: Option<&ImageHandle>,
        tools: &[Tool],
    ) -> Result<Vec<u32>, TextError> {
        let prompt = self.start(text, tools)?;
        match self.pictures {
            Some(pictures) => pictures.insert(&prompt, image),
            None => Ok(prompt),
        }
    }

    /// Returns the tokens before the first prompt's text: BOS, or the start of the chat template
    /// with its system message.
    ///
    /// # Errors
    /// Fails like [`Prompter::start`].
    pub fn opening(&self, tools: &[Tool]) -> Result<Vec<u32>, TextError> {
        // Prompts whose texts have different first tokens.
        let (mut one, other) = (self.start("a", tools)?, self.start("b", tools)?);
        let shared = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        one.truncate(shared);
        Ok(one)
    }

    pub(crate) fn first(
        &self,
        (layout, history): (Layout, usize),
        task: &Task,
        (observation, preamble): (&Observation, &str),
        tools: &[Tool],
    ) -> Result<Vec<u32>, TextError> {
        if let Some(asked) = &observation.conversation {
            return self.request(asked, None);
        }
        let words = observation.text();
        let seen = (&*words, observation.admissible.as_slice());
        let text = match layout {
            Layout::Concatenated => self.template.render_concatenated_first(&view(task, seen, &[], 0, 0)),
            Layout::Windowed => self.template.render(&view(task, seen, &[], 0, history), PromptKind::Full),
        };
        self.start_seeing(&format!("{preamble}{text}"), observation.image(), tools)
    }

    fn chat_with(&self, tools: &[Tool]) -> Option<&ChatFormat> {
        let calls = self.template.rules().style == Style::Call && !self.template.keeps_reply_open();
        self.chat.filter(|chat| calls && !tools.is_empty() && chat.takes_tools())
    }

    pub(super) fn check_calls(&self, chat: &ChatFormat) -> Result<(), TextError> {
        let call = chat::Call { id: "call_0", name: "name_of_a_tool", arguments: r#"{"n":1}"# };
        let written = chat.reply_calling("", &[call])?;
        let read = ActionParser::new(self.template.rules().clone(), false).parse(&written, &[]).calls;
        if read.iter().map(|call| call.name.as_str()).eq([call.name]) {
            return Ok(());
        }
        Err(TextError::Chat(format!(
            "prompt.template reads calls in another format than this model's chat template writes them ({written}); use \"tools\" \
             for calls in tags, \"tools-llama\" for JSON alone, \"tools-python\" for a Python list, or a template of your own"
        )))
    }

    /// Returns the tokens of a concatenated sequence between a response and the next one. `last` is
    /// the response's last token, `finish` the reason why it ended, and `results` the results of
    /// its calls.
    ///
    /// # Errors
    /// Fails if the chat template rejects the observation, cannot continue after a reply, or closes
    /// the reply differently from other replies. Never fails without a chat format, or with an open
    /// reply.
    pub fn between(
        &self,
        view: &PromptView<'_>,
        tools: &[Tool],
        results: &Results<'_>,
        last: (Option<u32>, FinishReason),
    ) -> Result<Vec<u32>, TextError> {
        self.between_responses(view, tools, results, last, TurnKind::Action)
    }

    pub(crate) fn between_responses(
        &self,
        view: &PromptView<'_>,
        tools: &[Tool],
        results: &Results<'_>,
        (last, finish): (Option<u32>, FinishReason),
        kind: TurnKind,
    ) -> Result<Vec<u32>, TextError> {
        let render = |view: &PromptView<'_>, closed| match kind {
            TurnKind::Action => self.template.render_concatenated_next(view, closed),
            TurnKind::Compaction => self.template.render_summarize(view, closed),
        };
        if let Some(chat) = self.chat_with(tools).filter(|_| !results.answered.is_empty()) {
            let said = PromptView { observation: &results.said, ..*view };
            let speaks = !results.said.is_empty() || kind == TurnKind::Compaction;
            let words = speaks.then(|| render(&said, true));
            let words = words.as_deref().map(str::trim_start);
            return chat.next_after_calls(
                self.tokenizer,
                &template_tools(tools)?,
                &results.answered,
                words,
                last,
            );
        }
        // An open reply continues like plain text.
        if let Some(chat) = self.chat.filter(|_| !self.template.keeps_reply_open()) {
            // Only plain text needs the leading blanks.
            let text = render(view, true);
            return chat.next(self.tokenizer, text.trim_start(), last);
        }
        let ended = last.is_some_and(|last| self.tokenizer.end_tokens().contains(&last));
        let closed = finish == FinishReason::Stop && !ended;
        Ok(self.tokenizer.encode(&render(view, closed)))
    }

    /// Returns the calls of a demonstrated action, with ids as in a rollout.
    pub(crate) fn demonstrated_calls(&self, action: &str, turn: usize) -> Vec<ToolCall> {
        if self.template.rules().style != Style::Call {
            return Vec::new();
        }
        // With several calls, the observation does not show which part answers which call.
        match calls_of_words(action).as_mut_slice() {
            [call] => vec![ToolCall { id: format!("call_{turn}"), ..std::mem::take(call) }],
            _ => Vec::new(),
        }
    }

    /// Returns a demonstrated action as the chat template formats it; `None` if the template
    /// rejects its calls, or if they cannot be parsed again.
    fn demonstrated_by(&self, chat: &ChatFormat, action: &str, tools: &[Tool]) -> Option<String> {
        let calls = calls_of_words(action);
        let arguments: Vec<String> = calls.iter().map(|call| in_declared_order(call, tools)).collect();
        let written: Vec<chat::Call<'_>> = calls
            .iter()
            .zip(&arguments)
            .map(|(call, arguments)| chat::Call { id: "call_0", name: &call.name, arguments })
            .collect();
        let text = chat.reply_calling("", &written).ok()?;
        let read = ActionParser::new(self.template.rules().clone(), false).parse(&text, &[]);
        (!calls.is_empty() && read.calls == calls).then_some(text)
    }

    /// Returns the target tokens of a demonstrated response, including its end. `first` is true for
    /// the first response of a sequence.
    pub fn demonstrated(&self, action: &str, tools: &[Tool], first: bool) -> Vec<u32> {
        if let Some(chat) = self.chat_with(tools)
            && let Some(text) = self.demonstrated_by(chat, action, tools)
        {
            let mut ids = self.tokenizer.encode(&after_opening(chat.opening(), &text));
            ids.push(chat.close());
            return ids;
        }
        let text = self.template.response(action);
        let stops = self.template.stop();
        let Some(chat) = self.chat else {
            let mut ids = self.tokenizer.encode(&text);
            ids.extend(self.tokenizer.end_tokens().first().filter(|_| stops.is_empty()));
            return ids;
        };
        if self.template.keeps_reply_open() {
            // Later responses follow an observation, not the opening.
            let opening = if first { chat.opening() } else { "" };
            return self.tokenizer.encode(text.strip_prefix(opening).unwrap_or(&text));
        }
        // The end-of-turn token replaces the stop string, unless it is part of the action (a
        // closing tag).
        let parser = ActionParser::new(self.template.rules().clone(), false);
        let bare = stops.iter().find_map(|stop| text.strip_suffix(stop.as_str()));
        let bare = bare.filter(|bare| parser.parse(bare, &[]) == parser.parse(&text, &[]));
        let mut ids = self.tokenizer.encode(&after_opening(chat.opening(), bare.unwrap_or(&text)));
        ids.push(chat.close());
        ids
    }

    /// Returns the text of a sampled response, without its end token.
    pub fn response(&self, ids: &[u32]) -> String {
        match (self.chat, ids.split_last()) {
            (Some(chat), _) => chat.reply_text(self.tokenizer, ids),
            (None, Some((last, rest))) if self.tokenizer.end_tokens().contains(last) => {
                self.tokenizer.decode(rest)
            }
            (None, _) => self.tokenizer.decode(ids),
        }
    }

    /// Returns the text to parse: the opening that the chat template puts before a response, such
    /// as `<think>`, followed by the response. If several responses continue one reply, only the
    /// first has an opening.
    pub fn whole<'t>(&self, response: &'t str, first: bool) -> Cow<'t, str> {
        let opened = first || !self.template.keeps_reply_open();
        match self.chat.map(ChatFormat::opening) {
            Some(opening) if opened && !opening.is_empty() => Cow::Owned(format!("{opening}{response}")),
            _ => Cow::Borrowed(response),
        }
    }
}

pub(super) fn template_tools(tools: &[Tool]) -> Result<Vec<chat::Tool>, TextError> {
    tools.iter().map(|tool| chat::Tool::from_json(tool.json())).collect()
}

pub(super) fn view<'a>(
    task: &'a Task,
    (text, admissible): (&'a str, &'a [String]),
    history: &'a [(String, String)],
    turn: usize,
    window: usize,
) -> PromptView<'a> {
    PromptView { goal: &task.goal, history, window, observation: text, admissible, step: turn }
}

/// Returns the part of `text` after `opening`. If `opening` begins a thought and `text` has none,
/// the result first closes the thought.
pub(super) fn after_opening<'t>(opening: &str, text: &'t str) -> Cow<'t, str> {
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
