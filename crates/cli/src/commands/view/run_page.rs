//! The first page: a run's settings, curves and steps; a file's steps.

use std::fmt::Write as _;

use turnwise_eval::Evaluation;
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::metrics::{MetricsLine, read_metrics, seconds};
use turnwise_train::{Phase, Position, RunDirectory};

use super::chart::chart;
use super::explain;
use super::source::Source;
use crate::commands::pages::html::escape;
use crate::plot::figure::figure;

/// Metrics with a curve: learning, credit, health of updates, and time of a step.
const CURVES: [&str; 12] = [
    "train/success_rate",
    "train/reward/mean",
    "rollout/turns/mean",
    "rollout/entropy",
    "credit/zero_frac",
    "credit/advantage/std",
    "loss/clip_frac",
    "loss/approx_kl",
    "loss/reference_kl",
    "loss/gradient_norm",
    "outliers/share",
    "perf/step_s",
];

/// Metrics of a step that stand in its row.
const COLUMNS: [(&str, &str); 5] = [
    ("success", "train/success_rate"),
    ("turns", "rollout/turns/mean"),
    ("entropy", "rollout/entropy"),
    ("std of advantages", "credit/advantage/std"),
    ("share of groups without advantage", "credit/zero_frac"),
];

/// Returns the body of the page.
///
/// # Errors
/// Fails on a file of the run that cannot be read.
pub(super) fn page(source: &Source) -> anyhow::Result<String> {
    match source {
        Source::Run { directory, .. } => run(source, directory),
        Source::Files(_) => {
            let mut body = heading(source);
            for note in source.notes() {
                let _ = write!(body, "<p class=\"note\">{}</p>", escape(note));
            }
            body.push_str("<ul>");
            for step in source.steps() {
                let _ = write!(body, "<li><a href=\"/step/{step}\">step {step}</a></li>");
            }
            Ok(body + "</ul>")
        }
    }
}

fn heading(source: &Source) -> String {
    format!("<h1>{}</h1>", escape(&source.title()))
}

fn run(source: &Source, directory: &RunDirectory) -> anyhow::Result<String> {
    let mut body = heading(source);
    let lines = read_metrics(&directory.path("metrics.jsonl"))?;
    if let Ok(status) = directory.read_json::<Status>("status.json") {
        let _ = write!(body, "<p class=\"status\">{}</p>", escape(&state(&status, lines.last())));
        for warning in &status.warnings {
            let _ = write!(body, "<p class=\"note\">Warning: {}</p>", escape(warning));
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
    let _ = write!(body, "<details><summary>config.toml</summary><pre>{}</pre></details>", escape(&config));
    body.push_str("<div class=\"charts\">");
    for (split, points) in evaluations(directory) {
        body.push_str(&chart(&format!("success on {split}"), &points, true));
    }
    for (tag, dots) in [("loss/sft", false), ("loss/sft_held_out", true)] {
        let warm_start = lines.iter().filter(|line| line.phase == Phase::Sft);
        let losses: Vec<(u64, f64)> =
            warm_start.filter_map(|line| Some((line.step, line.metrics.get(tag)?))).collect();
        body.push_str(&chart(&format!("warm start: {tag}"), &losses, dots));
    }
    let learning: Vec<&MetricsLine> = lines.iter().filter(|line| line.phase == Phase::Rl).collect();
    for tag in CURVES {
        let points: Vec<(u64, f64)> =
            learning.iter().filter_map(|line| Some((line.step, line.metrics.get(tag)?))).collect();
        body.push_str(&chart(tag, &points, false));
    }
    body.push_str("</div>");
    body.push_str(&steps(&source.steps(), &learning));
    Ok(body)
}

/// Returns the state of a run: `status.json` moves with checkpoints, metrics with every step.
fn state(status: &Status, last: Option<&MetricsLine>) -> String {
    let checkpoint = status.position.label();
    let mut text = match (status.state, last) {
        (RunStatus::Running, Some(line)) => {
            let step = Position { phase: line.phase, step: line.step }.label();
            let ago = (seconds() - line.time).max(0.0);
            format!(
                "running, or killed: {step} was done {} s ago, the last checkpoint is {checkpoint}",
                figure(ago.round())
            )
        }
        (state, _) => format!("{state:?} at {checkpoint}").to_lowercase(),
    };
    if let Some(reason) = &status.reason {
        let _ = write!(text, ": {reason}");
    }
    text
}

/// Success on every split after the steps that have an evaluation.
fn evaluations(directory: &RunDirectory) -> Vec<(String, Vec<(u64, f64)>)> {
    let mut splits: Vec<(String, Vec<(u64, f64)>)> = Vec::new();
    let entries = std::fs::read_dir(directory.path("eval")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in names {
        let step = name.strip_prefix("step-").and_then(|name| name.strip_suffix(".json")?.parse().ok());
        let (Some(step), Ok(results)) =
            (step, directory.read_json::<Vec<Evaluation>>(&format!("eval/{name}")))
        else {
            continue;
        };
        for result in results {
            match splits.iter_mut().find(|(split, _)| *split == result.split) {
                Some((_, points)) => points.push((step, result.success.rate)),
                None => splits.push((result.split, vec![(step, result.success.rate)])),
            }
        }
    }
    splits
}

/// Returns a row a step; those without trajectories (`train.save_trajectories = false`) have no link.
fn steps(with_trajectories: &[u64], lines: &[&MetricsLine]) -> String {
    if lines.is_empty() && with_trajectories.is_empty() {
        return "<p class=\"note\">No step of reinforcement learning is done yet.</p>".into();
    }
    let mut table = String::from("<table class=\"steps\"><tr><th>step</th>");
    for (name, _) in COLUMNS {
        let _ = write!(table, "<th>{name}</th>");
    }
    table.push_str("</tr>");
    let known = |step: &u64| lines.iter().any(|line| line.step == *step);
    let unknown = with_trajectories.iter().filter(|step| !known(step)).map(|&step| (step, None));
    let mut rows: Vec<(u64, Option<&MetricsLine>)> =
        lines.iter().map(|line| (line.step, Some(*line))).chain(unknown).collect();
    rows.sort_by_key(|(step, _)| *step);
    for (step, line) in rows {
        let name = if with_trajectories.contains(&step) {
            format!("<a href=\"/step/{step}\">{step}</a>")
        } else {
            step.to_string()
        };
        let _ = write!(table, "<tr><td>{name}</td>");
        for (_, tag) in COLUMNS {
            let value = line.and_then(|line| line.metrics.get(tag)).map_or_else(|| "-".into(), figure);
            let _ = write!(table, "<td>{value}</td>");
        }
        table.push_str("</tr>");
    }
    table + "</table>"
}
