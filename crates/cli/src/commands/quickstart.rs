use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use turnwise_eval::Evaluation;
use turnwise_train::RunEnd;
use turnwise_train::config::{ConfigSource, load};

use super::seed;
use super::train::{report, split_arguments};
use crate::memory;
use crate::ui::{self, Ui};
use crate::worlds;

/// Train a small agent from scratch and show what it learned.
#[derive(Args)]
pub(crate) struct QuickstartArgs {
    /// Config overrides, e.g. train.steps=20 (keys: `turnwise config show --preset quickstart`).
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Seed for the run.
    #[arg(long, default_value_t = 0, value_parser = seed)]
    seed: u64,
    /// Parent folder of the run directory.
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
    /// Run every stage for only a few steps, as a smoke test; the agent learns little.
    #[arg(long)]
    smoke: bool,
    /// Start even if the estimated memory exceeds what this machine has.
    #[arg(long)]
    ignore_memory: bool,
}

const SMOKE: &[&str] = &[
    "env.generator.train=400",
    "env.generator.valid_unseen=32",
    "sft.demonstrations=400",
    "sft.steps=20",
    "sft.warmup=5",
    "rollout.tasks_per_step=4",
    "rollout.group_size=4",
    "train.steps=2",
    "eval.tasks=32",
];

pub(crate) fn run(args: QuickstartArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let (files, overrides) = split_arguments(args.overrides);
    if let Some(file) = files.first() {
        anyhow::bail!(
            "quickstart takes overrides written key.sub=value; for a config use `turnwise train {}`",
            file.display()
        );
    }
    if overrides.iter().any(|text| text.split('=').next().is_some_and(|key| key.trim() == "seed")) {
        anyhow::bail!("seed: quickstart takes it as --seed N, which the folder of the run is named after");
    }
    let mut all: Vec<String> = Vec::new();
    if args.smoke {
        all.extend(SMOKE.iter().map(|text| (*text).to_owned()));
    }
    all.push(format!("seed={}", args.seed));
    let base = if args.smoke { "quickstart-smoke" } else { "quickstart" };
    let name = free_name(&args.runs, &format!("{base}-seed{}", args.seed));
    all.push(format!("name={name}"));
    all.extend(overrides);
    let preset = Some("quickstart".into());
    let source = worlds::source(ConfigSource { preset, overrides: all, ..ConfigSource::default() });
    let config = load(&source)?;
    let root = args.runs.join(&config.name);
    let mut ui = Ui::new();
    ui.say(&format!("turnwise quickstart, seed {}: everything goes to {}", args.seed, root.display()));
    let run = worlds::run(config).directory(&root).ignore_memory(args.ignore_memory);
    let mut run = run.start(&mut ui).map_err(|error| source.locate(error))?;
    memory::keep_freed_memory(&run);
    let stop = ui::stop_on_interrupt()?;
    let outcome = run.train(&mut ui, stop)?;
    ui.finish();
    if outcome == RunEnd::Interrupted {
        return Ok(report(&run, outcome));
    }
    summary(&ui, &root, started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn free_name(runs: &Path, name: &str) -> String {
    let mut free = name.to_owned();
    let mut number = 2;
    while runs.join(&free).exists() {
        free = format!("{name}-{number}");
        number += 1;
    }
    free
}

fn summary(ui: &Ui, root: &Path, seconds: f64) {
    let root = root.display();
    if let (Some((_, before)), Some((_, after))) = (ui.evaluations.first(), ui.evaluations.last()) {
        for (before, after) in before.iter().zip(after) {
            ui::print(&compare(before, after));
        }
    }
    ui::print(&format!("  finished in {:.0} min {:02.0} s", (seconds / 60.0).floor(), seconds % 60.0));
    ui::print(&format!(
        "\n  files\n    \
         {root}/config.toml          what was run, every default spelled out\n    \
         {root}/metrics.jsonl        every number of every step (TensorBoard: tensorboard --logdir {root})\n    \
         {root}/trajectories/        every turn that was played, with its advantage\n    \
         {root}/checkpoints/         the policy as a Hugging Face folder, ready to resume\n    \
         {root}/eval/                success by task, with intervals\n\n  \
         try next\n    \
         turnwise view {root}        every turn with its advantage and how it came about, in a browser\n    \
         turnwise eval {root} --temperature 0.4\n    \
         turnwise play alfworld"
    ));
}

fn compare(before: &Evaluation, after: &Evaluation) -> String {
    let mut text = format!(
        "\n  Success on {} games ({}: floor plans never seen in training)\n\n  {:<34} {:>24} {:>26}\n",
        after.success.trials, after.split, "", "after the warm start", "after reinforcement"
    );
    let cell = |rate: &turnwise_eval::Rate| {
        format!("{:>6.1} %  [{:>4.1}, {:>5.1}]", 100.0 * rate.rate, 100.0 * rate.low, 100.0 * rate.high)
    };
    for (kind, result) in &after.kinds {
        let earlier = before.kinds.get(kind).map_or_else(String::new, |result| cell(&result.success));
        text.push_str(&format!("  {kind:<34} {earlier:>24} {:>26}\n", cell(&result.success)));
    }
    text.push_str(&format!("  {:<34} {:>24} {:>26}\n", "all", cell(&before.success), cell(&after.success)));
    let gain = 100.0 * (after.success.rate - before.success.rate);
    let apart = if after.success.is_disjoint_from(&before.success) { "apart" } else { "overlapping" };
    text.push_str(&format!("\n  {gain:+.1} points; the 95 % intervals are {apart}"));
    text
}
