use std::fmt::Write as _;

use turnwise_core::StopReason;

use super::beside::{self, difference};
use super::explain::Explained;
use super::order::{Facts, SHOWS, SORTS, order};
use super::query::Place;
use super::run_page::pager;
use super::source::Source;
use super::step::{Shown, Step, TRUTH};
use crate::commands::credit::table::{shortened, signed};
use crate::commands::pages::html::escape;
use crate::plot::figure::figure;

const ACTION: usize = 120;
const NAME: usize = 60;

const GROUPS: usize = 40;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Neighbours {
    pub(super) group: usize,
    before: Option<usize>,
    after: Option<usize>,
}

impl Neighbours {
    /// Returns the groups before and after this one in `order`, or by index if this group is not in
    /// `order`.
    pub(super) fn of(group: usize, order: &[usize], count: usize) -> Self {
        match order.iter().position(|&known| known == group) {
            Some(at) => Self {
                group,
                before: at.checked_sub(1).map(|before| order[before]),
                after: order.get(at + 1).copied(),
            },
            None => Self {
                group,
                before: group.checked_sub(1),
                after: Some(group + 1).filter(|&next| next < count),
            },
        }
    }
}

pub(super) fn links(source: &Source, place: Place<'_>, step: u64, group: Option<Neighbours>) -> String {
    let up = if group.is_none() { " rel=\"up\"" } else { "" };
    let run = place.link("/", &[("q", ""), ("show", ""), ("page", "")]);
    let mut links = format!("<nav>{}<a{up} href=\"{run}\">{}</a>", all_runs(place), escape(&source.title()));
    let mut link = |rel: &str, path: String, text: String| {
        let to = place.link(&path, &[("page", "")]);
        let _ = write!(links, "<a rel=\"{rel}\" href=\"{to}\">{text}</a>");
    };
    match group {
        None => {
            let steps = source.steps();
            let at = steps.iter().position(|&known| known == step).unwrap_or(0);
            if let Some(before) = at.checked_sub(1).and_then(|before| steps.get(before)) {
                link("prev", format!("/step/{before}"), format!("step {before}"));
            }
            let after = steps.get(at + 1).copied();
            link("self", format!("/step/{step}"), format!("<b>step {step}</b>"));
            if let Some(after) = after {
                link("next", format!("/step/{after}"), format!("step {after}"));
            }
        }
        Some(Neighbours { group, before, after }) => {
            link("up", format!("/step/{step}"), format!("step {step}"));
            if let Some(before) = before {
                link("prev", format!("/step/{step}/group/{before}"), format!("group {before}"));
            }
            link("self", format!("/step/{step}/group/{group}"), format!("<b>group {group}</b>"));
            if let Some(after) = after {
                link("next", format!("/step/{step}/group/{after}"), format!("group {after}"));
            }
        }
    }
    links + "</nav>"
}

