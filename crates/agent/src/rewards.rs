//! Reward reports from an agent, and how they are assigned to turns.
//!
//! | report | gets the reward |
//! |---|---|
//! | `{"reward": 1}` | the last turn of the episode |
//! | `{"reward": 1, "call": "chatcmpl-.."}` | the turn that produced that completion |
//! | `{"reward": 1, "agent": "solver"}` | the last turn of that agent |
//!
//! A later report for the same turn or agent replaces an earlier one, so a report that is sent
//! twice counts once. Rewards are assigned at the end of the episode.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use turnwise_core::TurnReward;

/// An agent's report on its episode, sent as the body of `POST /v1/reward` or as its last line of
/// output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Report {
    /// A reward.
    pub reward: Option<f64>,
    /// Id of the completion whose turn gets the reward.
    pub call: Option<String>,
    /// Name of the agent whose last turn gets the reward.
    pub agent: Option<String>,
    /// Whether the task was solved.
    pub success: Option<bool>,
    /// Metrics of the episode, by name.
    pub metrics: BTreeMap<String, f64>,
    /// Why the agent could not finish the episode.
    pub error: Option<String>,
}

impl Report {
    /// Parses a report.
    ///
    /// # Errors
    /// Fails if the text is not a JSON object with these fields.
    pub fn from_json(text: &[u8]) -> Result<Self, String> {
        let object: Map<String, Value> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Episode,
    Call(usize),
    Agent(String),
}

/// All reports of an episode.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    given: BTreeMap<Target, (f64, &'static str)>,
    /// Whether the agent reported that the task was solved.
    pub success: Option<bool>,
    /// Reported metrics.
    pub metrics: BTreeMap<String, f64>,
    /// The agent's reason for not finishing the episode.
    pub error: Option<String>,
}

impl Rewards {
    /// Adds a report. `source` becomes part of the reward's rule, and `turn_of` maps a completion
    /// id to its turn.
    ///
    /// # Errors
    /// Fails if the report names an unknown completion or both a completion and an agent, or if the
    /// reward is not finite.
    pub fn add(
        &mut self,
        report: Report,
        source: &'static str,
        turn_of: impl Fn(&str) -> Option<usize>,
    ) -> Result<(), String> {
        let target = match (&report.call, &report.agent) {
            (None, None) => Target::Episode,
            (Some(call), None) => Target::Call(
                turn_of(call).ok_or_else(|| format!("no completion of this episode has the id `{call}`"))?,
            ),
            (None, Some(agent)) => Target::Agent(agent.clone()),
            (Some(_), Some(_)) => return Err("give either `call` or `agent`".into()),
        };
        if report.reward.is_some_and(|reward| !reward.is_finite()) {
            return Err("`reward` must be a finite number".into());
        }
        if let Some(reward) = report.reward {
            self.given.insert(target, (reward, source));
        }
        self.success = report.success.or(self.success);
        self.metrics.extend(report.metrics);
        self.error = report.error.or(self.error.take());
        Ok(())
    }

    /// Returns true if no reward was reported.
    pub fn is_empty(&self) -> bool {
        self.given.is_empty()
    }

    /// Returns the sum of all rewards.
    pub fn total(&self) -> f64 {
        self.given.values().map(|(reward, _)| reward).sum()
    }

    /// Returns the reward for each target with its turn and rule. `agents` lists the agent's name
    /// for each turn. The reward of an agent that has no turn goes to the last turn of the episode.
    pub(crate) fn by_turn(&self, agents: &[&str]) -> Vec<TurnReward> {
        let last = agents.len().saturating_sub(1);
        let give = |(target, &(reward, source)): (&Target, &(f64, &str))| {
            let (turn, rule) = match target {
                Target::Episode => (last, format!("episode, {source}")),
                Target::Call(turn) => (*turn, format!("call, {source}")),
                Target::Agent(name) => {
                    let turn = agents.iter().rposition(|agent| agent == name);
                    (turn.unwrap_or(last), format!("agent {name}, {source}"))
                }
            };
            TurnReward { turn, reward, rule }
        };
        self.given.iter().map(give).collect()
    }
}

/// Parses the last line of an episode, which may be a JSON report or a number. `None` for other
/// lines.
pub(crate) fn report_of_line(line: &str) -> Option<Report> {
    let line = line.trim();
    if let Ok(reward) = line.parse::<f64>() {
        return Some(Report { reward: Some(reward), ..Report::default() });
    }
    let report = Report::from_json(line.as_bytes()).ok()?;
    (report.reward.is_some() || report.error.is_some()).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Report {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn rewards_go_to_the_turns_that_reports_name() {
        let mut rewards = Rewards::default();
        let turn_of = |id: &str| (id == "c0").then_some(0);
        for text in [
            r#"{"reward": 0.5, "call": "c0"}"#,
            r#"{"reward": 2, "agent": "planner"}"#,
            r#"{"reward": 9}"#,
            r#"{"reward": 1, "success": true, "metrics": {"lines": 3}}"#,
        ] {
            rewards.add(report(text), "posted", turn_of).unwrap();
        }
        let given = rewards.by_turn(&["planner", "planner", "solver"]);
        let found: Vec<(usize, f64, &str)> =
            given.iter().map(|given| (given.turn, given.reward, given.rule.as_str())).collect();
        // The episode's reward was reported twice: the later one counts.
        let expected =
            [(2, 1.0, "episode, posted"), (0, 0.5, "call, posted"), (1, 2.0, "agent planner, posted")];
        assert_eq!(found, expected);
        assert_eq!((rewards.total(), rewards.success, rewards.metrics["lines"]), (3.5, Some(true), 3.0));
        for (text, expected) in [
            (r#"{"reward": 1, "call": "c9"}"#, "`c9`"),
            (r#"{"reward": 1, "call": "c0", "agent": "a"}"#, "either"),
        ] {
            let error = rewards.add(report(text), "posted", turn_of).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_last_line_is_a_number_or_a_report() {
        let reward = |line: &str| report_of_line(line).map(|report| report.reward);
        assert_eq!(reward(" 0.5\n"), Some(Some(0.5)));
        assert_eq!(reward(r#"{"reward": 1, "success": false}"#), Some(Some(1.0)));
        assert_eq!(reward(r#"{"error": "no answer"}"#), Some(None));
        for other in ["", "done", r#"{"rewards": 1}"#, r#"{"success": true}"#, "[1]"] {
            assert_eq!(reward(other), None, "{other}");
        }
    }
}
