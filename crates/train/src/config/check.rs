//! What a config must be before anything long starts.

use turnwise_credit::has::DecomposerKind;
use turnwise_credit::selection::{Selection, SelectionConfig};
use turnwise_credit::{EstimatorConfig, RefinementConfig};
use turnwise_model::{LoraConfig, ModelError};
use turnwise_objective::RatioKind;

use super::{Config, DecomposerConfig};
use crate::TrainError;

fn fail(key: &str, reason: impl Into<String>) -> Result<(), TrainError> {
    Err(TrainError::Config { origin: key.to_owned(), reason: reason.into() })
}

impl Config {
    /// Refuses what cannot run, before any long work starts.
    pub fn check(&self) -> Result<(), TrainError> {
        if !["alfworld", "webshop"].contains(&self.env.name.as_str()) {
            let reason = format!("unknown environment `{}`; there are: alfworld, webshop", self.env.name);
            return fail("env.name", reason);
        }
        if self.env.name == "webshop" && self.env.shop.products == 0 {
            return fail("env.shop.products", "must be at least 1");
        }
        if self.name.is_empty() || self.name.contains(['/', '\\']) || self.name.starts_with('.') {
            return fail("name", "must be a plain folder name");
        }
        for (key, value) in [
            ("env.max_turns", self.env.max_turns),
            ("rollout.tasks_per_step", self.rollout.tasks_per_step),
            ("rollout.group_size", self.rollout.group_size),
            ("rollout.max_response_tokens", self.rollout.max_response_tokens),
            ("rollout.max_context", self.rollout.max_context),
            ("rollout.lanes", self.rollout.lanes),
            ("rollout.max_num_seqs", self.rollout.max_num_seqs),
            ("train.num_minibatches", self.train.num_minibatches),
            ("train.update_epochs", self.train.update_epochs),
            ("train.lanes", self.train.lanes),
            ("train.micro_batch_tokens", self.train.micro_batch_tokens),
        ] {
            if value == 0 {
                return fail(key, "must be at least 1");
            }
        }
        if self.rollout.temperature <= 0.0 || !self.rollout.temperature.is_finite() {
            return fail(
                "rollout.temperature",
                "must be above 0 (greedy sampling has no log-probabilities to learn from)",
            );
        }
        if self.eval.temperature < 0.0 || !self.eval.temperature.is_finite() {
            return fail("eval.temperature", "must be 0 (greedy) or above");
        }
        if !(self.rollout.top_p > 0.0 && self.rollout.top_p <= 1.0) {
            return fail("rollout.top_p", "must be in (0, 1]");
        }
        for (table, lora) in [("policy.lora", &self.policy.lora), ("critic.lora", &self.critic.lora)] {
            match lora.as_ref().map(LoraConfig::check) {
                Some(Err(ModelError::Setting { key, reason })) => {
                    return fail(&format!("{table}.{key}"), reason);
                }
                Some(other) => other?,
                None => {}
            }
        }
        self.check_methods()?;
        let scratch = &self.policy.scratch;
        if self.policy.model.is_none()
            && (scratch.heads == 0 || !scratch.hidden_size.is_multiple_of(scratch.heads))
        {
            let reason = format!(
                "{} is not a multiple of policy.scratch.heads = {}",
                scratch.hidden_size, scratch.heads
            );
            return fail("policy.scratch.hidden_size", reason);
        }
        for (key, probability) in [
            ("sft.invalid_action_prob", self.sft.invalid_action_prob),
            ("sft.option_drop_prob", self.sft.option_drop_prob),
        ] {
            if !(0.0..1.0).contains(&probability) {
                return fail(key, "must be in [0, 1)");
            }
        }
        if self.sft.option_drop_prob > 0.0 && self.env.name != "webshop" {
            return fail("sft.option_drop_prob", "is what shoppers do; only env.name = \"webshop\" has it");
        }
        if self.sft.steps > 0 && self.sft.demonstrations == 0 {
            return fail("sft.demonstrations", "must be at least 1 when sft.steps is");
        }
        for (key, rate) in [
            ("sft.learning_rate", self.sft.learning_rate),
            ("train.learning_rate", self.train.learning_rate),
            ("critic.learning_rate", self.critic.learning_rate),
            ("critic.clip", self.critic.clip),
        ] {
            if rate < 0.0 || !rate.is_finite() {
                return fail(key, "must be a number from 0 up");
            }
        }
        Ok(())
    }

