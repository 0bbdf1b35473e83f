//! Parts that a config stands for: its world, its prompts, its policy.

use std::ops::Deref;
use std::sync::Arc;

use turnwise_core::{Purpose, Seed, TaskSet, Tasks};
use turnwise_env::demonstration::{DemonstrationRequest, Demonstrations, explore};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::world::{self, OpenOptions, WorldTasks};
use turnwise_model::{ModelConfig, Parameters};
use turnwise_policy::Policy;
use turnwise_text::chat::{ChatFormat, ChatSettings};
use turnwise_text::{Tokenizer, TokenizerConfig};

use crate::TrainError;
use crate::config::{Config, EnvConfig, Switch, Validity};
use crate::rollout::Layout;
use crate::run::observer::{Event, Observer};
use crate::sft;

/// Texts that a tokenizer is trained on when the policy is made from scratch.
const TOKENIZER_DEMONSTRATIONS: usize = 2_000;

/// The open world of a run, as its config names it.
pub struct World(Arc<dyn world::World>);

impl Deref for World {
    type Target = dyn world::World;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl World {
    /// Opens the world that a config names, for these splits. What had to be left out the observer gets as notes.
    ///
    /// # Errors
    /// The registry has no such world, its settings are wrong, or its data cannot be read.
    pub fn new(config: &EnvConfig, splits: &[&str], observer: &mut dyn Observer) -> Result<Self, TrainError> {
        let mut options = OpenOptions {
            splits,
            max_turns: config.max_turns,
            note: &mut |note| observer.event(Event::Note(note)),
        };
        Ok(Self(config.worlds.kind(&config.kind)?.open(&config.settings, &mut options)?.into()))
    }

    /// Its tasks and environments, for threads that may outlive a call.
    pub fn shared_task_set(&self) -> Arc<dyn TaskSet> {
        Arc::new(WorldTasks(Arc::clone(&self.0)))
    }

    /// Up to `count` episodes of the expert on the training split.
    ///
    /// # Errors
    /// The split has no tasks, or the world has no expert.
    pub fn demonstrations(&self, config: &Config, count: usize) -> Result<Demonstrations, TrainError> {
        let found = self.0.demonstrations(&self.request(config, count)?)?;
        found.ok_or_else(|| TrainError::Config {
            origin: "sft.steps".into(),
            reason: format!("the world `{}` has no expert to imitate; set sft.steps to 0", config.env.kind),
        })
    }

    /// Episodes whose words a tokenizer is trained on: the expert's, or random ones where there is no expert.
    fn texts(&self, config: &Config, count: usize) -> Result<Demonstrations, TrainError> {
        let request = self.request(config, count)?;
        Ok(match self.0.demonstrations(&request)? {
            Some(found) => found,
            None => explore(self.0.task_set(), &request)?,
        })
    }

    fn request<'a>(&self, config: &'a Config, count: usize) -> Result<DemonstrationRequest<'a>, TrainError> {
        let split = &config.env.split;
        if Tasks::of(self.0.task_set(), split)?.is_empty() {
            return Err(TrainError::Config {
                origin: "env.split".into(),
                reason: format!("the split `{split}` has no tasks, so there is nothing to demonstrate"),
            });
        }
        Ok(DemonstrationRequest {
            split,
            count,
            invalid_action_prob: config.sft.invalid_action_prob,
            max_turns: config.env.max_turns,
            // They are most of the memory.
            keep_admissible: template(config)?.lists_admissible(),
            seed: config.seed,
        })
    }
}

/// The template a config names: one that comes with a world of its registry, or a file.
///
/// # Errors
/// There is neither, or it is no template.
pub fn template(config: &Config) -> Result<PromptTemplate, TrainError> {
    Ok(PromptTemplate::find(&config.prompt.template, &config.env.worlds)?)
}

/// The parser a config asks for.
pub fn parser(config: &Config, template: &PromptTemplate) -> ActionParser {
    let admissible = config.prompt.valid == Validity::Admissible;
    ActionParser::new(template.rules().clone(), admissible)
}

/// The chat format that a config wraps its prompts in, if any.
///
/// # Errors
/// One is wanted and the model has none, or it cannot be used with the config's layout, or it has no switch for
/// thinking and the config turns it.
pub fn chat(config: &Config, tokenizer: &Tokenizer) -> Result<Option<ChatFormat>, TrainError> {
    let fail =
        |key: &str, reason: String| Err(TrainError::Config { origin: format!("prompt.{key}"), reason });
    let prompt = &config.prompt;
    let wanted = match prompt.chat {
        Switch::On => true,
        Switch::Off => false,
        Switch::Auto => tokenizer.chat_template().is_some(),
    };
    let thinking = match prompt.thinking {
        Switch::Auto => None,
        Switch::On => Some(true),
        Switch::Off => Some(false),
    };
    if !wanted {
        let set = [("system", prompt.system.is_some()), ("thinking", thinking.is_some())];
        if let Some((key, _)) = set.into_iter().find(|(_, set)| *set) {
            return fail(
                key,
                "is set, and prompts are not wrapped in a chat template that could use it".into(),
            );
        }
        return Ok(None);
    }
    let settings = ChatSettings { system: prompt.system.clone(), thinking };
    let format = match ChatFormat::new(tokenizer, settings) {
        Ok(format) => format,
        Err(error) => return fail("chat", format!("{error}; or set prompt.chat = \"off\"")),
    };
    if prompt.layout == Layout::Concatenated
        && !template(config)?.keeps_reply_open()
        && let Err(error) = format.check_growth()
    {
        return fail("layout", format!("{error}: set prompt.layout = \"windowed\" or prompt.chat = \"off\""));
    }
    if thinking.is_some() && !format.knows_thinking()? {
        return fail("thinking", "is set, and this model's chat template has no such switch".into());
    }
    Ok(Some(format))
}

/// Makes a small policy from scratch: a tokenizer for the world's own text and random weights.
pub fn policy_from_scratch(
    config: &Config,
    world: &World,
    template: &PromptTemplate,
) -> Result<Policy, TrainError> {
    let (model, tokenizer) = scratch_parts(config, world, template)?;
    let weights = Parameters::init(model, Seed::derive(config.seed, Purpose::Init, &[]))?;
    Ok(Policy { weights: weights.into(), tokenizer: Arc::new(tokenizer) })
}

/// The shape of the small policy and its tokenizer.
pub(crate) fn scratch_parts(
    config: &Config,
    world: &World,
    template: &PromptTemplate,
) -> Result<(ModelConfig, Tokenizer), TrainError> {
    let count = TOKENIZER_DEMONSTRATIONS.min(config.sft.demonstrations.max(200));
    let demonstrations = world.texts(config, count)?;
    let texts: Vec<String> =
        demonstrations.episodes.iter().map(|demonstration| sft::texts(demonstration, template)).collect();
    let tokenizer = Tokenizer::train(
        texts.iter().map(String::as_str),
        &TokenizerConfig {
            phrases: world.phrases()?,
            max_pieces: config.policy.scratch.max_pieces,
            split_numbers: world.split_numbers(),
            ..TokenizerConfig::default()
        },
    )?;
    let model = config.policy.scratch.model_config(tokenizer.vocab_size(), config.rollout.max_context);
    model.check()?;
    Ok((model, tokenizer))
}
