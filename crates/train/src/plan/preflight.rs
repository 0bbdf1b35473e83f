//! Checks whether a run can start, without writing files or creating weights.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use turnwise_core::EnvError;
use turnwise_env::prompt::PromptTemplate;
use turnwise_model::{
    AdapterFile, AdapterLayout, ModelConfig, ParameterLayout, is_adapter, load_config, read_config,
};
use turnwise_policy::{base, policy_folder};
use turnwise_settings::{Problem, SettingsError};
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::config::{Config, PolicyLearnerConfig, Registries};
use crate::learners::scratch;
use crate::plan::memory::{self, MemoryReport};
use crate::plan::sizes::shared_folder;
use crate::record::directory::RunDirectory;
use crate::record::observer::{Event, Observer};
use crate::record::panels::{self, Panels};
use crate::rollout::first_prompts;
use crate::rollout::pictures::{PicturePrompts, drawn_size};
use crate::rollout::prompting::Prompter;
use crate::setup::{self, World};

/// Result of a dry run.
#[derive(Clone, Debug)]
pub struct Preflight {
    /// Model shape.
    pub model: ModelConfig,
    /// Number of weights.
    pub parameters: usize,
    /// Name and number of tasks of the training split and of each evaluation panel.
    pub tasks: Vec<(String, usize)>,
    /// Missing parts, such as weights, that the run needs but this check does not.
    pub missing: Vec<String>,
    /// Memory of the run.
    pub memory: MemoryReport,
    /// Whether this process trains the policy, so that `memory` applies to this machine.
    pub trained_here: bool,
    /// Bytes in the folder shared with the servers (`rollout.engine.adapter_dir`), if all weights
    /// are sent to them.
    pub shared_folder: Option<u64>,
}

pub(crate) struct Checked {
    pub(crate) directory: RunDirectory,
    pub(crate) template: PromptTemplate,
    /// `None` if the run plays no episodes.
    pub(crate) world: Option<(World, Panels)>,
}

pub(crate) fn checked(
    config: &Config,
    registries: &Registries,
    root: &Path,
    observer: &mut dyn Observer,
) -> Result<Checked, TrainError> {
    config.check(registries)?;
    for warning in config.warnings(registries) {
        observer.event(Event::Note(warning));
    }
    let directory = RunDirectory::planned(root)?;
    let template = setup::template(config, registries)?;
    if !config.needs_world() {
        return Ok(Checked { directory, template, world: None });
    }
    observer.event(Event::Stage("building the world"));
    let split = |error| of_split(config, error);
    let world =
        World::new(&config.env, registries, &config.splits(), &mut |note| observer.event(Event::Note(note)))
            .map_err(split)?;
    world.check(config, registries).map_err(split)?;
    let panels = panels::pin(config, world.task_set()).map_err(split)?;
    if panels.train_tasks == 0 {
        let known = world.task_set().splits().join(", ");
        return Err(no_tasks(config, &config.env.split, &known).into());
    }
    Ok(Checked { directory, template, world: Some((world, panels)) })
}

fn of_split(config: &Config, error: TrainError) -> TrainError {
    match error {
        TrainError::Env(EnvError::UnknownSplit { split, known }) => no_tasks(config, &split, &known).into(),
        other => other,
    }
}

/// Rejects a context longer than the model's, which sampling would reject only after SFT.
pub(crate) fn check_context(config: &Config, positions: usize) -> Result<(), SettingsError> {
    let (key, context) = ("rollout.max_model_len", config.rollout.max_model_len);
    if context <= positions {
        return Ok(());
    }
    let reason = format!(
        "is more than the {positions} positions of the model (max_position_embeddings); set {positions} or less"
    );
    Err(SettingsError(vec![Problem { value: Some(context.to_string()), ..Problem::new(key, reason) }]))
}

/// Returns the error for a split that is empty or missing, which environments do not distinguish.
fn no_tasks(config: &Config, split: &str, known: &str) -> SettingsError {
    let key = if config.env.split == split { "env.split" } else { "eval.splits" };
    let reason = format!(
        "the split has no tasks in this world, or does not exist; there are tasks in: {known}. Name one of these, or \
         give it tasks (env.data, env.generator)"
    );
    let value = Some(format!("{split:?}"));
    SettingsError(vec![Problem { value, ..Problem::new(key, reason) }])
}

