//! Trajectories, turns, groups and batches. A trajectory file has one [`Trajectory`] per line as
//! JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{AgentTurn, Part, StageRecord, Task, TokenSequence, Tool, ToolCall, null_as_nan};

/// Version of [`Trajectory`]'s JSON, increased if older readers would misread it.
pub const SCHEMA_VERSION: u32 = 1;

/// Why a trajectory ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
pub enum StopReason {
    /// The environment ended the episode.
    Terminated,
    /// The turn limit was reached.
    MaxTurns,
    /// The next prompt would exceed the context.
    ContextOverflow,
    /// The environment failed with this error.
    EnvironmentError(String),
    /// The sampler failed with this error.
    SampleError(String),
}

impl StopReason {
    /// Returns true if the environment or sampler failed.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::EnvironmentError(_) | Self::SampleError(_))
    }
}

/// Purpose of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// An action, or a reply to an agent.
    #[default]
    Action,
    /// A summary, which replaces earlier turns in later prompts; it has no environment step or
    /// reward.
    Compaction,
}

impl TurnKind {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_action(&self) -> bool {
        *self == Self::Action
    }
}

/// One turn of an episode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Purpose of the response.
    #[serde(default, skip_serializing_if = "TurnKind::is_action")]
    pub kind: TurnKind,
    /// Text that the policy saw.
    pub observation: String,
    /// All parts of the observation; empty if the observation is a single text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// State key, if it differs from the observation's text ([`Turn::state_key`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_key: Option<String>,
    /// Actions that the environment would have understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admissible: Vec<String>,
    /// Response text, reasoning included.
    #[serde(default)]
    pub response: String,
    /// Parsed action sent to the environment.
    pub action: String,
    /// Tool calls in order. Older files have a single `call` instead.
    #[serde(
        default,
        alias = "call",
        deserialize_with = "one_or_several",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub calls: Vec<ToolCall>,
    /// Whether the response was a well-formed action.
    pub valid: bool,
    /// The environment's reward, never modified.
    pub reward: f64,
    /// Reward after scaling, KL penalty and length penalty, if any of them applies
    /// ([`Turn::credited_reward`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaped_reward: Option<f64>,
    /// Progress after the turn, in `[0, 1]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<f64>,
    /// Mean return of continuations from the state before the turn, if the method needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_value: Option<f64>,
    /// Reward assigned to each response token, if any; `shaped_reward` includes the sum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_rewards: Vec<f64>,
    /// Response token ids, as sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_ids: Vec<u32>,
    /// Response log-probs at the sampling temperature, in nats.
    #[serde(default, deserialize_with = "null_as_nan::list", skip_serializing_if = "Vec::is_empty")]
    pub old_logprobs: Vec<f32>,
    /// Full-vocabulary Shannon entropy at each response token, in nats.
    #[serde(default, deserialize_with = "null_as_nan::list", skip_serializing_if = "Vec::is_empty")]
    pub entropies: Vec<f32>,
    /// For each token, the number of this step's updates that clipped its ratio: positive at the
    /// upper bound, negative at the lower. Empty if no update clipped any token.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clipped: Vec<i32>,
    /// Version of the weights that sampled the response.
    #[serde(default)]
    pub weights_version: u64,
    /// The agent's request that the turn answers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentTurn>,
}

fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ToolCall>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Calls {
        One(ToolCall),
        Several(Vec<ToolCall>),
    }
    Ok(match Calls::deserialize(from)? {
        Calls::One(call) => vec![call],
        Calls::Several(calls) => calls,
    })
}

impl Turn {
    /// Returns true for a [`TurnKind::Compaction`].
    pub fn is_compaction(&self) -> bool {
        self.kind == TurnKind::Compaction
    }

    /// Returns the key that identifies the state; by default the observation.
    pub fn state_key(&self) -> &str {
        self.state_key.as_deref().unwrap_or(&self.observation)
    }

    /// Returns the shaped reward if there is one, otherwise the environment's.
    pub fn credited_reward(&self) -> f64 {
        self.shaped_reward.unwrap_or(self.reward)
    }

    /// Adds one addend per response token to [`Turn::token_rewards`], and their sum to the shaped
    /// reward.
    pub fn shape_token_rewards(&mut self, addends: &[f64]) {
        self.shape_reward(addends.iter().sum());
        self.token_rewards.resize(self.response_ids.len(), 0.0);
        self.token_rewards.iter_mut().zip(addends).for_each(|(reward, addend)| *reward += addend);
    }

