//! Creates a run's policy from its settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use turnwise_core::{Purpose, Seed};
use turnwise_model::load_config;
use turnwise_policy::policy_folder;
use turnwise_text::Tokenizer;
use turnwise_train::config::{Config, LossForm, PolicyLearnerConfig, Registries, TinkerConfig};
use turnwise_train::record::checkpoint::Checkpoint;
use turnwise_train::run::source::{NativeSource, NewRun, PolicySource, SourcedPolicy};
use turnwise_train::{Event, Observer, TrainError};

use super::client::{AdamParams, Client, ClientOptions, Dialect};
use super::error::TinkerError;
use super::policy::{Reference, SavedState, TinkerPolicy};
use super::reduction::{Reduction, calibrate};
use super::requests::Timing;
use super::updates::Updates;

/// Creates policies on a Tinker-compatible service if `policy.learner` names one, else local ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct TinkerSource {
    /// Timeouts and polling intervals; `policy.learner.timeout_s` takes precedence.
    pub timing: Timing,
}

impl PolicySource for TinkerSource {
    /// Also checks that the service offers the model.
    fn check(&self, config: &Config) -> Result<(), TrainError> {
        let PolicyLearnerConfig::Tinker(settings) = &config.policy.learner else {
            return NativeSource.check(config);
        };
        // Even a busy service answers this at once.
        let patience = Duration::from_secs_f64(settings.timeout_s.min(60.0));
        model_of(&self.connect(settings, patience)?, settings)?;
        Ok(())
    }

    fn start(&self, run: &NewRun<'_>, observer: &mut dyn Observer) -> Result<SourcedPolicy, TrainError> {
        let PolicyLearnerConfig::Tinker(settings) = &run.config.policy.learner else {
            return NativeSource.start(run, observer);
        };
        let mut notes = Vec::new();
        let opened = self.open(run.config, run.registries, settings, None, &mut notes);
        for note in notes {
            observer.event(Event::Note(note));
        }
        opened
    }

    fn resume(
        &self,
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError> {
        match &config.policy.learner {
            PolicyLearnerConfig::Native => NativeSource.resume(config, registries, checkpoint),
            PolicyLearnerConfig::Tinker(settings) => {
                self.open(config, registries, settings, Some(checkpoint), &mut Vec::new())
            }
        }
    }
}

impl TinkerSource {
    fn connect(&self, settings: &TinkerConfig, timeout: Duration) -> Result<Client, TinkerError> {
        let (url, api_key_env) = (settings.url.clone(), settings.api_key_env.clone());
        Client::connect(&ClientOptions { url, api_key_env, timing: Timing { timeout, ..self.timing } })
    }

