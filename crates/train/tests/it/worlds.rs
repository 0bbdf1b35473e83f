//! A custom environment, and panels that pin task contents.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Observation, Seed, Step, Task, TaskSet};
use turnwise_env::registry::Registry;
use turnwise_env::world::{EvalDefaults, OpenOptions, WorldKind};
use turnwise_train::config::ConfigSource;
use turnwise_train::config::{Registries, load};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::record::panels;
use turnwise_train::setup::World;
use turnwise_train::{NoopObserver, Run, RunDirectory, TrainError};

use crate::custom_environment;

use crate::common;

#[test]
fn a_world_of_another_crate_trains() {
    let folder = tempfile::tempdir().unwrap();
    let lines = custom_environment::train(&folder.path().join("run")).unwrap();
    let rates: Vec<f64> = lines.iter().filter_map(|line| line.metrics.get("train/success_rate")).collect();
    assert_eq!(rates.len(), 3, "three steps of reinforcement learning");
    assert!(rates.iter().any(|rate| *rate > 0.0), "{rates:?}");
    let error = common::resume(&folder.path().join("run"), &mut NoopObserver).err().unwrap();
    let error = error.to_string();
    assert!(error.contains("env.kind = \"lock\"") && error.contains("there are alfworld, "), "{error}");
}

fn fact(text: &str) -> Option<&str> {
    text.find(')').map(|end| &text[..end])
}

#[test]
fn a_game_that_changed_under_its_name_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let games = folder.path().join("games");
    let generator = turnwise_env::alfworld::generator::GeneratorConfig {
        train: 6,
        valid_seen: 0,
        valid_unseen: 2,
        ..Default::default()
    };
    turnwise_env::alfworld::generator::write_games(&generator, &games).unwrap();
    let overrides = [format!("env.data={}", games.display()), "eval.splits=[\"valid_unseen\"]".into()];
    let config = load(&ConfigSource { overrides: overrides.to_vec(), ..ConfigSource::default() }).unwrap();
    let open = || World::new(&config.env, &Registries::builtin(), &config.splits(), &mut |_| ()).unwrap();
    let world = open();
    let run = RunDirectory::create(&folder.path().join("run")).unwrap();
    let panels = panels::pin(&config, world.task_set()).unwrap();
    run.write_json("panel.json", &panels).unwrap();
    panels::verify(&run, &config, world.task_set()).unwrap();
    let own = panels::pinned(&run, "valid_unseen", world.task_set()).unwrap().unwrap();
    assert_eq!(own, panels.evaluation["valid_unseen"]);
    assert!(panels::pinned(&run, "train", world.task_set()).unwrap().is_none());

    // A game's fact changes under the same name: the agent starts elsewhere.
    let task = &own.tasks[0];
    let file = games.join(&task.id).join("game.tw-pddl");
    let text = std::fs::read_to_string(&file).unwrap();
    let locations: Vec<&str> = text
        .match_indices("(receptacleAtLocation ")
        .filter_map(|(at, _)| fact(&text[at..])?.split(' ').nth(2))
        .collect();
    let at = text.find("(atLocation agent").unwrap();
    let fact = fact(&text[at..]).unwrap();
    let place = fact.split(' ').nth(2).unwrap();
    let other = locations.iter().find(|location| **location != place).unwrap();
    let changed = text.replacen(fact, &fact.replace(place, other), 1);
    assert_ne!(changed, text);
    std::fs::write(&file, changed).unwrap();
    let world = open();
    let found = world.task_set().tasks("valid_unseen").unwrap();
    let found = found.iter().find(|found| found.id == task.id).unwrap();
    assert_eq!((&found.goal, &found.kind), (&task.goal, &task.kind), "one fact and nothing else");
    let expected = format!(
        "the content of task `{}` has changed since the panel was pinned, under the same name (its digest was {}, it is {}); \
         the data are not the same",
        task.id,
        task.content_digest(),
        found.content_digest()
    );
    for error in [
        panels::verify(&run, &config, world.task_set()).unwrap_err().to_string(),
        panels::pinned(&run, "valid_unseen", world.task_set()).unwrap_err().to_string(),
    ] {
        assert!(error.ends_with(&expected), "{error}");
    }
}

