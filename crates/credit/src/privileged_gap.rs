//! Privileged gap: self-distillation with the policy as its own teacher. If hindsight raises the
//! probability of a turn's response, the turn gets more credit in a success and less blame in a
//! failure (Yang et al. 2026, "Self-Distilled RLVR", arXiv 2604.03128; for agent steps: Zhang et
//! al. 2026, "StepOPSD", arXiv 2605.27140; as a loss: SDAR, arXiv 2605.15155).
//!
//! Turn t has prompt `c` and response `y`; the hint `h`, which the agent did not have, precedes the
//! prompt:
//! * gap: `g_t = mean_j [log pi(y_j | h, c, y_<j) - log pi(y_j | c, y_<j)]` over the response;
//! * weight: `w_t = clip(exp(sign(A_t) g_t), 1 - epsilon, 1 + epsilon)`;
//! * `A_t <- A_t (1 - lambda + lambda w_t)`.
//!
//! With `lambda = 0` or without a hint, advantages stay bit-identical. The sampling policy scores
//! the responses ([`ScoreRequest`]) in one forward pass, without a gradient.
//!
//! Differs from the papers:
//! * Each turn has one weight, from the mean over its tokens; RLSD has one per token.
//! * The hint consists of the actions of a successful trajectory of the group, as in SDPO (arXiv
//!   2601.20802), or of the reference answer; RLSD uses a reference solution, SDAR a retrieved
//!   skill.
//! * `lambda` is constant; RLSD decreases it to 0 during training.
//! * The defaults are ours: we had only the papers' abstracts and summaries, which state neither
//!   `epsilon` nor `lambda`.

use serde::{Deserialize, Serialize};
use turnwise_core::{Batch, Group, PerTurn, Preset, Turn};

use crate::registry::{MethodSettings, in_range};
use crate::{CreditError, CreditInputs, Explanation, Refinement, RequiredInputs, ScoreRequest};

const NAME: &str = "privileged-gap";

const HINT: &str = "{hint}";

/// Hint that only the teacher sees, not the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hint {
    /// Actions of the group's best other trajectory, if it succeeded.
    #[default]
    Peer,
    /// The reference answer.
    Answer,
}

/// Settings of the privileged gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrivilegedGapConfig {
    /// What the hint contains.
    pub hint: Hint,
    /// Text before the teacher's prompt; `{hint}` in it is replaced by the hint.
    pub preamble: String,
    /// Weight of `w_t` in the scaling factor; 0 changes nothing.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: f64,
    /// Maximum deviation of the weight `w_t` from 1, by clipping.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub epsilon: f64,
}

impl Default for PrivilegedGapConfig {
    fn default() -> Self {
        let preamble = format!("A solution of this task:\n{HINT}\n\n");
        Self { hint: Hint::Peer, preamble, lambda: 1.0, epsilon: 0.2 }
    }
}

impl MethodSettings for PrivilegedGapConfig {
    const KIND: &'static str = NAME;
    const PRESETS: &'static [Preset] =
        &[Preset::on("grpo", NAME, "credit.refinements = [{ kind = \"privileged-gap\" }]")];
    type Method = PrivilegedGap;

    fn build(self) -> Result<PrivilegedGap, CreditError> {
        PrivilegedGap::new(self)
    }
}

/// The privileged-gap refinement.
#[derive(Clone, Debug)]
pub struct PrivilegedGap {
    config: PrivilegedGapConfig,
}

/// Returns the actions of the group's best other trajectory, one per line, if that trajectory
/// succeeded. Among equally good trajectories, the first is used.
fn peer(group: &Group, member: usize) -> Option<String> {
    let others = group.trajectories.iter().enumerate().filter(|(other, _)| *other != member);
    let best = others
        .map(|(_, other)| other)
        .reduce(|best, other| if other.outcome_return() > best.outcome_return() { other } else { best })?;
    let actions = best.turns.iter().filter(|turn| !turn.is_compaction()).map(|turn| turn.action.as_str());
    best.success.then(|| actions.collect::<Vec<_>>().join("\n"))
}

/// Returns the response's mean log-prob under the teacher minus that under the agent; `None` if the
/// teacher did not score it.
fn gap(turn: &Turn, teacher: &[f32]) -> Option<f64> {
    let pairs = teacher.iter().zip(&turn.old_logprobs);
    let sum: f64 = pairs.map(|(&teacher, &own)| f64::from(teacher) - f64::from(own)).sum();
    (!teacher.is_empty()).then(|| sum / teacher.len() as f64)
}

