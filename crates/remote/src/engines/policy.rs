//! The learner in this process with samplers that are elsewhere.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use turnwise_core::{
    LearnError, Learner, LossReport, MaskedContext, MaskedContextLearner, MaskedContextObjective, Objective,
    Sampler, StepReport, TokenScores, TokenSequence,
};
use turnwise_model::Weights;
use turnwise_policy::BaseModel;
use turnwise_text::Tokenizer;
use turnwise_train::config::{Config, ServersConfig};
use turnwise_train::learners::policy::{HiddenRequest, HiddenStates, PolicyLearner, SamplingReport};
use turnwise_train::{Phase, TrainError};

use super::adapters::{AdapterFolder, Published};
use super::check;
use super::error::EngineError;
use super::fleet::Fleet;
use super::sampler::EngineSampler;
use crate::thread::RequestThread;

/// Text whose tokens every server is asked to go on from at the start.
const PROBE: &str = "You are in the middle of a room. Looking quickly around you, you see a desk and a";

/// A policy that is trained here and sampled on servers.
pub(crate) struct EnginePolicy {
    inner: Box<dyn PolicyLearner>,
    tokenizer: Arc<Tokenizer>,
    fleet: Arc<Fleet>,
    folder: AdapterFolder,
    versions: Mutex<Versions>,
    /// Last: it ends after what is sent on its thread.
    thread: RequestThread,
}

/// The versions that servers have.
#[derive(Default)]
struct Versions {
    current: Option<Arc<Published>>,
    /// True if the weights have changed since.
    changed: bool,
    /// Versions that requests may still be under way for.
    older: Vec<Arc<Published>>,
    /// Number and duration of publications since the last report.
    published: u64,
    took: Duration,
}

impl EnginePolicy {
    /// Hands the weights as they are to the servers, and checks the servers.
    pub(crate) fn open(
        config: &Config,
        servers: &ServersConfig,
        inner: Box<dyn PolicyLearner>,
        tokenizer: Arc<Tokenizer>,
    ) -> Result<(Self, Vec<String>), TrainError> {
        let weights = adapted(&*inner)?;
        let vocabulary = weights.config().vocab_size;
        drop(weights);
        let mut policy = Self {
            inner,
            tokenizer,
            fleet: Arc::new(Fleet::new(servers, vocabulary)?),
            folder: AdapterFolder::open(&servers.adapter_dir, &servers.server_adapter_dir, &config.name)?,
            versions: Mutex::default(),
            thread: RequestThread::start().map_err(|error| EngineError::no_thread(&error))?,
        };
        let adapter = policy.publish()?;
        let mut prompt = policy.tokenizer.encode(PROBE);
        if prompt.is_empty() {
            prompt.push(0);
        }
        let ask = check::probe(prompt, config.rollout.max_context);
        let Self { thread, fleet, inner, .. } = &mut policy;
        let mut score = |batch: &[TokenSequence], temperature| inner.score(batch, temperature);
        let notes = check::check(thread, fleet, &adapter, ask, &mut score)?;
        policy.inner.release();
        Ok((policy, notes))
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version of the weights as they are, on the servers. A new one is written, loaded and switched to; older ones are
    /// unloaded once no request asks for them.
    fn publish(&self) -> Result<Arc<Published>, TrainError> {
        let mut versions = self.versions();
        if let Some(current) = versions.current.as_ref().filter(|_| !versions.changed) {
            return Ok(Arc::clone(current));
        }
        let started = Instant::now();
        let weights = adapted(&*self.inner)?;
        let adapter = weights.adapter.as_ref().ok_or_else(no_adapter)?;
        let base = self.inner.base().map(BaseModel::named).unwrap_or_default();
        let written = Arc::new(self.folder.write(adapter, &base, self.inner.weights_version())?);
        drop(weights);
        let (fleet, published) = (Arc::clone(&self.fleet), Arc::clone(&written));
        self.thread.try_wait(async move { fleet.load_everywhere(&published).await })?;
        let before = versions.current.replace(Arc::clone(&written));
        // The same bytes have the same name, and are not to be unloaded.
        versions.older.extend(before.filter(|before| before.name != written.name));
        versions.changed = false;
        self.unload_idle(&mut versions);
        versions.published += 1;
        versions.took += started.elapsed();
        Ok(written)
    }

    /// Unloads versions that nobody samples from, and removes their folders.
    fn unload_idle(&self, versions: &mut Versions) {
        let older = std::mem::take(&mut versions.older);
        let (idle, busy) = older.into_iter().partition(|version| Arc::strong_count(version) == 1);
        versions.older = busy;
        let idle: Vec<Arc<Published>> = idle;
        for version in idle {
            let fleet = Arc::clone(&self.fleet);
            self.thread.handle().spawn(async move {
                fleet.unload_everywhere(&version.name).await;
                let _ = std::fs::remove_dir_all(&version.folder);
            });
        }
    }
}

fn no_adapter() -> TrainError {
    EngineError::Backend("the learner trains no adapter; set policy.lora".into()).into()
}

fn adapted(policy: &dyn PolicyLearner) -> Result<Weights, TrainError> {
    policy.weights().filter(|weights| weights.adapter.is_some()).ok_or_else(no_adapter)
}

impl Drop for EnginePolicy {
    /// Leaves the servers and the folder as they were, where they answer.
    fn drop(&mut self) {
        let versions = std::mem::take(&mut *self.versions());
        let all: Vec<Arc<Published>> = versions.older.into_iter().chain(versions.current).collect();
        let fleet = Arc::clone(&self.fleet);
        let _ = self.thread.wait(async move {
            for version in all {
                let unloaded = fleet.unload_everywhere(&version.name);
                let _ = tokio::time::timeout(Duration::from_secs(5), unloaded).await;
                let _ = std::fs::remove_dir_all(&version.folder);
            }
        });
    }
}

impl Learner for EnginePolicy {
    fn forward_backward(
        &mut self,
        batch: &[TokenSequence],
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.inner.forward_backward(batch, objective)
    }

