//! Serves requests with the native sampling engine: several models, selected by name, with
//! continuous batching and streaming.
//!
//! On the CPU, a request with a seed gets a bit-identical response whatever else is running. A
//! conversation's keys and values stay cached until another conversation needs their slot, so the
//! next turn computes only new tokens.

mod answer;
mod chat;
mod lanes;
mod models;
mod pictures;
mod sequence;
mod text;
mod visible;
mod worker;

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex};

use answer::Answer;
pub use models::ServedModel;
use models::{Chat, Loaded, Models};
use sequence::{Piece, Sequence, Wanted};
use turnwise_core::{Purpose, SamplingParams, Seed};
use turnwise_env::parse::CallFormat;
use turnwise_model::{Compute, Device, ModelError};
use turnwise_policy::PolicyError;
use turnwise_text::TextError;
use visible::{CallReader, Visible};
use worker::Job;

use crate::openai::{
    ApiError, ChatRequest, ModelCard, SamplingFields, TextPrompt, TextRequest, ToolChoice, prompt_text,
    prompt_with,
};
use crate::{Call, ChatReply, Completions, TextReply};

/// Default `max_tokens` of text completions, as in OpenAI's API.
const TEXT_TOKENS: usize = 16;

/// Error from opening a model.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The model cannot be read.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The model cannot be sampled from.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The chat template is unusable.
    #[error(transparent)]
    Text(#[from] TextError),
    /// No model is given, or a name is repeated.
    #[error("{0}")]
    Names(String),
    /// A thread failed to start.
    #[error("cannot start the thread of an engine: {0}")]
    Thread(#[source] std::io::Error),
}

/// Settings of a server with the native engine.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    /// Maximum sequences of a model in one batch, over all lanes.
    pub max_num_seqs: usize,
    /// Maximum waiting and running sequences of a model; further requests get status 429.
    pub max_queued: usize,
    /// Maximum tokens of prompt and response; `None` for the model's limit, at most 8192.
    pub max_model_len: Option<usize>,
    /// Engine threads per model.
    pub lanes: usize,
    /// Maximum models in memory. If another model is needed, the least recently used idle model is
    /// unloaded.
    pub max_loaded: usize,
    /// Device of all models.
    pub device: Device,
    /// CPU precision of matrix multiplication.
    pub compute: Compute,
    /// Format in which the models call tools; `None` derives it from each model's chat template.
    pub calls: Option<CallFormat>,
    /// API key required from clients.
    pub key: Option<String>,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_num_seqs: 64,
            max_queued: 1024,
            max_model_len: None,
            lanes: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            max_loaded: 4,
            device: Device::Cpu,
            compute: Compute::F32,
            calls: None,
            key: None,
        }
    }
}

/// The native engine's server.
pub struct EngineServer {
    models: Models,
    key: Option<String>,
    /// Random number that makes response ids unique across restarts.
    start: u64,
}

impl EngineServer {
    /// Opens the models and loads the first; others load when first requested.
    ///
    /// # Errors
    /// Fails if no model is given, a name is repeated, or the first model cannot be loaded.
    pub fn open(models: Vec<ServedModel>, mut settings: EngineSettings) -> Result<Self, OpenError> {
        if models.is_empty() {
            return Err(OpenError::Names("no model to serve: give at least one".to_owned()));
        }
        for (index, model) in models.iter().enumerate() {
            if models[..index].iter().any(|other| other.name == model.name) {
                let reason = format!("two models are called {}: give one of them another name", model.name);
                return Err(OpenError::Names(reason));
            }
        }
        let key = settings.key.take();
        let models = Models::new(models, settings);
        models.load_first()?;
        Ok(Self { models, key, start: random() })
    }

    /// Returns the number of waiting and running sequences.
    pub fn load(&self) -> usize {
        self.models.load()
    }

    fn id(&self, prefix: &str, call: &Call) -> String {
        format!("{prefix}-{:016x}{:08x}", self.start, call.number)
    }