impl PrivilegedGap {
    /// Creates the refinement.
    ///
    /// # Errors
    /// Fails on a value out of range or a preamble without `{hint}`.
    pub fn new(config: PrivilegedGapConfig) -> Result<Self, CreditError> {
        in_range(NAME, &config)?;
        if !config.preamble.contains(HINT) {
            let reason =
                format!("preamble {:?} has no {HINT}; put it where the hint belongs", config.preamble);
            return Err(CreditError::Setting { method: NAME, reason });
        }
        Ok(Self { config })
    }

    fn preamble(&self, group: &Group, member: usize) -> Option<String> {
        let hint = match self.config.hint {
            Hint::Peer => peer(group, member),
            Hint::Answer => group.trajectories[member].task.answer().map(str::to_owned),
        };
        hint.map(|hint| self.config.preamble.replace(HINT, &hint))
    }

    fn gaps(&self, inputs: &CreditInputs<'_>) -> Result<PerTurn<Option<f64>>, CreditError> {
        let mut gaps = PerTurn::filled(inputs.batch, None);
        let requests = self.score_requests(inputs.batch);
        if requests.len() != inputs.scores().len() {
            let (found, expected) = (inputs.scores().len(), requests.len());
            return Err(CreditError::Scores { found, expected });
        }
        for (request, teacher) in requests.iter().zip(inputs.scores()) {
            let place = (request.group, request.trajectory, request.turn);
            let (group, trajectory, turn) = place;
            let data = &inputs.batch.groups[group].trajectories[trajectory].turns[turn];
            let method = NAME;
            if data.old_logprobs.len() != data.response_ids.len() {
                let field = "old_logprobs";
                return Err(CreditError::MissingField { method, field, group, trajectory, turn });
            }
            // A response without room for the hint has no score.
            if !teacher.is_empty() && teacher.len() != data.response_ids.len() {
                let (found, expected) = (teacher.len(), data.response_ids.len());
                return Err(CreditError::ScoreLength { found, expected, group, trajectory, turn });
            }
            gaps[place] = gap(data, teacher);
            if let Some(value) = gaps[place].filter(|value| !value.is_finite()) {
                let field = "log-prob of the response";
                return Err(CreditError::NotFinite { method, field, value, group, trajectory, turn });
            }
        }
        Ok(gaps)
    }
}

impl Refinement for PrivilegedGap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn required_inputs(&self) -> RequiredInputs {
        RequiredInputs { scores: true, ..RequiredInputs::default() }
    }

    fn score_requests(&self, batch: &Batch) -> Vec<ScoreRequest> {
        let mut requests = Vec::new();
        for (index, group) in batch.groups.iter().enumerate() {
            for (member, trajectory) in group.trajectories.iter().enumerate() {
                let Some(preamble) = self.preamble(group, member) else { continue };
                let turns = trajectory.turns.iter().enumerate();
                let with_tokens = turns.filter(|(_, data)| !data.response_ids.is_empty());
                requests.extend(
                    with_tokens
                        .map(|(turn, _)| ScoreRequest::of_response(index, member, turn, preamble.as_str())),
                );
            }
        }
        requests
    }

    fn refine(
        &self,
        inputs: &CreditInputs<'_>,
        advantages: &mut PerTurn<f64>,
        explanation: &mut Explanation,
    ) -> Result<(), CreditError> {
        let PrivilegedGapConfig { lambda, epsilon, .. } = self.config;
        let gaps = self.gaps(inputs)?;
        let factors = PerTurn::from_fn(inputs.batch, |group, trajectory, turn| {
            let place = (group, trajectory, turn);
            let (Some(gap), advantage) = (gaps[place], advantages[place]) else { return 1.0 };
            if lambda == 0.0 || advantage == 0.0 {
                return 1.0;
            }
            let weight = (advantage.signum() * gap).exp().clamp(1.0 - epsilon, 1.0 + epsilon);
            1.0 - lambda + lambda * weight
        });
        for (advantage, factor) in advantages.values_mut().zip(factors.values()) {
            *advantage *= factor;
        }
        for (index, group) in gaps.groups().enumerate() {
            explanation.facts(index, group, |member, turn, gap| {
                let mut facts: Vec<_> = gap.map(|gap| ("gap", gap)).into_iter().collect();
                facts.push(("factor", factors[(index, member, turn)]));
                facts
            });
        }
        let (scored, turns): (Vec<f64>, usize) =
            (gaps.values().copied().flatten().collect(), gaps.values().count());
        explanation.diagnostic("privileged_gap/scored", scored.len() as f64 / turns.max(1) as f64);
        let mean = scored.iter().map(|gap| gap.abs()).sum::<f64>() / scored.len().max(1) as f64;
        explanation.diagnostic("privileged_gap/gap_abs_mean", mean);
        Ok(())
    }
}
