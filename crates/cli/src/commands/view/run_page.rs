use std::collections::BTreeMap;
use std::fmt::Write as _;

use turnwise_eval::Evaluation;
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::{MetricsLine, read_metrics, seconds};
use turnwise_train::{Phase, Position, RunDirectory};

use super::query::Place;
use super::source::Source;
use super::{explain, search, settings};
use crate::commands::pages::html::escape;
use crate::plot::chart::{Point, chart, rate};
use crate::plot::figure::figure;

const CURVES: [&str; 12] = [
    "train/success_rate",
    "train/reward/mean",
    "rollout/turns/mean",
    "rollout/entropy",
    "credit/zero_advantage_group_frac",
    "credit/advantage/std",
    "loss/clip_frac",
    "loss/approx_kl",
    "loss/reference_kl",
    "loss/grad_norm",
    "outliers/share",
    "perf/step_s",
];

const COLUMNS: [(&str, &str); 5] = [
    ("success", "train/success_rate"),
    ("turns", "rollout/turns/mean"),
    ("entropy", "rollout/entropy"),
    ("std of advantages", "credit/advantage/std"),
    ("groups without advantage", "credit/zero_advantage_group_frac"),
];

const SMOOTH: [usize; 4] = [1, 5, 20, 100];

/// Minimum number of steps for which charts are smoothed by default.
const SMOOTHED_FROM: usize = 40;

const ROWS: usize = 100;

pub(super) fn page(source: &Source, place: Place<'_>) -> anyhow::Result<String> {
    match source {
        Source::Run { directory, .. } => run(source, directory, place),
        Source::Files(_) => {
            let mut body = heading(source) + &search::form(place, "/search", "search all steps");
            for note in source.notes() {
                let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
            }
            body.push_str("<ul>");
            for step in source.steps() {
                let link = place.link(&format!("/step/{step}"), &[]);
                let _ = write!(body, "<li class=\"item\"><a href=\"{link}\">step {step}</a></li>");
            }
            Ok(body + "</ul>")
        }
    }
}

fn heading(source: &Source) -> String {
    format!("<h1>{}</h1>", escape(&source.title()))
}

fn run(source: &Source, directory: &RunDirectory, place: Place<'_>) -> anyhow::Result<String> {
    let mut body = heading(source);
    let lines = read_metrics(&directory.path("metrics.jsonl"))?;
    if let Ok(status) = directory.read_json::<Status>("status.json") {
        let _ = write!(body, "<p class=\"status\">{}</p>", escape(&state(&status, lines.last())));
        for warning in &status.warnings {
            let _ = write!(body, "<p class=\"warning\">Warning: {}</p>", escape(warning));
        }
    }
    let config = std::fs::read_to_string(directory.path("config.toml")).unwrap_or_default();
    if let Ok(method) = explain::of_config(&config) {
        let _ = write!(body, "<p>Advantages: <b>{}</b>.</p>", escape(&method));
        if let Some(other) = source.method() {
            let _ = write!(
                body,
                "<p class=\"note\">The pages of steps show those of the preset {}; curves and table are the run's own.</p>",
                escape(&other.name)
            );
        }
    }
    let steps = source.steps();
    if let Some(last) = steps.last() {
        let first = place.link(&format!("/step/{last}/first"), &[]);
        let _ = write!(
            body,
            "<p><a class=\"begin\" href=\"{first}\">Look at the most instructive group of step {last}</a></p>"
        );
    }
    body.push_str(&search::form(place, "/search", "search all steps"));
    let evaluations = evaluations(directory);
    body.push_str(&by_kind(&evaluations));
    let learning: Vec<&MetricsLine> = lines.iter().filter(|line| line.phase == Phase::Rl).collect();
    let default = if learning.len() >= SMOOTHED_FROM { 5 } else { 1 };
    let window = place.query.number("smooth", default).clamp(1, 10_000);
    body.push_str(&smoothing(place, window));
    body.push_str("<div class=\"charts\">");
    for (split, found) in &evaluations {
        let points: Vec<Point> = found
            .iter()
            .map(|(step, result)| Point {
                step: *step,
                value: result.success.rate,
                interval: Some((result.success.low, result.success.high)),
            })
            .collect();
        body.push_str(&chart(&format!("success on {split}"), &points, true, 1));
    }
    for (tag, dots) in [("loss/sft", false), ("loss/sft_held_out", true)] {
        let warm_start = lines.iter().filter(|line| line.phase == Phase::Sft);
        let losses: Vec<Point> =
            warm_start.filter_map(|line| Some(Point::new(line.step, line.metrics.get(tag)?))).collect();
        body.push_str(&chart(&format!("warm start: {tag}"), &losses, dots, if dots { 1 } else { window }));
    }
    for tag in CURVES {
        let points: Vec<Point> =
            learning.iter().filter_map(|line| Some(Point::new(line.step, line.metrics.get(tag)?))).collect();
        body.push_str(&chart(tag, &points, false, window));
    }
    body.push_str("</div>");
    body.push_str(&settings::page(&config));
    body.push_str(&table(&steps, &learning, place));
    Ok(body)
}

