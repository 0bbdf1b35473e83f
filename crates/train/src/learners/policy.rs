//! Policies in training.

use std::path::Path;
use std::sync::Arc;

use turnwise_core::{
    HiddenRequest, LearnError, Learner, LossReport, Objective, Sampler, StepReport, TokenBatch, TokenScores,
    TokenSequence,
};
use turnwise_model::engine::{EngineConfig, NativeEngine};
use turnwise_model::vision::VisionConfig;
use turnwise_model::{NativeLearner, OptimizerState, Weights, load_adapter, save_adapter, save_model};
use turnwise_policy::{BaseModel, Policy};
use turnwise_text::{GenerationSampling, ReasoningTags, Tokenizer};

use crate::TrainError;
use crate::config::{Config, Registries};
use crate::learners::settings::phase_learner;
use crate::record::checkpoint::Checkpoint;
use crate::record::directory::Phase;
pub use crate::rollout::queue::SamplingReport;
use crate::setup;

/// A [`Learner`] with sampling, scoring and checkpoints, native or remote.
///
/// The default implementations of optional passes fail.
pub trait PolicyLearner: Learner {
    /// Creates one sampler per lane over the current weights, each for `max_num_seqs` sequences of
    /// `max_model_len` tokens.
    ///
    /// # Errors
    /// Fails if a sampler cannot be created.
    fn samplers(
        &mut self,
        lanes: usize,
        max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError>;

    /// Returns the metrics and notes that remote samplers reported since the last call.
    fn sampling_report(&mut self) -> SamplingReport {
        SamplingReport::default()
    }

    /// Returns log-probs and entropies of the response tokens under the current weights, at
    /// `temperature` (above 0).
    ///
    /// # Errors
    /// Fails if this pass is not supported.
    fn score(
        &mut self,
        _batch: &[&TokenSequence],
        _temperature: f64,
    ) -> Result<Vec<TokenScores>, LearnError> {
        Err(LearnError::Unsupported("a scoring pass with entropies"))
    }

    /// Returns the log-probs of the responses under the reference policy.
    ///
    /// # Errors
    /// Fails if there is no reference policy.
    fn reference_logprobs(&mut self, _batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        Err(LearnError::Unsupported("a reference policy"))
    }

    /// Sets the reference to the policy at the start of RL, from the checkpoint in `start`.
    ///
    /// # Errors
    /// Fails if reference policies are unsupported, or if the checkpoint cannot be read.
    fn set_reference(&mut self, _start: &Path) -> Result<(), TrainError> {
        Err(LearnError::Unsupported("a reference policy").into())
    }

    /// Stashes the accumulated gradient, so that another can be accumulated.
    ///
    /// # Errors
    /// Fails if unsupported.
    fn stash_gradient(&mut self) -> Result<(), LearnError> {
        Err(LearnError::Unsupported("a second gradient"))
    }

    /// Returns the L2 norm of the accumulated gradient.
    ///
    /// # Errors
    /// Fails if unavailable.
    fn grad_norm(&self) -> Result<f64, LearnError> {
        Err(LearnError::Unsupported("the norm of a gradient before the update"))
    }

    /// Restores the stashed gradient, multiplied by a factor, and discards the current one.
    ///
    /// # Errors
    /// Fails without a stashed gradient.
    fn restore_gradient(&mut self, _factor: f64) -> Result<(), LearnError> {
        Err(LearnError::Unsupported("a second gradient"))
    }

    /// Starts a phase from the current weights, with a fresh optimizer.
    ///
    /// # Errors
    /// Fails if the settings do not fit the model.
    fn begin_phase(&mut self, config: &Config, phase: Phase) -> Result<(), TrainError>;

    /// Frees the memory for passes and gradients until it is needed again.
    fn release(&mut self) {}

    /// Rejects NaN and infinite weights.
    ///
    /// # Errors
    /// Returns the name of the first invalid tensor.
    fn check_finite(&self) -> Result<(), LearnError> {
        Ok(())
    }

    /// Writes the checkpoint's `policy/` and optimizer state.
    ///
    /// # Errors
    /// Fails on I/O or service errors.
    fn save(&self, folder: &Path) -> Result<(), TrainError>;

    /// Returns the base model, if only an adapter is trained.
    fn base(&self) -> Option<&BaseModel> {
        None
    }

    /// Returns the vision tower's shape, if any.
    fn vision(&self) -> Option<&VisionConfig> {
        None
    }

    /// Returns the weights, if they are in this process.
    fn weights(&self) -> Option<Weights> {
        None
    }
}

/// A policy trained in this process.
pub struct NativePolicy {
    learner: NativeLearner,
    tokenizer: Arc<Tokenizer>,
    /// Reasoning tags; sampling engines ignore stop strings between them.
    reasoning: Option<Arc<ReasoningTags>>,
    /// Sampling parameters to write into model folders.
    sampling: GenerationSampling,
    base: Option<BaseModel>,
    stashed: Option<turnwise_model::TakenGradient>,
}

impl NativePolicy {
    /// Creates a policy with these weights at the start of a phase.
    ///
    /// # Errors
    /// Fails if the settings do not fit the model, or if [`setup::template`] or [`setup::chat`]
    /// fails.
    pub fn new(
        config: &Config,
        registries: &Registries,
        phase: Phase,
        weights: Weights,
        tokenizer: Arc<Tokenizer>,
        base: Option<BaseModel>,
    ) -> Result<Self, TrainError> {
        let learner = NativeLearner::new(weights, phase_learner(config, phase))?;
        let reasoning = setup::engine_reasoning(config, registries, &tokenizer)?;
        Ok(Self { learner, tokenizer, reasoning, sampling: setup::sampling(config), base, stashed: None })
    }

