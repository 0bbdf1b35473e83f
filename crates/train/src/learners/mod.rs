//! The trained networks: policy, critic and decomposer.

pub(crate) mod critic;
pub mod decomposer;
pub mod policy;
pub(crate) mod provider;
pub(crate) mod scratch;
pub(crate) mod settings;
mod turn_tokens;

use std::path::Path;

use turnwise_core::{Batch, Purpose, Sampler, Seed};
use turnwise_credit::{ModelInputs, Pipeline};
use turnwise_model::{Adapter, Compute, Weights, save_model};
use turnwise_policy::base::{self, BaseModel};
use turnwise_policy::run_folder::enclosing_run;
use turnwise_policy::{Policy, policy_folder};

use crate::TrainError;
use crate::config::Config;
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::RunDecomposer;
use crate::learners::policy::PolicyLearner;
use crate::learners::provider::ModelProvider;
use crate::record::directory::RunDirectory;
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Observer};
use crate::rollout::prompting::Prompter;
use crate::rollout::queue::{SamplerSource, SamplingReport};

pub(crate) struct Learners {
    pub(crate) policy: Box<dyn PolicyLearner>,
    pub(crate) critic: Option<RunCritic>,
    pub(crate) decomposer: Option<RunDecomposer>,
}

impl SamplerSource for Learners {
    fn release(&mut self) {
        self.policy.release();
        if let Some(critic) = &mut self.critic {
            critic.release();
        }
    }

    fn samplers(
        &mut self,
        lanes: usize,
        max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        self.policy.samplers(lanes, max_num_seqs, max_model_len)
    }

    fn sampling_report(&mut self) -> SamplingReport {
        self.policy.sampling_report()
    }
}

impl Learners {
    pub(crate) fn supply(
        &mut self,
        pipeline: &Pipeline,
        batch: &Batch,
        at: u64,
        prompter: Prompter<'_>,
        observer: &mut dyn Observer,
    ) -> Result<ModelInputs, TrainError> {
        let mut provider = ModelProvider {
            critic: self.critic.as_mut(),
            decomposer: self.decomposer.as_mut(),
            policy: self.policy.as_mut(),
            prompter,
            observer,
            step: at,
        };
        pipeline.supply(batch, &mut provider)
    }

    pub(crate) fn end_of_step(&mut self, at: u64) -> Result<Metrics, TrainError> {
        let mut metrics = Metrics::default();
        if let Some(decomposer) = &mut self.decomposer {
            decomposer.end_of_step(at, &mut metrics)?;
        }
        Ok(metrics)
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<(), TrainError> {
        self.policy.save(folder)?;
        if let Some(critic) = &self.critic {
            let base = self.policy.base().map(BaseModel::named).unwrap_or_default();
            critic.save(&folder.join("critic"), &folder.join("critic-optimizer.safetensors"), &base)?;
        }
        Ok(())
    }

    pub(crate) fn check_finite(&self) -> Result<(), TrainError> {
        self.policy.check_finite()?;
        match &self.critic {
            Some(critic) => critic.check_finite(),
            None => Ok(()),
        }
    }
}

/// Returns all weights or, with `policy.lora`, a fresh adapter with the path of its base. An
/// adapter that came with the policy is merged into the weights.
pub(crate) fn begin_weights(
    config: &Config,
    policy: &Policy,
    directory: &RunDirectory,
) -> Result<(Weights, Option<BaseModel>), TrainError> {
    let base = policy.weights.merged()?;
    let Some(lora) = &config.policy.lora else { return Ok((base.into(), None)) };
    let outside = match &config.policy.model {
        // A model folder outlives the run; another run's checkpoints may be deleted.
        Some(path) if policy.weights.adapter.is_none() => {
            Some(policy_folder(path, &mut |_| ())?).filter(|folder| enclosing_run(folder).is_none())
        }
        _ => None,
    };
    let named = config.policy.model.as_ref().filter(|path| outside.is_some() && !path.exists());
    let folder = if let Some(folder) = outside {
        folder
    } else {
        let folder = directory.path(base::FOLDER);
        save_model(&base, &folder)?;
        policy.tokenizer.save_folder(&folder)?;
        folder
    };
    let crc32c = base.checksum();
    let model = if let Some(id) = named {
        // Otherwise a hub model, by id and commit.
        BaseModel::of_hub(&id.to_string_lossy(), &folder, crc32c)
    } else {
        BaseModel::of_folder(&folder, crc32c)?
    };
    let seed = Seed::derive(config.seed, Purpose::Init, &[1]);
    let adapter = Adapter::init(&base.config, lora, seed)?;
    Ok((Weights::adapted(base, adapter)?, Some(model)))
}

fn note_compute(compute: Compute, observer: &mut dyn Observer) {
    if compute != Compute::F32 {
        let note = compute.fallback().unwrap_or_else(|| format!("policy.compute: {}", compute.path()));
        observer.event(Event::Note(note));
    }
}

pub(crate) fn open_device(config: &Config, observer: &mut dyn Observer) -> Result<(), TrainError> {
    if let Some(device) = config.policy.device.open()? {
        observer.event(Event::Note(format!("device: {device}")));
    } else {
        note_compute(config.policy.compute, observer);
    }
    Ok(())
}