pub(super) fn all_runs(place: Place<'_>) -> &'static str {
    if place.base.is_empty() { "" } else { "<a href=\"/\">all runs</a>" }
}

/// Returns a form for filtering and sorting, which works without scripts.
fn choice(step: &Step, place: Place<'_>, number: u64) -> String {
    let select = |name: &str, label: &str, options: &[(&str, &str)]| {
        let mut body = format!("<label>{label} <select name=\"{name}\">");
        for (value, words) in options {
            let chosen = if place.query.get(name) == *value { " selected" } else { "" };
            let _ = write!(body, "<option value=\"{value}\"{chosen}>{words}</option>");
        }
        body + "</select></label> "
    };
    let compares = step.groups.iter().flatten().next().is_some_and(Shown::compares_methods);
    let sorts: Vec<(&str, &str)> =
        SORTS.into_iter().filter(|(name, _)| compares || *name != "change").collect();
    format!(
        "<form class=\"choice\" action=\"{}/step/{number}\" method=\"get\">{}{}{}\
         <label>with <input type=\"search\" name=\"q\" value=\"{}\" placeholder=\"words\"></label> <button>show</button></form>",
        escape(place.base),
        place.query.hidden(&["show", "sort", "q", "page", "before"]),
        select("show", "groups", &SHOWS),
        select("sort", "order", &sorts),
        escape(place.query.get("q"))
    )
}

pub(super) fn groups(step: &Step, facts: &[Facts], place: Place<'_>) -> String {
    let number = step.number;
    let order = order(step, facts, place.query);
    let mut body = choice(step, place, number);
    if order.len() < step.groups.len() {
        let _ = write!(body, "<p class=\"status\">{} of {} groups</p>", order.len(), step.groups.len());
    }
    let pages = order.len().div_ceil(GROUPS);
    let page = place.query.number("page", 1).clamp(1, pages.max(1));
    for &group in order.iter().skip((page - 1) * GROUPS).take(GROUPS) {
        let link = place.link(&format!("/step/{number}/group/{group}"), &[("page", "")]);
        body.push_str(&self::group(step, group, &link));
    }
    let path = format!("/step/{number}");
    // Here the keys `n` and `p` change the step.
    body + &pager(place, &path, page, pages).replace("rel=\"next\"", "").replace("rel=\"prev\"", "")
}

pub(super) fn head(source: &Source, step: &Step) -> String {
    let mut body = format!("<h1>{}</h1><p>{}.</p>", escape(&source.title()), escape(&step.summary()));
    body.push_str(&about(source, step));
    if !step.diagnostics.is_empty() {
        body.push_str(&facts(step.diagnostics.iter().map(|(name, value)| (name.as_str(), *value))));
    }
    body
}

pub(super) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, f64)>) -> String {
    let mut body = String::from("<p class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(body, "<span>{} <b>{}</b></span> ", escape(name), figure(value));
    }
    body + "</p>"
}

pub(super) fn about(source: &Source, step: &Step) -> String {
    let mut body = String::from("<p>");
    if let Some(method) = &step.method {
        let _ = write!(body, "Advantages: <b>{}</b>. ", escape(method));
    }
    let _ = write!(body, "{}</p>", explained(&step.explained));
    for note in source.notes() {
        let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
    }
    body.push_str(
        "<p class=\"legend\">A cell is a turn: <i class=\"cell pos\" style=\"--a:.8\"></i> its advantage is above 0, \
         <i class=\"cell neg\" style=\"--a:.8\"></i> below 0, the paler the nearer to 0 beside the largest of its group; \
         <i class=\"cell invalid\">x</i> an invalid response, <i class=\"cell\">o</i> an outlier, \
         <i class=\"cell\">s</i> a summary (compaction).</p>",
    );
    body.push_str(&legend(step));
    body
}

fn legend(step: &Step) -> String {
    let Some(shown) = step.groups.iter().flatten().next().filter(|shown| !shown.beside.is_empty()) else {
        return String::new();
    };
    let mut body = String::from(
        "<p class=\"legend\">Rows of a trajectory, each coloured by its own largest number of the group: ",
    );
    let names = columns(step, shown);
    body.push_str(
        &names.iter().map(|name| format!("<b>{}</b>", escape(name))).collect::<Vec<_>>().join(", "),
    );
    if shown.compares_methods() {
        let _ = write!(
            body,
            "; <b>{DIFFERENCE}</b>: how much more the second credits a turn than the first, as shares of their largest"
        );
    }
    body.push('.');
    if shown.truth().is_some() {
        body.push_str(
            " A* is the true advantage, measured by continuations; <i class=\"cell decisive\"></i> the decisive turn of a trajectory: its A* is the \
             largest either way, and above twice its standard error.",
        );
    }
    body + "</p>"
}

pub(super) const DIFFERENCE: &str = "difference";

pub(super) fn columns<'a>(step: &'a Step, shown: &'a Shown) -> Vec<&'a str> {
    let first = if step.first.is_empty() { "recorded" } else { &step.first };
    std::iter::once(first).chain(shown.beside.iter().map(|beside| beside.name.as_str())).collect()
}

