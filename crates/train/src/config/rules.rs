//! Rules that involve several settings; the ranges of single settings are declared at their fields.

use toml::Table;
use turnwise_credit::selection::SelectionConfig;
use turnwise_credit::{Pipeline, TurnField};
use turnwise_decompose::JudgeError;
use turnwise_model::{Device, LoraConfig, ModelError};
use turnwise_objective::{Loss, RatioKind};
use turnwise_settings::{Problem, SettingsError, is_hidden, problems};

use super::load::schema_with;
use super::{
    Config, CriticConfig, DecomposerConfig, PolicyLearnerConfig, Registries, RolloutConfig, ServedWeights,
};
use crate::TrainError;

/// File systems limit names to 255 bytes, and some files append a suffix to the run's name.
const LONGEST_NAME: usize = 200;

/// Rejects names that file systems cannot store, or that shells or people could misread.
///
/// # Errors
/// Returns the requirement that the name violates.
pub fn check_run_name(name: &str) -> Result<(), &'static str> {
    let is_foreign = |character| matches!(character, '/' | '\\' | '\n' | '\t') || is_hidden(character);
    let length = 1..=LONGEST_NAME;
    if length.contains(&name.len()) && !name.starts_with(['.', '-']) && !name.contains(is_foreign) {
        return Ok(());
    }
    Err(
        "it must be a plain folder name of at most 200 bytes, without slashes, control characters or bidirectional marks, \
         and without a dot or hyphen in front",
    )
}

const MOST_TRAJECTORIES: usize = 1 << 20;

const MOST_SCRATCH_WEIGHTS: usize = 2_000_000_000;

impl Config {
    /// Rejects settings that are out of range or contradict each other.
    ///
    /// # Errors
    /// Returns all invalid settings, each with key, value and valid range.
    pub fn check(&self, registries: &Registries) -> Result<(), TrainError> {
        let fail = |error: toml::ser::Error| SettingsError(vec![Problem::new("config", error.to_string())]);
        let value = toml::Value::try_from(self).map_err(fail)?;
        let schema = schema_with(registries);
        SettingsError::of(problems(&schema, &value))?;
        SettingsError::of(self.rule_problems(registries))?;
        Ok(())
    }

    pub(super) fn rule_problems(&self, registries: &Registries) -> Vec<Problem> {
        let mut rules = Rules { config: self, registries, found: Vec::new() };
        rules.run();
        rules.world();
        rules.prompt();
        rules.pictures();
        rules.policy();
        rules.warm_start();
        rules.rollout();
        // If the pipeline or loss fails, dependent rules are skipped.
        let pipeline = match Pipeline::with_registry(&self.credit, &registries.methods.credit) {
            Ok(pipeline) => Some(pipeline),
            Err(error) => {
                rules.fail("credit", error.to_string());
                None
            }
        };
        match Loss::new(&self.objective, &registries.methods.objective) {
            Ok(loss) => {
                rules.selected_turns(pipeline.as_ref(), &loss);
                rules.service(pipeline.as_ref(), &loss);
            }
            Err(error) => rules.fail("objective", error.to_string()),
        }
        if let Some(pipeline) = pipeline {
            rules.method(&pipeline);
            rules.decomposer(&pipeline);
        }
        rules.found
    }
}

pub(super) struct Rules<'a> {
    pub(super) config: &'a Config,
    pub(super) registries: &'a Registries,
    found: Vec<Problem>,
}

