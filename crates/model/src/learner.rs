//! The native learner: data-parallel lanes over packed micro-batches, then AdamW.

use std::ops::Range;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use turnwise_core::{
    Collective, Contrast, ContrastLearner, ContrastObjective, LearnError, Learner, LossReport, Objective,
    Purpose, Seed, StepReport, TokenGradients, TokenSequence, TurnSpan,
};

use crate::engine::{EngineWeights, SharedWeights};
use crate::lora::{Adapter, Dropout};
use crate::micro::{Found, Lane, Micro, PassOver, evaluate_empty};
use crate::optimizer::reduce;
use crate::packing::{deal, input_length};
use crate::weights::{Network, Weights};
use crate::{AdamWConfig, Compute, Device, ModelConfig, ModelError, OptimizerState, Parameters, TensorInfo};

/// Numbers of a gradient whose squares are summed at a time.
const NORM_PIECE: usize = 1 << 20;

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Most tokens of a micro-batch; a longer sequence is one of its own. Costs memory, not results.
    pub micro_batch_tokens: usize,
    /// What it runs on.
    pub device: Device,
    /// Micro-batches worked on at a time, each on its own thread with its own gradient. The same
    /// number gives the same bits on every machine, however many processors it has, and over however
    /// many processes the lanes are spread ([`NativeLearner::join`]). A device works on
    /// one at a time.
    pub lanes: usize,
    /// Divides the logits, so that log-probabilities are those at the sampling temperature.
    pub temperature: f64,
    /// Keep only the inputs of layers and make the rest anew in backward: about a third more work for
    /// a fraction of the memory.
    pub recompute: bool,
    /// In which numbers matrices are multiplied.
    pub compute: Compute,
    /// Seed of an adapter's dropout; nothing else in a learner is random.
    pub seed: u64,
    /// The optimiser.
    pub optimizer: AdamWConfig,
}

impl Default for LearnerConfig {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 2048,
            device: Device::Cpu,
            lanes: 2,
            temperature: 1.0,
            recompute: false,
            compute: Compute::F32,
            seed: 0,
            optimizer: AdamWConfig::default(),
        }
    }
}

impl LearnerConfig {
    fn check(&self) -> Result<(), ModelError> {
        let fail =
            |key: &str, reason: &str| Err(ModelError::Setting { key: key.into(), reason: reason.into() });
        if self.micro_batch_tokens == 0 {
            return fail("micro_batch_tokens", "must be at least 1");
        }
        if !(1..=1024).contains(&self.lanes) {
            return fail("lanes", "must be 1 to 1024; one for each processor is a good choice");
        }
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            return fail("temperature", "must be a positive number; for greedy sampling train at 1");
        }
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, clip_norm } = self.optimizer;
        for (key, value) in [("optimizer.beta1", beta1), ("optimizer.beta2", beta2)] {
            if !(0.0..1.0).contains(&value) {
                return fail(key, "must be at least 0 and below 1");
            }
        }
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return fail("optimizer.epsilon", "must be a positive number");
        }
        if !(weight_decay >= 0.0 && weight_decay.is_finite()) {
            return fail("optimizer.weight_decay", "must be 0 or a positive number");
        }
        if clip_norm.is_nan() {
            return fail("optimizer.clip_norm", "must be a number; 0 switches clipping off");
        }
        Ok(())
    }
}

/// Trains a decoder, or an adapter on one, on this machine's processors or on a device
/// ([`LearnerConfig::device`]).
///
/// With an adapter, gradients, moments, norms and steps are those of the adapter alone, and the weights
/// that it stands on keep their bits.
///
/// A batch is cut into packed micro-batches, dealt to lanes and run; each lane adds to its own
/// gradient, and the lanes' gradients are summed in lane order by [`Learner::step`]. Nothing depends
/// on the timing of threads. The loss and the gradient depend on the cut only by rounding.
///
/// Several processes may train one policy: each has a learner of its own with the same weights and is
/// handed the whole batch, works on the lanes that are its share, and is told what the others found.
pub struct NativeLearner {
    parameters: Arc<Parameters<f32>>,
    /// What is trained in the place of the parameters.
    adapter: Option<Arc<Adapter<f32>>>,
    reference: Option<Weights>,
    config: LearnerConfig,
    /// The lanes of this process.
    lanes: Vec<Lane>,
    /// One a lane; empty until it is first added to.
    gradients: Vec<Vec<f32>>,
    /// Of a device the step count alone: the moments are there.
    optimizer: OptimizerState,
    /// What a device keeps.
    #[cfg(feature = "cuda")]
    cuda: Option<crate::cuda::Trained>,
    /// Passes with a gradient since the last step: a coordinate of dropout.
    passes: u64,
    /// The other processes.
    ranks: Option<Arc<dyn Collective>>,
}