    fn start_chat(&self, call: &Call, request: ChatRequest) -> Result<Prepared, ApiError> {
        let model = self.models.get(&request.model)?;
        let Some(chat) = &model.chat else {
            let message = format!(
                "the model `{}` has no chat template: use /v1/completions, which continues text",
                request.model
            );
            return Err(ApiError::field("model", message));
        };
        model.lanes.check_room(request.sampling.n)?;
        check_choice(&request.tool_choice)?;
        let text = prompt_text(&chat.template, &request)?;
        let calls = call_format(chat, &request, &text)?;
        let opening = chat.format.opening();
        let opening = if text.ends_with(opening) { opening } else { "" };
        let calls = calls.map(|format| CallReader::new(format, opening));
        let prompt = pictures::insert(&model, &request, model.tokenizer.encode(&text))?;
        let end_tokens: Arc<[u32]> = chat.format.stop_tokens().into();
        let most = most_tokens(&model, "messages", &[prompt.len()], &request.sampling, None)?;
        let parallel_calls = request.parallel_tool_calls != Some(false);
        let id = self.id("chatcmpl", call);
        let (sampling, name) = (request.sampling, request.model);
        Ok(Prepared {
            id,
            name,
            model,
            prompts: vec![prompt],
            sampling,
            most,
            end_tokens,
            calls,
            parallel_calls,
        })
    }

    fn start_text(&self, call: &Call, request: TextRequest) -> Result<Prepared, ApiError> {
        let model = self.models.get(&request.model)?;
        model.lanes.check_room(request.prompts.len().saturating_mul(request.sampling.n))?;
        let tokenizer = &model.tokenizer;
        let mut prompts = Vec::new();
        for prompt in request.prompts {
            let tokens = match prompt {
                TextPrompt::Text(text) => [tokenizer.text_prefix(), &tokenizer.encode(&text)].concat(),
                TextPrompt::Tokens(tokens) => {
                    pictures::check_tokens(&tokens)?;
                    tokens
                }
            };
            if tokens.is_empty() {
                let message = "a prompt is empty: the first token would have nothing to follow";
                return Err(ApiError::field("prompt", message));
            }
            prompts.push(tokens);
        }
        let lengths: Vec<usize> = prompts.iter().map(Vec::len).collect();
        let most = most_tokens(&model, "prompt", &lengths, &request.sampling, Some(TEXT_TOKENS))?;
        let end_tokens = tokenizer.end_tokens().into();
        let id = self.id("cmpl", call);
        let (sampling, name) = (request.sampling, request.model);
        let (calls, parallel_calls) = (None, true);
        Ok(Prepared { id, name, model, prompts, sampling, most, end_tokens, calls, parallel_calls })
    }
}

struct Prepared {
    id: String,
    name: String,
    model: Arc<Loaded>,
    prompts: Vec<Vec<u32>>,
    sampling: SamplingFields,
    most: usize,
    end_tokens: Arc<[u32]>,
    calls: Option<CallReader>,
    parallel_calls: bool,
}

impl Prepared {
    fn submit<A: Answer + 'static>(&self, answer: &Arc<Mutex<A>>) -> Result<(), ApiError> {
        let sampling = &self.sampling;
        let base = sampling.seed.map_or_else(random, |seed| seed as u64);
        let params = SamplingParams {
            temperature: sampling.temperature.unwrap_or(1.0),
            // With `top_p` 0, only the most probable token remains.
            top_p: sampling.top_p.unwrap_or(1.0).max(f32::MIN_POSITIVE),
            top_k: sampling.top_k,
            max_tokens: self.most,
            stop_tokens: self.end_tokens.to_vec(),
            stop_strings: sampling.stop.clone(),
        };
        let wanted = Wanted {
            stream: sampling.stream,
            logprobs: sampling.logprobs,
            token_ids: sampling.return_token_ids,
        };
        let mut jobs = Vec::new();
        for (number, prompt) in self.prompts.iter().enumerate() {
            for choice in 0..sampling.n {
                let seed = |part: u64| {
                    Seed::derive(base, Purpose::Evaluation, &[number as u64, choice as u64, part])
                };
                let sequence = Sequence {
                    index: number * sampling.n + choice,
                    answer: Arc::clone(answer),
                    tokenizer: Arc::clone(&self.model.tokenizer),
                    visible: Visible::new(sampling.stop.clone(), self.calls.clone()),
                    wanted,
                    end_tokens: Arc::clone(&self.end_tokens),
                    parallel_calls: self.parallel_calls,
                    ids: seed(1),
                    piece: Piece::default(),
                };
                jobs.push(Job {
                    prompt: prompt.clone(),
                    params: params.clone(),
                    seed: seed(0),
                    alternatives: sampling.top_logprobs,
                    sink: Box::new(sequence),
                });
            }
        }
        self.model.lanes.submit(jobs)
    }
}

