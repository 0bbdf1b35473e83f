use std::collections::BTreeMap;
use std::fmt::Write as _;

use turnwise_core::{AgentTurn, Part, StageRecord, Turn};
use turnwise_credit::{fact_meaning, stage_rule};

use super::beside::{difference, largest};
use super::messages;
use super::pictures::Pictures;
use super::step::{Shown, Step, TRUTH};
use super::step_page::{self, DIFFERENCE, colour, columns, facts, outcome, stop};
use super::tokens::{Color, Token, TokenTexts};
use crate::commands::credit::table::{shortened, signed};
use crate::commands::pages::html::escape;
use crate::plot::figure::figure;

const ACTION: usize = 110;

const COMPANIONS: usize = 30;

const SHARED: [(&str, &str, &str); 2] =
    [("anchor", "anchor_size", "the same state"), ("edge", "edge_size", "the same edge")];

/// `(trajectory, turn)` pairs that share a state or an edge, by stage, fact (`anchor` or `edge`)
/// and id.
type Sharing = BTreeMap<(String, &'static str, u64), Vec<(usize, usize)>>;

#[derive(Clone, Copy, Default)]
pub(super) struct Look<'a> {
    pub(super) tokens: Option<&'a TokenTexts>,
    pub(super) pictures: Option<&'a Pictures>,
    pub(super) color: Color,
    pub(super) open: bool,
}

struct Page<'a> {
    group: usize,
    shown: &'a [Shown],
    sharing: Sharing,
    look: Look<'a>,
    most: Vec<f64>,
}

pub(super) fn group(step: &Step, group: usize, look: Look<'_>) -> String {
    let shown = &step.groups[group];
    let mut body = step_page::group(step, group, "");
    let page = Page { group, shown, sharing: sharing(shown), look, most: largest(shown) };
    for (index, one) in shown.iter().enumerate() {
        let _ = write!(
            body,
            "<section class=\"trajectory\" id=\"g{group}t{index}\"><h3>trajectory {index}</h3><p>{} <span class=\"status\">{}</span></p>",
            outcome(one),
            escape(&one.place)
        );
        body.push_str(&messages::tools(&one.trajectory.tools));
        body.push_str(&heads(step, one));
        for turn in 0..one.trajectory.turns.len() {
            body.push_str(&self::turn(&page, index, turn));
        }
        let last = &one.trajectory.final_observation;
        if !last.is_empty() {
            let _ = write!(body, "<p class=\"label\">after the last turn</p><pre>{}</pre>", escape(last));
        }
        let stopped = stop(&one.trajectory.stop);
        if !stopped.is_empty() {
            let _ = write!(body, "<p class=\"note\">{}</p>", escape(&stopped));
        }
        if !one.trajectory.metrics.is_empty() {
            body.push_str(&facts(one.trajectory.metrics.iter().map(|(name, value)| (name.as_str(), *value))));
        }
        body.push_str("</section>");
    }
    body
}

fn sharing(shown: &[Shown]) -> Sharing {
    let mut sharing = Sharing::new();
    for (trajectory, one) in shown.iter().enumerate() {
        for (turn, stages) in one.explanation.iter().enumerate().take(one.trajectory.turns.len()) {
            for stage in stages {
                for (fact, ..) in SHARED {
                    let Some(number) = stage.facts.get(fact) else { continue };
                    let key = (stage.stage.to_string(), fact, number as u64);
                    sharing.entry(key).or_default().push((trajectory, turn));
                }
            }
        }
    }
    sharing
}

fn turn(page: &Page<'_>, trajectory: usize, turn: usize) -> String {
    let Page { group, shown, .. } = *page;
    let one = &shown[trajectory];
    let of = &one.trajectory.turns[turn];
    let open = if page.look.open { " open" } else { "" };
    let mut body = format!(
        "<details{open} class=\"turn item\"><summary><span class=\"index\">{turn}</span>{}<span class=\"action\">{}</span>",
        bars(one, turn, &page.most),
        escape(&shortened(&of.action, ACTION))
    );
    if one.decisive() == Some(turn) {
        body.push_str("<span class=\"badge decisive\">decisive</span>");
    }
    if of.is_compaction() {
        body.push_str("<span class=\"badge\">compaction</span>");
    }
    if !of.valid {
        body.push_str("<span class=\"badge\">invalid</span>");
    }
    if one.is_outlier(turn) {
        body.push_str("<span class=\"badge\">outlier</span>");
    }
    if of.reward != 0.0 {
        let _ = write!(body, "<span class=\"badge\">reward {}</span>", figure(of.reward));
    }
    let _ = write!(
        body,
        "</summary><div class=\"body\" id=\"g{group}t{trajectory}u{turn}\"><div>{}</div><div>{}{}</div></div></details>",
        seen_and_said(
            of,
            one.trajectory.turns[..turn].iter().rfind(|before| !before.is_compaction()),
            page.look
        ),
        numbers(of),
        stages(page, trajectory, turn)
    );
    body
}

