//! Rewards from answers or a judging tool.

use serde_json::Value;

use super::session::Called;
use super::tasks::{Match, Rules, pattern};
use crate::environments::error::ServerError;

impl Rules {
    pub(super) fn is_answer(&self, given: &str) -> bool {
        let given = given.trim();
        self.answers.iter().any(|answer| match self.comparison {
            Match::Exact => answer.trim() == given,
            Match::Regex => pattern(answer).is_ok_and(|pattern| pattern.is_match(given)),
        })
    }
}

/// Returns the reward from a judging tool's result: a number or bool that is the whole result,
/// under the key `result` or `reward`, or written as text.
///
/// # Errors
/// Fails if the tool failed or its result contains no finite reward.
pub(super) fn reward(called: &Called) -> Result<f64, ServerError> {
    let wrong =
        |what: &str| ServerError::Answer(format!("the tool that judges {what}: {}", short(&called.text)));
    if called.failed {
        return Err(wrong("failed"));
    }
    let number = |value: &Value| match value {
        Value::Bool(yes) => Some(f64::from(u8::from(*yes))),
        value => value.as_f64(),
    };
    let of_value = called.value.as_ref().and_then(|value| {
        number(value).or_else(|| ["result", "reward"].into_iter().find_map(|key| number(value.get(key)?)))
    });
    let text = called.text.trim().to_lowercase();
    let of_text = || serde_json::from_str::<Value>(&text).ok().and_then(|value| number(&value));
    of_value.or_else(of_text).filter(|reward| reward.is_finite()).ok_or_else(|| wrong("gives no number"))
}

fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_are_equal_or_fit_as_a_whole() {
        let exact = Rules { answers: vec!["7".into(), " seven".into()], ..Rules::default() };
        assert!(exact.is_answer(" 7\n") && exact.is_answer("seven"));
        assert!(!exact.is_answer("77") && !exact.is_answer(""));
        let fits =
            Rules { answers: vec!["(?i)yes|[0-9]+".into()], comparison: Match::Regex, ..Rules::default() };
        assert!(fits.is_answer("YES") && fits.is_answer("12"));
        assert!(!fits.is_answer("yes 12") && !fits.is_answer("12x"));
    }

    #[test]
    fn a_judge_gives_a_number() {
        let called = |text: &str, value: Option<Value>| Called { text: text.into(), value, failed: false };
        for (given, expected) in [
            (called("", Some(json!(0.5))), 0.5),
            (called("", Some(json!({"result": true}))), 1.0),
            (called("", Some(json!({"reward": -1}))), -1.0),
            (called(" 0.25 ", None), 0.25),
            (called("False", None), 0.0),
        ] {
            assert_eq!(reward(&given), Ok(expected));
        }
        for (given, expected) in [
            (called("good", None), "gives no number: good"),
            (called("NaN", None), "gives no number"),
            (called("", Some(json!({"score": 1}))), "gives no number"),
            (Called { failed: true, ..called("1", None) }, "failed: 1"),
        ] {
            let error = reward(&given).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
