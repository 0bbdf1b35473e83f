//! The native learner: data-parallel lanes over packed micro-batches, then AdamW.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    LearnError, Learner, LossReport, Objective, ObjectiveError, StepReport, TokenGradients, TokenSequence,
    TokenStatistics,
};

use crate::decoder::Workspace;
use crate::optimizer::reduce;
use crate::packing::{Packing, deal, input_length};
use crate::{AdamWConfig, ModelError, OptimizerState, Parameters};

/// Settings of the native learner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LearnerConfig {
    /// Most tokens of a micro-batch; a longer sequence is one of its own. Costs memory, not results.
    pub micro_batch_tokens: usize,
    /// Micro-batches worked on at a time, each on its own thread with its own gradient. The same
    /// number gives the same bits on every machine, however many processors it has.
    pub lanes: usize,
    /// Divides the logits, so that log-probabilities are those at the sampling temperature.
    pub temperature: f64,
    /// Keep only the inputs of layers and make the rest anew in backward: about a third more work for
    /// a fraction of the memory.
    pub recompute: bool,
    /// The optimiser.
    pub optimizer: AdamWConfig,
}

impl Default for LearnerConfig {
    fn default() -> Self {
        Self {
            micro_batch_tokens: 2048,
            lanes: 2,
            temperature: 1.0,
            recompute: false,
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

/// One thread's buffers.
struct Lane {
    workspace: Workspace<f32>,
    packing: Packing,
    statistics: Statistics,
    derivatives: Vec<[f32; 2]>,
}

#[derive(Default)]
struct Statistics {
    logprobs: Vec<f32>,
    entropies: Vec<f32>,
}

/// What a lane found for one sequence.
struct Found<T> {
    sequence: usize,
    value: T,
}

/// Trains a decoder on this machine's processors.
///
/// A batch is cut into packed micro-batches, dealt to lanes and run; each lane adds to its own
/// gradient, and the lanes' gradients are summed in lane order by [`Learner::step`]. Nothing depends
/// on the timing of threads. The loss and the gradient depend on the cut only by rounding.
pub struct NativeLearner {
    parameters: Arc<Parameters<f32>>,
    config: LearnerConfig,
    lanes: Vec<Lane>,
    gradients: Vec<Vec<f32>>,
    optimizer: OptimizerState,
}

impl NativeLearner {
    /// A learner of these weights with a fresh optimiser.
    pub fn new(parameters: Parameters<f32>, config: LearnerConfig) -> Result<Self, ModelError> {
        parameters.config.check()?;
        config.check()?;
        let lanes = (0..config.lanes)
            .map(|_| Lane {
                workspace: Workspace::new(&parameters.config, config.recompute),
                packing: Packing::default(),
                statistics: Statistics::default(),
                derivatives: Vec::new(),
            })
            .collect();
        let len = parameters.layout.len;
        Ok(Self {
            parameters: Arc::new(parameters),
            config,
            lanes,
            gradients: vec![vec![0.0; len]; config.lanes],
            optimizer: OptimizerState::new(len),
        })
    }

    /// The weights as they are now. A sampler may keep them while training goes on; the next update
    /// then works on a copy.
    pub fn weights(&self) -> Arc<Parameters<f32>> {
        Arc::clone(&self.parameters)
    }

    /// The settings.
    pub fn config(&self) -> &LearnerConfig {
        &self.config
    }

    /// Moments and step count, for a checkpoint.
    pub fn optimizer_state(&self) -> &OptimizerState {
        &self.optimizer
    }

    /// Goes on from a checkpoint's optimiser; the weights' version becomes its step count.
    pub fn restore_optimizer(&mut self, state: OptimizerState) -> Result<(), ModelError> {
        let len = self.parameters.layout.len;
        if state.first.len() != len || state.second.len() != len {
            return Err(ModelError::Setting {
                key: "optimizer state".into(),
                reason: format!(
                    "has {} and {} moments, the model {len} weights: it belongs to another model",
                    state.first.len(),
                    state.second.len()
                ),
            });
        }
        self.optimizer = state;
        Ok(())
    }

    /// The accumulated gradient summed over lanes, in the layout of the parameters.
    pub fn gradient(&self) -> Vec<f32> {
        let mut total = self.gradients[0].clone();
        for other in &self.gradients[1..] {
            total.iter_mut().zip(other).for_each(|(total, &value)| *total += value);
        }
        total
    }

    /// Forgets the accumulated gradient.
    pub fn clear_gradient(&mut self) {
        self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
    }

    fn check(&self, batch: &[TokenSequence]) -> Result<(), LearnError> {
        let config = &self.parameters.config;
        for (sequence, tokens) in batch.iter().enumerate() {
            let fail = |reason: String| Err(LearnError::Sequence { sequence, reason });
            if let Err(reason) = tokens.check() {
                return fail(reason);
            }
            if tokens.tokens.len() > config.max_position_embeddings {
                return fail(format!(
                    "{} tokens, but max_position_embeddings is {}; shorten the prompt or the response",
                    tokens.tokens.len(),
                    config.max_position_embeddings
                ));
            }
            let vocabulary = config.vocab_size;
            if let Some(token) = tokens.tokens.iter().find(|&&token| token as usize >= vocabulary) {
                return fail(format!("token {token} is outside the vocabulary of {vocabulary}"));
            }
        }
        Ok(())
    }

    /// Adds the batch's gradient; returns the objective's answers in batch order.
    fn differentiate(
        &mut self,
        batch: &[TokenSequence],
        objective: &dyn Objective,
    ) -> Result<Vec<Found<TokenGradients>>, LearnError> {
        self.check(batch)?;
        let mut found = self.run(batch, |micro, found| micro.backward(objective, found))?;
        for (sequence, tokens) in batch.iter().enumerate() {
            if tokens.response_tokens() == 0 {
                let value = evaluate(objective, sequence, &Statistics::default(), 0..0)?;
                found.push(Found { sequence, value });
            }
        }
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }

    /// Runs `work` for every micro-batch of a lane, lanes in parallel, and returns what it found in
    /// batch order.
    fn run<T: Send>(
        &mut self,
        batch: &[TokenSequence],
        work: impl Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync,
    ) -> Result<Vec<Found<T>>, LearnError> {
        let lengths: Vec<usize> = batch.iter().map(input_length).collect();
        let parameters = &*self.parameters;
        let dealt = deal(&lengths, self.config.micro_batch_tokens, self.config.lanes, &parameters.config);
        let temperature = self.config.temperature;
        let (run, work) = (
            |lane: &mut Lane, gradient: &mut [f32], micro_batches: Vec<Vec<usize>>, work: &Work<'_, T>| {
                let mut found = Vec::new();
                for members in micro_batches {
                    lane.packing.fill(members.iter().map(|&index| &batch[index]));
                    let rows = lane.workspace.forward(parameters, &lane.packing, temperature);
                    let Statistics { logprobs, entropies } = &mut lane.statistics;
                    logprobs.clear();
                    logprobs.extend(rows.iter().map(|row| row.logprob));
                    entropies.clear();
                    entropies.extend(rows.iter().map(|row| row.entropy));
                    work(Micro { parameters, members: &members, lane, gradient }, &mut found)?;
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
        let mut found = Vec::with_capacity(batch.len());
        for result in results {
            found.extend(result?);
        }
        found.sort_by_key(|found| found.sequence);
        Ok(found)
    }
}

type Work<'a, T> = dyn Fn(Micro<'_>, &mut Vec<Found<T>>) -> Result<(), LearnError> + Sync + 'a;

/// A micro-batch after its forward pass.
struct Micro<'a> {
    parameters: &'a Parameters<f32>,
    /// Which sequences of the batch are in it.
    members: &'a [usize],
    lane: &'a mut Lane,
    gradient: &'a mut [f32],
}

impl Micro<'_> {
    /// Asks the objective and runs backward over the sequences that have a derivative.
    fn backward(
        self,
        objective: &dyn Objective,
        found: &mut Vec<Found<TokenGradients>>,
    ) -> Result<(), LearnError> {
        let Lane { workspace, packing, statistics, derivatives } = self.lane;
        derivatives.clear();
        derivatives.resize(packing.targets.len(), [0.0; 2]);
        let mut needed = vec![false; self.members.len()];
        for (index, &sequence) in self.members.iter().enumerate() {
            let place = packing.targets_of(&(index..index + 1));
            let mut value = evaluate(objective, sequence, statistics, place.clone())?;
            for (to, &d) in derivatives[place.clone()].iter_mut().zip(&value.d_logprobs) {
                to[0] = d;
            }
            for (to, &d) in derivatives[place.clone()].iter_mut().zip(&value.d_entropies) {
                to[1] = d;
            }
            needed[index] = derivatives[place].iter().any(|&d| d != [0.0; 2]);
            // Only the loss and the sums are looked at from here on.
            value.d_logprobs = Vec::new();
            value.d_entropies = Vec::new();
            found.push(Found { sequence, value });
        }
        let mut index = 0;
        while index < needed.len() {
            let end = index + needed[index..].iter().take_while(|&&needed| needed).count();
            if end == index {
                index += 1;
                continue;
            }
            let run = index..end;
            let derivatives = &derivatives[packing.targets_of(&run)];
            workspace.backward(self.parameters, packing, &run, derivatives, self.gradient);
            index = end;
        }
        Ok(())
    }
}

/// The objective's answer for one sequence, its lengths checked.
fn evaluate(
    objective: &dyn Objective,
    sequence: usize,
    statistics: &Statistics,
    place: Range<usize>,
) -> Result<TokenGradients, LearnError> {
    let entropies =
        if objective.needs_entropies() { &statistics.entropies[place.clone()] } else { [].as_slice() };
    let logprobs = &statistics.logprobs[place.clone()];
    let value = objective.evaluate(sequence, TokenStatistics { logprobs, entropies })?;
    let expected = place.len();
    let lengths = [
        ("d_logprobs", value.d_logprobs.len(), false),
        ("d_entropies", value.d_entropies.len(), value.d_entropies.is_empty()),
    ];
    for (what, found, may_be_empty) in lengths {
        if found != expected && !may_be_empty {
            return Err(ObjectiveError::Length { sequence, what, found, expected }.into());
        }
    }
    Ok(value)
}

impl Learner for NativeLearner {
    /// Where it fails, nothing of what was accumulated before is left.
    fn forward_backward(
        &mut self,
        batch: &[TokenSequence],
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        let found = match self.differentiate(batch, objective) {
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
        report.total_tokens = batch.iter().map(input_length).sum();
        Ok(report)
    }

    fn logprobs(&mut self, batch: &[TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.check(batch)?;
        let found = self.run(batch, |micro, found| {
            for (index, &sequence) in micro.members.iter().enumerate() {
                let place = micro.lane.packing.targets_of(&(index..index + 1));
                found.push(Found { sequence, value: micro.lane.statistics.logprobs[place].to_vec() });
            }
            Ok(())
        })?;
        let mut logprobs = vec![Vec::new(); batch.len()];
        for Found { sequence, value } in found {
            logprobs[sequence] = value;
        }
        Ok(logprobs)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        if !learning_rate.is_finite() {
            return Err(LearnError::Backend(format!("the learning rate is {learning_rate}")));
        }
        let norm = reduce(&mut self.gradients);
        if !norm.is_finite() {
            self.clear_gradient();
            return Err(LearnError::Gradient(norm));
        }
        let parameters = Arc::make_mut(&mut self.parameters);
        let optimizer = &self.config.optimizer;
        let (layout, weights) = (&parameters.layout, &mut parameters.data);
        self.optimizer.update(optimizer, layout, learning_rate, norm, &self.gradients[0], weights);
        self.clear_gradient();
        Ok(StepReport { gradient_norm: norm, step: self.optimizer.step })
    }

    fn weights_version(&self) -> u64 {
        self.optimizer.step
    }
}

#[cfg(test)]
#[path = "learner_tests.rs"]
mod tests;
