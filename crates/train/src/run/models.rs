//! A checkpoint's models, loaded read-only as inputs of credit.

use std::path::Path;
use std::sync::Arc;

use turnwise_core::{Batch, PerToken, PerTurn};
use turnwise_credit::{InputProvider, ScoreRequest};
use turnwise_decompose::turnrd::TurnRd;
use turnwise_policy::Policy;
use turnwise_policy::run_folder::enclosing_run;
use turnwise_text::Tokenizer;

use crate::TrainError;
use crate::config::{Config, DecomposerConfig, Registries};
use crate::learners::critic::RunCritic;
use crate::learners::decomposer::{hidden_states, round_folder, turnrd_credits};
use crate::learners::policy::{NativePolicy, PolicyLearner as _};
use crate::learners::provider::ModelProvider;
use crate::record::checkpoint::Checkpoint;
use crate::record::directory::{Phase, Position, RunDirectory};
use crate::record::observer::NoopObserver;
use crate::rollout::prompting::PromptParts;
use crate::run::start::critic_of;

/// A checkpoint's policy and, if they were trained, its critic and TurnRD network.
pub struct RunModels {
    policy: NativePolicy,
    tokenizer: Arc<Tokenizer>,
    prompts: PromptParts,
    critic: Option<RunCritic>,
    turnrd: Option<(TurnRd, usize)>,
    checkpoint: String,
}

impl RunModels {
    /// Loads a checkpoint's models; `folder` is its policy (`checkpoints/step-000012/policy`).
    ///
    /// # Errors
    /// Fails if the folder is not in a run, prompts show pictures, or files do not fit the config.
    pub fn load(config: &Config, registries: &Registries, folder: &Path) -> Result<Self, TrainError> {
        let place = folder.parent().and_then(|path| {
            let position: Position = path.file_name()?.to_str()?.parse().ok()?;
            Some(Checkpoint { path: path.to_owned(), position })
        });
        let (Some(run), Some(checkpoint)) = (enclosing_run(folder), place) else {
            let reason = "is not a checkpoint of a run, and only runs have critics and decomposers";
            return Err(TrainError::Config { origin: folder.display().to_string(), reason: reason.into() });
        };
        if config.prompt.pictures {
            let reason =
                "is true, and scores by a run's models are computed from texts alone; leave --models out";
            return Err(TrainError::Config { origin: "prompt.pictures".into(), reason: reason.into() });
        }
        let directory = RunDirectory::open(&run)?;
        let Policy { weights, tokenizer } = Policy::load(folder)?;
        let policy = NativePolicy::new(config, registries, Phase::Rl, weights, Arc::clone(&tokenizer), None)?;
        let critic = critic_of(config, registries, &directory, &checkpoint, policy.weights())?;
        let turnrd = match &config.decomposer {
            DecomposerConfig::Turnrd(settings) => {
                let round = settings.round_of(checkpoint.position.rl_step());
                let network = || TurnRd::load(&round_folder(&directory.root().join("turnrd"), round));
                (round > 0).then(network).transpose()?.map(|network| (network, settings.pool_tokens))
            }
            _ => None,
        };
        let checkpoint = checkpoint.path.display().to_string();
        let prompts = PromptParts::new(config, registries, &tokenizer, None)?;
        Ok(Self { policy, tokenizer, prompts, critic, turnrd, checkpoint })
    }

    fn missing(&self, what: &str) -> TrainError {
        TrainError::Config {
            origin: self.checkpoint.clone(),
            reason: format!("has no {what}, and the method needs it"),
        }
    }
}

impl InputProvider for RunModels {
    type Error = TrainError;

    fn values(&mut self, batch: &Batch) -> Result<PerToken<f64>, TrainError> {
        match &mut self.critic {
            Some(critic) => critic.values(batch),
            None => Err(self.missing("critic")),
        }
    }

    fn credits(&mut self, batch: &Batch) -> Result<PerTurn<f64>, TrainError> {
        match &self.turnrd {
            Some((network, tokens)) => {
                turnrd_credits(batch, network, *tokens, &mut self.policy, &self.tokenizer)
            }
            None => Err(self.missing("trained TurnRD")),
        }
    }

    fn hidden_states(&mut self, batch: &Batch, most_tokens: usize) -> Result<PerTurn<Vec<f32>>, TrainError> {
        hidden_states(batch, most_tokens, &mut self.policy, &self.tokenizer)
    }

    fn scores(&mut self, batch: &Batch, requests: &[ScoreRequest]) -> Result<Vec<Vec<f32>>, TrainError> {
        let mut provider = ModelProvider {
            critic: None,
            decomposer: None,
            policy: &mut self.policy,
            prompter: self.prompts.prompter(&self.tokenizer),
            observer: &mut NoopObserver,
            step: 0,
        };
        provider.scores(batch, requests)
    }
}
