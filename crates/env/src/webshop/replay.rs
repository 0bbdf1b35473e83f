//! Compares this engine with recorded sessions of the original.
//!
//! Recordings are JSON Lines with one object per session:
//!
//! ```text
//! {"goal_idx": INTEGER, "seed": INTEGER, "goal": {"asin", "instruction_text", "attributes", "price_upper", "goal_options"},
//!  "initial": PAGE, "steps": [{"action": TEXT, "reward": NUMBER, "done": BOOL, PAGE.., "reward_info_without_pos": {..}}, ..]}
//! ```
//!
//! PAGE means `text`, `text_rich`, `has_search_bar` and `clickables`, or only `text` after a
//! purchase. Everything is compared byte for byte, except scores with an approximate type factor
//! ([`super::reward::Judge::type_score`]).

use std::io::BufRead;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use turnwise_core::EnvError;

use super::WebshopSet;
use super::action::Action;
use super::goal::{Goal, GoalOptions};
use super::page::{ObservationMode, PageView};
use super::reward::{Judge, Matching, Score};
use super::session::{Effect, Session};
use crate::python::float;
use crate::replay::{Checker, Difference, numbered_lines};

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Sessions replayed.
    pub sessions: usize,
    /// Steps replayed.
    pub steps: usize,
    /// Number of purchases whose scores were not compared, because the type factor is approximate.
    pub scores_not_compared: usize,
    /// Differences found, in the order of the recording.
    pub differences: Vec<Difference>,
}

#[derive(Deserialize)]
struct Recording {
    goal_idx: usize,
    goal: RecordedGoal,
    initial: RecordedPage,
    steps: Vec<RecordedStep>,
}

#[derive(Deserialize)]
struct RecordedGoal {
    asin: String,
    instruction_text: String,
    attributes: Vec<String>,
    price_upper: f64,
    goal_options: Value,
}

#[derive(Deserialize)]
struct RecordedPage {
    text: String,
    text_rich: Option<String>,
    has_search_bar: Option<bool>,
    clickables: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RecordedStep {
    action: String,
    reward: f64,
    done: bool,
    #[serde(flatten)]
    page: RecordedPage,
    reward_info_without_pos: Option<serde_json::Map<String, Value>>,
}

/// Replays a recording. Queries in `unanswered` find no products, because their results were not
/// recorded.
///
/// # Errors
/// Fails if a line is not a session, its goal is unknown or reading fails. Differences from the
/// recording are not errors.
pub fn replay(
    name: &str,
    reader: impl BufRead,
    set: &WebshopSet,
    unanswered: &[String],
) -> Result<ReplayReport, EnvError> {
    let mut report = ReplayReport::default();
    for line in numbered_lines(name, reader) {
        let line = line?;
        let recording: Recording = serde_json::from_str(&line.text)
            .map_err(|error| line.error(format!("no recorded session: {error}")))?;
        let goal = set.goal(recording.goal_idx).map_err(|error| {
            line.error(format!(
                "{error}; the set's goals are those of seed 42: was this recorded with others?"
            ))
        })?;
        let target = set.shop().catalogue().product(goal.product)?;
        let mut checker = Checker::new(&mut report.differences, line.number, goal.id.clone());
        compare_goal(&mut checker, &recording.goal, &goal, &target.asin);
        let judge = Judge::new(goal, &target, Matching::Original);
        let mut session = Session::new(Arc::clone(set.shop()), judge.goal().instruction.clone());
        compare_page(&mut checker, &recording.initial, &session.view()?);
        for (taken, step) in (1..).zip(&recording.steps) {
            checker.at(taken);
            let action = Action::parse(&step.action);
            let effect = match &action {
                Action::Search(query) if unanswered.contains(query) => {
                    session.found(query, Vec::new())?;
                    Effect::Moved
                }
                action => session.step(action)?,
            };
            let stand_in = compare(&mut checker, set, &judge, &mut session, step, effect)?;
            report.scores_not_compared += usize::from(stand_in);
        }
        report.sessions += 1;
        report.steps += recording.steps.len();
    }
    Ok(report)
}

fn compare(
    checker: &mut Checker<'_>,
    set: &WebshopSet,
    judge: &Judge,
    session: &mut Session,
    step: &RecordedStep,
    effect: Effect,
) -> Result<bool, EnvError> {
    let bought = effect == Effect::Bought;
    let (mut reward, mut stand_in) = (0.0, false);
    if let Some((index, product)) = session.product().filter(|_| bought) {
        let price = set.shop().catalogue().price(index);
        let score = judge.score(product, price, &session.visit().options);
        compare_parts(checker, step, &score);
        stand_in = score.kind.type_stand_in;
        reward = if stand_in { step.reward } else { score.total() };
        session.close(reward);
    }
    checker.add("reward", &float(step.reward), &float(reward));
    checker.add("done", &step.done, &bought);
    compare_page(checker, &step.page, &session.view()?);
    Ok(stand_in)
}

fn compare_goal(checker: &mut Checker<'_>, expected: &RecordedGoal, found: &Goal, asin: &str) {
    checker.add("goal.asin", expected.asin.as_str(), asin);
    checker.add("goal.instruction_text", &expected.instruction_text, &found.instruction);
    checker.add("goal.attributes", &expected.attributes.join("\n"), &found.attributes.join("\n"));
    checker.add("goal.price_upper", &float(expected.price_upper), &float(found.price_upper));
    let options = match &found.options {
        GoalOptions::Named(options) => {
            Value::Object(options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect())
        }
        GoalOptions::Values(values) => values.clone().into(),
    };
    checker.add("goal.goal_options", &expected.goal_options.to_string(), &options.to_string());
}

fn compare_page(checker: &mut Checker<'_>, expected: &RecordedPage, found: &PageView<'_>) {
    checker.add("text", &expected.text, &found.render(ObservationMode::Text));
    if let Some(text) = &expected.text_rich {
        checker.add("text_rich", text, &found.render(ObservationMode::TextRich));
    }
    if let Some(bar) = &expected.has_search_bar {
        checker.add("has_search_bar", bar, &found.has_search_bar);
    }
    if let Some(clickables) = &expected.clickables {
        let names: Vec<&str> = found.clickables.iter().map(|(name, _)| name.as_ref()).collect();
        checker.add("clickables", &clickables.join("\n"), &names.join("\n"));
    }
}

fn compare_parts(checker: &mut Checker<'_>, step: &RecordedStep, score: &Score) {
    let Some(expected) = &step.reward_info_without_pos else { return };
    let all = (score.attributes_asked + score.options_asked + 1) as f64;
    let share = |met: usize, asked: usize| Value::from(met as f64 / asked as f64);
    let weight = |asked: usize| Value::from(asked as f64 / all);
    let mut found = serde_json::Map::new();
    found.insert("r_att".into(), share(score.attributes, score.attributes_asked));
    found.insert("w_att".into(), weight(score.attributes_asked));
    found.insert("query_match".into(), score.kind.query_match.into());
    found.insert("category_match".into(), score.kind.category_match.into());
    if score.options_asked > 0 {
        found.insert("r_option".into(), share(score.options, score.options_asked));
        found.insert("w_option".into(), weight(score.options_asked));
    }
    found.insert("r_price".into(), score.price.into());
    found.insert("w_price".into(), weight(1));
    let text = |map: &serde_json::Map<String, Value>| Value::Object(map.clone()).to_string();
    checker.add("reward_info_without_pos", &text(expected), &text(&found));
}
