//! Prompts as tokens: the template's text, and the model's chat format around it if there is one.
//!
//! With a chat format every prompt is what the user says and every response a reply. A windowed prompt is a
//! conversation of its own, so what the chat template does to earlier replies (Qwen3's drops their reasoning) never
//! comes to pass; a concatenated sequence is one conversation that grows and keeps its replies as they were sampled. A template
//! that keeps the reply open (Search-R1's) makes one reply of the whole sequence, with the observations inside.
//!
//! The tools of a world go to a chat template that takes them, and results of calls come back as its messages of the role `tool`.
//! Elsewhere a prompt begins with a list of the tools, and results are words of the user.

use std::borrow::Cow;

use turnwise_core::{FinishReason, ImageHandle, Observation, Reasoning, Task, Tool, ToolCall, TurnKind};
use turnwise_env::parse::{ActionParser, Style, calls_of_words};
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView, tool_list};
use turnwise_model::vision::VisionConfig;
use turnwise_text::TextError;
use turnwise_text::Tokenizer;
use turnwise_text::chat::{self, ChatFormat};

use crate::TrainError;
use crate::config::{Config, Layout};
use crate::rollout::observations::Results;
use crate::rollout::pictures::PicturePrompts;
use crate::setup;

/// The parts of prompts that a config names.
pub struct PromptParts {
    /// The template.
    pub template: PromptTemplate,
    /// The model's chat format, if it has one that is used.
    pub chat: Option<ChatFormat>,
    /// Pictures that prompts show, if they do.
    pub pictures: Option<PicturePrompts>,
}

impl PromptParts {
    /// Returns the parts for a model with this tokenizer and vision tower.
    ///
    /// # Errors
    /// Fails like [`setup::template`], [`setup::chat`] and [`PicturePrompts::new`].
    pub fn new(
        config: &Config,
        tokenizer: &Tokenizer,
        vision: Option<&VisionConfig>,
    ) -> Result<Self, TrainError> {
        Ok(Self {
            template: setup::template(config)?,
            chat: setup::chat(config, tokenizer)?,
            pictures: PicturePrompts::new(config, vision)?,
        })
    }

    /// Returns the prompter of these parts.
    pub fn prompter<'a>(&'a self, tokenizer: &'a Tokenizer) -> Prompter<'a> {
        let Self { template, chat, pictures } = self;
        Prompter { template, tokenizer, chat: chat.as_ref(), pictures: pictures.as_ref() }
    }
}

/// Makes tokens of prompts and text of responses.
#[derive(Clone, Copy)]
pub struct Prompter<'a> {
    /// The environment's prompts.
    pub template: &'a PromptTemplate,
    /// Text to ids and back.
    pub tokenizer: &'a Tokenizer,
    /// The model's chat format; without it prompts are plain text.
    pub chat: Option<&'a ChatFormat>,
    /// Pictures that prompts show; without them prompts are text.
    pub pictures: Option<&'a PicturePrompts>,
}