    fn logprobs(&mut self, batch: &[TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.inner.logprobs(batch)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.versions().changed = true;
        self.inner.step(learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.inner.weights_version()
    }
}

impl MaskedContextLearner for EnginePolicy {
    fn forward_backward_masked(
        &mut self,
        batch: &[TokenSequence],
        masked_contexts: &[MaskedContext],
        objective: (&dyn Objective, &dyn MaskedContextObjective),
    ) -> Result<LossReport, LearnError> {
        self.inner.forward_backward_masked(batch, masked_contexts, objective)
    }
}

impl HiddenStates for EnginePolicy {
    fn max_context(&self) -> usize {
        self.inner.max_context()
    }

    fn hidden_size(&self) -> usize {
        self.inner.hidden_size()
    }

    fn mean_hidden(&mut self, batch: &[HiddenRequest]) -> Result<Vec<Vec<Vec<f32>>>, LearnError> {
        self.inner.mean_hidden(batch)
    }
}

impl PolicyLearner for EnginePolicy {
    fn samplers(
        &self,
        lanes: usize,
        _max_num_seqs: usize,
        max_context: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        let adapter = self.publish()?;
        let sampler =
            || EngineSampler::new(&self.fleet, self.thread.handle(), &adapter, &self.tokenizer, max_context);
        Ok((0..lanes).map(|_| Box::new(sampler()) as Box<dyn Sampler + Send>).collect())
    }

    fn sampling_report(&mut self) -> SamplingReport {
        let (numbers, notes) = self.fleet.report();
        let mut report = SamplingReport { notes, ..SamplingReport::default() };
        for (tag, value) in numbers {
            report.metrics.set(tag, value);
        }
        let mut versions = self.versions();
        report.metrics.set("rollout/engine/versions", versions.published as f64);
        report.metrics.set("perf/publish_s", versions.took.as_secs_f64());
        (versions.published, versions.took) = (0, Duration::ZERO);
        report
    }

    fn score(&mut self, batch: &[TokenSequence], temperature: f64) -> Result<Vec<TokenScores>, LearnError> {
        self.inner.score(batch, temperature)
    }

    fn reference_logprobs(&mut self, batch: &[TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.inner.reference_logprobs(batch)
    }

    fn set_reference(&mut self, start: &Path) -> Result<(), TrainError> {
        self.inner.set_reference(start)
    }

    fn stash_gradient(&mut self) -> Result<(), LearnError> {
        self.inner.stash_gradient()
    }

    fn gradient_norm(&self) -> Result<f64, LearnError> {
        self.inner.gradient_norm()
    }

    fn restore_gradient(&mut self, factor: f64) -> Result<(), LearnError> {
        self.inner.restore_gradient(factor)
    }

    fn begin_phase(&mut self, config: &Config, phase: Phase) -> Result<(), TrainError> {
        self.versions().changed = true;
        self.inner.begin_phase(config, phase)
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn check_finite(&self) -> Result<(), LearnError> {
        self.inner.check_finite()
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
