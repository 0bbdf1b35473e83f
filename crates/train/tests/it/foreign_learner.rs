//! A custom learner: a table of two logits over two responses, with its own samplers and
//! checkpoints.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, LearnError, Learner, LossReport, Objective,
    Observation, RequestId, SampleError, SampleRequest, Sampler, Seed, Step, StepReport, Task, TaskSet,
    TokenBatch, TokenSequence, TokenStatistics,
};
use turnwise_env::dataset::NoSettings;
use turnwise_env::registry::Registry;
use turnwise_env::world::{OpenOptions, World, WorldKind};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::{Config, ConfigSource, Registries, load};
use turnwise_train::learners::policy::PolicyLearner;
use turnwise_train::record::checkpoint::Checkpoint;
use turnwise_train::record::directory::{RunStatus, Status, read_trajectories};
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::run::source::{NewRun, PolicySource, SourcedPolicy};
use turnwise_train::{Event, NoopObserver, Observer, Phase, Run, RunBuilder, RunEnd, TrainError};

const RESPONSES: [&str; 2] = ["left\n", "right\n"];

struct Fork;

impl Environment for Fork {
    fn reset(&mut self, _task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        Ok(Observation::new("A fork in the road."))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let success = action.text() == "right";
        let reward = f64::from(u8::from(success));
        Ok(Step {
            observation: Observation::new("You arrive."),
            reward,
            terminated: true,
            success,
            understood: true,
            ..Step::default()
        })
    }
}

struct Forks;

impl TaskSet for Forks {
    fn name(&self) -> &'static str {
        "fork"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let task = |index| {
            let mut task = Task::new(format!("{split}-{index}"), "fork", "go the right way");
            task.metadata.insert("index".into(), format!("{split}-{index}").into());
            task
        };
        Ok((0..8).map(task).collect())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Fork))
    }
}

impl World for Forks {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }
}

struct ForkKind;

impl WorldKind for ForkKind {
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "fork"
    }

    fn summary(&self) -> &'static str {
        "a fork in the road"
    }

    fn open(&self, _: &NoSettings, _: &mut OpenOptions<'_>) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(Forks))
    }
}

/// `pi(response k) = softmax(theta)_k`, with all of it at a response's first token.
#[derive(Clone, Serialize, Deserialize)]
struct Table {
    theta: [f64; 2],
    version: u64,
}

impl Table {
    fn probabilities(&self) -> [f64; 2] {
        let odds = (self.theta[1] - self.theta[0]).exp();
        [1.0 / (1.0 + odds), odds / (1.0 + odds)]
    }

    fn logprobs(&self, response: usize, tokens: usize) -> Vec<f32> {
        let mut logprobs = vec![0.0; tokens];
        logprobs[0] = self.probabilities()[response].ln() as f32;
        logprobs
    }
}

struct TablePolicy {
    table: Table,
    gradient: [f64; 2],
    tokenizer: Arc<Tokenizer>,
    responses: [Vec<u32>; 2],
    diverges: bool,
}

impl TablePolicy {
    /// Diverges at high learning rates.
    fn new(table: Table, tokenizer: Arc<Tokenizer>, config: &Config) -> Self {
        let responses = RESPONSES.map(|text| tokenizer.encode(text));
        let diverges = config.train.learning_rate > 0.6;
        Self { table, gradient: [0.0; 2], tokenizer, responses, diverges }
    }

    fn written(&self, sequence: &TokenSequence) -> Vec<usize> {
        let of = |tokens: &[u32]| self.responses.iter().position(|known| known == tokens).unwrap();
        sequence.spans.iter().map(|span| of(&sequence.tokens[span.start..span.end])).collect()
    }
}

impl Learner for TablePolicy {
    fn forward_backward(
        &mut self,
        batch: &TokenBatch<'_>,
        objective: &dyn Objective,
    ) -> Result<LossReport, LearnError> {
        if !batch.masked_contexts.is_empty() {
            return Err(LearnError::Unsupported("masked contexts"));
        }
        let mut report = LossReport::default();
        if self.diverges {
            report.loss = f64::NAN;
            return Ok(report);
        }
        let logprobs = self.logprobs(&batch.sequences)?;
        for (index, (sequence, logprobs)) in batch.sequences.iter().zip(&logprobs).enumerate() {
            let statistics = TokenStatistics { logprobs, entropies: &[], reference_kls: &[] };
            let found = objective.evaluate(index, statistics)?;
            let mut first = 0;
            for (span, response) in sequence.spans.iter().zip(self.written(sequence)) {
                let slope = f64::from(found.d_logprobs[first]);
                let probabilities = self.table.probabilities();
                for (index, gradient) in self.gradient.iter_mut().enumerate() {
                    *gradient += slope * (f64::from(u8::from(index == response)) - probabilities[index]);
                }
                first += span.len();
            }
            report.loss += found.loss;
            report.metrics.add(&found.metrics);
            report.total_tokens += sequence.tokens.len();
        }
        Ok(report)
    }