fn heads(step: &Step, shown: &Shown) -> String {
    if shown.beside.is_empty() {
        return String::new();
    }
    let mut body = String::from("<div class=\"turn heads\"><span class=\"index\"></span>");
    for name in columns(step, shown) {
        let class = if name == TRUTH { "head wide" } else { "head" };
        let _ = write!(body, "<span class=\"{class}\">{}</span>", escape(name));
    }
    if shown.compares_methods() {
        let _ = write!(body, "<span class=\"head small\">{DIFFERENCE}</span>");
    }
    body + "</div>"
}

fn bars(shown: &Shown, turn: usize, most: &[f64]) -> String {
    let bar = |value: Option<f64>, most: f64, error: Option<f64>| {
        let (class, strength) = colour(value, most);
        let number = value.map_or_else(|| "-".into(), signed);
        let error = error.filter(|_| value.is_some());
        let error = error.map_or_else(String::new, |error| format!(" <small>± {}</small>", figure(error)));
        format!(
            "<span class=\"bar\"><i class=\"{class}\" style=\"--a:{strength:.3}\"></i></span>\
             <span class=\"number\">{number}{error}</span>"
        )
    };
    let first = bar(shown.advantage(turn), most[0], None);
    if shown.beside.is_empty() {
        return first;
    }
    let mut body = format!("<span class=\"column\">{first}</span>");
    for (beside, most) in shown.beside.iter().zip(&most[1..]) {
        let bar = bar(beside.value(turn), *most, beside.error(turn));
        let _ = write!(body, "<span class=\"column\">{bar}</span>");
    }
    if shown.compares_methods() {
        let found = difference(shown, turn, most);
        let (class, strength) = colour(found, 1.0);
        let title = found.map_or_else(String::new, signed);
        let _ = write!(
            body,
            "<span class=\"cell {class}\" style=\"--a:{strength:.3}\" title=\"difference {title}\"></span>"
        );
    }
    body
}

fn seen_and_said(turn: &Turn, before: Option<&Turn>, look: Look<'_>) -> String {
    let mut body = String::new();
    if let Some(agent) = &turn.agent {
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(&request(agent)));
    }
    body.push_str(&messages::observed(turn, before));
    let picture = look.pictures.map_or_else(String::new, |pictures| pictures.of(turn));
    for part in turn.parts.iter().filter(|_| picture.is_empty()) {
        if let Part::Image(image) = part {
            let _ = write!(
                body,
                "<p class=\"note\">an image, {} {}</p>",
                escape(&image.media_type),
                escape(&image.sha256)
            );
        }
    }
    body.push_str(&picture);
    if let Some(key) = &turn.state_key {
        let _ = write!(body, "<p class=\"label\">state</p><pre>{}</pre>", escape(key));
    }
    body.push_str("<p class=\"label\">response</p>");
    body.push_str(&response(turn, look));
    body.push_str(&messages::calls(turn));
    if !turn.admissible.is_empty() {
        let _ = write!(
            body,
            "<details><summary class=\"label\">{} actions offered</summary><ul>",
            turn.admissible.len()
        );
        for action in &turn.admissible {
            let _ = write!(body, "<li>{}</li>", escape(action));
        }
        body.push_str("</ul></details>");
    }
    body
}

fn request(agent: &AgentTurn) -> String {
    let start = match agent.continues {
        Some(turn) => format!("continues turn {turn}"),
        None => "a new sequence".to_owned(),
    };
    let mut text = format!("request of {}, {} messages, {start}", agent.name, agent.messages);
    for (rule, reward) in &agent.rewards {
        let _ = write!(text, "; reward {} ({rule})", figure(*reward));
    }
    text
}

