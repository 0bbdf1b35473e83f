//! A tiny model, the double that serves it, and policies on both sides.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use turnwise_core::{Purpose, Seed, TokenSequence, TurnSpan};
use turnwise_model::{Adapter, ModelConfig, Parameters, Weights, load_adapter, save_model};
use turnwise_objective::{ObjectiveBatch, ObjectiveSequence};
use turnwise_remote::tinker::{Timing, TinkerSource};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::Registries;
use turnwise_train::config::{Config, ConfigSource, PolicyLearnerConfig, load};
use turnwise_train::learners::policy::{NativePolicy, PolicyLearner};
use turnwise_train::run::source::{NewRun, PolicySource as _};
use turnwise_train::setup::{World, template};
use turnwise_train::{NoopObserver, Phase, RunDirectory, TrainError};

use crate::double::{Double, Traits};

/// Times that let a test see retries without waiting for them.
pub(crate) const TIMING: Timing = Timing {
    heartbeat: Duration::from_millis(20),
    poll: Duration::from_millis(300),
    pause: Duration::from_millis(5),
    timeout: Duration::from_mins(1),
};

pub(crate) const SOURCE: TinkerSource = TinkerSource { timing: TIMING };

/// A model in a folder and a double that serves it.
pub(crate) struct Setting {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) base: Arc<Parameters<f32>>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) double: Double,
}

impl Setting {
    pub(crate) fn new(traits: Traits) -> Self {
        let text = ["{\"action\": \"1\"} You have cards 10 and 2. The formula is +*=0123456789\n"];
        let tokenizer = Tokenizer::train(text.into_iter(), &TokenizerConfig::default()).unwrap();
        let model = ModelConfig {
            vocab_size: tokenizer.vocab_size(),
            hidden_size: 16,
            intermediate_size: 24,
            num_hidden_layers: 2,
            num_attention_heads: 2,
            num_key_value_heads: 1,
            head_dim: 8,
            max_position_embeddings: 512,
            initializer_range: 0.3,
            ..ModelConfig::default()
        };
        let base = Arc::new(Parameters::init(model, Seed::derive(3, Purpose::Init, &[])).unwrap());
        let folder = tempfile::tempdir().unwrap();
        save_model(&base, &folder.path().join("model")).unwrap();
        tokenizer.save_folder(&folder.path().join("model")).unwrap();
        let double = Double::start(Arc::clone(&base), traits);
        Self { folder, base, tokenizer: Arc::new(tokenizer), double }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A config of a policy on the double.
    pub(crate) fn config(&self, preset: Option<&str>, more: &[&str]) -> Result<Config, TrainError> {
        let settings = [
            format!("policy.model=\"{}\"", self.path("model").display()),
            format!(
                "policy.learner={{kind=\"tinker\", url=\"{}\", rank=3, timeout_s=20.0}}",
                self.double.url
            ),
            "env.kind=ezpoints".into(),
            "env.max_turns=6".into(),
            "prompt.template=ezpoints-compact".into(),
            "rollout.tasks_per_step=2".into(),
            "rollout.group_size=3".into(),
            "rollout.max_response_tokens=4".into(),
            "rollout.max_model_len=300".into(),
            "train.steps=3".into(),
            "train.learning_rate=1e-2".into(),
            "train.skip_zero_advantage=false".into(),
            "train.checkpoint_every=1".into(),
            "train.keep_last=0".into(),
            "optimizer={beta1=0.8, beta2=0.9, epsilon=1e-3, weight_decay=0.0, clip_norm=0.0}".into(),
            "eval.splits=[\"test\"]".into(),
        ];
        let overrides = settings.into_iter().chain(more.iter().map(|text| (*text).to_owned())).collect();
        load(&ConfigSource { preset: preset.map(str::to_owned), overrides, ..ConfigSource::default() })
    }

    /// A policy on the double, at the start of reinforcement learning.
    pub(crate) fn policy(&self, config: &Config) -> Result<Box<dyn PolicyLearner>, TrainError> {
        let world = World::new(&config.env, &Registries::builtin(), &config.splits(), &mut |_| ())?;
        let template = template(config, &Registries::builtin())?;
        let directory = RunDirectory::planned(&self.path("planned"))?;
        let run = NewRun {
            config,
            registries: &Registries::builtin(),
            phase: Phase::Rl,
            world: Some(&world),
            template: &template,
            directory: &directory,
            ignore_memory: false,
        };
        Ok(SOURCE.start(&run, &mut NoopObserver)?.0)
    }

    /// The adapter of a policy, as it is downloaded.
    pub(crate) fn adapter(&self, policy: &dyn PolicyLearner, name: &str) -> Adapter<f32> {
        let folder = self.path(name);
        std::fs::create_dir_all(&folder).unwrap();
        policy.save(&folder).unwrap();
        self.load(&folder)
    }

    /// The adapter of a checkpoint.
    pub(crate) fn load(&self, checkpoint: &Path) -> Adapter<f32> {
        load_adapter(&checkpoint.join("policy"), &self.base.config).unwrap()
    }

    /// A native policy that starts from the same adapter.
    pub(crate) fn native(&self, config: &Config, adapter: Adapter<f32>) -> NativePolicy {
        let mut config = config.clone();
        config.policy.learner = PolicyLearnerConfig::Native;
        config.train.num_workers = 1;
        let weights = Weights::adapted(Arc::clone(&self.base), adapter).unwrap();
        NativePolicy::new(
            &config,
            &Registries::builtin(),
            Phase::Rl,
            weights,
            Arc::clone(&self.tokenizer),
            None,
        )
        .unwrap()
    }

    /// Sequences of one or two turns and unequal lengths.
    pub(crate) fn sequences(&self) -> Vec<TokenSequence> {
        let vocabulary = self.base.config.vocab_size as u32;
        let sequence = |number: u32, spans: &[(usize, usize)]| {
            let length = spans[spans.len() - 1].1 as u32;
            let spans = spans.iter().enumerate().map(|(turn, &(start, end))| TurnSpan { turn, start, end });
            TokenSequence {
                tokens: (0..length).map(|at| (number * 57 + at * at * 13 + at * 7) % vocabulary).collect(),
                spans: spans.collect(),
            }
        };
        vec![
            sequence(1, &[(4, 9)]),
            sequence(2, &[(3, 5), (8, 14)]),
            sequence(3, &[(6, 7)]),
            sequence(4, &[(2, 12), (15, 18)]),
        ]
    }
}

/// Ingredients of a loss: old log-probabilities off the policy's own, so that ratios clip, and advantages of both signs.
pub(crate) fn objective_batch(sequences: &[TokenSequence], logprobs: &[Vec<f32>]) -> ObjectiveBatch {
    let sequence = |(index, (sequence, own)): (usize, (&TokenSequence, &Vec<f32>))| {
        let moved = |step: f32, phase: f32| -> Vec<f32> {
            let at = |(token, value): (usize, &f32)| {
                value + step * (phase + index as f32 + 1.7 * token as f32).sin()
            };
            own.iter().enumerate().map(at).collect()
        };
        let advantages = (0..sequence.spans.len()).map(|turn| [1.3, -0.8, 0.4][(index + turn) % 3]).collect();
        ObjectiveSequence {
            ref_logprobs: Some(moved(0.2, 2.0)),
            ..ObjectiveSequence::new(sequence.spans.clone(), moved(0.3, 0.0), advantages)
        }
    };
    ObjectiveBatch::new(sequences.iter().zip(logprobs).enumerate().map(sequence).collect())
}