    fn logprobs(&mut self, batch: &[&TokenSequence]) -> Result<Vec<Vec<f32>>, LearnError> {
        let of = |sequence: &TokenSequence| {
            let written = self.written(sequence).into_iter().zip(&sequence.spans);
            written.flat_map(|(response, span)| self.table.logprobs(response, span.len())).collect()
        };
        Ok(batch.iter().copied().map(of).collect())
    }

    fn step(&mut self, learning_rate: f64) -> Result<StepReport, LearnError> {
        let grad_norm = self.gradient[0].hypot(self.gradient[1]);
        for (theta, gradient) in self.table.theta.iter_mut().zip(std::mem::take(&mut self.gradient)) {
            *theta -= 40.0 * learning_rate * gradient;
        }
        self.table.version += 1;
        Ok(StepReport { grad_norm, step: self.table.version })
    }

    fn weights_version(&self) -> u64 {
        self.table.version
    }

    fn max_model_len(&self) -> usize {
        512
    }
}

impl PolicyLearner for TablePolicy {
    fn samplers(
        &mut self,
        lanes: usize,
        _: usize,
        _: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError> {
        let sampler = || TableSampler {
            table: self.table.clone(),
            responses: self.responses.clone(),
            waiting: Vec::new(),
            next: 0,
        };
        Ok((0..lanes).map(|_| Box::new(sampler()) as Box<dyn Sampler + Send>).collect())
    }

    fn begin_phase(&mut self, _: &Config, _: Phase) -> Result<(), TrainError> {
        Ok(())
    }

    fn save(&self, folder: &Path) -> Result<(), TrainError> {
        let policy = folder.join("policy");
        std::fs::create_dir_all(&policy).unwrap();
        std::fs::write(policy.join("table.json"), serde_json::to_vec(&self.table).unwrap()).unwrap();
        self.tokenizer.save_folder(&policy).unwrap();
        Ok(())
    }
}

struct TableSampler {
    table: Table,
    responses: [Vec<u32>; 2],
    waiting: Vec<(RequestId, SampleRequest)>,
    next: RequestId,
}

impl Sampler for TableSampler {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push((self.next, request));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let answer = |(id, request): (RequestId, SampleRequest)| {
            let response = usize::from(request.seed.rng().uniform() < self.table.probabilities()[1]);
            let tokens = self.responses[response].clone();
            Completion {
                request: id,
                logprobs: self.table.logprobs(response, tokens.len()),
                entropies: vec![0.5; tokens.len()],
                tokens,
                finish: FinishReason::Stop,
                weights_version: self.table.version,
            }
        };
        Ok(self.waiting.drain(..).map(answer).collect())
    }

    fn end_session(&mut self, _: u64) {}

    fn weights_version(&self) -> u64 {
        self.table.version
    }
}

struct TableSource;

impl PolicySource for TableSource {
    fn start(&self, run: &NewRun<'_>, _: &mut dyn Observer) -> Result<SourcedPolicy, TrainError> {
        let tokenizer = Tokenizer::train(RESPONSES.into_iter(), &TokenizerConfig::default()).unwrap();
        let tokenizer = Arc::new(tokenizer);
        let table = Table { theta: [1.0, 0.0], version: 0 };
        Ok((Box::new(TablePolicy::new(table, Arc::clone(&tokenizer), run.config)), tokenizer))
    }

    fn resume(
        &self,
        config: &Config,
        _: &Registries,
        checkpoint: &Checkpoint,
    ) -> Result<SourcedPolicy, TrainError> {
        let folder = checkpoint.policy();
        let table = serde_json::from_slice(&std::fs::read(folder.join("table.json")).unwrap()).unwrap();
        let tokenizer = Arc::new(Tokenizer::load_folder(&folder).unwrap());
        Ok((Box::new(TablePolicy::new(table, Arc::clone(&tokenizer), config)), tokenizer))
    }
}