    /// Adds `addend` to the shaped reward; [`Turn::reward`] does not change.
    pub fn shape_reward(&mut self, addend: f64) {
        self.shaped_reward = Some(self.credited_reward() + addend);
    }

    /// Returns the mean token entropy in nats; `None` without tokens.
    pub fn mean_entropy(&self) -> Option<f64> {
        if self.entropies.is_empty() {
            return None;
        }
        Some(
            self.entropies.iter().map(|&entropy| f64::from(entropy)).sum::<f64>()
                / self.entropies.len() as f64,
        )
    }
}

/// One episode of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The task.
    pub task: Task,
    /// Index of the trajectory's group in the batch.
    pub group: usize,
    /// Index within the group.
    pub sample: usize,
    /// Training step that sampled the trajectory.
    #[serde(default)]
    pub step: u64,
    /// Tools of the episode.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Turns in order.
    pub turns: Vec<Turn>,
    /// Observation after the last turn.
    #[serde(default)]
    pub final_observation: String,
    /// State key after the last turn, if it differs from the final observation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_state_key: Option<String>,
    /// Why it ended.
    pub stop: StopReason,
    /// Whether the task was solved.
    pub success: bool,
    /// Token sequences: one per turn with the layout `windowed`; one more than the number of
    /// compactions with `concatenated`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sequences: Vec<TokenSequence>,
    /// Advantage per turn; `None` before credit assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advantages: Option<Vec<f64>>,
    /// How advantages were computed, `[turn][stage]`, if requested.
    #[serde(default, alias = "story", skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Vec<Vec<StageRecord>>>,
    /// Episode metrics of the environment.
    #[serde(default, deserialize_with = "null_as_nan::map", skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

impl Trajectory {
    /// Creates an unsolved trajectory in group 0 of step 0.
    pub fn new(task: Task, turns: Vec<Turn>) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            task,
            group: 0,
            sample: 0,
            step: 0,
            tools: Vec::new(),
            turns,
            final_observation: String::new(),
            final_state_key: None,
            stop: StopReason::Terminated,
            success: false,
            sequences: Vec::new(),
            advantages: None,
            explanation: None,
            metrics: BTreeMap::new(),
        }
    }

    /// Returns the state key after the last turn ([`Turn::state_key`]).
    pub fn final_state_key(&self) -> &str {
        self.final_state_key.as_deref().unwrap_or(&self.final_observation)
    }

    /// Returns `R = sum_t r_t`, the sum of the credited rewards.
    pub fn outcome_return(&self) -> f64 {
        self.turns.iter().map(Turn::credited_reward).sum()
    }

    /// Returns `scale` (`env.reward_scale`) times the sum of environment rewards.
    pub fn environment_return(&self, scale: f64) -> f64 {
        self.turns.iter().map(|turn| turn.reward * scale).sum()
    }

    /// Multiplies the credited rewards by `scale`.
    pub fn scale_rewards(&mut self, scale: f64) {
        if scale != 1.0 {
            for turn in &mut self.turns {
                turn.shaped_reward = Some(turn.credited_reward() * scale);
                turn.token_rewards.iter_mut().for_each(|reward| *reward *= scale);
            }
        }
    }

    /// Returns `R_t = sum_{k>=t} gamma^(k-t) r_k` for each turn.
    pub fn step_returns(&self, gamma: f64) -> Vec<f64> {
        let mut returns = vec![0.0; self.turns.len()];
        let mut following = 0.0;
        for (index, turn) in self.turns.iter().enumerate().rev() {
            following = turn.credited_reward() + gamma * following;
            returns[index] = following;
        }
        returns
    }

    /// Returns the number of turns except compactions.
    pub fn actions(&self) -> usize {
        self.turns.iter().filter(|turn| !turn.is_compaction()).count()
    }

    /// Returns the number of response tokens.
    pub fn response_tokens(&self) -> usize {
        self.turns.iter().map(|turn| turn.response_ids.len()).sum()
    }
}

/// The trajectories of one task from one start state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Trajectories in sampling order.
    pub trajectories: Vec<Trajectory>,
}

impl Group {
    /// Returns true if all environment returns are equal, so that comparing them carries no
    /// information. Uses rewards before shaping, because shaping would make almost all returns
    /// differ. The tolerance is `1e-12` times the largest sum of a trajectory's absolute rewards.
    pub fn has_equal_returns(&self) -> bool {
        let (mut low, mut high, mut size) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
        for trajectory in &self.trajectories {
            let sum = trajectory.environment_return(1.0);
            (low, high) = (low.min(sum), high.max(sum));
            size = size.max(trajectory.turns.iter().map(|turn| turn.reward.abs()).sum());
        }
        self.trajectories.is_empty() || high - low <= 1e-12 * size
    }
}