    fn open(
        &self,
        config: &Config,
        registries: &Registries,
        settings: &TinkerConfig,
        checkpoint: Option<&Checkpoint>,
        notes: &mut Vec<String>,
    ) -> Result<SourcedPolicy, TrainError> {
        let folder = base_folder(config, notes)?;
        let tokenizer = Arc::new(Tokenizer::load_folder(&folder)?);
        let max_model_len = load_config(&folder)?.max_position_embeddings;
        let saved = checkpoint.map(|checkpoint| SavedState::read(&checkpoint.path)).transpose()?;
        let client = self.connect(settings, Duration::from_secs_f64(settings.timeout_s))?;
        let base_model = match &saved {
            Some(saved) => saved.base_model.clone(),
            None => model_of(&client, settings)?,
        };
        if let Some(saved) = saved.as_ref().filter(|saved| saved.rank != settings.rank) {
            let reason = format!(
                "is {}, and the checkpoint's adapter has rank {}; leave it as it was",
                settings.rank, saved.rank
            );
            return Err(TinkerError::Setting { key: "rank", reason }.into());
        }
        let reduction = reduction(&client, &base_model, settings, notes)?;
        let optimizer = &config.optimizer;
        let adam = AdamParams {
            learning_rate: 0.0,
            beta1: optimizer.beta1,
            beta2: optimizer.beta2,
            eps: optimizer.epsilon,
            weight_decay: optimizer.weight_decay,
            grad_clip_norm: optimizer.clip_norm,
        };
        let with_reference = registries.loss(config)?.passes().needs_reference();
        notes.extend(describe(&client, settings, reduction, config));
        if with_reference && adam.weight_decay > 0.0 && reduction.sequence_mean {
            return Err(TrainError::Config {
                origin: "optimizer.weight_decay".into(),
                reason: "is above 0, and this service decays all adapters with one, the reference policy's too; use 0"
                    .into(),
            });
        }
        let seed = (Seed::derive(config.seed, Purpose::Init, &[1]).rng().bits() >> 33) as u32;
        let model = client.create_model(&base_model, settings.rank, seed)?;
        let mut updates = Updates::new(reduction, settings.losses, adam);
        if let Some(checkpoint) = checkpoint {
            updates.restart(checkpoint.state()?.weights_version);
        }
        let loaded = saved.as_ref().map_or(Ok(()), |saved| client.load_weights(&model, &saved.weights, true));
        // A service without room fails before any work.
        let second = || client.create_model(&base_model, settings.rank, seed).map(Reference::Reserved);
        let reference = match loaded.and_then(|()| with_reference.then(second).transpose()) {
            Ok(reference) => reference,
            Err(error) => {
                client.let_go(std::iter::once(&model));
                return Err(error.into());
            }
        };
        let policy = TinkerPolicy {
            client: Arc::new(client),
            model,
            updates,
            reference,
            base_model,
            rank: settings.rank,
            seed,
            max_model_len,
            tokenizer: Arc::clone(&tokenizer),
            base_folder: folder,
            sampling: None,
        };
        Ok((Box::new(policy), tokenizer))
    }
}

fn base_folder(config: &Config, notes: &mut Vec<String>) -> Result<PathBuf, TrainError> {
    let Some(path) = &config.policy.model else {
        return Err(TrainError::Config {
            origin: "policy.model".into(),
            reason: "is missing; name the model that the service trains".into(),
        });
    };
    let folder = policy_folder(path, &mut |note| notes.push(note))?;
    if !folder.join("config.json").is_file() {
        return Err(TrainError::file(
            &folder,
            "has no config.json; name the base model's own folder, not an adapter",
        ));
    }
    folder.canonicalize().map_err(|error| TrainError::io(Path::new(path), error))
}

fn model_of(client: &Client, settings: &TinkerConfig) -> Result<String, TinkerError> {
    let known = client.models();
    let fail = |reason: String| Err(TinkerError::Setting { key: "base_model", reason });
    match (&settings.base_model, known) {
        (None, [only]) => Ok(only.clone()),
        (None, several) => fail(format!(
            "is missing, and the service has {} models: {}; name one",
            several.len(),
            several.join(", ")
        )),
        (Some(named), []) => Ok(named.clone()),
        (Some(named), known) if known.contains(named) => Ok(named.clone()),
        (Some(named), known) => fail(format!("is {named:?}, and the service has {}", known.join(", "))),
    }
}

fn reduction(
    client: &Client,
    base_model: &str,
    settings: &TinkerConfig,
    notes: &mut Vec<String>,
) -> Result<Reduction, TinkerError> {
    match (calibrate(client, base_model, settings.rank), Reduction::of(settings.reduction)) {
        (Ok(measured), None) => Ok(measured),
        (Ok(measured), Some(named)) if measured == named => Ok(named),
        (Ok(measured), Some(named)) => Err(TinkerError::Setting {
            key: "reduction",
            reason: format!(
                "is \"{}\", and the service was measured to take \"{}\"; set it to \"auto\"",
                named.name(),
                measured.name()
            ),
        }),
        (Err(TinkerError::Calibration(reason)), Some(named)) => {
            notes.push(format!("the service's reduction is taken to be {}: {reason}", named.name()));
            Ok(named)
        }
        (Err(error), _) => Err(error),
    }
}

fn describe(client: &Client, settings: &TinkerConfig, reduction: Reduction, config: &Config) -> Vec<String> {
    let dialect = match client.dialect() {
        Dialect::Protobuf => "protobuf",
        Dialect::Json => "JSON",
    };
    let form = match (settings.losses, reduction.sequence_mean) {
        (LossForm::Linearised, _) => "every loss goes by its derivatives",
        (LossForm::Direct, true) => "token-ratio clipping goes as `ppo`, every other loss by its derivatives",
        (LossForm::Direct, false) => {
            "cross-entropy and token-ratio clipping go by name, every other loss by its derivatives"
        }
    };
    let mut notes = vec![format!(
        "trained by a Tinker-compatible service ({dialect}): adapter of rank {}, reduction {}, {form}",
        settings.rank,
        reduction.name()
    )];
    let clip = config.optimizer.clip_norm;
    notes.push(if reduction == Reduction::SUM {
        format!(
            "SkyRL on FSDP or Megatron takes the learning rate alone: betas, epsilon, weight decay and clipping (here {clip}) \
             are those of the server's trainer.policy.optimizer_config (0.9, 0.999, 0.01 and 1 unless set)"
        )
    } else if clip > 0.0 {
        format!(
            "optimizer.clip_norm = {clip} is sent and this kind of service (SkyRL on JAX) does not clip; betas, epsilon and \
             weight decay are taken as they are"
        )
    } else {
        "betas, epsilon and weight decay are taken as they are, and nothing is clipped".into()
    });
    notes
}