fn config() -> Config {
    let settings = "env.kind=fork prompt.template=plain rollout.tasks_per_step=4 rollout.group_size=8 \
                    rollout.max_response_tokens=8 rollout.max_model_len=256 train.steps=12 train.learning_rate=0.5 \
                    train.num_minibatches=2 train.checkpoint_every=1 eval.splits=[\"test\"]";
    let overrides = settings.split_whitespace().map(str::to_owned).collect();
    load(&ConfigSource { overrides, registries: forks(), ..ConfigSource::default() }).unwrap()
}

fn table(root: &Path) -> Table {
    let path = root.join("checkpoints/step-000012/policy/table.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

struct StopAfter<'a>(usize, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn event(&mut self, event: Event<'_>) {
        if matches!(event, Event::Step { .. }) {
            self.0 -= 1;
            if self.0 == 0 {
                self.1.store(true, Ordering::SeqCst);
            }
        }
    }

    fn evaluate(
        &mut self,
        _: &mut turnwise_train::EvaluationPoint<'_>,
    ) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

fn forks() -> Registries {
    Registries { environments: Registry::builtin().with(ForkKind), ..Registries::builtin() }
}

fn run_of(config: Config) -> RunBuilder {
    Run::builder(config).environments(forks().environments).policies(Arc::new(TableSource))
}

#[test]
fn a_learner_of_ones_own_trains_and_resumes_in_the_same_loop() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, halves) = (folder.path().join("whole"), folder.path().join("halves"));
    let mut run = run_of(config()).directory(&whole).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    assert!(run.weights().is_none(), "its weights are its own");
    let success: Vec<f64> = read_metrics(&whole.join("metrics.jsonl"))
        .unwrap()
        .iter()
        .map(|line| line.metrics.get("train/success_rate").unwrap())
        .collect();
    let learnt = table(&whole);
    assert!(learnt.probabilities()[1] > 0.9, "{success:?} {:?}", learnt.theta);
    assert!(success[0] < 0.6 && success[11] > 0.8, "{success:?}");

    let stop = AtomicBool::new(false);
    let mut run = run_of(config()).directory(&halves).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut StopAfter(5, &stop), &stop).unwrap(), RunEnd::Interrupted);
    let mut run = run_of(config()).directory(&halves).resume(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
    assert_eq!(table(&halves).theta.map(f64::to_bits), learnt.theta.map(f64::to_bits));
}

#[test]
fn a_run_whose_loss_is_no_number_fails_before_its_checkpoint_and_can_be_rescued() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let mut config = config();
    config.train.learning_rate = 0.9;
    let mut run = run_of(config).directory(&root).start(&mut NoopObserver).unwrap();
    let error = run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap_err().to_string();
    assert!(error.contains("step-000001") && error.contains("the loss is NaN"), "{error}");
    assert!(error.contains("--resume") && error.contains("train.learning_rate"), "{error}");
    let status: Status = run.directory().read_json("status.json").unwrap();
    assert_eq!(status.state, RunStatus::Failed);
    assert!(status.reason.unwrap().contains("NaN"));
    assert!(!root.join("checkpoints/step-000001").exists(), "what diverged is not kept");
    let batch = read_trajectories(&root.join("failed/step-000001.jsonl.zst")).unwrap();
    assert_eq!(batch.len(), 32);
    assert!(batch.iter().all(|trajectory| trajectory.advantages.is_some()));
    let go_on = |overrides: &[&str]| {
        let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
        let source = ConfigSource { overrides, registries: forks(), ..ConfigSource::of_run(&root) };
        let mut run = run_of(load(&source).unwrap()).directory(&root).resume(&mut NoopObserver).unwrap();
        run.train(&mut NoopObserver, &AtomicBool::new(false))
    };
    assert!(go_on(&[]).is_err());
    assert_eq!(go_on(&["train.learning_rate=0.5"]).unwrap(), RunEnd::Finished);
    assert!(root.join("config-before-step-000000.toml").is_file());
    assert!(table(&root).probabilities()[1] > 0.9);
}

#[test]
fn a_service_needs_a_program_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = "policy.learner={kind=\"tinker\", url=\"http://127.0.0.1:9\"}";
    let config = crate::common::config(None, &["policy.model=nowhere", service]).unwrap();
    let error = Run::builder(config)
        .directory(folder.path().join("run"))
        .start(&mut NoopObserver)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("policy.learner.kind") && error.contains("--features remote"), "{error}");
}
