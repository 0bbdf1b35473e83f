//! A policy trained by a service.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    LearnError, Learner, LossReport, Objective, Sampler, StepReport, TokenBatch, TokenSequence,
};
use turnwise_text::Tokenizer;
use turnwise_train::config::Config;
use turnwise_train::learners::policy::PolicyLearner;
use turnwise_train::{Phase, TrainError};

use super::archive;
use super::client::{Client, RemoteModel};
use super::error::TinkerError;
use super::example::at_responses;
use super::sampler::TinkerSampler;
use super::updates::{Updates, score};

/// Checkpoint file with the service's path to the weights.
const STATE: &str = "service.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SavedState {
    pub(crate) weights: String,
    pub(crate) base_model: String,
    pub(crate) rank: usize,
}

impl SavedState {
    pub(crate) fn read(checkpoint: &Path) -> Result<Self, TinkerError> {
        let path = checkpoint.join(STATE);
        let fail = |reason: String| TinkerError::File { path: path.display().to_string(), reason };
        let text = std::fs::read(&path).map_err(|error| {
            fail(format!(
                "{error}; a run whose policy a service trains goes on from checkpoints that have this file"
            ))
        })?;
        serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))
    }
}

/// A policy whose weights are on a Tinker-compatible service. The tokenizer and the base model's
/// folder are local.
pub struct TinkerPolicy {
    pub(super) client: Arc<Client>,
    pub(super) model: RemoteModel,
    pub(super) updates: Updates,
    /// A frozen adapter, if the method uses a reference policy.
    pub(super) reference: Option<Reference>,
    pub(super) base_model: String,
    pub(super) rank: usize,
    pub(super) seed: u32,
    pub(super) max_model_len: usize,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) base_folder: PathBuf,
    /// The step count at which the sampling session was opened, and the session's id.
    pub(super) sampling: Option<(u64, String)>,
}

pub(super) enum Reference {
    /// A model whose weights are not loaded yet; it reserves memory for them on the service.
    Reserved(RemoteModel),
    Loaded(RemoteModel),
}

impl TinkerPolicy {
    /// Creates a model on the service with a copy of the weights, without optimizer state.
    fn copy(&self) -> Result<RemoteModel, TinkerError> {
        let weights = self.client.save_weights(&self.model)?;
        let copy = self.client.create_model(&self.base_model, self.rank, self.seed)?;
        self.client.load_weights(&copy, &weights, false)?;
        Ok(copy)
    }

    fn sampling_session(&mut self) -> Result<String, TinkerError> {
        match &self.sampling {
            Some((steps, session)) if *steps == self.updates.steps => Ok(session.clone()),
            _ => {
                let session = self.client.sampling_session(&self.model)?;
                self.sampling = Some((self.updates.steps, session.clone()));
                Ok(session)
            }
        }
    }
}

impl Learner for TinkerPolicy {
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.updates.accumulate(&self.client, &self.model, batch, objective)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let rows = score(&self.client, &self.model, batch)?;
        Ok(batch.iter().zip(&rows).map(|(sequence, row)| at_responses(sequence, row)).collect())
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.updates.step(&self.client, &self.model, learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.updates.steps
    }

    fn max_model_len(&self) -> usize {
        self.max_model_len
    }
}

impl PolicyLearner for TinkerPolicy {
    /// All workers share one sampling session per weight version.
    fn samplers(
        &mut self,
        lanes: usize,
        _max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        let session = self.sampling_session()?;
        let sampler = |_| {
            let tokenizer = Arc::clone(&self.tokenizer);
            let client = Arc::clone(&self.client);
            let version = self.updates.steps;
            Box::new(TinkerSampler::new(client, session.clone(), version, tokenizer, max_model_len))
                as Box<dyn Sampler + Send>
        };
        Ok((0..lanes).map(sampler).collect())
    }

    fn reference_logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let Some(Reference::Loaded(reference)) = &self.reference else {
            return Err(LearnError::Backend("the reference policy has not been set".into()));
        };
        let rows = score(&self.client, reference, batch)?;
        Ok(batch.iter().zip(&rows).map(|(sequence, row)| at_responses(sequence, row)).collect())
    }

    fn set_reference(&mut self, start: &Path) -> Result<(), TrainError> {
        let saved = SavedState::read(start)?;
        let room = match self.reference.take() {
            Some(Reference::Reserved(room)) => room,
            Some(Reference::Loaded(old)) => {
                self.client.unload_model(&old)?;
                self.client.create_model(&self.base_model, self.rank, self.seed)?
            }
            None => self.client.create_model(&self.base_model, self.rank, self.seed)?,
        };
        self.client.load_weights(&room, &saved.weights, false)?;
        self.reference = Some(Reference::Loaded(room));
        Ok(())
    }

    fn stash_gradient(&mut self) -> Result<(), LearnError> {
        self.updates.stash()
    }

    /// Measures the gradient norm with a step of learning rate 0 on a copy of the model.
    fn grad_norm(&self) -> Result<f64, LearnError> {
        let copy = self.copy()?;
        let norm = self.updates.norm_on(&self.client, &copy);
        self.client.unload_model(&copy)?;
        Ok(norm?)
    }

    fn restore_gradient(&mut self, factor: f64) -> Result<(), LearnError> {
        self.updates.restore(factor)
    }

    /// Creates a new model, because services cannot reset the optimizer otherwise.
    fn begin_phase(&mut self, _config: &Config, _phase: Phase) -> Result<(), TrainError> {
        let weights = self.client.save_weights(&self.model)?;
        // First, for services with room for one model.
        self.client.unload_model(&self.model)?;
        self.model = self.client.create_model(&self.base_model, self.rank, self.seed)?;
        self.client.load_weights(&self.model, &weights, false)?;
        self.updates.restart(0);
        self.sampling = None;
        Ok(())
    }

    /// Writes the adapter in PEFT's layout, and `service.json` with the service's path to weights
    /// and optimizer state.
    fn save(&self, folder: &Path) -> Result<(), TrainError> {
        let policy = folder.join("policy");
        std::fs::create_dir_all(&policy).map_err(|error| TrainError::io(&policy, error))?;
        let state = SavedState {
            weights: self.client.save_weights(&self.model)?,
            base_model: self.base_model.clone(),
            rank: self.rank,
        };
        let path = self.client.save_for_sampler(&self.model)?;
        let packed = folder.join("adapter.tar.part");
        self.client.download(&path, &packed)?;
        archive::unpack(&packed, &policy, &self.base_folder)?;
        std::fs::remove_file(&packed).map_err(|error| TrainError::io(&packed, error))?;
        self.tokenizer.save_folder(&policy)?;
        let path = folder.join(STATE);
        let text =
            serde_json::to_vec_pretty(&state).map_err(|error| TrainError::file(&path, error.to_string()))?;
        std::fs::write(&path, text).map_err(|error| TrainError::io(&path, error))
    }
}

impl Drop for TinkerPolicy {
    fn drop(&mut self) {
        let reference = self.reference.take().map(|reference| match reference {
            Reference::Reserved(model) | Reference::Loaded(model) => model,
        });
        self.client.let_go(std::iter::once(&self.model).chain(&reference));
    }
}