/// Returns a step's metrics, collapsed except for the number of dropped trajectories.
pub(super) fn metrics(source: &Source, step: u64) -> String {
    let Some(line) = source.metrics(step) else { return String::new() };
    let of = |tag: &str| line.metrics.get(tag);
    let mut body = String::new();
    let left_out = of("rollout/groups_dropped").unwrap_or(0.0) + of("rollout/groups_surplus").unwrap_or(0.0);
    if left_out > 0.0
        && let (Some(sampled), Some(success)) = (of("rollout/trajectories"), of("train/success_rate"))
    {
        let _ = write!(
            body,
            "<p>{} trajectories were sampled, {} % of them solved; {} groups of them were left out by dynamic sampling and are not here.</p>",
            figure(sampled),
            figure(100.0 * success),
            figure(left_out)
        );
    }
    body.push_str(
        "<details><summary>metrics of the step</summary><div class=\"scroll\"><table class=\"steps\">",
    );
    for (tag, value) in &line.metrics.0 {
        let _ = write!(body, "<tr><td class=\"tag\">{}</td><td>{}</td></tr>", escape(tag), figure(*value));
    }
    body + "</table></div></details>"
}

fn explained(explained: &Explained) -> String {
    match explained {
        Explained::Recorded => "The explanations are those that were recorded.".into(),
        Explained::Recomputed => {
            "The explanations are computed again by the run's settings; every advantage is the recorded one to the last bit.".into()
        }
        Explained::Differs(most) => format!(
            "<span class=\"warning\">The explanations are computed again by the run's settings, and an advantage differs from the recorded \
             one by as much as {}: another program or CPU wrote them, or they have inputs that the file has not.</span>",
            figure(*most)
        ),
        Explained::Unrecorded(missing) => format!(
            "Advantages and explanations are computed by the run's settings: {missing} of the trajectories have no recorded advantages."
        ),
        Explained::Preset(name) => format!("Computed by the preset <code>{}</code>, not recorded.", escape(name)),
        Explained::Nothing(reason) => format!("No explanations: {}.", escape(reason.trim_end_matches('.'))),
    }
}

/// Returns a group: its task, and a row of cells per trajectory. `page` is the URL of the group's
/// page; empty on that page.
pub(super) fn group(step: &Step, group: usize, page: &str) -> String {
    let shown = &step.groups[group];
    let goal = shown.first().map(|shown| &shown.trajectory.task);
    let goal = goal.map_or("", |task| if task.goal.is_empty() { &task.id } else { &task.goal });
    let known = shown.iter().filter_map(|shown| shown.success).count();
    let solved = shown.iter().filter(|shown| shown.success == Some(true)).count();
    let mean =
        shown.iter().map(|shown| shown.trajectory.outcome_return()).sum::<f64>() / shown.len().max(1) as f64;
    let mut body = format!("<section class=\"group item\" id=\"g{group}\"><h2>");
    match page {
        "" => {
            let _ = write!(body, "group {group}");
        }
        page => {
            let _ = write!(body, "<a href=\"{page}\">group {group}</a>");
        }
    }
    if let Some(first) = shown.first().filter(|first| first.group != group.to_string()) {
        let _ = write!(body, " ({})", escape(&shortened(&first.group, NAME)));
    }
    let _ = write!(body, "</h2><p>{}</p><p class=\"status\">mean return {}", escape(goal), figure(mean));
    if known > 0 {
        let _ = write!(body, ", {solved} of {known} solved");
    }
    body.push_str("</p><table class=\"strips\">");
    let most = beside::largest(shown);
    for (index, one) in shown.iter().enumerate() {
        let _ = write!(
            body,
            "<tr><th><a href=\"{page}#g{group}t{index}\">{index}</a></th><td>{}</td><td class=\"cells\">",
            outcome(one)
        );
        let to = |turn: usize| format!("{page}#g{group}t{index}u{turn}");
        if one.beside.is_empty() {
            for turn in 0..one.trajectory.turns.len() {
                body.push_str(&cell(one, turn, (one.advantage(turn), most[0]), &to(turn)));
            }
        } else {
            body.push_str(&rows(step, one, &most, &to));
        }
        body.push_str("</td></tr>");
    }
    body + "</table></section>"
}

