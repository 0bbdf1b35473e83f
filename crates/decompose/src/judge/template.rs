//! Prompt of the judge.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use turnwise_core::Trajectory;

use super::JudgeError;

const BUILT_IN: &str = include_str!("template.toml");

/// A prompt, read from a TOML file; the built-in file explains the format.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// System message.
    pub system: String,
    /// User message, with `{goal}`, `{turns}`, `{count}` and `{return}`.
    pub user: String,
    /// One turn, with `{index}`, `{observation}` and `{action}`.
    pub turn: String,
}

impl Template {
    pub(super) fn counts_turns(&self) -> bool {
        self.user.contains("{count}") || self.turn.contains("{index}")
    }

    /// Reads a template file; an empty path selects the built-in template.
    ///
    /// # Errors
    /// Fails on an unreadable or invalid file or an unknown placeholder.
    pub fn load(path: &Path) -> Result<Self, JudgeError> {
        if path.as_os_str().is_empty() {
            return Self::parse(BUILT_IN, Path::new("the built-in template"));
        }
        Self::parse(&fs::read_to_string(path).map_err(JudgeError::io(path))?, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, JudgeError> {
        let wrong = |reason: String| JudgeError::Template { path: path.display().to_string(), reason };
        let template: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        for (name, text, known) in [
            ("user", &template.user, &["goal", "turns", "count", "return"][..]),
            ("turn", &template.turn, &["index", "observation", "action"][..]),
        ] {
            fill(text, |slot| known.contains(&slot).then(String::new))
                .map_err(|slot| wrong(format!("`{name}` has {{{slot}}}; known are {known:?}")))?;
        }
        for (name, text, slot) in [("user", &template.user, "{turns}"), ("turn", &template.turn, "{action}")]
        {
            if !text.contains(slot) {
                return Err(wrong(format!("`{name}` has no {slot}, so there would be nothing to judge")));
            }
        }
        Ok(template)
    }

    /// Returns the user message for a trajectory.
    pub fn render(&self, trajectory: &Trajectory) -> String {
        let mut turns = String::new();
        for (index, turn) in trajectory.turns.iter().enumerate() {
            turns += &fill_known(&self.turn, |name| match name {
                "index" => Some((index + 1).to_string()),
                "observation" => Some(turn.observation.clone()),
                "action" => Some(turn.action.clone()),
                _ => None,
            });
        }
        fill_known(&self.user, |name| match name {
            "goal" => Some(trajectory.task.goal.clone()),
            "turns" => Some(turns.clone()),
            "count" => Some(trajectory.turns.len().to_string()),
            // The environment's return ignores training settings, so cached answers stay valid.
            "return" => Some(trajectory.environment_return(1.0).to_string()),
            _ => None,
        })
    }
}

/// Replaces placeholders in one pass, so that braces in an inserted value are not taken for
/// placeholders. `Err` names an unknown placeholder.
fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, after) = rest.split_at(open);
        filled += before;
        let Some((name, after)) = after[1..].split_once('}') else {
            return Err(after[1..].chars().take(20).collect());
        };
        filled += &value(name).ok_or(name)?;
        rest = after;
    }
    Ok(filled + rest)
}

fn fill_known(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    fill(text, value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trajectory_is_told_in_order_and_braces_in_it_stay() {
        let line = r#"{"schema_version": 1, "task": {"id": "t", "kind": "k", "goal": "print {count}"}, "group": 0,
            "sample": 0, "stop": {"kind": "terminated"}, "success": true, "turns": [
            {"observation": "a {turns} b", "action": "look", "valid": true, "reward": 0.5},
            {"observation": "c", "action": "{index}", "valid": true, "reward": 0.5}]}"#;
        let trajectory: Trajectory = serde_json::from_str(line).unwrap();
        let template = Template {
            system: String::new(),
            user: "{goal}|{count}|{return}|{turns}|".into(),
            turn: "{index}:{observation}>{action};".into(),
        };
        assert_eq!(template.render(&trajectory), "print {count}|2|1|1:a {turns} b>look;2:c>{index};|");
        let built_in = Template::load(Path::new("")).unwrap().render(&trajectory);
        assert!(built_in.contains("exactly 2 numbers") && built_in.contains("Turn 2\nObservation: c\n"));
    }

    #[test]
    fn a_template_that_cannot_work_says_why() {
        for (text, reason) in [
            ("system = ''\nuser = '{turns} {gaol}'\nturn = '{action}'", "{gaol}"),
            ("system = ''\nuser = '{goal}'\nturn = '{action}'", "no {turns}"),
            ("system = ''\nuser = '{turns}'\nturn = '{action} {'", "has {"),
            ("user = '{turns}'\nturn = '{action}'", "system"),
        ] {
            let error = Template::parse(text, Path::new("judge.toml")).unwrap_err().to_string();
            assert!(error.starts_with("judge.toml: ") && error.contains(reason), "{error}");
        }
    }
}
