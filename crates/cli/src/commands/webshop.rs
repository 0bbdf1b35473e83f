//! What `turnwise env` does with the shop.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use turnwise_core::{Purpose, Seed, Task, TaskSet as _};
use turnwise_env::webshop::replay::{ReplayReport, replay};
use turnwise_env::webshop::{WebshopOptions, WebshopSet};

use super::env::open;
use crate::ui::print;

/// The shop of an official folder.
pub(crate) fn shop(data: Option<&Path>) -> anyhow::Result<WebshopSet> {
    let data = data.context("webshop needs the official files; name their folder with --data DIR")?;
    Ok(WebshopSet::open(data, None, &WebshopOptions::default())?)
}

/// A goal by its id or a part of it, or drawn by the seed.
pub(crate) fn choose(
    set: &WebshopSet,
    split: Option<&str>,
    wanted: Option<&str>,
    seed: u64,
) -> anyhow::Result<Task> {
    let splits = set.splits();
    let split = split.or(splits.last().map(String::as_str)).context("there are no goals")?;
    if let Some(wanted) = wanted {
        let places = 0..set.len();
        let tasks = places
            .map(|place| set.task(place))
            .filter(|task| task.as_ref().map_or(true, |task| task.id.contains(wanted)));
        let found: Vec<Task> = tasks.take(2).collect::<Result<_, _>>()?;
        return match found.as_slice() {
            [] => {
                bail!("--task {wanted}: no goal has this in its id; without --task one is picked by --seed")
            }
            [one] => Ok(one.clone()),
            [first, second, ..] if first.id != wanted => bail!(
                "--task {wanted}: several goals have this in their id, for example {} and {}; write more of it",
                first.id,
                second.id
            ),
            [first, ..] => Ok(first.clone()),
        };
    }
    let places = set.split(split)?;
    let place = Seed::derive(seed, Purpose::Tasks, &[]).rng().choose(places).copied();
    Ok(set.task(place.context("the split is empty")? as usize)?)
}

/// Replays a recording; gives 1 if anything differs.
pub(crate) fn replay_file(
    file: &Path,
    data: &Path,
    unanswered: &[String],
    show: usize,
) -> anyhow::Result<ExitCode> {
    let recording = open(file)?;
    let set = WebshopSet::open(data, None, &WebshopOptions::default())?;
    let report = replay(&file.display().to_string(), recording, &set, unanswered)?;
    print(&told(&report, show));
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn told(report: &ReplayReport, show: usize) -> String {
    let mut out = format!(
        "{} sessions, {} steps, {} differences ({} scores not compared: their type factor needs a language model)",
        report.sessions,
        report.steps,
        report.differences.len(),
        report.scores_not_compared
    );
    for difference in report.differences.iter().take(show) {
        let _ = write!(
            out,
            "\n\nsession {}, step {}, {} ({})\n  expected {:?}\n  found    {:?}",
            difference.session,
            difference.step,
            difference.field,
            difference.goal,
            difference.expected,
            difference.found
        );
    }
    if report.differences.len() > show {
        let _ = write!(out, "\n\nand {} more (--show N shows more)", report.differences.len() - show);
    }
    out
}