fn response(turn: &Turn, look: Look<'_>) -> String {
    let texts = match look.tokens {
        Some(tokens) if turn.old_logprobs.len() == turn.response_ids.len() => {
            tokens.texts(&turn.response_ids)
        }
        _ => Vec::new(),
    };
    if texts.is_empty() {
        let text = if turn.response.is_empty() { &turn.action } else { &turn.response };
        return format!("<pre>{}</pre>", escape(text));
    }
    let mut body = String::from("<pre class=\"tokens\">");
    for (index, text) in texts.iter().enumerate() {
        let token = Token::of(turn, index);
        let (class, strength) = look.color.of(&token);
        let _ = write!(
            body,
            "<span class=\"{class}\" style=\"--a:{strength:.3}\" title=\"{}\">{}</span>",
            escape(&token.describe()),
            escape(text)
        );
    }
    body + "</pre>"
}

fn numbers(turn: &Turn) -> String {
    let mut found = vec![("reward", turn.reward)];
    found.extend(turn.shaped_reward.map(|reward| ("shaped reward", reward)));
    found.extend(turn.progress.map(|progress| ("progress", progress)));
    found.extend(turn.mean_entropy().map(|entropy| ("mean entropy", entropy)));
    if !turn.response_ids.is_empty() {
        found.push(("tokens", turn.response_ids.len() as f64));
    }
    facts(found)
}

fn stages(page: &Page<'_>, trajectory: usize, turn: usize) -> String {
    let stages = page.shown[trajectory].stages(turn);
    if stages.is_empty() {
        return String::new();
    }
    let mut body =
        String::from("<table class=\"stages\"><tr><th>stage</th><th>advantage</th><th>from</th></tr>");
    for stage in stages {
        let rule = stage_rule(&stage.stage).unwrap_or_default();
        let _ = write!(
            body,
            "<tr><td title=\"{}\">{}</td><td class=\"number\">{}</td><td class=\"facts\">",
            escape(rule),
            escape(&stage.stage),
            signed(stage.advantage)
        );
        for (fact, value) in &stage.facts.0 {
            let meaning = fact_meaning(&stage.stage, fact).unwrap_or_default();
            let _ = write!(
                body,
                "<span title=\"{}\">{} <b>{}</b></span> ",
                escape(meaning),
                escape(fact),
                figure(*value)
            );
        }
        body.push_str(&companions(page, stage, trajectory, turn));
        body.push_str("</td></tr>");
    }
    body + "</table>"
}

fn companions(page: &Page<'_>, stage: &StageRecord, trajectory: usize, turn: usize) -> String {
    let (group, sharing) = (page.group, &page.sharing);
    let mut body = String::new();
    for (fact, size, what) in SHARED {
        let shared = stage.facts.get(size).is_some_and(|size| size > 1.0);
        let Some(number) = stage.facts.get(fact).filter(|_| shared) else { continue };
        let Some(turns) = sharing.get(&(stage.stage.to_string(), fact, number as u64)) else { continue };
        let others: Vec<String> = turns
            .iter()
            .filter(|&&other| other != (trajectory, turn))
            .map(|&(other, at)| format!("<a href=\"#g{group}t{other}u{at}\">{other}.{at}</a>"))
            .collect();
        let more = match others.len().saturating_sub(COMPANIONS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        if !others.is_empty() {
            let _ = write!(
                body,
                "<p>{what} (trajectory.turn): {}{more}</p>",
                others[..others.len().min(COMPANIONS)].join(" ")
            );
        }
    }
    body
}

pub(super) fn meanings<'a>(shown: impl Iterator<Item = &'a Shown>) -> String {
    let mut stages: Vec<(&str, Vec<&str>)> = Vec::new();
    for record in shown.flat_map(|shown| shown.explanation.iter().flatten()) {
        let at = stages.iter().position(|(stage, _)| *stage == record.stage).unwrap_or_else(|| {
            stages.push((&record.stage, Vec::new()));
            stages.len() - 1
        });
        for (fact, _) in &record.facts.0 {
            if !stages[at].1.contains(&fact.as_ref()) {
                stages[at].1.push(fact);
            }
        }
    }
    if stages.is_empty() {
        return String::new();
    }
    let mut body = String::from("<section class=\"meanings\"><h3>what the numbers are</h3>");
    for (stage, facts) in stages {
        let rule = stage_rule(stage).map(|rule| format!(": {}", escape(rule))).unwrap_or_default();
        let _ = write!(body, "<p><b>{}</b>{rule}</p><dl>", escape(stage));
        for fact in facts {
            if let Some(meaning) = fact_meaning(stage, fact) {
                let _ = write!(body, "<dt>{}</dt><dd>{}</dd>", escape(fact), escape(meaning));
            }
        }
        body.push_str("</dl>");
    }
    body + "</section>"
}
