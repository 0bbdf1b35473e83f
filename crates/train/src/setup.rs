//! What a config stands for: its world, its prompts, its policy.

use std::path::Path;
use std::sync::Arc;

use turnwise_core::{Purpose, Seed, TaskSet};
use turnwise_env::alfworld::demonstrations::{DemonstrationOptions, demonstrate};
use turnwise_env::alfworld::generator::generate;
use turnwise_env::alfworld::{AlfworldSet, PHRASES};
use turnwise_env::demonstration::Demonstrations;
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::webshop::{self, WebshopSet};
use turnwise_model::{ModelConfig, Parameters};
use turnwise_policy::Policy;
use turnwise_text::chat::{ChatFormat, ChatSettings};
use turnwise_text::{Tokenizer, TokenizerConfig};

use crate::TrainError;
use crate::config::{Config, EnvConfig, ShopConfig, Switch, Validity};
use crate::rollout::Layout;
use crate::run::observer::{Event, Observer};
use crate::sft;

/// Texts that a tokenizer is trained on when the policy is made from scratch.
const TOKENIZER_DEMONSTRATIONS: usize = 2_000;

/// Characters of a malformed response that verl-agent sends to WebShop.
const WEBSHOP_TAIL: usize = 20;

/// The world of a run: its tasks and who can show how they are done.
pub struct World(Set);

enum Set {
    Alfworld(AlfworldSet),
    Webshop(WebshopSet),
}

impl World {
    /// Builds or loads the world. Files that could not be read are told to the observer and left out.
    pub fn new(config: &EnvConfig, splits: &[&str], observer: &mut dyn Observer) -> Result<Self, TrainError> {
        if config.name == "webshop" {
            let ShopConfig { products, seed, options } = &config.shop;
            let set = if let Some(folder) = &config.data {
                WebshopSet::open(folder, None, options)?
            } else {
                let generator = webshop::generator::GeneratorConfig { seed: *seed, products: *products };
                WebshopSet::generated(generator, options)?
            };
            return Ok(Self(Set::Webshop(set.with_max_steps(config.max_turns))));
        }
        let set = match &config.data {
            Some(path) => {
                let (set, broken) = AlfworldSet::load_splits(path, splits)?;
                for error in &broken {
                    observer.event(Event::Note(format!("left out: {error}")));
                }
                set
            }
            None => generate(&config.world)?,
        };
        Ok(Self(Set::Alfworld(set.with_max_steps(config.max_turns))))
    }

    /// The tasks and their environments.
    pub fn task_set(&self) -> &dyn TaskSet {
        match &self.0 {
            Set::Alfworld(set) => set,
            Set::Webshop(set) => set,
        }
    }

    /// Up to `count` solved episodes on the training split.
    pub fn demonstrations(&self, config: &Config, count: usize) -> Result<Demonstrations, TrainError> {
        let split = &config.env.split;
        if self.task_set().tasks(split)?.is_empty() {
            return Err(TrainError::Config {
                origin: "env.split".into(),
                reason: format!("the split `{split}` has no tasks, so there is nothing to demonstrate"),
            });
        }
        // They are most of the memory.
        let keep_admissible = template(config)?.lists_admissible();
        let set = match &self.0 {
            Set::Alfworld(set) => set,
            Set::Webshop(set) => {
                let options = webshop::demonstrations::DemonstrationOptions {
                    invalid_action_prob: config.sft.invalid_action_prob,
                    option_drop_prob: config.sft.option_drop_prob,
                    keep_admissible,
                };
                return Ok(webshop::demonstrations::demonstrate(set, split, count, &options, config.seed)?);
            }
        };
        let options = DemonstrationOptions {
            source: config.sft.source,
            order: config.sft.order,
            invalid_action_prob: config.sft.invalid_action_prob,
            max_steps: config.env.max_turns,
            keep_admissible,
        };
        Ok(demonstrate(set, split, count, &options, config.seed)?)
    }

    /// The world's fixed phrases, for tokenizers of small models.
    pub fn phrases(&self) -> Result<Vec<String>, TrainError> {
        Ok(match &self.0 {
            Set::Alfworld(_) => PHRASES.iter().map(|phrase| (*phrase).to_owned()).collect(),
            Set::Webshop(set) => set.phrases()?,
        })
    }

    /// Whether tokenizers of small models take a name and its number apart: in a shop the number is a size, a price or
    /// a quantity and not part of the name.
    pub fn split_numbers(&self) -> bool {
        matches!(self.0, Set::Webshop(_))
    }
}

/// The template a config names: embedded, or a file.
pub fn template(config: &Config) -> Result<PromptTemplate, TrainError> {
    let name = &config.prompt.template;
    Ok(if Path::new(name).is_file() {
        PromptTemplate::load(Path::new(name))?
    } else {
        PromptTemplate::named(name)?
    })
}

/// The parser a config asks for.
pub fn parser(config: &Config, template: &PromptTemplate) -> ActionParser {
    let parser = ActionParser::new(
        template.style(),
        config.prompt.valid == Validity::Admissible,
        config.prompt.verl_agent_parsing,
    );
    if config.env.name == "webshop" { parser.with_tail(WEBSHOP_TAIL) } else { parser }
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
    let demonstrations = world.demonstrations(config, count)?;
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
