//! Reward reports from an agent, assigned to turns at the end of the episode.
//!
//! | report | gets the reward |
//! |---|---|
//! | `{"reward": 1}` | the episode's last turn |
//! | `{"reward": 1, "call": "chatcmpl-.."}` | that completion's turn |
//! | `{"reward": 1, "agent": "solver"}` | that agent's last turn |
//!
//! A later reward for the same completion, agent or episode replaces the earlier one.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use turnwise_core::TurnReward;

/// An agent's report: the body of `POST /v1/reward`, or the last line of output.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Report {
    /// A reward.
    pub reward: Option<f64>,
    /// Completion whose turn gets the reward.
    pub call: Option<String>,
    /// Agent whose last turn gets the reward.
    pub agent: Option<String>,
    /// Reported success.
    pub success: Option<bool>,
    /// Episode metrics by name.
    pub metrics: BTreeMap<String, f64>,
    /// Why the agent could not finish.
    pub error: Option<String>,
}

impl Report {
    /// Parses a report.
    ///
    /// # Errors
    /// Fails if the text is not a JSON object, or if it has unknown keys or values of wrong types.
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

/// An episode's reports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    given: BTreeMap<Target, (f64, &'static str)>,
    /// Reported success.
    pub success: Option<bool>,
    /// Reported metrics.
    pub metrics: BTreeMap<String, f64>,
    /// Why the agent could not finish.
    pub error: Option<String>,
}

impl Rewards {
    /// Adds a report. `source` names how the report arrived; it is recorded with the reward.
    /// `turn_of` maps completion ids to turns.
    ///
    /// # Errors
    /// Fails if the completion is unknown, if the report names both a completion and an agent, or
    /// if the reward is not finite.
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

    /// Returns the sum of rewards.
    pub fn total(&self) -> f64 {
        self.given.values().map(|(reward, _)| reward).sum()
    }

    /// Returns the rewards, each with its turn and its rule (why the turn gets the reward).
    /// `agents` contains the name of each turn's agent. The reward of an agent that has no turn
    /// goes to the last turn.
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

/// Parses an episode's last line of output if it is a number, or a JSON report with a reward or
/// error.
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
