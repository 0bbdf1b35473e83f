//! Sources of a run's policy.

use std::sync::Arc;

use turnwise_env::prompt::PromptTemplate;
use turnwise_policy::{Policy, policy_folder};
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::config::{Config, PolicyLearnerConfig, Registries};
use crate::learners::begin_weights;
use crate::learners::policy::{NativePolicy, PolicyLearner};
use crate::learners::scratch::{policy_from_scratch, scratch_parts, without_world};
use crate::plan::{memory, preflight};
use crate::record::checkpoint::Checkpoint;
use crate::record::directory::{Phase, RunDirectory};
use crate::record::observer::{Event, Observer};
use crate::setup::{World, untrained_tags};

/// A policy in training and its tokenizer.
pub type SourcedPolicy = (Box<dyn PolicyLearner>, Arc<Tokenizer>);

/// Inputs for creating a new run's policy.
pub struct NewRun<'a> {
    /// The run's config.
    pub config: &'a Config,
    /// Known environments and methods.
    pub registries: &'a Registries,
    /// First phase.
    pub phase: Phase,
    /// The environment, if any; tokenizers from scratch train on its text.
    pub world: Option<&'a World>,
    /// Prompt template.
    pub template: &'a PromptTemplate,
    /// Run directory, which may not exist yet.
    pub directory: &'a RunDirectory,
    /// Start even if the memory plan exceeds the available memory.
    pub ignore_memory: bool,
}

/// Creates policies for runs: [`NativeSource`], or a source of remote learners.
pub trait PolicySource {
    /// Rejects configs whose policy or samplers this source cannot create; called first.
    ///
    /// # Errors
    /// Returns the invalid setting and a fix.
    fn check(&self, config: &Config) -> Result<(), TrainError> {
        native(config)?;
        match config.rollout.engine {
            None => Ok(()),
            Some(_) => Err(TrainError::Config {
                origin: "rollout.engine".into(),
                reason:
                    "this program was built without inference servers; build it with `cargo build --release \
                         --features remote`, or leave the table out to sample in this process"
                        .into(),
            }),
        }
    }

    /// Creates a new run's policy.
    ///
    /// # Errors
    /// Fails on unsuitable settings or files.
    fn start(&self, run: &NewRun<'_>, observer: &mut dyn Observer) -> Result<SourcedPolicy, TrainError>;

    /// Loads a checkpoint's policy.
    ///
    /// # Errors
    /// Fails on files that are missing or unsuitable.
    fn resume(
        &self,
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError>;
}

/// Trains in this process, from `policy.model` or from scratch.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeSource;

impl PolicySource for NativeSource {
    fn start(&self, run: &NewRun<'_>, observer: &mut dyn Observer) -> Result<SourcedPolicy, TrainError> {
        let config = run.config;
        let policy = if let Some(path) = &config.policy.model {
            let folder = policy_folder(path, &mut |note| observer.event(Event::Note(note)))?;
            // Before reading the weights, which may not fit.
            if let Ok((_, model)) = preflight::shape_of(&folder) {
                memory::check(config, run.registries, &model, run.world, run.ignore_memory, observer)?;
            }
            Policy::load(&folder)?
        } else {
            let world = run.world.ok_or_else(without_world)?;
            let (model, tokenizer) = scratch_parts(config, world, run.template, observer)?;
            memory::check(config, run.registries, &model, run.world, run.ignore_memory, observer)?;
            policy_from_scratch(config, model, tokenizer)?
        };
        let model = policy.weights.config();
        observer.event(Event::Note(format!(
            "model: {} parameters, {} layers of width {}, vocabulary {}",
            policy.weights.base.layout.len, model.num_hidden_layers, model.hidden_size, model.vocab_size
        )));
        let (weights, base) = begin_weights(config, &policy, run.directory)?;
        if let Some(adapter) = &weights.adapter {
            observer.event(Event::Note(format!(
                "adapter: {} parameters of rank {} are trained, the model's own stay",
                adapter.layout.len, adapter.config.rank
            )));
            if let Some(warning) = untrained_tags(run.template, &policy.tokenizer, &policy.weights.base) {
                observer.event(Event::Note(warning));
            }
            if config.policy.model.is_none() {
                let note = "the adapter stands on a model from scratch, whose weights are random and stay so; it \
                            learns little there. Set policy.model to a model or a run";
                observer.event(Event::Note(note.into()));
            }
        }
        let tokenizer = policy.tokenizer;
        let learner =
            NativePolicy::new(config, run.registries, run.phase, weights, Arc::clone(&tokenizer), base)?;
        Ok((Box::new(learner), tokenizer))
    }

    fn resume(
        &self,
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError> {
        let policy = NativePolicy::load(config, registries, checkpoint)?;
        let tokenizer = Arc::clone(policy.tokenizer());
        Ok((Box::new(policy), tokenizer))
    }
}

fn native(config: &Config) -> Result<(), TrainError> {
    match config.policy.learner {
        PolicyLearnerConfig::Native => Ok(()),
        PolicyLearnerConfig::Tinker(_) => Err(TrainError::Config {
            origin: "policy.learner.kind".into(),
            reason: "is \"tinker\", and this program was built without the feature `remote`; build it with \
                     `--features remote`"
                .into(),
        }),
    }
}
