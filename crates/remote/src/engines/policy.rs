//! A local learner with samplers on servers.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use turnwise_core::{
    HiddenRequest, LearnError, Learner, LossReport, Objective, Sampler, StepReport, TokenBatch, TokenScores,
    TokenSequence,
};
use turnwise_model::Weights;
use turnwise_model::vision::{HeldPicture, VisionConfig, VisionTokens};
use turnwise_policy::BaseModel;
use turnwise_text::Tokenizer;
use turnwise_train::config::{Config, ServedWeights, ServersConfig};
use turnwise_train::learners::policy::{PolicyLearner, SamplingReport};
use turnwise_train::{Phase, TrainError};

use super::check::{self, Checks};
use super::error::EngineError;
use super::readings;
use super::sampler::EngineSampler;
use super::server_pool::ServerPool;
use super::versions::{Published, VersionFolder};
use crate::thread::RequestThread;

/// Text of the prompt with which servers are checked; an image is added if the run's prompts
/// contain images.
const PROBE: &str = "You are in the middle of a room. Looking quickly around you, you see a desk and a";

pub(crate) struct EnginePolicy {
    inner: Box<dyn PolicyLearner>,
    base: Option<BaseModel>,
    given: ServedWeights,
    checks: Option<Checks>,
    _picture: Option<HeldPicture>,
    tokenizer: Arc<Tokenizer>,
    pool: Arc<ServerPool>,
    folder: VersionFolder,
    versions: Versions,
    /// Must be the last field: fields are dropped in order, and the thread must outlive the other
    /// fields.
    thread: RequestThread,
}

#[derive(Default)]
struct Versions {
    current: Option<Arc<Published>>,
    changed: bool,
    /// Earlier versions that pending requests may still use.
    older: Vec<Arc<Published>>,
    published: u64,
    took: Duration,
}

impl EnginePolicy {
    pub(crate) fn open(
        config: &Config,
        servers: &ServersConfig,
        inner: Box<dyn PolicyLearner>,
        tokenizer: Arc<Tokenizer>,
    ) -> Result<(Self, Vec<String>), TrainError> {
        let given = servers.weights;
        let vocabulary = weights(&*inner, given)?.config().vocab_size;
        let (picture, shown) = match inner.vision().filter(|_| config.prompt.pictures) {
            Some(vision) => {
                let (tokens, held) = vision.pictures.add_held(&check::picture(vision), vision)?;
                let VisionTokens { start, end, .. } = vision.tokens;
                ([start].into_iter().chain(tokens.ids()).chain([end]).collect(), Some(held))
            }
            None => (Vec::new(), None),
        };
        let mut policy = Self {
            base: inner.base().cloned(),
            inner,
            given,
            checks: None,
            _picture: shown,
            tokenizer,
            pool: Arc::new(ServerPool::new(servers, vocabulary)?),
            folder: VersionFolder::open(&servers.adapter_dir, &servers.server_adapter_dir, &config.name)?,
            versions: Versions::default(),
            thread: RequestThread::start().map_err(|error| EngineError::no_thread(&error))?,
        };
        let version = policy.publish()?;
        let mut prompt = policy.tokenizer.encode(PROBE);
        if prompt.is_empty() {
            prompt.push(0);
        }
        let request = check::probe(prompt, picture, policy.inner.vision(), config.rollout.max_model_len)?;
        let (checks, notes) = scoring(&mut *policy.inner, |score| {
            Checks::at_the_start(&policy.thread, &policy.pool, &version, request, score)
        })?;
        if given == ServedWeights::Full {
            policy.checks = Some(checks);
        }
        readings::watch(&policy.pool, policy.thread.handle());
        Ok((policy, notes))
    }

    /// Returns the version of the current weights. If the weights have changed since the last call,
    /// first writes them and loads them into the servers. Also unloads versions that are no longer
    /// used.
    fn publish(&mut self) -> Result<Arc<Published>, TrainError> {
        if let Some(current) = self.versions.current.as_ref().filter(|_| !self.versions.changed) {
            return Ok(Arc::clone(current));
        }
        let started = Instant::now();
        let written = Arc::new(match self.given {
            ServedWeights::Adapter => self.write_adapter()?,
            ServedWeights::Full => {
                // Full weights are replaced without requests in flight, so the old version is no
                // longer needed.
                let pool = Arc::clone(&self.pool);
                self.thread.try_wait(async move { pool.drained().await })?;
                let current = self.versions.current.take();
                for before in self.versions.older.drain(..).chain(current) {
                    let _ = std::fs::remove_dir_all(&before.folder);
                }
                self.write_model()?
            }
        });
        self.hand_over(&written).inspect_err(|_| {
            if self.given == ServedWeights::Full {
                let _ = std::fs::remove_dir_all(&written.folder);
            }
        })?;
        let before = self.versions.current.replace(Arc::clone(&written));
        // Equal bytes share a name and must not be unloaded.
        self.versions.older.extend(before.filter(|before| before.name != written.name));
        self.versions.changed = false;
        self.unload_idle();
        self.versions.published += 1;
        self.versions.took += started.elapsed();
        Ok(written)
    }

    fn hand_over(&mut self, version: &Arc<Published>) -> Result<(), TrainError> {
        let (pool, published) = (Arc::clone(&self.pool), Arc::clone(version));
        self.thread.try_wait(async move { pool.load_everywhere(published).await })?;
        let Some(checks) = &mut self.checks else { return Ok(()) };
        scoring(&mut *self.inner, |score| {
            checks.after_a_replacement(&self.thread, &self.pool, version, score)
        })
    }

