//! A simulated slow trainer: the native one of a tiny model. It trains on one sequence of every
//! minibatch and sleeps for the time that a remote trainer would need for all of them.

use std::path::Path;
use std::time::Duration;

use turnwise_core::{
    LearnError, Learner, LossReport, Objective, Sampler, StepReport, TokenBatch, TokenScores, TokenSequence,
};
use turnwise_model::Weights;
use turnwise_policy::BaseModel;
use turnwise_train::config::{Config, Registries};
use turnwise_train::learners::policy::PolicyLearner;
use turnwise_train::record::checkpoint::Checkpoint;
use turnwise_train::run::source::{NativeSource, NewRun, PolicySource, SourcedPolicy};
use turnwise_train::{Observer, Phase, TrainError};

/// Creates policies with slow trainers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowSource {
    /// Tokens per second of the trainer, prompts included.
    pub(crate) tokens_per_s: f64,
}

impl SlowSource {
    fn slow(self, (inner, tokenizer): SourcedPolicy) -> SourcedPolicy {
        (Box::new(SlowLearner { inner, tokens_per_s: self.tokens_per_s }), tokenizer)
    }
}

impl PolicySource for SlowSource {
    fn start(&self, run: &NewRun<'_>, observer: &mut dyn Observer) -> Result<SourcedPolicy, TrainError> {
        Ok(self.slow(NativeSource.start(run, observer)?))
    }

    fn resume(
        &self,
        config: &Config,
        registries: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError> {
        Ok(self.slow(NativeSource.resume(config, registries, checkpoint)?))
    }
}

struct SlowLearner {
    inner: Box<dyn PolicyLearner>,
    tokens_per_s: f64,
}

impl Learner for SlowLearner {
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        let tokens: usize = batch.sequences.iter().map(|sequence| sequence.tokens.len()).sum();
        std::thread::sleep(Duration::from_secs_f64(tokens as f64 / self.tokens_per_s));
        self.inner.forward_backward(&TokenBatch::of(batch.sequences.first().copied()), objective)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.inner.logprobs(batch)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.inner.step(learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.inner.weights_version()
    }

    fn max_model_len(&self) -> usize {
        self.inner.max_model_len()
    }
}

impl PolicyLearner for SlowLearner {
    fn samplers(
        &mut self,
        lanes: usize,
        max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        self.inner.samplers(lanes, max_num_seqs, max_model_len)
    }

    fn score(&mut self, batch: &[&TokenSequence], temperature: f64) -> Result<Vec<TokenScores>, LearnError> {
        self.inner.score(batch, temperature)
    }

    fn begin_phase(&mut self, config: &Config, phase: Phase) -> Result<(), TrainError> {
        self.inner.begin_phase(config, phase)
    }

    fn save(&self, folder: &Path) -> Result<(), TrainError> {
        self.inner.save(folder)
    }

    fn base(&self) -> Option<&BaseModel> {
        self.inner.base()
    }

    fn weights(&self) -> Option<Weights> {
        self.inner.weights()
    }
}