fn smoothing(place: Place<'_>, window: usize) -> String {
    let mut body = String::from("<p class=\"choice\">each point of a curve is the mean of ");
    for steps in SMOOTH {
        if steps == window {
            let _ = write!(body, "<b>{steps}</b> ");
        } else {
            let link = place.link("/", &[("smooth", &steps.to_string())]);
            let _ = write!(body, "<a href=\"{link}\">{steps}</a> ");
        }
    }
    body + "steps</p>"
}

/// Returns a text that states whether a run is still training, and its last step. The step comes
/// from the metrics, which change with every step; `status.json` changes only with checkpoints.
pub(super) fn state(status: &Status, last: Option<&MetricsLine>) -> String {
    let checkpoint = status.position.label();
    let mut text = match (status.state, last) {
        (RunStatus::Running, Some(line)) => {
            let step = Position { phase: line.phase, step: line.step }.label();
            let ago = ago(seconds() - line.time);
            format!("running, or killed: {step} was done {ago}, the last checkpoint is {checkpoint}")
        }
        (state, _) => format!("{state:?} at {checkpoint}").to_lowercase(),
    };
    if let Some(reason) = &status.reason {
        let _ = write!(text, ": {reason}");
    }
    text
}

pub(super) fn ago(seconds: f64) -> String {
    let (count, unit) = match seconds.max(0.0) {
        time if time < 120.0 => (time, "s"),
        time if time < 7200.0 => (time / 60.0, "min"),
        time if time < 172_800.0 => (time / 3600.0, "h"),
        time => (time / 86_400.0, "days"),
    };
    format!("{count:.0} {unit} ago")
}

pub(super) type OfSplit = Vec<(u64, Evaluation)>;

pub(super) fn evaluations(directory: &RunDirectory) -> BTreeMap<String, OfSplit> {
    let mut splits: BTreeMap<String, OfSplit> = BTreeMap::new();
    let entries = std::fs::read_dir(directory.path("eval")).into_iter().flatten().flatten();
    for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        let label = name.strip_suffix(".json").and_then(|label| label.parse().ok());
        let Some(Position { phase: Phase::Rl, step }) = label else { continue };
        let Ok(results) = directory.read_json::<Vec<Evaluation>>(&format!("eval/{name}")) else { continue };
        for result in results {
            splits.entry(result.split.clone()).or_default().push((step, result));
        }
    }
    for results in splits.values_mut() {
        results.sort_by_key(|(step, _)| *step);
    }
    splits
}

