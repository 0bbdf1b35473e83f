//! A custom environment, a lock with a dial. The agent answers `up`, `down` or `open`. Run it with
//! `cargo run --release -p turnwise-train --example custom_environment`.

use std::sync::atomic::AtomicBool;

use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task};
use turnwise_env::dataset::{Dataset, NoSettings};
use turnwise_env::registry::Registry;
use turnwise_train::{
    ConfigSource, MetricsLine, NoopObserver, Registries, Run, TrainError, load, read_metrics,
};

#[derive(Default)]
struct Lock {
    shown: i64,
    opens_at: i64,
}

impl Lock {
    fn observation(&self) -> Observation {
        Observation::new(format!("The dial shows {}, the lock opens at {}.", self.shown, self.opens_at))
    }
}

impl Environment for Lock {
    fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        let number = |key| task.metadata.get(key).and_then(serde_json::Value::as_i64).unwrap_or_default();
        (self.shown, self.opens_at) = (number("start"), number("opens_at"));
        Ok(self.observation())
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let action = action.text();
        self.shown += i64::from(action == "up") - i64::from(action == "down");
        let (observation, terminated) = (self.observation(), action == "open");
        let success = terminated && self.shown == self.opens_at;
        let (reward, understood) = (f64::from(u8::from(success)), ["up", "down", "open"].contains(&&*action));
        Ok(Step { observation, reward, terminated, success, understood, ..Step::default() })
    }
}

/// Returns a task for each pair of numbers, one in four for testing, and an expert for SFT.
fn locks() -> Dataset<Lock> {
    let tasks = |test: bool| {
        let task = |(start, end): (i64, i64)| {
            let mut task = Task::new(format!("{start}-{end}"), "lock", "open the lock");
            task.metadata.extend([("start".into(), start.into()), ("opens_at".into(), end.into())]);
            task
        };
        let pairs = (0..5).flat_map(|start| (0..5).map(move |end| (start, end)));
        pairs.filter(|(start, end)| start != end && ((start + 3 * end) % 4 == 0) == test).map(task).collect()
    };
    let expert = |lock: &Lock, _: &Observation| match (lock.opens_at - lock.shown).signum() {
        1 => "up".into(),
        0 => "open".into(),
        _ => "down".into(),
    };
    Dataset::new(Lock::default).split("train", tasks(false)).split("test", tasks(true)).expert(expert)
}

/// Trains a small model: a warm start on the expert's episodes, then three steps of GRPO.
pub(crate) fn train(root: &std::path::Path) -> Result<Vec<MetricsLine>, TrainError> {
    let environments = Registry::builtin().with_environment("lock", |_: &NoSettings| Ok(locks()));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/custom_environment.toml");
    let registries = Registries { environments: environments.clone(), ..Registries::builtin() };
    let source = ConfigSource { files: vec![file.into()], registries, ..ConfigSource::default() };
    let run = Run::builder(load(&source)?).environments(environments).directory(root);
    let mut run = run.start(&mut NoopObserver)?;
    run.train(&mut NoopObserver, &AtomicBool::new(false))?;
    read_metrics(&root.join("metrics.jsonl"))
}

#[allow(clippy::print_stdout, reason = "an example is a program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::temp_dir().join(format!("turnwise-lock-{}", std::process::id()));
    for line in train(&root)? {
        println!("step {}: success {:?}", line.step, line.metrics.get("train/success_rate"));
    }
    Ok(std::fs::remove_dir_all(&root)?)
}