pub(crate) fn preflight(
    config: &Config,
    registries: &Registries,
    root: &Path,
    observer: &mut dyn Observer,
) -> Result<Preflight, TrainError> {
    let Checked { template, world, .. } = checked(config, registries, root, observer)?;
    let mut missing = Vec::new();
    if let Err(error) = config.policy.device.open() {
        missing.push(error.to_string());
    }
    let (model, tokenizer) = if let Some(path) = &config.policy.model {
        model_of(path, &mut missing, observer)?
    } else {
        let (world, _) = world.as_ref().ok_or_else(scratch::without_world)?;
        let (model, tokenizer) = scratch::scratch_parts(config, world, &template, observer)?;
        (model, Some(tokenizer))
    };
    check_context(config, model.max_position_embeddings)?;
    if let (Some(tokenizer), Some((world, _))) = (tokenizer, &world) {
        let chat = setup::chat(config, registries, &tokenizer)?;
        let pictures = PicturePrompts::new(config, model.vision.as_ref())?;
        let prompter = Prompter {
            template: &template,
            tokenizer: &tokenizer,
            chat: chat.as_ref(),
            pictures: pictures.as_ref(),
        };
        first_prompts::check(config, world, prompter)?;
    }
    for (lora, critic) in [(config.policy.lora.as_ref(), false), (config.critic_lora(), true)] {
        if let Some(lora) = lora {
            AdapterLayout::new(&model, lora, critic)?;
        }
    }
    let mut tasks = Vec::new();
    if let Some((_, panels)) = &world {
        tasks.push((config.env.split.clone(), panels.train_tasks));
        tasks.extend(panels.evaluation.iter().map(|(split, panel)| (split.clone(), panel.tasks.len())));
    }
    let parameters = ParameterLayout::new(&model).len;
    let drawn = world.as_ref().and_then(|(world, _)| drawn_size(config, world));
    Ok(Preflight {
        parameters,
        shared_folder: shared_folder(config, parameters),
        memory: MemoryReport::new(config, registries, &model, drawn),
        trained_here: matches!(config.policy.learner, PolicyLearnerConfig::Native),
        model,
        tasks,
        missing,
    })
}

/// Returns the folder and shape of a policy's decoder; for an adapter, those of its base.
pub(crate) fn shape_of(policy: &Path) -> Result<(PathBuf, ModelConfig), TrainError> {
    let folder = if is_adapter(policy) {
        base::find(policy, AdapterFile::read(policy)?.base.as_ref())?
    } else {
        policy.to_path_buf()
    };
    let model = load_config(&folder)?;
    Ok((folder, model))
}

/// Returns a model's shape and its tokenizer. Weights and tokenizer may be missing.
fn model_of(
    path: &Path,
    missing: &mut Vec<String>,
    observer: &mut dyn Observer,
) -> Result<(ModelConfig, Option<Tokenizer>), TrainError> {
    if path.is_file() {
        missing.push(format!("{}: only the config is there, and no weights beside it", path.display()));
        return Ok((read_config(path)?, None));
    }
    let (folder, model) = shape_of(&policy_folder(path, &mut |note| observer.event(Event::Note(note)))?)?;
    if !["model.safetensors", "model.safetensors.index.json"].iter().any(|name| folder.join(name).is_file()) {
        missing.push(format!("{}: model.safetensors", folder.display()));
    }
    let tokenizer = match Tokenizer::load_folder(&folder) {
        Ok(tokenizer) if tokenizer.vocab_size() > model.vocab_size => {
            missing.push(format!(
                "{}: tokenizer.json has {} tokens but config.json says vocab_size = {}",
                folder.display(),
                tokenizer.vocab_size(),
                model.vocab_size
            ));
            None
        }
        Ok(tokenizer) => Some(tokenizer),
        Err(error) => {
            missing.push(error.to_string());
            None
        }
    };
    Ok((model, tokenizer))
}

impl Preflight {
    /// Calls [`MemoryReport::check`] if this process trains the policy.
    ///
    /// # Errors
    /// Returns [`TrainError::Memory`] if the run does not fit.
    pub fn check_memory(&self, ignore: bool) -> Result<Option<String>, TrainError> {
        if self.trained_here { self.memory.check(ignore) } else { Ok(None) }
    }
}

impl Display for Preflight {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ModelConfig { num_hidden_layers, hidden_size, vocab_size, .. } = &self.model;
        writeln!(
            to,
            "model: {} parameters, {num_hidden_layers} layers of width {hidden_size}, vocabulary {vocab_size}",
            self.parameters
        )?;
        for (index, (split, count)) in self.tasks.iter().enumerate() {
            writeln!(to, "{}: {count} tasks of {split}", if index == 0 { "training" } else { "evaluation" })?;
        }
        writeln!(to, "memory:\n{}", self.memory)?;
        if let Some(bytes) = self.shared_folder {
            let size = bytes as f64 / memory::GIB;
            writeln!(to, "disk: {size:.1} GiB in rollout.engine.adapter_dir, rewritten at every step")?;
        }
        for missing in &self.missing {
            writeln!(to, "missing: {missing}")?;
        }
        write!(to, "nothing was written")
    }
}