/// The groups of one training step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Groups in task order.
    pub groups: Vec<Group>,
}

impl Batch {
    /// Iterates over trajectories, group by group.
    pub fn trajectories(&self) -> impl Iterator<Item = &Trajectory> {
        self.groups.iter().flat_map(|group| &group.trajectories)
    }
}

/// A field of a turn that some trajectory files lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TurnField {
    /// Text that identifies the state.
    Observation,
    /// Parsed action.
    Action,
    /// Entropies of the response tokens.
    Entropies,
    /// The environment's progress.
    Progress,
    /// Value of the state before the turn.
    StateValue,
    /// A critic's values of the response tokens.
    Values,
    /// Credit that an external decomposer assigned to the turn.
    Credit,
}

impl TurnField {
    /// Returns the field's key in files, and a description.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Self::Observation => ("observation", "the text that identifies the turn's state"),
            Self::Action => ("action", "the action of the turn"),
            Self::Entropies => ("entropy", "the mean entropy of the turn's response tokens, in nats"),
            Self::Progress => ("progress", "the environment's progress signal after the turn, in [0, 1]"),
            Self::StateValue => {
                ("state_value", "the mean return of continuations from the state before the turn")
            }
            Self::Values => ("values", "the critic's value of each response token, or one for the turn"),
            Self::Credit => ("credit", "the turn's credit as an outside decomposer gave it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Facts;

    fn trajectory(rewards: &[f64]) -> Trajectory {
        let turns = rewards.iter().map(|&reward| Turn { reward, valid: true, ..Turn::default() }).collect();
        Trajectory::new(Task::new("t", "k", "g"), turns)
    }

    #[test]
    fn numbers_that_json_does_not_have_are_read_as_nan() {
        let mut written = trajectory(&[1.0]);
        written.turns[0].old_logprobs = vec![f32::NEG_INFINITY, -0.5];
        written.metrics.insert("distance".into(), f64::INFINITY);
        let read: Trajectory = serde_json::from_str(&serde_json::to_string(&written).unwrap()).unwrap();
        assert!(read.metrics["distance"].is_nan() && read.turns[0].old_logprobs[0].is_nan());
        assert_eq!(read.turns[0].old_logprobs[1], -0.5);
    }

    #[test]
    fn step_returns_discount_backwards() {
        // 10 * 0.95^2, 10 * 0.95, 10
        let returns = trajectory(&[0.0, 0.0, 10.0]).step_returns(0.95);
        for (got, expected) in returns.iter().zip([9.025, 9.5, 10.0]) {
            assert!((got - expected).abs() < 1e-12, "{returns:?}");
        }
        assert_eq!(trajectory(&[0.5, 0.0, 10.0]).outcome_return(), 10.5);
    }

    #[test]
    fn returns_are_equal_whatever_the_order_of_their_rewards() {
        // Fifteen steps at -0.1 and one at 1 sum to -0.5 or -0.4999999999999999.
        let pushed_at = |step: usize| {
            trajectory(&(0..15).map(|now| if now == step { 0.9 } else { -0.1 }).collect::<Vec<_>>())
        };
        let group = |trajectories: Vec<Trajectory>| Group { trajectories };
        let failures = group((0..15).map(pushed_at).collect());
        let returns: Vec<f64> = failures.trajectories.iter().map(Trajectory::outcome_return).collect();
        assert!(returns.iter().any(|one| *one != returns[0]), "{returns:?}");
        assert!(failures.has_equal_returns());
        assert!(!group(vec![trajectory(&[1.0]), trajectory(&[1.0 - 1e-9])]).has_equal_returns());
        assert!(group(vec![trajectory(&[0.0]), trajectory(&[])]).has_equal_returns());
        assert!(group(vec![trajectory(&[3.0])]).has_equal_returns() && group(Vec::new()).has_equal_returns());
        let mut shaped = group(vec![trajectory(&[0.0]), trajectory(&[0.0])]);
        shaped.trajectories[0].turns[0].shape_reward(-0.01);
        assert!(shaped.has_equal_returns());
        let mut shaped = group(vec![trajectory(&[0.0]), trajectory(&[0.01])]);
        shaped.trajectories[1].turns[0].shape_reward(-0.01);
        assert!(!shaped.has_equal_returns());
    }

    #[test]
    fn shaping_leaves_the_environments_reward() {
        let mut shaped = trajectory(&[1.0, 2.0]);
        let turn = &mut shaped.turns[1];
        turn.shape_reward(-0.5);
        turn.shape_reward(-0.25);
        assert_eq!((turn.reward, turn.shaped_reward, turn.credited_reward()), (2.0, Some(1.25), 1.25));
        assert_eq!((shaped.outcome_return(), shaped.environment_return(10.0)), (2.25, 30.0));
        assert_eq!(shaped.step_returns(1.0), [2.25, 1.25]);
        let mut scaled = trajectory(&[0.1, 0.2]);
        scaled.scale_rewards(1.0);
        assert_eq!(scaled.turns[0].shaped_reward, None);
        scaled.scale_rewards(10.0);
        assert_eq!((scaled.turns[1].reward, scaled.turns[1].credited_reward()), (0.2, 2.0));
        let text = serde_json::to_string(&shaped.turns).unwrap();
        assert_eq!(text.matches("shaped_reward").count(), 1, "{text}");
        assert_eq!(serde_json::from_str::<Vec<Turn>>(&text).unwrap(), shaped.turns);
    }

    #[test]
    fn json_round_trip_keeps_every_bit() {
        let mut original = trajectory(&[0.1]);
        original.stop = StopReason::EnvironmentError("broken".into());
        original.turns[0].old_logprobs = vec![-0.1, -1.0e-7, f32::MIN_POSITIVE];
        original.advantages = Some(vec![1.0 / 3.0]);
        let facts = Facts(vec![("entropy".into(), 0.1), ("alpha".into(), 1.0 / 3.0)]);
        original.explanation =
            Some(vec![vec![StageRecord { stage: "aem".into(), advantage: 1.0 / 3.0, facts }]]);
        let text = serde_json::to_string(&original).unwrap();
        assert_eq!(serde_json::from_str::<Trajectory>(&text).unwrap(), original);
    }

    #[test]
    fn a_minimal_line_reads() {
        let text = r#"{"schema_version":1,"task":{"id":"t","kind":"","goal":""},"group":0,"sample":0,
            "turns":[{"observation":"o","action":"a","valid":true,"reward":1.0}],
            "stop":{"kind":"max_turns"},"success":false}"#;
        let read: Trajectory = serde_json::from_str(text).unwrap();
        assert_eq!(read.stop, StopReason::MaxTurns);
        assert_eq!((read.advantages, read.explanation), (None, None));
        assert_eq!((read.turns[0].state_key(), read.turns[0].calls.len(), read.tools.len()), ("o", 0, 0));
    }

