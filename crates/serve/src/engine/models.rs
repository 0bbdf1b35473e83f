//! Served models, loaded when first requested.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use turnwise_env::parse::CallFormat;
use turnwise_model::engine::{EngineConfig, SharedWeights};
use turnwise_model::vision::VisionConfig;
use turnwise_policy::Policy;
use turnwise_text::Tokenizer;
use turnwise_text::chat::{ChatFormat, ChatSettings, ChatTemplate};

use super::lanes::Lanes;
use super::{EngineSettings, OpenError};
use crate::openai::ApiError;

/// Default maximum tokens of prompt and response.
const CONTEXT: usize = 8_192;

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// Name for clients.
    pub name: String,
    /// Model or adapter folder, run, checkpoint, or hub name.
    pub path: PathBuf,
}

pub(super) struct Loaded {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) chat: Option<Chat>,
    pub(super) context: usize,
    pub(super) lanes: Lanes,
    pub(super) vision: Option<VisionConfig>,
}

pub(super) struct Chat {
    pub(super) template: Arc<ChatTemplate>,
    pub(super) format: ChatFormat,
    pub(super) calls: CallFormat,
}

impl Loaded {
    fn open(model: &ServedModel, settings: &EngineSettings) -> Result<Self, OpenError> {
        let policy = Policy::load(&model.path)?;
        let tokenizer = policy.tokenizer;
        let positions = policy.weights.config().max_position_embeddings;
        let context = settings.max_model_len.unwrap_or(CONTEXT.min(positions));
        let chat = match tokenizer.chat_template() {
            None => None,
            Some(template) => Some(Chat {
                template: Arc::clone(template),
                format: ChatFormat::new(&tokenizer, ChatSettings::default())?,
                calls: settings.calls.unwrap_or_else(|| call_format(template)),
            }),
        };
        let weights = SharedWeights::of(&policy.weights, 0, settings.device, settings.compute)?;
        let vision = policy.weights.config().vision.clone();
        drop(policy.weights);
        let lanes = settings.lanes.clamp(1, settings.max_num_seqs.max(1));
        let sizes =
            EngineConfig { max_num_seqs: settings.max_num_seqs.div_ceil(lanes), max_model_len: context };
        let lanes = Lanes::start(&weights, lanes, sizes, settings.max_queued, &tokenizer)?;
        Ok(Self { tokenizer, chat, context, lanes, vision })
    }
}

/// Returns the tool-call format on which models with this template were trained.
fn call_format(template: &ChatTemplate) -> CallFormat {
    let source = template.source();
    let llama = source.contains("\"parameters\":") || source.contains("<|python_tag|>");
    if llama && !source.contains("<tool_call>") { CallFormat::Llama } else { CallFormat::Hermes }
}

struct Entry {
    model: ServedModel,
    loaded: Mutex<Option<Arc<Loaded>>>,
    /// Value of the request counter when the model was last used.
    used: AtomicU64,
}

pub(super) struct Models {
    entries: Vec<Entry>,
    settings: EngineSettings,
    clock: AtomicU64,
}

impl Models {
    pub(super) fn new(models: Vec<ServedModel>, settings: EngineSettings) -> Self {
        let entry = |model| Entry { model, loaded: Mutex::default(), used: AtomicU64::new(0) };
        Self { entries: models.into_iter().map(entry).collect(), settings, clock: AtomicU64::new(1) }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.model.name.clone()).collect()
    }

    pub(super) fn load(&self) -> usize {
        self.entries.iter().filter_map(Entry::peek).map(|loaded| loaded.lanes.load()).sum()
    }

    pub(super) fn context(&self, name: &str) -> Option<usize> {
        let entry = self.entries.iter().find(|entry| entry.model.name == name)?;
        Some(entry.peek()?.context)
    }

    pub(super) fn get(&self, name: &str) -> Result<Arc<Loaded>, ApiError> {
        let Some(entry) = self.entries.iter().find(|entry| entry.model.name == name) else {
            return Err(ApiError::no_model(name, &self.names()));
        };
        self.load_entry(entry).map_err(|error| ApiError::internal(format!("the model `{name}`: {error}")))
    }

    pub(super) fn load_first(&self) -> Result<(), OpenError> {
        self.entries.first().map_or(Ok(()), |entry| self.load_entry(entry).map(drop))
    }

    fn load_entry(&self, entry: &Entry) -> Result<Arc<Loaded>, OpenError> {
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let mut slot = entry.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*slot {
            return Ok(Arc::clone(loaded));
        }
        self.make_room(entry);
        let loaded = Arc::new(Loaded::open(&entry.model, &self.settings)?);
        *slot = Some(Arc::clone(&loaded));
        Ok(loaded)
    }

    /// Unloads other idle models, least recently used first, until there is room for `wanted`.
    fn make_room(&self, wanted: &Entry) {
        let others = || self.entries.iter().filter(|entry| !std::ptr::eq(*entry, wanted));
        let mut idle: Vec<(u64, &Entry)> = others()
            .filter(|entry| entry.peek().is_some_and(|loaded| loaded.lanes.load() == 0))
            .map(|entry| (entry.used.load(Ordering::Relaxed), entry))
            .collect();
        idle.sort_unstable_by_key(|(used, _)| *used);
        let mut count = others().filter(|entry| entry.peek().is_some()).count();
        for (_, entry) in idle {
            if count < self.settings.max_loaded.max(1) {
                break;
            }
            let dropped = entry.loaded.try_lock().ok().and_then(|mut slot| slot.take());
            count -= usize::from(dropped.is_some());
        }
    }
}

impl Entry {
    fn peek(&self) -> Option<Arc<Loaded>> {
        self.loaded.try_lock().ok()?.clone()
    }
}
