//! What a config stands for: its world, its prompts, its policy.

use std::path::Path;
use std::sync::Arc;

use turnwise_core::{Purpose, Seed, TaskSet};
use turnwise_env::alfworld::demonstrations::{DemonstrationOptions, Demonstrations, demonstrate};
use turnwise_env::alfworld::generator::generate;
use turnwise_env::alfworld::{AlfworldSet, PHRASES};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::webshop::{self, WebshopSet};
use turnwise_model::{
    AdapterFile, Parameters, Tokenizer, TokenizerConfig, Weights, is_adapter, load_adapter, load_model,
};

use crate::TrainError;
use crate::base;
use crate::config::{Config, EnvConfig, ShopConfig, Validity};
use crate::hub;
use crate::observer::{Event, Observer, Silent};
use crate::rollout::Layout;
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
        // Only windowed prompts may list what is admissible.
        let keep_admissible = config.prompt.layout == Layout::Windowed;
        let set = match &self.0 {
            Set::Alfworld(set) => set,
            Set::Webshop(set) => {
                return Ok(webshop::demonstrations::demonstrate(set, split, count, keep_admissible)?);
            }
        };
        let options = DemonstrationOptions {
            source: config.sft.source,
            order: config.sft.order,
            injection: config.sft.injection,
            max_steps: config.env.max_turns,
            keep_admissible,
        };
        Ok(demonstrate(set, split, count, &options, config.seed)?)
    }

    /// The world's fixed phrases, for tokenizers of small models.
    pub fn phrases(&self) -> &'static [&'static str] {
        match &self.0 {
            Set::Alfworld(_) => PHRASES,
            // A shop's words come from its catalogue; the tokenizer finds them in the demonstrations.
            Set::Webshop(_) => &[],
        }
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

/// A policy: weights and tokenizer.
pub struct Policy {
    /// The weights, with their adapter where they are in two parts.
    pub weights: Weights,
    /// Text to ids and back.
    pub tokenizer: Arc<Tokenizer>,
}

impl Policy {
    /// Reads a policy from a Hugging Face folder or the folder of an adapter, from a run directory or
    /// checkpoint that holds one, or from the hub (`ORG/NAME` or `ORG/NAME@REVISION`, where there is no such
    /// folder).
    pub fn load(path: &Path) -> Result<Self, TrainError> {
        Self::load_telling(path, &mut Silent)
    }

    /// The same, telling an observer what is fetched and from where the model comes.
    pub fn load_telling(path: &Path, observer: &mut dyn Observer) -> Result<Self, TrainError> {
        let folder = policy_folder_telling(path, observer)?;
        if is_adapter(&folder) {
            return Self::load_adapted(&folder);
        }
        let weights = load_model(&folder)?;
        let tokenizer = Arc::new(Tokenizer::load(&folder.join("tokenizer.json"))?);
        if tokenizer.vocab_size() > weights.config.vocab_size {
            return Err(TrainError::file(
                &folder,
                format!(
                    "tokenizer.json has {} tokens but config.json says vocab_size = {}; they do not belong together",
                    tokenizer.vocab_size(),
                    weights.config.vocab_size
                ),
            ));
        }
        Ok(Self { weights: weights.into(), tokenizer })
    }

    /// An adapter with the model that it stands on.
    fn load_adapted(folder: &Path) -> Result<Self, TrainError> {
        let named = AdapterFile::read(folder)?.base;
        let base = base::find(folder, named.as_ref())?;
        if is_adapter(&base) {
            return Err(TrainError::file(folder, "stands on another adapter; merge that one first"));
        }
        let Self { weights, tokenizer } = Self::load(&base)?;
        base::verify(folder, &base, &weights.base)?;
        let adapter = load_adapter(folder, weights.config())?;
        let own = folder.join("tokenizer.json");
        let tokenizer = if own.is_file() { Arc::new(Tokenizer::load(&own)?) } else { tokenizer };
        Ok(Self { weights: Weights::adapted(weights.base, adapter)?, tokenizer })
    }

    /// Makes a small policy from scratch: a tokenizer for the world's own text and random weights.
    pub fn from_scratch(
        config: &Config,
        world: &World,
        template: &PromptTemplate,
    ) -> Result<Self, TrainError> {
        let count = TOKENIZER_DEMONSTRATIONS.min(config.sft.demonstrations.max(200));
        let demonstrations = world.demonstrations(config, count)?;
        let texts: Vec<String> =
            demonstrations.episodes.iter().map(|demonstration| sft::texts(demonstration, template)).collect();
        let tokenizer = Tokenizer::train(
            texts.iter().map(String::as_str),
            &TokenizerConfig {
                phrases: world.phrases().iter().map(|phrase| (*phrase).to_owned()).collect(),
                max_pieces: config.policy.scratch.max_pieces,
                ..TokenizerConfig::default()
            },
        )?;
        let model = config.policy.scratch.model_config(tokenizer.vocab_size(), config.rollout.max_context);
        model.check()?;
        let weights = Parameters::init(model, Seed::derive(config.seed, Purpose::Init, &[]))?;
        Ok(Self { weights: weights.into(), tokenizer: Arc::new(tokenizer) })
    }
}

/// Finds the model folder behind what a user may name: the folder itself, a checkpoint, a run, or a model of
/// the hub.
pub(crate) fn policy_folder(path: &Path) -> Result<std::path::PathBuf, TrainError> {
    policy_folder_telling(path, &mut Silent)
}

fn policy_folder_telling(path: &Path, observer: &mut dyn Observer) -> Result<std::path::PathBuf, TrainError> {
    if path.join("model.safetensors").is_file() || path.join("config.json").is_file() || is_adapter(path) {
        return Ok(path.to_path_buf());
    }
    let inside = path.join("policy");
    if inside.join("config.json").is_file() || is_adapter(&inside) {
        return Ok(inside);
    }
    if path.join("config.toml").is_file() {
        let run = crate::rundir::RunDirectory::open(path)?;
        return Ok(crate::checkpoint::latest(&run)?.policy());
    }
    if !path.exists()
        && let Some(found) = path.to_str().and_then(|text| hub::resolve(text, observer))
    {
        return found;
    }
    Err(TrainError::file(
        path,
        "is not a model: expected a folder with config.json, tokenizer.json and model.safetensors, a checkpoint, \
         a run directory, or a model of the hub as ORG/NAME or ORG/NAME@REVISION",
    ))
}