fn by_kind(evaluations: &BTreeMap<String, OfSplit>) -> String {
    let mut body = String::new();
    for (split, results) in evaluations {
        let (Some((first_step, first)), Some((step, last))) = (results.first(), results.last()) else {
            continue;
        };
        let _ = write!(
            body,
            "<details open><summary>evaluation on {} after step {step}, with 95 % intervals</summary>\
             <div class=\"scroll\"><table class=\"kinds\"><tr><th>kind</th><th>success</th><th></th><th>tasks</th><th>turns</th>{}</tr>",
            escape(split),
            if step == first_step { String::new() } else { format!("<th>since step {first_step}</th>") }
        );
        let mut row = |kind: &str, now: &turnwise_eval::Rate, turns: f64, before: Option<f64>| {
            let change = match before {
                _ if step == first_step => String::new(),
                Some(before) => format!("<td>{:+.1} points</td>", 100.0 * (now.rate - before)),
                None => "<td>-</td>".into(),
            };
            let _ = write!(
                body,
                "<tr><td>{}</td><td>{:.1} %</td><td>{}</td><td>{}</td><td>{}</td>{change}</tr>",
                escape(kind),
                100.0 * now.rate,
                rate(now.rate, (now.low, now.high)),
                now.trials,
                figure(turns)
            );
        };
        row("all", &last.success, last.mean_turns, Some(first.success.rate));
        if last.kinds.len() > 1 {
            for (kind, result) in &last.kinds {
                let before = first.kinds.get(kind).map(|result| result.success.rate);
                row(kind, &result.success, result.mean_turns, before);
            }
        }
        body.push_str("</table></div></details>");
    }
    body
}

/// Tabulates steps, newest first. Steps without saved trajectories
/// (`train.save_trajectories = false`) have no link.
fn table(with_trajectories: &[u64], lines: &[&MetricsLine], place: Place<'_>) -> String {
    if lines.is_empty() && with_trajectories.is_empty() {
        return "<p class=\"note\">No steps of reinforcement learning yet.</p>".into();
    }
    let mut rows: BTreeMap<u64, Option<&MetricsLine>> =
        with_trajectories.iter().map(|&step| (step, None)).collect();
    rows.extend(lines.iter().map(|&line| (line.step, Some(line))));
    let pages = rows.len().div_ceil(ROWS);
    let page = place.query.number("page", 1).clamp(1, pages);
    let mut body = String::from("<div class=\"scroll\"><table class=\"steps\"><tr><th>step</th>");
    for (name, _) in COLUMNS {
        let _ = write!(body, "<th>{name}</th>");
    }
    body.push_str("</tr>");
    for (step, line) in rows.into_iter().rev().skip((page - 1) * ROWS).take(ROWS) {
        let name = if with_trajectories.binary_search(&step).is_ok() {
            format!("<a href=\"{}\">{step}</a>", place.link(&format!("/step/{step}"), &[("page", "")]))
        } else {
            step.to_string()
        };
        let _ = write!(body, "<tr class=\"item\"><td>{name}</td>");
        for (_, tag) in COLUMNS {
            let value = line.and_then(|line| line.metrics.get(tag)).map_or_else(|| "-".into(), figure);
            let _ = write!(body, "<td>{value}</td>");
        }
        body.push_str("</tr>");
    }
    body + "</table></div>" + &pager(place, "/", page, pages)
}

pub(super) fn pager(place: Place<'_>, path: &str, page: usize, pages: usize) -> String {
    if pages < 2 {
        return String::new();
    }
    let link = |page: usize, rel: &str, text: &str| {
        format!("<a rel=\"{rel}\" href=\"{}\">{text}</a>", place.link(path, &[("page", &page.to_string())]))
    };
    let mut body = String::from("<nav class=\"pager\">");
    if page > 1 {
        body.push_str(&link(page - 1, "prev", "previous"));
    }
    let _ = write!(body, "<b>page {page} of {pages}</b>");
    if page < pages {
        body.push_str(&link(page + 1, "next", "next"));
    }
    body + "</nav>"
}