    /// Loads a checkpoint's policy and optimizer.
    ///
    /// # Errors
    /// Fails on files that are missing or do not fit the config.
    pub fn load(
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<Self, TrainError> {
        let state = checkpoint.state()?;
        let policy = Policy::load(&checkpoint.policy())?;
        let mut loaded = Self::new(
            config,
            registries,
            state.position.phase,
            policy.weights,
            policy.tokenizer,
            state.base,
        )?;
        let moments = OptimizerState::load(&checkpoint.optimizer(), loaded.learner.trained_tensors())?;
        loaded.learner.restore_optimizer(moments)?;
        Ok(loaded)
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }
}

impl Learner for NativePolicy {
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.learner.forward_backward(batch, objective)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.learner.logprobs(batch)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.learner.step(learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.learner.weights_version()
    }

    fn max_model_len(&self) -> usize {
        self.learner.max_model_len()
    }

    fn hidden_size(&self) -> usize {
        self.learner.hidden_size()
    }

    fn mean_hidden(&mut self, batch: &[HiddenRequest]) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        self.learner.mean_hidden(batch)
    }
}

impl PolicyLearner for NativePolicy {
    fn samplers(
        &mut self,
        lanes: usize,
        max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        let weights = self.learner.engine_weights()?;
        let sizes = EngineConfig { max_num_seqs, max_model_len };
        (0..lanes)
            .map(|_| {
                let engine = NativeEngine::with_shared(&weights, sizes, Some(Arc::clone(&self.tokenizer)))?;
                Ok(Box::new(engine.past_reasoning(self.reasoning.clone())) as Box<dyn Sampler + Send>)
            })
            .collect()
    }

    fn score(&mut self, batch: &[&TokenSequence], temperature: f64) -> Result<Vec<TokenScores>, LearnError> {
        self.learner.score(batch, temperature)
    }

    fn reference_logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.learner.reference_logprobs(batch)
    }

    /// Sets the reference. With an adapter, the reference shares the policy's base model.
    fn set_reference(&mut self, start: &Path) -> Result<(), TrainError> {
        let weights = self.learner.weights();
        let reference = if weights.adapter.is_some() {
            let adapter = load_adapter(&start.join("policy"), weights.config())?;
            if adapter.is_identity() {
                weights.without_adapter()
            } else {
                Weights::adapted(weights.base, adapter)?
            }
        } else {
            Policy::load(start)?.weights
        };
        Ok(self.learner.set_reference(reference)?)
    }

    fn stash_gradient(&mut self) -> Result<(), LearnError> {
        self.stashed = Some(self.learner.take_gradient());
        Ok(())
    }

    fn grad_norm(&self) -> Result<f64, LearnError> {
        self.learner.grad_norm()
    }

    fn restore_gradient(&mut self, factor: f64) -> Result<(), LearnError> {
        let taken = self.stashed.take();
        let taken = taken.ok_or_else(|| LearnError::Backend("no gradient was stashed".into()))?;
        self.learner.put_gradient(taken, factor);
        Ok(())
    }

    fn begin_phase(&mut self, config: &Config, phase: Phase) -> Result<(), TrainError> {
        Ok(self.learner.restart(phase_learner(config, phase))?)
    }

    fn release(&mut self) {
        self.learner.release();
    }

    fn check_finite(&self) -> Result<(), LearnError> {
        self.learner.check_finite()
    }

    fn save(&self, folder: &Path) -> Result<(), TrainError> {
        self.learner.fetch()?;
        let (policy, weights) = (folder.join("policy"), self.learner.weights());
        match &weights.adapter {
            Some(adapter) => {
                let named = self.base.as_ref().map(BaseModel::named).unwrap_or_default();
                save_adapter(adapter, &policy, &named)?;
            }
            None => save_model(&weights.base, &policy)?,
        }
        self.tokenizer.save_folder_sampled(&policy, self.sampling)?;
        let tensors = self.learner.trained_tensors();
        Ok(self.learner.optimizer_state().save(&folder.join("optimizer.safetensors"), tensors)?)
    }

    fn base(&self) -> Option<&BaseModel> {
        self.base.as_ref()
    }

    fn vision(&self) -> Option<&VisionConfig> {
        self.learner.model().vision.as_ref()
    }

    fn weights(&self) -> Option<Weights> {
        Some(self.learner.weights())
    }
}