fn check_choice(choice: &ToolChoice) -> Result<(), ApiError> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => Ok(()),
        ToolChoice::Required | ToolChoice::Function(_) => {
            let message = "`tool_choice`: this server cannot force a call; give auto or none";
            Err(ApiError::unsupported("tool_choice", message))
        }
    }
}

/// Returns the format of the response's tool calls; `None` if the response may not call tools.
/// `text` is the prompt.
fn call_format(chat: &Chat, request: &ChatRequest, text: &str) -> Result<Option<CallFormat>, ApiError> {
    if request.tools.is_empty() {
        return Ok(None);
    }
    if text == prompt_with(&chat.template, request, Vec::new())? {
        let message =
            "`tools`: the chat template of this model does not show tools; describe them in a message";
        return Err(ApiError::unsupported("tools", message));
    }
    Ok((request.tool_choice == ToolChoice::Auto).then_some(chat.calls))
}

/// Returns the maximum number of response tokens: the requested one, or else `default`, limited to
/// what remains of the context.
fn most_tokens(
    model: &Loaded,
    param: &str,
    prompts: &[usize],
    sampling: &SamplingFields,
    default: Option<usize>,
) -> Result<usize, ApiError> {
    let longest = prompts.iter().copied().max().unwrap_or(0);
    let context = model.context;
    let room = context.saturating_sub(longest);
    let asked = sampling.max_tokens;
    if room == 0 || asked.is_some_and(|asked| asked > room) {
        let asked = asked.unwrap_or(1);
        let message = format!(
            "this model's maximum context length is {context} tokens, and {} were requested ({longest} in the \
             {param}, {asked} in the completion): shorten the {param} or lower max_tokens",
            longest.saturating_add(asked)
        );
        return Err(ApiError::context_length(param, message));
    }
    Ok(asked.or(default).unwrap_or(room).min(room))
}

/// Returns a number that differs for each call, even across restarts.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// Compares API keys in constant time.
fn same_key(given: &str, wanted: &str) -> bool {
    let differences = given.bytes().zip(wanted.bytes()).fold(0, |found, (a, b)| found | (a ^ b));
    differences == 0 && given.len() == wanted.len()
}

impl Completions for EngineServer {
    fn authorize(&self, key: Option<&str>) -> Result<(), ApiError> {
        match (&self.key, key) {
            (None, _) => Ok(()),
            (Some(wanted), Some(given)) if same_key(given, wanted) => Ok(()),
            (Some(_), Some(_)) => Err(ApiError::unauthorized("the API key is wrong")),
            (Some(_), None) => {
                Err(ApiError::unauthorized("an API key is needed: send Authorization: Bearer KEY"))
            }
        }
    }

    fn models(&self) -> Vec<ModelCard> {
        let card =
            |name: String| ModelCard { max_model_len: self.models.context(&name), ..ModelCard::new(name) };
        self.models.names().into_iter().map(card).collect()
    }

    fn chat(&self, call: &Call, request: ChatRequest, reply: ChatReply) {
        match self.start_chat(call, request) {
            Err(error) => reply.finish(Err(error)),
            Ok(prepared) => {
                let visible =
                    prepared.prompts.iter().map(|prompt| pictures::visible(&prepared.model, prompt));
                let prompts = visible.map(Cow::into_owned).collect();
                let (id, name) = (prepared.id.clone(), prepared.name.clone());
                let answer = chat::ChatAnswer::new(reply, id, name, prepared.sampling.clone(), prompts);
                start(&prepared, answer);
            }
        }
    }

    fn text(&self, call: &Call, request: TextRequest, reply: TextReply) {
        match self.start_text(call, request) {
            Err(error) => reply.finish(Err(error)),
            Ok(prepared) => {
                let (id, name, prompts) =
                    (prepared.id.clone(), prepared.name.clone(), prepared.prompts.clone());
                let answer = text::TextAnswer::new(reply, id, name, prepared.sampling.clone(), prompts);
                start(&prepared, answer);
            }
        }
    }
}

fn start<A: Answer + 'static>(prepared: &Prepared, answer: A) {
    let answer = Arc::new(Mutex::new(answer));
    if let Err(error) = prepared.submit(&answer) {
        answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).fail(error);
    }
}
