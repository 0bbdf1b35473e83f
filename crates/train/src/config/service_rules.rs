//! Rejects methods that training services do not support.

use turnwise_credit::{Pipeline, TurnField};
use turnwise_objective::{Loss, LossTerm};

use super::rules::Rules;
use super::{Config, DecomposerConfig, PolicyLearnerConfig};

const LOGPROBS_ONLY: &str =
    "a Tinker-compatible service gives log-probabilities of given tokens and nothing else";

impl Rules<'_> {
    pub(super) fn service(&mut self, pipeline: Option<&Pipeline>, loss: &Loss) {
        let Config { policy, rollout, decomposer, .. } = self.config;
        let PolicyLearnerConfig::Tinker(tinker) = &policy.learner else { return };
        if let Err((key, reason)) = tinker.check() {
            self.fail(&format!("policy.learner.{key}"), reason);
        }
        if policy.model.is_none() {
            self.fail(
                "policy.model",
                "is missing; name the model that the service trains, whose tokenizer and config.json are read here",
            );
        }
        if policy.lora.is_some() {
            self.fail(
                "policy.lora",
                "is set, and the service makes the adapter; set policy.learner.rank and leave it out",
            );
        }
        if rollout.temperature != 1.0 {
            let temperature = rollout.temperature;
            self.fail(
                "rollout.temperature",
                format!(
                    "is {temperature}; the service's log-probabilities are those at temperature 1: use 1"
                ),
            );
        }
        self.service_credit(pipeline, matches!(decomposer, DecomposerConfig::Turnrd(_)));
        self.service_loss(loss);
    }

    fn service_credit(&mut self, pipeline: Option<&Pipeline>, learned: bool) {
        let Some(pipeline) = pipeline else { return };
        let needs = pipeline.required_inputs();
        if needs.values {
            self.fail(
                "credit.estimator",
                "needs a critic, which starts from the policy's weights, and these are at the service; use a \
                 group-relative estimator",
            );
        }
        if needs.hidden_states.is_some() || learned {
            let key = if learned { "decomposer" } else { "credit" };
            self.fail(key, format!("needs the policy's hidden states; {LOGPROBS_ONLY}"));
        }
        let reads = pipeline.fields().into_iter().find(|(_, field)| *field == TurnField::Entropies);
        if let Some((method, _)) = reads {
            self.fail(
                "credit",
                format!("`{method}` needs the entropies of the sampled distributions; {LOGPROBS_ONLY}"),
            );
        }
    }

    fn service_loss(&mut self, loss: &Loss) {
        let passes = loss.passes();
        if passes.entropies {
            self.fail("objective.entropy_coef", format!("needs full-vocabulary entropies; {LOGPROBS_ONLY}"));
        }
        if passes.reference_kls {
            self.fail(
                "objective.kl.estimator",
                format!("is \"full\", over the whole vocabulary; {LOGPROBS_ONLY}: use k1, k2 or k3"),
            );
        }
        if passes.masked_context.is_some() {
            let term = loss.terms().find(|term| term.passes().masked_context.is_some()).map(LossTerm::kind);
            let term = term.unwrap_or("selective");
            self.fail(
                "objective",
                format!("the term `{term}` compares whole distributions after two prompts; {LOGPROBS_ONLY}"),
            );
        }
    }
}