    #[test]
    fn tools_and_calls_are_read_as_they_were_written() {
        let call =
            |id: &str| ToolCall { id: id.into(), name: "f".into(), arguments: serde_json::json!({"n": 1}) };
        let mut called = trajectory(&[1.0]);
        called.tools = vec![Tool::from_json(r#"{"name":"f","parameters":{"type":"object"}}"#).unwrap()];
        called.turns[0].calls = vec![call("a"), call("b")];
        let text = serde_json::to_string(&called).unwrap();
        assert_eq!(serde_json::from_str::<Trajectory>(&text).unwrap(), called);
        let earlier = text
            .replace(r#""calls":["#, r#""call":"#)
            .replace(r#"},{"id":"b","name":"f","arguments":{"n":1}}]"#, "}");
        assert_eq!(serde_json::from_str::<Trajectory>(&earlier).unwrap().turns[0].calls, [call("a")]);
    }

    #[test]
    fn a_key_names_the_state_in_place_of_the_words() {
        let mut turn = Turn { observation: "12:03, in the hall".into(), ..Turn::default() };
        assert_eq!(turn.state_key(), "12:03, in the hall");
        assert!(
            !serde_json::to_string(&turn).unwrap().contains("state_key"),
            "nothing is written that says nothing"
        );
        turn.state_key = Some("hall".into());
        assert_eq!(turn.state_key(), "hall");
        let text = serde_json::to_string(&turn).unwrap();
        assert_eq!(serde_json::from_str::<Turn>(&text).unwrap(), turn);
        let mut whole = trajectory(&[1.0]);
        whole.final_observation = "12:04".into();
        assert_eq!(whole.final_state_key(), "12:04");
        whole.final_state_key = Some("end".into());
        assert_eq!(whole.final_state_key(), "end");
    }
}