/// A gradient that was taken out of its learner.
#[derive(Debug)]
pub struct TakenGradient {
    lanes: Vec<Vec<f32>>,
    #[cfg(feature = "cuda")]
    cuda: Option<crate::cuda::TakenGradient>,
}

impl NativeLearner {
    /// A learner of these weights, or of their adapter where they have one, with a fresh optimiser.
    pub fn new(weights: impl std::convert::Into<Weights>, config: LearnerConfig) -> Result<Self, ModelError> {
        let weights = weights.into();
        weights.base.config.check()?;
        config.check()?;
        config.device.check()?;
        if let Some(adapter) = &weights.adapter {
            adapter.check_base(&weights.base.config)?;
        }
        #[cfg(feature = "cuda")]
        if config.device == Device::Cuda {
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
            ranks: None,
        })
    }

    /// Shares the lanes with the learners of other processes, which have the same weights and settings.
    /// From here on all of them are called with the same batches, in the same order.
    pub fn join(&mut self, ranks: Arc<dyn Collective>) -> Result<(), ModelError> {
        let count = ranks.world_size();
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            // One lane a device.
            cuda.join(&*ranks).map_err(crate::cuda::CudaError::into_setting)?;
            self.config.lanes = count;
            self.ranks = Some(ranks);
            return Ok(());
        }
        if !self.config.lanes.is_multiple_of(count) {
            return Err(ModelError::Setting {
                key: "lanes".into(),
                reason: format!(
                    "is {}, and the lanes are dealt to {count} processes; set it to a multiple of {count}",
                    self.config.lanes
                ),
            });
        }
        let own = ranks.share(self.config.lanes).len();
        self.lanes.truncate(own);
        self.gradients.truncate(own);
        self.ranks = Some(ranks);
        Ok(())
    }

    /// Starts anew from the weights as they are: a fresh optimiser, and nothing accumulated. No weights
    /// are copied.
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
        // The old moments go before the new ones come.
        self.optimizer = OptimizerState::new(0);
        self.optimizer = OptimizerState::new(self.trained_len());
        self.passes = 0;
        self.release();
        match self.ranks.take() {
            Some(ranks) => self.join(ranks),
            None => Ok(()),
        }
    }

    /// Gives the memory of passes and gradients back until it is needed again, for whatever else is to
    /// be done in between. What was accumulated is forgotten.
    pub fn release(&mut self) {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.release();
            self.lanes = vec![Lane::cuda(self.config.recompute)];
            return;
        }
        let lanes =
            self.ranks.as_ref().map_or(self.config.lanes, |ranks| ranks.share(self.config.lanes).len());
        let Parameters { config, .. } = &*self.parameters;
        let kernel = self.config.compute.kernel();
        self.lanes = (0..lanes).map(|_| Lane::new(config, self.config.recompute, kernel)).collect();
        self.gradients = vec![Vec::new(); lanes];
    }

    /// A learner whose passes, gradient and moments are on a device.
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
            ranks: None,
            passes: 0,
        }
    }

    /// Says what the next passes of a device run with.
    #[cfg(feature = "cuda")]
    fn bind(&mut self, reference: bool) -> Result<(), LearnError> {
        if let Some(cuda) = &mut self.cuda {
            let bound = cuda.bind(reference)?;
            self.lanes.iter_mut().for_each(|lane| lane.bind(Some(&bound)));
        }
        Ok(())
    }

    /// Brings weights and moments of a device to the host, where [`NativeLearner::weights`] and
    /// [`NativeLearner::optimizer_state`] give them out until the next update. On the processor they are
    /// there.
    ///
    /// # Errors
    /// Where the device fails. The two would then give out what they had before.
    pub fn fetch(&self) -> Result<(), LearnError> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            cuda.weights()?;
            cuda.moments(self.optimizer.step)?;
        }
        Ok(())
    }

    /// The weights as they are now for sampling engines, which read a device's where they are.
    pub fn engine_weights(&self) -> Result<SharedWeights, ModelError> {
        let version = self.optimizer.step;
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            let network = cuda.network();
            return Ok(SharedWeights::Cuda(crate::cuda::DeviceWeights { network, version }));
        }
        Ok(SharedWeights::Host(Arc::new(EngineWeights::of(&self.weights(), version)?)))
    }

    /// The weights as they are now. A sampler may keep them while training goes on; the next update
    /// then works on a copy of what is trained.
    pub fn weights(&self) -> Weights {
        #[cfg(feature = "cuda")]
        if let Some(Ok(weights)) = self.cuda.as_ref().map(crate::cuda::Trained::weights) {
            return weights;
        }
        Weights { base: Arc::clone(&self.parameters), adapter: self.adapter.clone() }
    }

    /// The architecture.
    pub fn model(&self) -> &ModelConfig {
        &self.parameters.config
    }

    /// The tensors of what is trained: the layout of gradients and of the optimiser's state.
    pub fn trained_tensors(&self) -> &[TensorInfo] {
        match &self.adapter {
            Some(adapter) => &adapter.layout.tensors,
            None => &self.parameters.layout.tensors,
        }
    }

    /// Numbers that are trained.
    pub fn trained_len(&self) -> usize {
        self.adapter.as_ref().map_or(self.parameters.layout.len, |adapter| adapter.layout.len)
    }

    /// The settings.
    pub fn config(&self) -> &LearnerConfig {
        &self.config
    }

    /// Moments and step count, for a checkpoint.
    pub fn optimizer_state(&self) -> &OptimizerState {
        #[cfg(feature = "cuda")]
        if let Some(Ok(state)) = self.cuda.as_ref().map(|cuda| cuda.moments(self.optimizer.step)) {
            return state;
        }
        &self.optimizer
    }

    /// Goes on from a checkpoint's optimiser; the weights' version becomes its step count.
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

    /// The policy that divergences and [`NativeLearner::reference_logprobs`] refer to: of the same shape.
    /// Where an adapter is trained, [`Weights::without_adapter`] of this learner's own weights costs no
    /// memory: the adapter switched off.
    pub fn set_reference(&mut self, reference: impl std::convert::Into<Weights>) -> Result<(), ModelError> {
        let reference = reference.into();
        if reference.base.layout != self.parameters.layout {
            return Err(ModelError::Setting {
                key: "reference".into(),
                reason: "the reference policy has another shape than the policy; use one of the same model"
                    .into(),
            });
        }
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.set_reference(&reference).map_err(crate::cuda::CudaError::into_setting)?;
        }
        self.reference = Some(reference);
        Ok(())
    }

    /// Log-probabilities of the response tokens under the reference policy.
    pub fn reference_logprobs(&mut self, batch: &[TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let reference = self.reference()?;
        #[cfg(feature = "cuda")]
        self.bind(true)?;
        self.score(Network::from(&reference), batch)
    }

    /// The mean over some tokens of the last layer's normed hidden state, under the weights as they are
    /// now: for every sequence one vector of `hidden_size` a range of tokens. Ranges are ascending and
    /// disjoint; the state of a token is the one after it was read.
    ///
    /// # Errors
    /// A range that is empty or outside its sequence, a sequence that does not fit the model.
    pub fn mean_hidden(
        &mut self,
        batch: &[(Vec<u32>, Vec<Range<usize>>)],
    ) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        // What comes after a token is what its state is looked at for, so that one more is needed.
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
        let weights = self.weights();
        let network = Network::from(&weights);
        let pass = PassOver { network, batch: &shifted, contrasts: &[], scored: false };
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        let found = self.run(&pass, |mut micro, found| micro.mean_hidden(found))?;
        let mut states = vec![Vec::new(); batch.len()];
        for Found { sequence, value } in found {
            states[sequence] = value;
        }
        Ok(states)
    }

    /// Takes the accumulated gradient away, so that another can be accumulated meanwhile.
    pub fn take_gradient(&mut self) -> TakenGradient {
        TakenGradient {
            lanes: std::mem::replace(&mut self.gradients, vec![Vec::new(); self.lanes.len()]),
            #[cfg(feature = "cuda")]
            cuda: self.cuda.as_mut().map(crate::cuda::Trained::take),
        }
    }

    /// Puts a gradient back, multiplied by a factor. What was accumulated meanwhile is forgotten.
    pub fn put_gradient(&mut self, taken: TakenGradient, factor: f64) {
        self.gradients = taken.lanes;
        let factor = factor as f32;
        if factor != 1.0 {
            self.gradients.iter_mut().flatten().for_each(|value| *value *= factor);
        }
        #[cfg(feature = "cuda")]
        if let (Some(cuda), Some(gradient)) = (&mut self.cuda, taken.cuda) {
            cuda.put(gradient, factor);
        }
    }

    /// L2 norm of the accumulated gradient, that of all processes together.
    pub fn gradient_norm(&self) -> Result<f64, LearnError> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            return Ok(cuda.norm_of_all()?);
        }
        let len = self.trained_len();
        // A piece at a time: a sum beside the lanes' gradients would be one more of their size.
        let mut sum = vec![0.0; NORM_PIECE.min(len)];
        let mut squares = 0.0;
        for start in (0..len).step_by(NORM_PIECE) {
            let piece = start..len.min(start + NORM_PIECE);
            let sum = &mut sum[..piece.len()];
            sum.fill(0.0);
            for lane in self.gradients.iter().filter(|lane| !lane.is_empty()) {
                sum.iter_mut().zip(&lane[piece.clone()]).for_each(|(sum, &value)| *sum += value);
            }
            if let Some(ranks) = &self.ranks {
                ranks.all_reduce(&mut [sum])?;
            }
            squares += sum.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        }
        Ok(squares.sqrt())
    }

    /// The accumulated gradient summed over the lanes of this process, in the layout of what is trained;
    /// empty where a device is gone.
    pub fn gradient(&self) -> Vec<f32> {
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &self.cuda {
            return cuda.gradient().unwrap_or_default();
        }
        let mut total = vec![0.0; self.trained_len()];
        for lane in &self.gradients {
            total.iter_mut().zip(lane).for_each(|(total, &value)| *total += value);
        }
        total
    }

    /// Forgets the accumulated gradient.
    pub fn clear_gradient(&mut self) {
        self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            cuda.forget();
        }
    }

    fn report(
        &mut self,
        batch: &[TokenSequence],
        contrasts: &[Contrast],
        objective: &dyn Objective,
        contrast_objective: Option<&dyn ContrastObjective>,
    ) -> Result<LossReport, LearnError> {
        let found = match self.differentiate(batch, contrasts, objective, contrast_objective) {
            Ok(found) => found,
            Err(error) => {
                self.clear_gradient();
                return Err(error);
            }
        };
        let mut report = LossReport::default();
        for Found { value, .. } in &found {
            report.loss += value.loss;
            report.metrics.add(&value.metrics);
        }
        report.total_tokens =
            batch.iter().chain(contrasts.iter().map(|contrast| &contrast.tokens)).map(input_length).sum();
        Ok(report)
    }

    fn check(&self, batch: &[TokenSequence]) -> Result<(), LearnError> {
        for (sequence, tokens) in batch.iter().enumerate() {
            if let Err(reason) = tokens.check() {
                return Err(LearnError::Sequence { sequence, reason });
            }
            self.check_tokens(sequence, &tokens.tokens)?;
        }
        Ok(())
    }

    fn check_tokens(&self, sequence: usize, tokens: &[u32]) -> Result<(), LearnError> {
        let config = &self.parameters.config;
        let fail = |reason: String| Err(LearnError::Sequence { sequence, reason });
        if tokens.len() > config.max_position_embeddings {
            return fail(format!(
                "{} tokens, but max_position_embeddings is {}; shorten the prompt or the response",
                tokens.len(),
                config.max_position_embeddings
            ));
        }
        let vocabulary = config.vocab_size;
        match tokens.iter().find(|&&token| token as usize >= vocabulary) {
            Some(token) => fail(format!("token {token} is outside the vocabulary of {vocabulary}")),
            None => Ok(()),
        }
    }

    /// Adds the batch's gradient; returns the objective's answers in batch order.
    fn differentiate(
        &mut self,
        batch: &[TokenSequence],
        contrasts: &[Contrast],
        objective: &dyn Objective,
        contrast_objective: Option<&dyn ContrastObjective>,
    ) -> Result<Vec<Found<TokenGradients>>, LearnError> {
        self.check(batch)?;
        self.check_contrasts(batch, contrasts)?;
        let weights = self.weights();
        let needs = objective.needs_reference_kls()
            || contrast_objective.is_some_and(ContrastObjective::needs_reference) && !contrasts.is_empty();
        let reference = if needs { Some(self.reference()?) } else { None };
        let network = Network { dropout: self.dropout(), ..Network::from(&weights) };
        self.passes += 1;
        let pass = PassOver { network, batch, contrasts, scored: true };
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        let mut found = self.run(&pass, |mut micro, found| {
            let reference = reference.as_ref().map(Network::from);
            micro.backward(objective, contrast_objective, reference, found)
        })?;
        for (sequence, tokens) in batch.iter().enumerate() {
            if tokens.response_tokens() == 0 {
                found.push(Found { sequence, value: evaluate_empty(objective, sequence)? });
            }
        }
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }

    /// The dropout of the next pass: by seed, step and the passes since.
    fn dropout(&self) -> Option<Dropout> {
        let probability = self.adapter.as_ref()?.config.dropout;
        let coordinates = [self.optimizer.step, self.passes];
        let key = Seed::derive(self.config.seed, Purpose::Dropout, &coordinates).rng().bits();
        Dropout::new(key, probability)
    }

    fn reference(&self) -> Result<Weights, LearnError> {
        self.reference.clone().ok_or_else(|| {
            LearnError::Backend(
                "the objective compares with a reference policy and none was given; call set_reference"
                    .into(),
            )
        })
    }

    fn check_contrasts(&self, batch: &[TokenSequence], contrasts: &[Contrast]) -> Result<(), LearnError> {
        for contrast in contrasts {
            let sequence = contrast.sequence;
            let span = batch.get(sequence).and_then(|tokens| tokens.spans.get(contrast.span));
            let own = span.map(|span| &batch[sequence].tokens[span.start..span.end]);
            let [other] = contrast.tokens.spans.as_slice() else {
                let reason = "a contrast must have one span, the response".into();
                return Err(LearnError::Sequence { sequence, reason });
            };
            self.check(std::slice::from_ref(&contrast.tokens))?;
            if own.is_none_or(<[u32]>::is_empty) || own != contrast.tokens.tokens.get(other.start..other.end)
            {
                let reason = format!("the contrast of span {} does not end in its response", contrast.span);
                return Err(LearnError::Sequence { sequence, reason });
            }
        }
        Ok(())
    }

    fn score(
        &mut self,
        network: Network<'_, f32>,
        batch: &[TokenSequence],
    ) -> Result<Vec<Vec<f32>>, LearnError> {
        self.check(batch)?;
        let pass = PassOver { network, batch, contrasts: &[], scored: true };
        let found = self.run(&pass, |micro, found| {
            micro.logprobs(found);
            Ok(())
        })?;
        let mut logprobs = vec![Vec::new(); batch.len()];
        for Found { sequence, value } in found {
            logprobs[sequence] = value;
        }
        Ok(logprobs)
    }

    /// Runs `work` for every micro-batch, lanes in parallel, and returns what was found in batch order,
    /// by the other processes too.
    fn run<T: Send + Serialize + DeserializeOwned>(
        &mut self,
        pass: &PassOver<'_>,
        work: impl Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync,
    ) -> Result<Vec<Found<T>>, LearnError> {
        let companions = pass.companions();
        let lengths = pass.lengths(&companions);
        let config = &pass.network.parameters.config;
        let mut dealt = deal(&lengths, self.config.micro_batch_tokens, self.config.lanes, config);
        if let Some(ranks) = &self.ranks {
            // All processes deal alike, and each takes its own.
            dealt = dealt.drain(ranks.share(self.config.lanes)).collect();
        }
        let temperature = self.config.temperature;
        let (run, work) = (
            |lane: &mut Lane, gradient: &mut Vec<f32>, micro_batches: Vec<Vec<usize>>, work: &Work<'_, T>| {
                let mut found = Vec::new();
                for members in micro_batches {
                    let micro = Micro::forward(pass, &companions, &members, lane, gradient, temperature)?;
                    work(micro, &mut found)?;
                }
                Ok(found)
            },
            &work,
        );
        let mut jobs: Vec<_> = self.lanes.iter_mut().zip(&mut self.gradients).zip(dealt).collect();
        jobs.retain(|(_, micro_batches)| !micro_batches.is_empty());
        let results: Vec<Result<Vec<Found<T>>, LearnError>> = std::thread::scope(|scope| {
            let mut jobs = jobs.into_iter();
            // The first lane works on this thread.
            let here = jobs.next();
            let there: Vec<_> = jobs
                .map(|((lane, gradient), micro_batches)| {
                    scope.spawn(move || run(lane, gradient, micro_batches, work))
                })
                .collect();
            let here = here.map(|((lane, gradient), micro_batches)| run(lane, gradient, micro_batches, work));
            here.into_iter()
                .chain(there.into_iter().map(|thread| {
                    thread.join().unwrap_or_else(|_| Err(LearnError::Backend("a lane panicked".into())))
                }))
                .collect()
        });
        let mut found = self.exchange(results)?;
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }

    /// What the lanes of all processes found. An error of one is an error of all, so that none goes on
    /// alone.
    fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        results: Vec<Result<Vec<Found<T>>, LearnError>>,
    ) -> Result<Vec<Found<T>>, LearnError> {
        let mut own = Ok(Vec::new());
        for result in results {
            own = own.and_then(|mut all: Vec<Found<T>>| {
                all.extend(result?);
                Ok(all)
            });
        }
        let Some(ranks) = &self.ranks else { return own };
        let garbled =
            |error: &dyn std::fmt::Display| LearnError::Backend(format!("between processes: {error}"));
        let told = own.as_ref().map_err(ToString::to_string);
        let bytes = postcard::to_allocvec(&told).map_err(|error| garbled(&error))?;
        let answers = ranks.all_gather(&bytes)?;
        let mut found = Vec::new();
        for (rank, bytes) in answers.iter().enumerate() {
            let answer: Result<Vec<Found<T>>, String> =
                postcard::from_bytes(bytes).map_err(|error| garbled(&error))?;
            match answer {
                Ok(more) => found.extend(more),
                Err(_) if rank == ranks.rank() => return own,
                Err(reason) => return Err(LearnError::Backend(format!("rank {rank}: {reason}"))),
            }
        }
        Ok(found)
    }
}

