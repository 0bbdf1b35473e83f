//! Recorded sessions of the original against this engine.
//!
//! A recording has one session a line, as JSON:
//!
//! ```text
//! {"goal_idx": INTEGER, "seed": INTEGER, "goal": {"asin", "instruction_text", "attributes", "price_upper", "goal_options"},
//!  "initial": PAGE, "steps": [{"action": TEXT, "reward": NUMBER, "done": BOOL, PAGE.., "reward_info_without_pos": {..}}, ..]}
//! ```
//!
//! where PAGE is `text`, `text_rich`, `has_search_bar`, `clickables`; the page after a purchase has only `text`. Everything
//! is compared to the byte, numbers as Python writes them, but for the score of a purchase of another product than
//! the goal's: its type factor needs a language model (see [`super::reward::Judge::type_score`]). Its other parts are
//! compared. The page after the purchase is compared with the recorded score filled in.
//!
//! A recording may have been made with a list of answers in place of the search engine. Queries that this list
//! lacked, and that the recording therefore answers with nothing, are named when it is replayed.

use std::io::BufRead;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use turnwise_core::EnvError;

use super::WebshopSet;
use super::action::Action;
use super::goal::{Goal, GoalOptions};
use super::page::{ObservationMode, PageView};
use super::python::float;
use super::reward::{Judge, Matching, Score};
use super::session::{Effect, Session};
use crate::replay::Difference;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayReport {
    /// Sessions replayed.
    pub sessions: usize,
    /// Steps replayed.
    pub steps: usize,
    /// Purchases whose score is no reference, because a stand-in made its type factor.
    pub scores_not_compared: usize,
    /// Everything that differed, in the order of the recording.
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

/// Replays a recording. Blank lines are skipped. `unanswered`: queries that the recording's search knew no answer
/// to; they find nothing.
///
/// # Errors
/// If a line is no session (naming the line and the key), or reading fails. Differences are no errors; that the
/// goals are others is one, with a hint at the seed.
pub fn replay(
    name: &str,
    reader: impl BufRead,
    set: &WebshopSet,
    unanswered: &[String],
) -> Result<ReplayReport, EnvError> {
    let mut report = ReplayReport::default();
    for (number, line) in (1..).zip(reader.lines()) {
        let line = line.map_err(|source| EnvError::Io { path: name.to_owned(), source })?;
        if line.trim().is_empty() {
            continue;
        }
        let broken = |reason: String| EnvError::File { path: format!("{name}, line {number}"), reason };
        let recording: Recording =
            serde_json::from_str(&line).map_err(|error| broken(format!("no recorded session: {error}")))?;
        let goal = set.goal(recording.goal_idx)?;
        let target = set.shop().catalogue().product(goal.product)?;
        let mut checker = Checker { report: &mut report, session: number, goal: goal.id.clone(), step: 0 };
        checker.goal(&recording.goal, &goal, &target.asin);
        let judge = Judge::new(goal, &target, Matching::Original);
        let mut session = Session::new(Arc::clone(set.shop()), judge.goal().instruction.clone());
        checker.page(&recording.initial, &session.view()?);
        for step in &recording.steps {
            checker.step += 1;
            let action = Action::parse(&step.action);
            let effect = match &action {
                Action::Search(query) if unanswered.contains(query) => {
                    session.found(query, Vec::new())?;
                    Effect::Moved
                }
                action => session.step(action)?,
            };
            compare(&mut checker, set, &judge, &mut session, step, effect)?;
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
) -> Result<(), EnvError> {
    let bought = effect == Effect::Bought;
    let mut reward = 0.0;
    if let Some((index, product)) = session.product().filter(|_| bought) {
        let price = set.shop().catalogue().price(index);
        let score = judge.score(product, price, &session.visit().options);
        reward = score.total();
        checker.parts(step, &score);
        if score.kind.type_stand_in {
            checker.report.scores_not_compared += 1;
            reward = step.reward;
        }
        session.close(reward);
    }
    checker.add("reward", float(step.reward), float(reward));
    checker.add("done", step.done.to_string(), bought.to_string());
    checker.page(&step.page, &session.view()?);
    Ok(())
}

struct Checker<'a> {
    report: &'a mut ReplayReport,
    session: usize,
    goal: String,
    step: usize,
}

impl Checker<'_> {
    fn add(&mut self, field: &'static str, expected: String, found: String) {
        if expected != found {
            let (episode, task, step) = (self.session, self.goal.clone(), self.step);
            self.report.differences.push(Difference { episode, task, step, field, expected, found });
        }
    }

    fn goal(&mut self, expected: &RecordedGoal, found: &Goal, asin: &str) {
        self.add("goal.asin", expected.asin.clone(), asin.to_owned());
        self.add("goal.instruction_text", expected.instruction_text.clone(), found.instruction.clone());
        self.add("goal.attributes", expected.attributes.join("\n"), found.attributes.join("\n"));
        self.add("goal.price_upper", float(expected.price_upper), float(found.price_upper));
        let options = match &found.options {
            GoalOptions::Named(options) => Value::Object(
                options.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect(),
            ),
            GoalOptions::Values(values) => values.clone().into(),
        };
        self.add("goal.goal_options", expected.goal_options.to_string(), options.to_string());
    }

    fn page(&mut self, expected: &RecordedPage, found: &PageView<'_>) {
        self.add("text", expected.text.clone(), found.render(ObservationMode::Text));
        if let Some(text) = &expected.text_rich {
            self.add("text_rich", text.clone(), found.render(ObservationMode::TextRich));
        }
        if let Some(bar) = expected.has_search_bar {
            self.add("has_search_bar", bar.to_string(), found.has_search_bar.to_string());
        }
        if let Some(clickables) = &expected.clickables {
            let names: Vec<&str> = found.clickables.iter().map(|(name, _)| name.as_ref()).collect();
            self.add("clickables", clickables.join("\n"), names.join("\n"));
        }
    }

    fn parts(&mut self, step: &RecordedStep, score: &Score) {
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
        self.add("reward_info_without_pos", text(expected), text(&found));
    }
}
