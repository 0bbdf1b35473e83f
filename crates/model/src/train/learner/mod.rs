mod batch;
mod config;
mod gradient;

use std::sync::Arc;

use turnwise_core::{
    HiddenRequest, LearnError, Learner, LossReport, Objective, StepReport, TokenBatch, TokenScores,
    TokenSequence, TurnSpan,
};

use crate::backend::Network;
use crate::engine::{EngineWeights, SharedWeights};
use crate::train::micro::{Found, Lane};
use crate::train::pass_over::PassOver;
use crate::weights::Weights;
use crate::weights::lora::Adapter;
use crate::{ModelConfig, ModelError, OptimizerState, Parameters, TensorInfo};

pub use config::LearnerConfig;
pub use gradient::TakenGradient;

/// Trains a decoder or its adapter, on the CPU or on a device ([`LearnerConfig::device`]), with
/// AdamW.
///
/// Lanes run packed micro-batches in parallel. Their gradients are summed in lane order, so results
/// do not depend on thread timing; how a batch is split changes them only by rounding.
pub struct NativeLearner {
    parameters: Arc<Parameters<f32>>,
    adapter: Option<Arc<Adapter<f32>>>,
    reference: Option<Weights>,
    config: LearnerConfig,
    lanes: Vec<Lane>,
    /// Accumulated gradients, one per lane; each is empty until its lane's first backward pass.
    gradients: Vec<Vec<f32>>,
    /// Optimizer state. The moments are empty if a device keeps them.
    optimizer: OptimizerState,
    #[cfg(feature = "cuda")]
    cuda: Option<crate::cuda::Trained>,
    /// Number of passes with a gradient since the last update; part of the dropout seed.
    passes: u64,
}

impl NativeLearner {
    /// Creates a learner with a fresh optimizer. With an adapter, the base stays frozen.
    ///
    /// # Errors
    /// Fails if [`ModelConfig::check`] rejects the model, a setting is out of range, or the adapter
    /// was made for another architecture. Fails if the device is missing, is too small, or does not
    /// support the model.
    pub fn new(weights: impl std::convert::Into<Weights>, config: LearnerConfig) -> Result<Self, ModelError> {
        let weights = weights.into();
        weights.base.config.check()?;
        config.check()?;
        weights.base.config.check_device(config.device)?;
        if let Some(adapter) = &weights.adapter {
            adapter.check_base(&weights.base.config)?;
        }
        #[cfg(feature = "cuda")]
        if config.device == crate::Device::Cuda {
            let trained =
                crate::cuda::Trained::new(&weights).map_err(crate::cuda::CudaError::into_setting)?;
            return Ok(Self::on_device(weights, config, trained));
        }
        let Weights { base, adapter } = weights;
        let kernel = config.compute.kernel();
        let lane = |_| Lane::new(&base.config, config.recompute, kernel);
        let lanes = (0..config.lanes).map(lane).collect();
        let len = adapter.as_ref().map_or(base.layout.len, |adapter| adapter.layout.len);
        Ok(Self {
            parameters: base,
            adapter,
            reference: None,
            config,
            lanes,
            gradients: vec![Vec::new(); config.lanes],
            optimizer: OptimizerState::new(len),
            #[cfg(feature = "cuda")]
            cuda: None,
            passes: 0,
        })
    }