type Work<'a, T> = dyn Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync + 'a;

impl Learner for NativeLearner {
    /// Where it fails, nothing of what was accumulated before is left.
    fn forward_backward(
        &mut self,
        batch: &[TokenSequence],
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.report(batch, &[], objective, None)
    }

    fn logprobs(&mut self, batch: &[TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let weights = self.weights();
        #[cfg(feature = "cuda")]
        self.bind(false)?;
        self.score(Network::from(&weights), batch)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        if !learning_rate.is_finite() {
            return Err(LearnError::Backend(format!("the learning rate is {learning_rate}")));
        }
        #[cfg(feature = "cuda")]
        if let Some(cuda) = &mut self.cuda {
            // The passes let go of the weights, which then are changed where they are.
            self.lanes.iter_mut().for_each(|lane| lane.bind(None));
            cuda.sum()?;
            let norm = cuda.norm()?;
            self.passes = 0;
            if !norm.is_finite() {
                cuda.forget();
                return Err(LearnError::Gradient(norm));
            }
            cuda.update(&self.config.optimizer, &mut self.optimizer, learning_rate, norm)?;
            return Ok(StepReport { gradient_norm: norm, step: self.optimizer.step });
        }
        let len = self.trained_len();
        self.gradients.iter_mut().for_each(|gradient| gradient.resize(len, 0.0));
        let norm = match &self.ranks {
            None => reduce(&mut self.gradients),
            Some(ranks) => {
                let mut parts: Vec<&mut [f32]> = self.gradients.iter_mut().map(Vec::as_mut_slice).collect();
                ranks.all_reduce(&mut parts)?;
                reduce(&mut self.gradients[..1])
            }
        };
        self.passes = 0;
        if !norm.is_finite() {
            self.clear_gradient();
            return Err(LearnError::Gradient(norm));
        }
        let (tensors, weights) = if let Some(adapter) = &mut self.adapter {
            let adapter = Arc::make_mut(adapter);
            (&adapter.layout.tensors, &mut adapter.data)
        } else {
            let parameters = Arc::make_mut(&mut self.parameters);
            (&parameters.layout.tensors, &mut parameters.data)
        };
        let optimizer = &self.config.optimizer;
        self.optimizer.update(optimizer, tensors, learning_rate, norm, &self.gradients[0], weights);
        self.clear_gradient();
        Ok(StepReport { gradient_norm: norm, step: self.optimizer.step })
    }

    fn weights_version(&self) -> u64 {
        self.optimizer.step
    }
}

impl ContrastLearner for NativeLearner {
    fn forward_backward_contrast(
        &mut self,
        batch: &[TokenSequence],
        contrasts: &[Contrast],
        (objective, contrast): (&dyn Objective, &dyn ContrastObjective),
    ) -> Result<LossReport, LearnError> {
        self.report(batch, contrasts, objective, Some(contrast))
    }
}

#[cfg(test)]
#[path = "learner_tests.rs"]
mod tests;