/// Episodes of the task `mixed` alternately succeed and fail, all others fail; after `lasts` of
/// them, the environment fails permanently.
#[derive(Clone)]
struct Breaking {
    lasts: u64,
    played: Arc<AtomicU64>,
    mixed: Arc<AtomicU64>,
    task: String,
}

impl Environment for Breaking {
    fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.task.clone_from(&task.id);
        Ok(Observation::new("press one of the buttons"))
    }

    fn step(&mut self, _: &Action) -> Result<Step, EnvError> {
        if self.played.fetch_add(1, Ordering::SeqCst) >= self.lasts {
            return Err(EnvError::Other("the button fell off".into()));
        }
        let success = self.task == "mixed" && self.mixed.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        let reward = f64::from(u8::from(success));
        Ok(Step {
            observation: Observation::new("click"),
            reward,
            terminated: true,
            success,
            ..Step::default()
        })
    }
}

impl TaskSet for Breaking {
    fn name(&self) -> &'static str {
        "breaking"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into(), "test".into()]
    }

    fn tasks(&self, split: &str) -> Result<Vec<Task>, EnvError> {
        let names: &[&str] = if split == "train" { &["mixed", "equal"] } else { &["test"] };
        Ok(names.iter().map(|name| Task::new(*name, "button", "press it")).collect())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(self.clone()))
    }
}

impl turnwise_env::world::World for Breaking {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct BreakingSettings {
    lasts: u64,
}

struct BreakingKind;

impl WorldKind for BreakingKind {
    type Settings = BreakingSettings;

    fn name(&self) -> &'static str {
        "breaking"
    }

    fn summary(&self) -> &'static str {
        "a button that falls off"
    }

    fn open(
        &self,
        settings: &BreakingSettings,
        _: &mut OpenOptions<'_>,
    ) -> Result<Box<dyn turnwise_env::world::World>, EnvError> {
        let (played, mixed) = (Arc::default(), Arc::default());
        Ok(Box::new(Breaking { lasts: settings.lasts, played, mixed, task: String::new() }))
    }

    fn eval_defaults(&self) -> EvalDefaults<'static> {
        EvalDefaults { max_turns: 1, splits: &["test"], ..EvalDefaults::default() }
    }
}

/// Two tasks, two episodes each, at most three rounds.
fn train_in_breaking(lasts: u64) -> Result<Vec<MetricsLine>, TrainError> {
    let settings = "env.kind=breaking env.max_turns=1 prompt.template=plain policy.scratch.hidden_size=32 \
                    policy.scratch.layers=1 policy.scratch.heads=2 policy.scratch.key_value_heads=1 \
                    policy.scratch.intermediate_size=64 sft.steps=0 rollout.tasks_per_step=2 rollout.group_size=2 \
                    rollout.max_response_tokens=4 rollout.max_model_len=256 \
                    rollout.filter_groups={kind=\"dynamic\",max_rounds=3} train.steps=1 train.num_minibatches=1 \
                    eval.every=0 eval.splits=[]";
    let overrides = settings.split_whitespace().map(str::to_owned).chain([format!("env.lasts={lasts}")]);
    let environments = Registry::builtin().with(BreakingKind);
    let registries = Registries { environments: environments.clone(), ..Registries::builtin() };
    let overrides = overrides.collect();
    let config = load(&ConfigSource { overrides, registries, ..ConfigSource::default() })?;
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let run = Run::builder(config).environments(environments).directory(&root);
    let mut run = run.start(&mut NoopObserver)?;
    run.train(&mut NoopObserver, &AtomicBool::new(false))?;
    read_metrics(&root.join("metrics.jsonl"))
}

#[test]
fn a_round_in_which_every_environment_fails_ends_no_step_that_has_groups() {
    // The first round has one useful group and one with equal returns; the next two fail
    // completely.
    let lines = train_in_breaking(4).unwrap();
    let of = |tag: &str| lines[0].metrics.get(tag).unwrap();
    assert_eq!((of("rollout/rounds"), of("rollout/groups"), of("rollout/groups_masked")), (3.0, 1.0, 4.0));
    assert_eq!(
        (of("rollout/masked"), of("rollout/error_rate"), of("train/success_rate")),
        (8.0, 8.0 / 12.0, 0.25)
    );
    let error = train_in_breaking(0).unwrap_err().to_string();
    assert!(error.contains("the button fell off"), "{error}");
}