fn rows(step: &Step, shown: &Shown, most: &[f64], to: &dyn Fn(usize) -> String) -> String {
    let mut body = String::new();
    let mut row = |name: &str, value: &dyn Fn(usize) -> (Option<f64>, f64)| {
        let _ = write!(body, "<div class=\"row\"><span class=\"of\">{}</span>", escape(name));
        for turn in 0..shown.trajectory.turns.len() {
            body.push_str(&cell(shown, turn, value(turn), &to(turn)));
        }
        body.push_str("</div>");
    };
    for (column, name) in columns(step, shown).into_iter().enumerate() {
        if name == TRUTH {
            difference_row(shown, most, &mut row);
        }
        match column.checked_sub(1) {
            None => row(name, &|turn| (shown.advantage(turn), most[0])),
            Some(beside) => row(name, &|turn| (shown.beside[beside].value(turn), most[column])),
        }
    }
    if shown.truth().is_none() {
        difference_row(shown, most, &mut row);
    }
    body
}

/// Writes a named row of cells, given each turn's value and the largest absolute value.
type Row<'a> = dyn FnMut(&str, &dyn Fn(usize) -> (Option<f64>, f64)) + 'a;

fn difference_row(shown: &Shown, most: &[f64], row: &mut Row<'_>) {
    if shown.compares_methods() {
        // Scaled credits differ by at most 2; a difference of 1 is darkest.
        row(DIFFERENCE, &|turn| (difference(shown, turn, most), 1.0));
    }
}

pub(super) fn colour(advantage: Option<f64>, most: f64) -> (&'static str, f64) {
    match advantage {
        Some(value) if value != 0.0 && most > 0.0 => {
            (if value > 0.0 { "pos" } else { "neg" }, (value.abs() / most).min(1.0))
        }
        _ => ("", 0.0),
    }
}

pub(super) fn outcome(shown: &Shown) -> String {
    let mut text = match shown.success {
        Some(true) => "<b class=\"solved\">solved</b>".to_owned(),
        Some(false) => "failed".to_owned(),
        None => String::new(),
    };
    let _ =
        write!(text, " <span class=\"status\">return {}</span>", figure(shown.trajectory.outcome_return()));
    text
}

pub(super) fn stop(reason: &StopReason) -> String {
    match reason {
        StopReason::Terminated => String::new(),
        StopReason::MaxTurns => "ended at the turn limit".into(),
        StopReason::ContextOverflow => "ended because the context was full".into(),
        StopReason::EnvironmentError(error) => format!("ended by the environment's error: {error}"),
        StopReason::SampleError(error) => format!("ended by the sampler's error: {error}"),
    }
}

fn cell(shown: &Shown, turn: usize, (value, most): (Option<f64>, f64), to: &str) -> String {
    let (class, strength) = colour(value, most);
    let one = &shown.trajectory.turns[turn];
    let what = if one.is_compaction() { "compaction, " } else { "" };
    let mut title = format!("{what}turn {turn}: {}", shortened(&one.action, ACTION));
    if let Some(advantage) = shown.advantage(turn) {
        let _ = write!(title, "\nadvantage {}", signed(advantage));
    }
    for beside in &shown.beside {
        if let Some(value) = beside.value(turn) {
            let error = beside.error(turn).map_or_else(String::new, |error| format!(" ± {}", figure(error)));
            let _ = write!(title, "\n{} {}{error}", beside.name, signed(value));
        }
    }
    if one.reward != 0.0 {
        let _ = write!(title, "\nreward {}", figure(one.reward));
    }
    let decisive = if shown.decisive() == Some(turn) { " decisive" } else { "" };
    let (mark, invalid) = match (one.valid, shown.is_outlier(turn)) {
        (false, _) => ("x", " invalid"),
        (true, true) => ("o", ""),
        (true, false) => (if one.is_compaction() { "s" } else { "" }, ""),
    };
    format!(
        "<a class=\"cell {class}{invalid}{decisive}\" style=\"--a:{strength:.3}\" href=\"{to}\" title=\"{}\">{mark}</a>",
        escape(&title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_those_of_the_order() {
        let of = |group: usize| {
            let found = Neighbours::of(group, &[5, 2, 7], 8);
            (found.before, found.after)
        };
        assert_eq!((of(5), of(2), of(7)), ((None, Some(2)), (Some(5), Some(7)), (Some(2), None)));
        assert_eq!((of(0), of(6)), ((None, Some(1)), (Some(5), Some(7))));
    }
}
