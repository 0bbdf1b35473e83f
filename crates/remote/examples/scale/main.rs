//! Simulates one controller with eight inference servers and 2,000 trajectories in flight. Measures
//! the controller's cost and the servers' idle time, with and without rollouts during updates.
//!
//! ```sh
//! cargo run --release -p turnwise-remote --example scale -- [steps=6] [in_flight=2000] [servers=8] [tokens_per_s=60000] [staleness=1]
//! ```
//!
//! Without `staleness`, it measures one run without rollouts during updates and one with
//! `rollout.max_staleness = 1`.
//!
//! The controller is a run like those of `turnwise train`: household, prompts, credit, checkpoints,
//! adapters written and loaded under new names, requests over HTTP. The servers are a separate
//! process (`servers.rs`) with the timing of GPU engines and random tokens. The trainer
//! (`learner.rs`) takes as long as a remote one with this many tokens per second.
#![expect(clippy::print_stdout, reason = "the figures are what it is for")]

mod learner;
mod servers;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use turnwise_remote::engines::EngineSource;
use turnwise_train::config::{Config, ConfigSource, load};
use turnwise_train::{EvaluationPoint, Event, Observer, Run};

use crate::learner::SlowSource;
use crate::servers::Report;

/// Trajectories per task.
const GROUP: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return servers::serve(arguments[1].parse()?);
    }
    let mut settings =
        BTreeMap::from([("steps", 6), ("in_flight", 2000), ("servers", 8), ("tokens_per_s", 60_000)]);
    let mut ages = vec![0, 1];
    for argument in &arguments {
        let (key, value) = argument.split_once('=').ok_or("settings are key=number")?;
        let value = value.parse()?;
        if key == "staleness" {
            ages = vec![value];
        } else {
            *settings.get_mut(key).ok_or_else(|| format!("there is no setting {key}"))? = value;
        }
    }
    println!("{settings:?}");
    println!(
        "staleness  trajectories  a step   time  per s  servers idle  slots free  CPU of the controller  memory   requests  \
         wait for rollouts"
    );
    for staleness in ages {
        measure(&settings, staleness)?;
    }
    Ok(())
}

/// One run with at most `in_flight` trajectories in flight.
fn measure(settings: &BTreeMap<&str, u64>, staleness: u64) -> Result<(), Box<dyn Error>> {
    let count = settings["servers"];
    let (process, urls) = start_servers(count)?;
    let folder = std::env::temp_dir().join(format!("turnwise-scale-{}-{staleness}", std::process::id()));
    let a_step = settings["in_flight"] / (staleness + 1);
    let config = config(&urls, &folder, a_step, staleness, settings["steps"])?;
    let source = SlowSource { tokens_per_s: settings["tokens_per_s"] as f64 };
    let policies = Arc::new(EngineSource::over(source));
    let mut waited = Waited::default();
    let run = Run::builder(config).policies(policies).directory(folder.join("run"));
    let mut run = run.start(&mut waited)?;
    let (started, cpu) = (Instant::now(), cpu_seconds()?);
    run.train(&mut waited, &AtomicBool::new(false))?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds()? - cpu);
    drop(run);
    let report = stop(process)?;
    std::fs::remove_dir_all(&folder)?;
    let trajectories = settings["steps"] * a_step;
    let whole = count as f64 * report.seconds;
    println!(
        "{staleness:>9}  {trajectories:>12}  {a_step:>6}  {seconds:>3.0} s  {:>5.1}  {:>10.1} %  {:>8.1} %  {:>15.2} cores  {:>3.0} MiB  {:>9}  {:>15.0} s",
        trajectories as f64 / seconds,
        100.0 * (1.0 - report.busy / whole),
        100.0 * (1.0 - report.occupied / (whole * servers::SLOTS as f64)),
        cpu / seconds,
        most_memory()?,
        report.requests,
        waited.0,
    );
    Ok(())
}

fn config(
    urls: &[String],
    folder: &Path,
    a_step: u64,
    staleness: u64,
    steps: u64,
) -> Result<Config, Box<dyn Error>> {
    let lanes = 8;
    let overrides = [
        "name=\"scale\"".to_owned(),
        "env.generator.train=400".into(),
        "policy.scratch={hidden_size=16, layers=1, heads=2, key_value_heads=1, intermediate_size=32}".into(),
        "policy.lora={rank=2, alpha=4.0}".into(),
        "sft={steps=0, demonstrations=50}".into(),
        format!("rollout.tasks_per_step={}", a_step / GROUP),
        format!("rollout.group_size={GROUP}"),
        format!("rollout.num_workers={lanes}"),
        format!("rollout.max_num_seqs={}", a_step.div_ceil(lanes)),
        "rollout.max_response_tokens=256".into(),
        "rollout.max_model_len=8192".into(),
        format!("rollout.max_staleness={staleness}"),
        format!("rollout.engine.urls={urls:?}"),
        format!("rollout.engine.adapter_dir=\"{}\"", folder.join("adapters").display()),
        format!("rollout.engine.max_requests_per_server={}", servers::SLOTS),
        format!("train.steps={steps}"),
        "train.num_minibatches=1".into(),
        "train.checkpoint_every=0".into(),
        "train.save_trajectories=false".into(),
        "train.skip_zero_advantage=false".into(),
        "eval.every=0".into(),
    ];
    let source = ConfigSource {
        preset: Some("quickstart".into()),
        overrides: overrides.into(),
        ..ConfigSource::default()
    };
    Ok(load(&source)?)
}

/// Starts the servers and returns their addresses.
fn start_servers(count: u64) -> Result<(Child, Vec<String>), Box<dyn Error>> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["serve", &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = BufReader::new(process.stdout.take().ok_or("no output")?);
    let urls = output.lines().take(count as usize).collect::<Result<_, _>>()?;
    Ok((process, urls))
}

/// Requests the servers' report and ends them.
fn stop(mut process: Child) -> Result<Report, Box<dyn Error>> {
    drop(process.stdin.take());
    process.wait()?;
    let path = servers::report_path(process.id());
    let report = serde_json::from_slice(&std::fs::read(&path)?)?;
    std::fs::remove_file(path)?;
    Ok(report)
}

/// Returns the CPU seconds of this process, from `/proc` (in hundredths).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields = text.rsplit(')').next().ok_or("no fields")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? / 100.0)
}

/// Returns the peak memory of this process in MiB. In the second run it includes the first.
fn most_memory() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Returns the seconds for which updates waited for rollouts.
#[derive(Default)]
struct Waited(f64);

impl Observer for Waited {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Step { metrics, .. } = event {
            self.0 += metrics.get("perf/rollout_s").unwrap_or(0.0);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}