    fn write_adapter(&self) -> Result<Published, TrainError> {
        let weights = weights(&*self.inner, self.given)?;
        let adapter = weights.adapter.as_ref().ok_or_else(|| no_weights(self.given))?;
        let base = self.base.as_ref().map(BaseModel::named).unwrap_or_default();
        Ok(self.folder.write_adapter(adapter, &base, self.inner.weights_version())?)
    }

    fn write_model(&self) -> Result<Published, TrainError> {
        let merged = weights(&*self.inner, self.given)?.merged()?;
        Ok(self.folder.write_model(&merged, &self.tokenizer, self.inner.weights_version())?)
    }

    fn unload_idle(&mut self) {
        let older = std::mem::take(&mut self.versions.older);
        let (idle, busy) = older.into_iter().partition(|version| Arc::strong_count(version) == 1);
        self.versions.older = busy;
        let idle: Vec<Arc<Published>> = idle;
        for version in idle {
            let pool = Arc::clone(&self.pool);
            self.thread.handle().spawn(async move {
                pool.unload_everywhere(&version).await;
                let _ = std::fs::remove_dir_all(&version.folder);
            });
        }
    }
}

/// Runs `work` with a function that scores sequences, then frees the memory that scoring used.
fn scoring<T>(learner: &mut dyn PolicyLearner, work: impl FnOnce(&mut check::Score<'_>) -> T) -> T {
    let done = work(&mut |batch: &[&TokenSequence], temperature| learner.score(batch, temperature));
    learner.release();
    done
}

fn no_weights(given: ServedWeights) -> TrainError {
    let reason = match given {
        ServedWeights::Adapter => "the learner trains no adapter; set policy.lora",
        ServedWeights::Full => "the learner's weights are not in this process, and cannot be handed over",
    };
    EngineError::Backend(reason.into()).into()
}

fn weights(policy: &dyn PolicyLearner, given: ServedWeights) -> Result<Weights, TrainError> {
    let fits = |weights: &Weights| given == ServedWeights::Full || weights.adapter.is_some();
    policy.weights().filter(fits).ok_or_else(|| no_weights(given))
}

impl Drop for EnginePolicy {
    fn drop(&mut self) {
        let versions = std::mem::take(&mut self.versions);
        let all: Vec<Arc<Published>> = versions.older.into_iter().chain(versions.current).collect();
        let pool = Arc::clone(&self.pool);
        let _ = self.thread.wait(async move {
            for version in all {
                let unloaded = pool.unload_everywhere(&version);
                let _ = tokio::time::timeout(Duration::from_secs(5), unloaded).await;
                let _ = std::fs::remove_dir_all(&version.folder);
            }
        });
    }
}

impl Learner for EnginePolicy {
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        self.inner.forward_backward(batch, objective)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.inner.logprobs(batch)
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        self.versions.changed = true;
        self.inner.step(learning_rate)
    }

    fn weights_version(&self) -> u64 {
        self.inner.weights_version()
    }

    fn max_model_len(&self) -> usize {
        self.inner.max_model_len()
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
        &mut self,
        lanes: usize,
        _max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        let version = self.publish()?;
        self.thread.wait(Arc::clone(&self.pool).read_loads()).map_err(EngineError::from)?;
        let reads = (&self.tokenizer, self.inner.vision());
        let sampler = || EngineSampler::new(&self.pool, self.thread.handle(), &version, reads, max_model_len);
        Ok((0..lanes).map(|_| Box::new(sampler()) as Box<dyn Sampler + Send>).collect())
    }

    fn sampling_report(&mut self) -> SamplingReport {
        let (numbers, notes) = self.pool.report();
        let mut report = SamplingReport { notes, ..SamplingReport::default() };
        for (tag, value) in numbers {
            report.metrics.set(tag, value);
        }
        let versions = &mut self.versions;
        report.metrics.set("rollout/engine/versions", versions.published as f64);
        report.metrics.set("perf/publish_s", versions.took.as_secs_f64());
        (versions.published, versions.took) = (0, Duration::ZERO);
        report
    }

    fn score(&mut self, batch: &[&TokenSequence], temperature: f64) -> Result<Vec<TokenScores>, LearnError> {
        self.inner.score(batch, temperature)
    }

    fn reference_logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        self.inner.reference_logprobs(batch)
    }

    fn set_reference(&mut self, start: &Path) -> Result<(), TrainError> {
        self.inner.set_reference(start)
    }

    fn stash_gradient(&mut self) -> Result<(), LearnError> {
        self.inner.stash_gradient()
    }

    fn grad_norm(&self) -> Result<f64, LearnError> {
        self.inner.grad_norm()
    }

    fn restore_gradient(&mut self, factor: f64) -> Result<(), LearnError> {
        self.inner.restore_gradient(factor)
    }

    fn begin_phase(&mut self, config: &Config, phase: Phase) -> Result<(), TrainError> {
        self.versions.changed = true;
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
        self.base.as_ref()
    }

    fn vision(&self) -> Option<&VisionConfig> {
        self.inner.vision()
    }

    fn weights(&self) -> Option<Weights> {
        self.inner.weights()
    }
}