impl Prompter<'_> {
    /// Returns a prompt that starts a sequence and in which these tools may be called.
    ///
    /// # Errors
    /// The chat template refuses the text or the tools, cannot be rendered, or writes calls in another format than the prompt
    /// template reads. Without a chat format there are none.
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
            // What this model has seen before every text, as `transformers` and vLLM put it there.
            None => Ok([self.tokenizer.text_prefix(), &self.tokenizer.encode(&listed)].concat()),
        }
    }

    /// Returns a prompt that starts a sequence and shows the picture of its observation, if prompts show pictures.
    ///
    /// # Errors
    /// As [`Prompter::start`] and [`PicturePrompts::insert`].
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

    /// Returns the tokens before the text of every prompt that starts a sequence with these tools: BOS, or the beginning of the
    /// chat template with its system message. A preamble belongs after them.
    ///
    /// # Errors
    /// As [`Prompter::start`].
    pub fn opening(&self, tools: &[Tool]) -> Result<Vec<u32>, TextError> {
        // Two texts without a common first token: what their prompts have in common is before both.
        let (mut one, other) = (self.start("a", tools)?, self.start("b", tools)?);
        let shared = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
        one.truncate(shared);
        Ok(one)
    }

    /// Returns the prompt of an episode's first turn in a layout that shows this many turns before it. `preamble` stands before
    /// the observation.
    ///
    /// # Errors
    /// As [`Prompter::start_seeing`].
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

    /// The chat format, if its template is given these tools.
    fn chat_with(&self, tools: &[Tool]) -> Option<&ChatFormat> {
        let calls = self.template.rules().style == Style::Call && !self.template.keeps_reply_open();
        self.chat.filter(|chat| calls && !tools.is_empty() && chat.takes_tools())
    }

    /// Refuses a prompt template that does not read calls as the chat template writes them.
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

    /// Returns the tokens that a concatenated sequence gets between a response and the next one: `last` is the response's last
    /// token, `finish` why it ended, `results` what came of the calls that it made.
    ///
    /// # Errors
    /// Fails if the chat template cannot continue after a reply, rejects the observation, or closes
    /// this reply differently from others. Without a chat format, or with an open reply, it never
    /// fails.
    pub fn between(
        &self,
        view: &PromptView<'_>,
        tools: &[Tool],
        results: &Results<'_>,
        last: (Option<u32>, FinishReason),
    ) -> Result<Vec<u32>, TextError> {
        self.between_responses(view, tools, results, last, TurnKind::Action)
    }

    /// Returns the tokens of [`Prompter::between`] for a next response of this kind.
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
        // A reply that stays open goes on after the observation as plain text does.
        if let Some(chat) = self.chat.filter(|_| !self.template.keeps_reply_open()) {
            // The blanks that set an observation off from the text before it mean nothing in a message.
            let text = render(view, true);
            return chat.next(self.tokenizer, text.trim_start(), last);
        }
        // An end token is not the text that a response to this template ends with.
        let ended = last.is_some_and(|last| self.tokenizer.end_tokens().contains(&last));
        let closed = finish == FinishReason::Stop && !ended;
        Ok(self.tokenizer.encode(&render(view, closed)))
    }

    /// Returns the calls that a demonstrated action makes in a world with these tools, with the ids that they have in a rollout.
    pub fn demonstrated_calls(&self, action: &str, turn: usize) -> Vec<ToolCall> {
        if self.template.rules().style != Style::Call {
            return Vec::new();
        }
        // The observation after several calls does not say which part of it answers which.
        match calls_of_words(action).as_mut_slice() {
            [call] => vec![ToolCall { id: format!("call_{turn}"), ..std::mem::take(call) }],
            _ => Vec::new(),
        }
    }

    /// A demonstrated action as the chat template writes calls, if it is given these tools and its form can be read.
    fn demonstrated_by(&self, chat: &ChatFormat, action: &str) -> Option<String> {
        let calls = calls_of_words(action);
        let arguments: Vec<String> = calls.iter().map(|call| call.arguments.to_string()).collect();
        let written: Vec<chat::Call<'_>> = calls
            .iter()
            .zip(&arguments)
            .map(|(call, arguments)| chat::Call { id: "call_0", name: &call.name, arguments })
            .collect();
        let text = chat.reply_calling("", &written).ok()?;
        let read = ActionParser::new(self.template.rules().clone(), false).parse(&text, &[]);
        (!calls.is_empty() && read.calls == calls).then_some(text)
    }

    /// A demonstrated response as the model should write it in a world with these tools, its end included; `first`: the first one
    /// of its sequence.
    pub fn demonstrated(&self, action: &str, tools: &[Tool], first: bool) -> Vec<u32> {
        if let Some(chat) = self.chat_with(tools)
            && let Some(text) = self.demonstrated_by(chat, action)
        {
            let mut ids = self.tokenizer.encode(&after_opening(chat.opening(), &text));
            ids.push(chat.close());
            return ids;
        }
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

/// Tools as chat templates get them.
pub(super) fn template_tools(tools: &[Tool]) -> Result<Vec<chat::Tool>, TextError> {
    tools.iter().map(|tool| chat::Tool::from_json(tool.json())).collect()
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