    /// Restarts training with new settings, the current weights and a fresh optimizer.
    ///
    /// # Errors
    /// Fails if a setting is out of range or the device fails.
    pub fn restart(&mut self, config: LearnerConfig) -> Result<(), ModelError> {
        config.check()?;
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.restart().map_err(crate::cuda::CudaError::into_setting)?;
            self.config = LearnerConfig { lanes: self.config.lanes, ..config };
            self.optimizer = OptimizerState::new(0);
            self.passes = 0;
            self.release();
            return Ok(());
        }
        self.config = config;
        // Free the old moments before allocating new ones.
        self.optimizer = OptimizerState::new(0);
        self.optimizer = OptimizerState::new(self.trained_len());
        self.passes = 0;
        self.release();
        Ok(())
    }

    /// Discards the accumulated gradient and frees all buffers until the next pass.
    pub fn release(&mut self) {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.release();
            self.lanes = vec![Lane::cuda(self.config.recompute)];
            return;
        }
        let lanes = self.config.lanes;
        let Parameters { config, .. } = &*self.parameters;
        let kernel = self.config.compute.kernel();
        self.lanes = (0..lanes).map(|_| Lane::new(config, self.config.recompute, kernel)).collect();
        self.gradients = vec![Vec::new(); lanes];
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(weights: Weights, config: LearnerConfig, trained: crate::cuda::Trained) -> Self {
        Self {
            parameters: weights.base,
            adapter: weights.adapter,
            reference: None,
            config: LearnerConfig { lanes: 1, ..config },
            lanes: vec![Lane::cuda(config.recompute)],
            gradients: vec![Vec::new()],
            optimizer: OptimizerState::new(0),
            cuda: Some(trained),
            passes: 0,
        }
    }

    #[cfg(feature = "cuda")]
    fn bind(&mut self, reference: bool) -> Result<(), LearnError> {
        if let Some(cuda) = &mut self.cuda {
            let bound = cuda.bind(reference)?;
            self.lanes.iter_mut().for_each(|lane| lane.bind(Some(&bound)));
        }
        Ok(())
    }

    /// Copies weights and moments from a device to the host, for [`NativeLearner::weights`] and
    /// [`NativeLearner::optimizer_state`].
    ///
    /// # Errors
    /// Fails if the device fails; the host then keeps its earlier copies.
    pub fn fetch(&self) -> Result<(), LearnError> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            cuda.weights()?;
            cuda.moments(self.optimizer.step)?;
        }
        Ok(())
    }

    /// Checks that all trained weights are finite. A device's weights are downloaded only if this
    /// check fails.
    ///
    /// # Errors
    /// Fails on a NaN or infinite weight, naming its tensor, or if the device fails.
    pub fn check_finite(&self) -> Result<(), LearnError> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            if cuda.finite()? {
                return Ok(());
            }
            cuda.weights()?;
        }
        check_finite(self.weights().trained(), self.trained_tensors())
    }

    /// Returns the current weights for sampling; engines read a device's weights in place.
    ///
    /// # Errors
    /// Fails like [`EngineWeights::of`] on the CPU.
    pub fn engine_weights(&self) -> Result<SharedWeights, ModelError> {
        let version = self.optimizer.step;
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            let network = cuda.network();
            return Ok(SharedWeights::Cuda(crate::cuda::DeviceWeights { network, version }));
        }
        Ok(SharedWeights::Host(Arc::new(EngineWeights::of(&self.weights(), version, self.config.compute)?)))
    }

    /// Returns the current weights. If the returned weights are still in use at the next update,
    /// the update copies them.
    pub fn weights(&self) -> Weights {
        #[cfg(feature = "cuda")]
        if let Some(Ok(weights)) = self.cuda.as_ref().map(crate::cuda::Trained::weights) {
            return weights;
        }
        self.pass_weights()
    }

    /// Returns weights for a pass. A device needs only the weights' shapes, so nothing is
    /// downloaded.
    fn pass_weights(&self) -> Weights {
        Weights { base: Arc::clone(&self.parameters), adapter: self.adapter.clone() }
    }

    /// Returns the architecture.
    pub fn model(&self) -> &ModelConfig {
        &self.parameters.config
    }

    /// Returns the trained tensors, which define the layout of gradients and moments.
    pub fn trained_tensors(&self) -> &[TensorInfo] {
        match &self.adapter {
            Some(adapter) => &adapter.layout.tensors,
            None => &self.parameters.layout.tensors,
        }
    }

    /// Returns the number of trained parameters.
    pub fn trained_len(&self) -> usize {
        self.adapter.as_ref().map_or(self.parameters.layout.len, |adapter| adapter.layout.len)
    }

    /// Returns the settings.
    pub fn config(&self) -> &LearnerConfig {
        &self.config
    }

    /// Returns the moments and the step count.
    pub fn optimizer_state(&self) -> &OptimizerState {
        #[cfg(feature = "cuda")]
        if let Some(Ok(state)) = self.cuda.as_ref().map(|cuda| cuda.moments(self.optimizer.step)) {
            return state;
        }
        &self.optimizer
    }

    /// Restores a checkpoint's optimizer; its step count becomes the weights' version.
    ///
    /// # Errors
    /// Fails if the number of moments differs from the number of trained parameters, or if the
    /// device fails.
    pub fn restore_optimizer(&mut self, state: OptimizerState) -> Result<(), ModelError> {
        let len = self.trained_len();
        if state.first.len() != len || state.second.len() != len {
            return Err(ModelError::Setting {
                key: "optimizer state".into(),
                reason: format!(
                    "has {} and {} moments, and {len} numbers are trained: it belongs to another model or adapter",
                    state.first.len(),
                    state.second.len()
                ),
            });
        }
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.restore(&state).map_err(crate::cuda::CudaError::into_setting)?;
            self.optimizer.step = state.step;
            return Ok(());
        }
        self.optimizer = state;
        Ok(())
    }

    /// Sets the reference policy. If an adapter is trained, the base of the current weights
    /// ([`Weights::without_adapter`]) takes no extra memory.
    ///
    /// # Errors
    /// Fails if the tensor layout differs from the policy's, or the device fails or lacks memory.
    pub fn set_reference(&mut self, reference: impl std::convert::Into<Weights>) -> Result<(), ModelError> {
        let reference = reference.into();
        if reference.base.layout != self.parameters.layout {
            return Err(ModelError::Setting {
                key: "reference".into(),
                reason: "the reference policy has another shape than the policy; use one of the same model"
                    .into(),
            });
        }
        // A device frees the old reference even if it rejects the new one.
        self.reference = None;
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.set_reference(&reference).map_err(crate::cuda::CudaError::into_setting)?;
        }
        self.reference = Some(reference);
        Ok(())
    }

    /// Returns the response tokens' log-probs under the reference policy.
    ///
    /// # Errors
    /// Fails like [`Learner::logprobs`], or if no reference is set.
    pub fn reference_logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let reference = self.reference()?;
        #[cfg(feature = "cuda")]
        self.bind(true)?;
        let scores = self.score_under(Network::from(&reference), batch, self.config.temperature)?;
        Ok(logprobs_of(scores))
    }

    /// Returns the response tokens' log-probs and entropies at `temperature`, which must be > 0.
    ///
    /// # Errors
    /// Fails like [`Learner::logprobs`].
    pub fn score(
        &mut self,
        batch: &[&TokenSequence],
        temperature: f64,
    ) -> Result<Vec<TokenScores>, LearnError> {
        let weights = self.pass_weights();
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        self.score_under(Network::from(&weights), batch, temperature)
    }
}

