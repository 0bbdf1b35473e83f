//! What `turnwise env` does with the shop.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use turnwise_core::{Purpose, Seed, Task, TaskSet as _};
use turnwise_env::webshop::generator::GeneratorConfig;
use turnwise_env::webshop::replay::replay;
use turnwise_env::webshop::{WebshopOptions, WebshopSet};

use super::env::{open, replay_summary};
use crate::ui::print;

/// Products of a generated shop: enough to search in, opened in a moment.
const GENERATED: u32 = 2000;

/// The shop of an official folder, or a generated one.
pub(crate) fn shop(data: Option<&Path>, seed: u64) -> anyhow::Result<WebshopSet> {
    let options = WebshopOptions::default();
    if let Some(data) = data {
        return Ok(WebshopSet::open(data, None, &options)?);
    }
    let options = WebshopOptions { goals_per_product: Some(1), ..options };
    Ok(WebshopSet::generated(GeneratorConfig { seed, products: GENERATED }, &options)?)
}

/// The goals to play: the one whose id has `wanted` in it, or those of a split in an order drawn by the seed.
pub(crate) fn goals(
    set: &WebshopSet,
    split: Option<&str>,
    wanted: Option<&str>,
    seed: u64,
) -> anyhow::Result<Vec<Task>> {
    if let Some(wanted) = wanted {
        let mut found = Vec::new();
        for place in 0..set.len() {
            let task = set.task(place)?;
            if task.id == wanted {
                return Ok(vec![task]);
            }
            if task.id.contains(wanted) {
                found.push(task);
            }
        }
        return match found.as_slice() {
            [] => {
                bail!("--task {wanted}: no goal has this in its id; without --task one is picked by --seed")
            }
            [_] => Ok(found),
            [first, second, ..] => bail!(
                "--task {wanted}: {} goals have this in their id, for example {} and {}; write more of it",
                found.len(),
                first.id,
                second.id
            ),
        };
    }
    let splits = set.splits();
    let default = splits.iter().find(|split| *split == "test").or(splits.last()).map(String::as_str);
    let mut tasks = set.tasks(split.or(default).context("there are no goals")?)?;
    Seed::derive(seed, Purpose::Tasks, &[]).rng().shuffle(&mut tasks);
    Ok(tasks)
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
    let counts = format!(
        "{} sessions, {} steps, {} differences ({} scores not compared: their type factor needs a language model)",
        report.sessions,
        report.steps,
        report.differences.len(),
        report.scores_not_compared
    );
    print(&replay_summary(counts, "session", &report.differences, show));
    Ok(if report.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
