//! A world of one's own, trained on through the library: `cargo run --release -p turnwise-train --example custom_environment`.
//!
//! A combination lock with one dial. The agent reads what the dial shows and where the lock opens, and says `up`, `down`
//! or `open`. What follows is everything that a world needs: an episode, a set of tasks, an expert to imitate, and the
//! line that adds it to the registry. A configuration names it as `env.kind = "lock"`.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task, TaskSet};
use turnwise_env::demonstration::{
    Demonstration, DemonstrationRequest, DemonstrationTurn, Demonstrations, play_all,
};
use turnwise_env::registry::Registry;
use turnwise_env::world::{OpenOptions, Usual, World, WorldKind};
use turnwise_train::config::{ConfigSource, load_with};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::{Methods, NoopObserver, Resume, Run, RunParts, TrainError};

/// An episode: one lock.
struct Lock {
    shown: i64,
    opens_at: i64,
    turns: usize,
    max_turns: usize,
}

impl Lock {
    fn observation(&self) -> Observation {
        Observation::new(format!("The dial shows {}, the lock opens at {}.", self.shown, self.opens_at))
            .with_admissible(["up", "down", "open"].map(String::from).to_vec())
    }
}

impl Environment for Lock {
    fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        let number = |key: &str| {
            let value = task.metadata.get(key).and_then(serde_json::Value::as_i64);
            value.ok_or_else(|| EnvError::UnknownTask(task.id.clone()))
        };
        (self.shown, self.opens_at, self.turns) = (number("start")?, number("opens_at")?, 0);
        Ok(self.observation())
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.turns += 1;
        let action = action.text();
        match &*action {
            "up" => self.shown += 1,
            "down" => self.shown -= 1,
            _ => {}
        }
        let opened = action == "open";
        let success = opened && self.shown == self.opens_at;
        Ok(Step {
            observation: if opened { Observation::new("You pull.") } else { self.observation() },
            reward: f64::from(u8::from(success)),
            terminated: opened,
            truncated: !opened && self.turns >= self.max_turns,
            success,
            understood: ["up", "down", "open"].contains(&&*action),
            ..Step::default()
        })
    }
}

/// The world's own keys of the `[env]` table.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct LockSettings {
    /// Numbers on the dial.
    #[schemars(range(min = 2, max = 9))]
    numbers: i64,
}

impl Default for LockSettings {
    fn default() -> Self {
        Self { numbers: 6 }
    }
}

/// The open world: every pair of two different numbers is a task, one in four of them for the test.
struct Locks {
    numbers: i64,
    max_turns: usize,
}

impl TaskSet for Locks {
    fn name(&self) -> &'static str {
        "lock"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        if !self.splits().iter().any(|known| known == split) {
            return Err(EnvError::UnknownSplit { split: split.into(), known: self.splits().join(", ") });
        }
        let pairs = (0..self.numbers).flat_map(|start| (0..self.numbers).map(move |end| (start, end)));
        let pairs = pairs.filter(|(start, end)| start != end);
        let wanted = pairs.filter(|(start, end)| ((start + 3 * end) % 4 == 0) == (split == "test"));
        Ok(wanted
            .map(|(start, end)| {
                let mut task = Task::new(format!("{start}-{end}"), "lock", "open the lock");
                task.metadata.insert("start".into(), start.into());
                task.metadata.insert("opens_at".into(), end.into());
                task
            })
            .collect())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Lock { shown: 0, opens_at: 0, turns: 0, max_turns: self.max_turns }))
    }
}

impl World for Locks {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }

    /// An expert that turns the dial to where it should be. A world without one returns `None`, which is the default.
    fn demonstrations(&self, request: &DemonstrationRequest<'_>) -> Result<Option<Demonstrations>, EnvError> {
        let made = play_all(&self.tasks(request.split)?, request, |task, seed| {
            let mut lock = Lock { shown: 0, opens_at: 0, turns: 0, max_turns: self.max_turns };
            let mut observation = lock.reset(task, seed)?;
            let mut turns = Vec::new();
            loop {
                let action = match lock.shown.cmp(&lock.opens_at) {
                    std::cmp::Ordering::Less => "up",
                    std::cmp::Ordering::Greater => "down",
                    std::cmp::Ordering::Equal => "open",
                };
                let step = lock.step(&Action::from(action))?;
                turns.push(DemonstrationTurn {
                    observation: observation.into_text(),
                    action: action.into(),
                    imitate: true,
                    reward: step.reward,
                    ..DemonstrationTurn::default()
                });
                observation = step.observation;
                if step.terminated || step.truncated {
                    let final_observation = observation.into_text();
                    return Ok(Some(Demonstration {
                        task: task.clone(),
                        tools: Vec::new(),
                        turns,
                        final_observation,
                    }));
                }
            }
        })?;
        Ok(Some(made))
    }
}

/// The kind of world, as `env.kind` names it.
struct LockKind;

impl WorldKind for LockKind {
    type Settings = LockSettings;

    fn name(&self) -> &'static str {
        "lock"
    }

    fn summary(&self) -> &'static str {
        "a combination lock with one dial"
    }

    fn open(
        &self,
        settings: &LockSettings,
        options: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn World>, EnvError> {
        Ok(Box::new(Locks { numbers: settings.numbers, max_turns: options.max_turns }))
    }

    fn usual(&self) -> Usual<'static> {
        Usual { max_turns: 8, splits: &["test"], ..Usual::default() }
    }
}

/// Trains a small model from scratch: a warm start on the expert's episodes, then three steps of GRPO. The metrics of
/// every step.
///
/// # Errors
/// Whatever ends a run.
pub(crate) fn train(root: &Path) -> Result<Vec<MetricsLine>, TrainError> {
    // The one line that makes it known.
    let worlds = Registry::builtin().with(LockKind);
    let settings = "env.kind=lock env.numbers=5 env.max_turns=8 prompt.template=plain \
                    policy.scratch.hidden_size=32 policy.scratch.layers=2 policy.scratch.heads=2 \
                    policy.scratch.key_value_heads=1 policy.scratch.intermediate_size=64 \
                    sft.steps=40 sft.demonstrations=60 sft.batch_tokens=1500 sft.learning_rate=5e-3 sft.warmup=5 \
                    rollout.tasks_per_step=4 rollout.group_size=4 rollout.max_response_tokens=6 rollout.max_context=512 \
                    train.steps=3 train.learning_rate=1e-3 train.skip_zero_advantage=false eval.splits=[\"test\"]";
    let overrides = settings.split_whitespace().map(str::to_owned).collect();
    let config =
        load_with(&ConfigSource { overrides, ..ConfigSource::default() }, &worlds, &Methods::builtin())?;
    let mut run = Run::start(config, root, &mut NoopObserver)?;
    run.train(&mut NoopObserver, &AtomicBool::new(false))?;
    // A run in a world of one's own is opened again with the same registry.
    drop(run);
    let parts = RunParts { worlds, ..RunParts::default() };
    drop(Run::resume_with(&parts, root, &Resume::default(), &mut NoopObserver)?);
    read_metrics(&root.join("metrics.jsonl"))
}

/// Trains in a folder of its own and says how often the lock was opened.
#[allow(clippy::print_stdout, reason = "an example is a program")]
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::temp_dir().join(format!("turnwise-lock-{}", std::process::id()));
    for line in train(&root)? {
        if let Some(rate) = line.metrics.get("train/success_rate") {
            println!("step {}: {:.0} % of the locks opened", line.step, 100.0 * rate);
        }
    }
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