fn logprobs_of(scores: Vec<TokenScores>) -> Vec<Vec<f32>> {
    scores.into_iter().map(|scores| scores.logprobs).collect()
}

impl Learner for NativeLearner {
    /// Discards the accumulated gradient on failure.
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.report(batch, objective)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let weights = self.pass_weights();
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        let scores = self.score_under(Network::from(&weights), batch, self.config.temperature)?;
        Ok(logprobs_of(scores))
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.update(learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.optimizer.step
    }

    fn max_model_len(&self) -> usize {
        self.model().max_position_embeddings
    }

    fn hidden_size(&self) -> usize {
        self.model().hidden_size
    }

    /// Averages the hidden states after the final norm over ranges of tokens, which must be
    /// ascending and disjoint. A token's hidden state is the one after the model has read this
    /// token.
    fn mean_hidden(&mut self, batch: &[HiddenRequest]) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        // A pass returns the state before each target, so ranges are shifted by one.
        let shifted: Vec<TokenSequence> = batch
            .iter()
            .map(|(tokens, ranges)| {
                let spans = ranges.iter().enumerate();
                let spans =
                    spans.map(|(turn, range)| TurnSpan { turn, start: range.start + 1, end: range.end + 1 });
                let tokens = tokens.iter().copied().chain(tokens.last().copied()).collect();
                TokenSequence { tokens, spans: spans.collect() }
            })
            .collect();
        for (sequence, (tokens, ranges)) in batch.iter().enumerate() {
            if ranges.iter().any(|range| range.is_empty() || range.end > tokens.len()) {
                let reason = format!("a range of {ranges:?} is empty or outside its {} tokens", tokens.len());
                return Err(LearnError::Sequence { sequence, reason });
            }
            self.check_tokens(sequence, tokens)?;
            shifted[sequence].check().map_err(|reason| LearnError::Sequence { sequence, reason })?;
        }
        let weights = self.pass_weights();
        let network = Network::from(&weights);
        let pictures = self.encode(network, false, shifted.iter());
        let shifted = TokenBatch::of(&shifted);
        let network = Network { pictures: pictures.as_ref(), ..network };
        let share = self.shares(network);
        let pass = PassOver { network, batch: &shifted, scored: false, share };
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        let found = self.run(&pass, |mut micro, found| micro.mean_hidden(found))?;
        let mut states = vec![Vec::new(); batch.len()];
        for Found { sequence, value } in found {
            states[sequence] = value;
        }
        Ok(states)
    }
}

fn check_finite(weights: &[f32], tensors: &[TensorInfo]) -> Result<(), LearnError> {
    // Branch-free; the tensor is searched for only on failure.
    if weights.iter().map(|weight| weight * 0.0).sum::<f32>() == 0.0 {
        return Ok(());
    }
    let broken = tensors.iter().find(|tensor| weights[tensor.range.clone()].iter().any(|w| !w.is_finite()));
    let name = broken.map_or("?", |tensor| tensor.name.as_str());
    Err(LearnError::Backend(format!("the weights of {name} are not finite")))
}

#[cfg(test)]
mod tests;