impl Rules<'_> {
    pub(super) fn fail(&mut self, key: &str, reason: impl Into<String>) {
        self.found.push(Problem::new(key, reason));
    }

    fn part<E: std::fmt::Display>(&mut self, key: &str, result: Result<(), E>) {
        if let Err(error) = result {
            self.fail(key, error.to_string());
        }
    }

    fn run(&mut self) {
        let name = &self.config.name;
        if let Err(reason) = check_run_name(name) {
            self.fail("name", format!("is {name:?}; {reason}"));
        }
    }

    fn world(&mut self) {
        let Config { env, eval, train, sft, .. } = self.config;
        if let Err(error) =
            self.registries.environments.kind(&env.kind).and_then(|kind| kind.resolve(&env.settings))
        {
            self.found.extend(error.0.into_iter().map(|problem| Problem {
                key: format!("env.{}", problem.key).trim_end_matches('.').to_owned(),
                ..problem
            }));
        }
        let is_trained = train.steps > 0 || (sft.steps > 0 && sft.data.is_none());
        if is_trained && eval.splits.contains(&env.split) {
            let split = &env.split;
            self.fail(
                "eval.splits",
                format!("has the split {split:?} that is trained on (env.split); name others"),
            );
        }
        if let Some(split) = first_repeated(&eval.splits) {
            self.fail("eval.splits", format!("names {split:?} twice; name it once"));
        }
        if let Some(split) = self.config.train.keep_best.as_ref().filter(|split| !eval.splits.contains(split))
        {
            self.fail(
                "train.keep_best",
                format!(
                    "is {split:?}, which is not evaluated; name one of eval.splits ({})",
                    eval.splits.join(", ")
                ),
            );
        }
    }

    fn policy(&mut self) {
        let Config { policy, critic, .. } = self.config;
        for (table, lora) in [("policy.lora", &policy.lora), ("critic.lora", &critic.lora)] {
            match lora.as_ref().map(LoraConfig::check) {
                Some(Err(ModelError::Setting { key, reason })) => {
                    self.fail(&format!("{table}.{key}"), reason);
                }
                Some(result) => self.part(table, result),
                None => {}
            }
        }
        if policy.model.is_some() {
            return;
        }
        let scratch = &policy.scratch;
        let (width, heads, shared) = (scratch.hidden_size, scratch.heads, scratch.key_value_heads);
        if !width.is_multiple_of(heads) {
            self.fail(
                "policy.scratch.hidden_size",
                format!("is {width}, not a multiple of policy.scratch.heads = {heads}"),
            );
        } else if !(width / heads).is_multiple_of(2) {
            let head = width / heads;
            self.fail("policy.scratch.hidden_size", format!("is {width}, which makes heads of width {head} with policy.scratch.heads = {heads}; rotary positions need an even width"));
        }
        if !heads.is_multiple_of(shared) {
            self.fail(
                "policy.scratch.key_value_heads",
                format!("is {shared}, which does not divide policy.scratch.heads = {heads}"),
            );
        }
        let layer = 4 * width * width + 3 * width * scratch.intermediate_size;
        let tower = scratch.vision.as_ref().map_or(0, |vision| vision.weights(width));
        let weights = width * (scratch.max_pieces + 256) + scratch.layers * layer + tower;
        if weights > MOST_SCRATCH_WEIGHTS {
            self.fail("policy.scratch", format!("makes a model of about {weights} weights; one from scratch may have {MOST_SCRATCH_WEIGHTS}. Set policy.model to a pretrained one, or make it smaller"));
        }
    }

    fn warm_start(&mut self) {
        let sft = &self.config.sft;
        if let Some(data) = &sft.data
            && data.path.as_os_str().is_empty()
        {
            self.fail("sft.data.path", "is missing; name a file of conversations");
        }
        if sft.steps > 0 && sft.data.is_none() && sft.demonstrations == 0 {
            self.fail(
                "sft.demonstrations",
                "is 0 and sft.steps is not; set it to at least 1, or sft.steps to 0",
            );
        }
    }

    fn rollout(&mut self) {
        let Config { rollout, train, .. } = self.config;
        let trajectories = rollout.tasks_per_step * rollout.group_size;
        if trajectories > MOST_TRAJECTORIES {
            self.fail(
                "rollout.tasks_per_step",
                format!("makes {trajectories} trajectories a step with rollout.group_size = {}; at most {MOST_TRAJECTORIES} fit", rollout.group_size),
            );
        }
        if train.num_minibatches > trajectories {
            self.fail(
                "train.num_minibatches",
                format!("is {}, and a step has {trajectories} trajectories (rollout.tasks_per_step x rollout.group_size); a minibatch needs at least one", train.num_minibatches),
            );
        }
        if rollout.max_model_len <= rollout.max_response_tokens {
            let (context, response) = (rollout.max_model_len, rollout.max_response_tokens);
            self.fail("rollout.max_model_len", format!("is {context}, which leaves no token for a prompt beside rollout.max_response_tokens = {response}; raise it"));
        }
        if rollout.filter_groups != SelectionConfig::All && rollout.group_size < 2 {
            self.fail(
                "rollout.filter_groups",
                "compares the trajectories of a group; set rollout.group_size to at least 2, or rollout.filter_groups.kind = \"all\"",
            );
        }
        if let Some(buffer) = rollout.overlong.as_ref().and_then(|overlong| overlong.buffer)
            && buffer > rollout.max_response_tokens
        {
            let limit = rollout.max_response_tokens;
            self.fail(
                "rollout.overlong.buffer",
                format!("is {buffer}, more than rollout.max_response_tokens = {limit}; lower it"),
            );
        }
        if train.explain && !train.save_trajectories {
            self.fail(
                "train.explain",
                "is true, and explanations are stored with trajectories; set train.save_trajectories = true, or leave it out",
            );
        }
        self.staleness();
        self.servers();
    }

    /// Checks the settings of rollouts that run during updates. The rollouts must not share the
    /// weights that are being updated.
    fn staleness(&mut self) {
        let Config { rollout, policy, train, .. } = self.config;
        let RolloutConfig { max_staleness, engine, .. } = rollout;
        if train.rollout_correction.is_some() && !train.recompute_old_logprobs {
            self.fail(
                "train.rollout_correction",
                "weighs the learner's old log-probabilities against the sampler's; set train.recompute_old_logprobs = true",
            );
        }
        if *max_staleness > 0 && train.recompute_old_logprobs && train.rollout_correction.is_none() {
            self.fail(
                "train.recompute_old_logprobs",
                format!(
                    "is true and rollout.max_staleness is {max_staleness}: the loss's ratios must be to the weights that \
                     sampled, which are older; set one of the two off, or correct for it with train.rollout_correction"
                ),
            );
        }
        let in_place = |engine: &super::ServersConfig| engine.weights == ServedWeights::Full;
        let reason = if *max_staleness == 0 {
            return;
        } else if engine.as_ref().is_some_and(in_place) {
            "and rollout.engine.weights = \"full\" replaces the weights of a server in place, under a rollout that was begun \
             with those before; train an adapter (policy.lora with rollout.engine.weights = \"adapter\"), of which servers \
             hold several versions"
        } else if matches!(policy.learner, PolicyLearnerConfig::Tinker(_)) {
            "and a Tinker-compatible service (policy.learner) samples the weights that it trains"
        } else if policy.device == Device::Cuda && engine.is_none() {
            "and a device (policy.device) samples the weights that it trains; sample on servers (rollout.engine)"
        } else {
            return;
        };
        self.fail("rollout.max_staleness", format!("is {max_staleness}, {reason}, or set it to 0"));
    }

    fn servers(&mut self) {
        let Config { rollout, policy, train, .. } = self.config;
        let Some(servers) = &rollout.engine else { return };
        if let Err((key, reason)) = servers.check() {
            self.fail(&format!("rollout.engine.{key}"), reason);
        }
        if matches!(policy.learner, PolicyLearnerConfig::Tinker(_)) {
            let reason = "samples an adapter of this process, and policy.learner is a service, which samples itself; \
                          leave one of the two out";
            self.fail("rollout.engine", reason);
        } else if policy.lora.is_none() && servers.weights == ServedWeights::Adapter {
            self.fail(
                "rollout.engine.weights",
                "is `adapter`, and all weights are trained; set policy.lora (for example policy.lora.rank=16), or \
                 rollout.engine.weights=full, which writes all weights at every step",
            );
        }
        if (rollout.top_p < 1.0 || rollout.top_k > 0) && !train.recompute_old_logprobs {
            self.fail(
                "train.recompute_old_logprobs",
                "must be true with rollout.engine and rollout.top_p or rollout.top_k: the servers' log-probabilities \
                 are then those of the tokens that were left to choose from, and the loss compares whole distributions",
            );
        }
    }

    fn selected_turns(&mut self, pipeline: Option<&Pipeline>, loss: &Loss) {
        let Some(pipeline) = pipeline else { return };
        let acts = loss
            .terms()
            .find(|term| term.passes().masked_context.is_some())
            .map(turnwise_objective::LossTerm::kind);
        match (acts, pipeline.selects_turns()) {
            (Some(term), false) => self.fail(
                &match self.config.objective.terms.iter().position(|table| table.kind == term) {
                    Some(place) => format!("objective.terms[{place}]"),
                    None => format!("objective.{term}"),
                },
                format!(
                    "the term `{term}` acts on outlier turns, and nothing locates them; set credit.outliers (for \
                     example credit.outliers.lambda=1.5) or leave the term out"
                ),
            ),
            (None, true) => self.fail(
                "credit.outliers",
                "locates turns for STAPO's selective term, which is not there; set objective.selective (for example \
                 objective.selective.alpha=0.01) or leave it out",
            ),
            _ => {}
        }
    }

    fn method(&mut self, pipeline: &Pipeline) {
        let Config { credit, objective, rollout, critic, .. } = self.config;
        let (estimator, has_critic) = (pipeline.estimator(), pipeline.required_inputs().values);
        if !has_critic {
            let table = |critic: &CriticConfig| Table::try_from(critic).unwrap_or_default();
            let (set, absent) = (table(critic), table(&CriticConfig::default()));
            for key in set.keys().filter(|key| set.get(*key) != absent.get(*key)) {
                self.fail(
                    &format!("critic.{key}"),
                    "is set, and there is no critic; set credit.estimator.kind = \"ppo\" or leave it out",
                );
            }
        } else if self.config.train.steps > 0
            && critic.warmup_steps > 0
            && critic.warmup_steps >= self.config.train.steps
        {
            // SFT alone trains no critic.
            self.fail(
                "critic.warmup_steps",
                format!(
                    "is {}, and the policy would not be updated in train.steps = {}; lower it",
                    critic.warmup_steps, self.config.train.steps
                ),
            );
        } else if self.config.train.skip_equal_groups {
            self.fail(
                "train.skip_equal_groups",
                "is true, and a critic learns from every trajectory; set it to false, or use a group-relative estimator",
            );
        }
        if pipeline.required_inputs().state_values.is_some() && self.config.train.skip_equal_groups {
            self.fail(
                "train.skip_equal_groups",
                format!("is true, and `{estimator}` learns from every trajectory; set it to false, or use a group-relative estimator"),
            );
        }
        if !credit.encoder.as_os_str().is_empty() && !pipeline.required_inputs().embeddings {
            self.fail(
                "credit.encoder",
                "is set, and nothing is matched by embedding; set matching = \"embedding\" (SALT) or leave it out",
            );
        }
        if pipeline.works_on_tokens() && objective.ratio == RatioKind::Sequence {
            self.fail(
                "objective.ratio",
                format!(
                    "is \"sequence\": the ratio of a whole sequence takes one advantage (GSPO), and `{estimator}` \
                     gives one per token; use \"sequence-token\", \"token\" or \"turn\", or a group-relative estimator"
                ),
            );
        }
        if pipeline.compares_groups() && rollout.group_size == 1 {
            self.fail(
                "rollout.group_size",
                format!("is 1, and `{estimator}` compares the trajectories of a group, so that every advantage would be 0; use at least 2, or ppo"),
            );
        }
    }

    fn decomposer(&mut self, pipeline: &Pipeline) {
        let Config { decomposer, env, .. } = self.config;
        let wanted = pipeline.required_inputs().credits;
        let reader = |of| pipeline.fields().into_iter().find(|(_, field)| *field == of);
        let reads = reader(TurnField::Credit);
        if let Some((method, _)) = reader(TurnField::Progress)
            && self.registries.environments.kind(&env.kind).is_ok_and(|kind| !kind.has_progress())
        {
            let reason = format!(
                "`{method}` takes credit from progress, and the environment \"{}\" does not say how much of a task is done; give \
                 `{method}` decomposer = \"external\", and set decomposer.kind to \"turnrd\" or \"judge\"",
                env.kind
            );
            self.fail("credit.refinements", reason);
        }
        match decomposer {
            DecomposerConfig::None if wanted => self.fail(
                "decomposer",
                format!(
                    "`{}` with credits from outside needs one; set decomposer.kind to \"turnrd\" or \"judge\" (or let `has` \
                     take them from progress: decomposer = \"progressive\")",
                    reads.map_or(pipeline.estimator(), |(method, _)| method)
                ),
            ),
            DecomposerConfig::None => {}
            _ if !wanted => self.fail(
                "decomposer",
                "is set, and nothing uses it; add { kind = \"has\", decomposer = \"external\" } to credit.refinements, or \
                 set decomposer.kind = \"none\"",
            ),
            DecomposerConfig::Judge(judge) => match judge.check() {
                Err(JudgeError::Setting { key, reason }) => self.fail(&format!("decomposer.{key}"), reason),
                checked => self.part("decomposer", checked),
            },
            DecomposerConfig::Turnrd(turnrd) => {
                self.part("decomposer.network", turnrd.network.check());
                if turnrd.hold_out == 1 {
                    self.fail("decomposer.hold_out", "is 1, which holds every record out of training; use 0 for none, or at least 2");
                }
                let most = turnrd.network.max_turns;
                let (turns, summaries) = (env.max_turns, self.config.prompt.compact_after.is_some());
                if summaries && most < 2 * turns {
                    self.fail(
                        "decomposer.network.max_turns",
                        format!(
                            "is {most}, and with prompt.compact_after an episode has up to two turns for each of env.max_turns = \
                             {turns}; raise it"
                        ),
                    );
                } else if most < turns {
                    self.fail(
                        "decomposer.network.max_turns",
                        format!("is {most}, and an episode has up to env.max_turns = {turns} turns; raise it"),
                    );
                }
            }
        }
    }
}

fn first_repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| name)
}