    /// Refuses combinations of method parts that have no meaning or miss something, with the reason.
    fn check_methods(&self) -> Result<(), TrainError> {
        turnwise_credit::Pipeline::from_config(&self.credit)?;
        self.objective.check()?;
        Selection::new(&self.rollout.selection, self.rollout.tasks_per_step)?;
        if self.rollout.selection != SelectionConfig::All && self.rollout.group_size < 2 {
            return fail(
                "rollout.selection",
                "compares the trajectories of a group; rollout.group_size must be at least 2",
            );
        }
        if let Some(overlong) = &self.rollout.overlong {
            let buffer = overlong.buffer.unwrap_or(0);
            if buffer > self.rollout.max_response_tokens {
                let limit = self.rollout.max_response_tokens;
                return fail(
                    "rollout.overlong.buffer",
                    format!("is {buffer}, more than rollout.max_response_tokens = {limit}"),
                );
            }
            if overlong.penalty < 0.0 || !overlong.penalty.is_finite() {
                return fail("rollout.overlong.penalty", "must be a number from 0 up");
            }
        }
        match (&self.objective.selective, &self.credit.outliers) {
            (Some(_), None) => {
                return fail(
                    "objective.selective",
                    "acts on outlier turns, and nothing locates them; set credit.outliers (for example \
                     credit.outliers.lambda=1.5) or leave it out",
                );
            }
            (None, Some(_)) => {
                return fail(
                    "credit.outliers",
                    "locates turns for STAPO's selective term, which is not there; set objective.selective \
                     (for example objective.selective.alpha=0.01) or leave it out",
                );
            }
            _ => {}
        }
        if self.critic.lora.is_some() && !matches!(self.credit.estimator, EstimatorConfig::Ppo(_)) {
            return fail(
                "critic.lora",
                "is set, and there is no critic; set credit.estimator.kind = \"ppo\" or leave it out",
            );
        }
        let token_level = matches!(self.credit.estimator, EstimatorConfig::Ppo(_));
        if token_level && self.objective.ratio == RatioKind::Sequence {
            return fail(
                "objective.ratio",
                "one ratio for a whole sequence stands for one advantage (GSPO), and `ppo` gives one per \
                 token; use token or turn, or a group-relative estimator",
            );
        }
        let needs_groups = match &self.credit.estimator {
            EstimatorConfig::Grpo(_) => Some("grpo"),
            EstimatorConfig::Rloo(_) => Some("rloo"),
            EstimatorConfig::Gigpo(_) => Some("gigpo"),
            EstimatorConfig::Hgpo(_) => Some("hgpo"),
            EstimatorConfig::Ppo(_) | EstimatorConfig::Other(_) => None,
        };
        if let (Some(name), 1) = (needs_groups, self.rollout.group_size) {
            return fail(
                "rollout.group_size",
                format!(
                    "is 1, and `{name}` compares the trajectories of a group, so that every advantage would be \
                     nought; use at least 2, or ppo"
                ),
            );
        }
        self.check_decomposer()
    }

    fn check_decomposer(&self) -> Result<(), TrainError> {
        let wanted = self.credit.refinements.iter().any(|refinement| {
            matches!(refinement, RefinementConfig::Has(has) if has.decomposer == DecomposerKind::External)
        });
        match &self.decomposer {
            DecomposerConfig::None if wanted => fail(
                "decomposer",
                "`has` with decomposer = \"external\" needs one; set decomposer.kind to \"turnrd\" or \"judge\", \
                 or use \"progressive\"",
            ),
            DecomposerConfig::None => Ok(()),
            _ if !wanted => fail(
                "decomposer",
                "is set, and nothing uses it; add { kind = \"has\", decomposer = \"external\" } to \
                 credit.refinements, or set decomposer.kind = \"none\"",
            ),
            DecomposerConfig::Judge(judge) => judge.check().map_err(|error| TrainError::Config {
                origin: "decomposer".into(),
                reason: error.to_string(),
            }),
            DecomposerConfig::Turnrd(turnrd) => {
                turnrd.network.check()?;
                for (key, value) in [
                    ("decomposer.round_steps", turnrd.round_steps),
                    ("decomposer.pool_tokens", turnrd.pool_tokens as u64),
                ] {
                    if value == 0 {
                        return fail(key, "must be at least 1");
                    }
                }
                if turnrd.network.max_turns < self.env.max_turns {
                    return fail(
                        "decomposer.network.max_turns",
                        format!(
                            "is {}, and an episode has up to env.max_turns = {} turns; raise it",
                            turnrd.network.max_turns, self.env.max_turns
                        ),
                    );
                }
                Ok(())
            }
        }
    }
}
