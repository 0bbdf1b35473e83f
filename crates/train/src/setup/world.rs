//! The environment of a run, and its expert's episodes.

use std::ops::{ControlFlow, Deref};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use turnwise_core::{EnvError, Purpose, Seed, TaskSet, Tasks};
use turnwise_env::demonstration::{DemonstrationRequest, Demonstrations, explore};
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::world::{self, OpenOptions, WorldTasks};

use crate::TrainError;
use crate::config::{Config, EnvConfig, Registries};

/// The environment of a run; clones share it.
#[derive(Clone)]
pub struct World(Arc<dyn world::World>);

impl Deref for World {
    type Target = dyn world::World;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

struct TasksOnly(Arc<dyn TaskSet>);

impl world::World for TasksOnly {
    fn task_set(&self) -> &dyn TaskSet {
        &*self.0
    }

    fn has_expert(&self) -> bool {
        false
    }
}

impl World {
    /// Opens a config's environment for these splits, and reports any data that the environment
    /// leaves out.
    ///
    /// # Errors
    /// Fails if the registry lacks the environment, its settings are invalid, or its data cannot be
    /// read.
    pub fn new(
        config: &EnvConfig,
        registries: &Registries,
        splits: &[&str],
        note: &mut dyn FnMut(String),
    ) -> Result<Self, TrainError> {
        let mut options = OpenOptions { splits, max_turns: config.max_turns, note };
        let kind = registries.environments.kind(&config.kind)?;
        Ok(Self(kind.open(&config.settings, &mut options)?.into()))
    }

    /// Returns an environment without an expert.
    pub fn of_tasks(task_set: Arc<dyn TaskSet>) -> Self {
        Self(Arc::new(TasksOnly(task_set)))
    }

    /// Returns the tasks, for threads that may outlive a call.
    pub(crate) fn shared_task_set(&self) -> Arc<dyn TaskSet> {
        Arc::new(WorldTasks(Arc::clone(&self.0)))
    }

    /// Plays up to `count` expert episodes on the training split. `progress` gets the number of
    /// episodes after each one, and may return `Break` to stop.
    ///
    /// # Errors
    /// Fails if the split has no tasks, or if the environment has no expert.
    pub fn demonstrations(
        &self,
        config: &Config,
        template: &PromptTemplate,
        count: usize,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Demonstrations, TrainError> {
        let found = with_progress(self.request(config, template, count)?, progress, |request| {
            self.0.demonstrations(request)
        })?;
        found.ok_or_else(|| no_expert(config))
    }

    /// Rejects what would otherwise fail only after long work: SFT without an expert, an estimator
    /// whose environment cannot save the states it needs, and an environment timeout that is not
    /// below the rollout's.
    pub(crate) fn check(&self, config: &Config, registries: &Registries) -> Result<(), TrainError> {
        if config.sft.steps > 0 && config.sft.data.is_none() && !self.0.has_expert() {
            return Err(no_expert(config));
        }
        self.check_saved_states(config, registries)?;
        let number = |value: &toml::Value| value.as_float().or_else(|| Some(value.as_integer()? as f64));
        let (key, limit) = ("env.timeout_s", config.rollout.env_timeout_s);
        let timeout = config.env.settings.get("timeout_s").and_then(number);
        match timeout.filter(|timeout| *timeout >= limit && !self.0.task_set().limits_calls()) {
            None => Ok(()),
            Some(timeout) => Err(TrainError::Config {
                origin: key.into(),
                reason: format!(
                    "is {timeout} s, and rollout.env_timeout_s = {limit} gives every reset and step up before; raise that above {key}"
                ),
            }),
        }
    }

    fn check_saved_states(&self, config: &Config, registries: &Registries) -> Result<(), TrainError> {
        let pipeline = registries.pipeline(config)?;
        if config.train.steps == 0 || pipeline.required_inputs().state_values.is_none() {
            return Ok(());
        }
        let tasks = Tasks::of(self.0.task_set(), &config.env.split)?;
        if tasks.is_empty() {
            return Ok(());
        }
        let mut environment = self.0.task_set().environment()?;
        environment.reset(&tasks.get(0)?, Seed::derive(config.seed, Purpose::Environment, &[]))?;
        let saved = environment.snapshot()?;
        environment.close();
        if saved.is_some() {
            return Ok(());
        }
        Err(TrainError::Config {
            origin: "credit.estimator".into(),
            reason: format!(
                "is \"{}\", which continues episodes from the states before their turns, and the world `{}` cannot save and restore \
                 its states; use a native world (alfworld, webshop, sokoban, ezpoints, search), or another estimator",
                pipeline.estimator(),
                config.env.kind
            ),
        })
    }

    pub(crate) fn texts(
        &self,
        config: &Config,
        template: &PromptTemplate,
        count: usize,
        progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Demonstrations, TrainError> {
        Ok(with_progress(self.request(config, template, count)?, progress, |request| {
            match self.0.demonstrations(request)? {
                Some(found) => Ok(found),
                None => explore(self.0.task_set(), request),
            }
        })?)
    }

    fn request<'a>(
        &self,
        config: &'a Config,
        template: &PromptTemplate,
        count: usize,
    ) -> Result<DemonstrationRequest<'a>, TrainError> {
        let split = &config.env.split;
        if Tasks::of(self.0.task_set(), split)?.is_empty() {
            return Err(TrainError::Config {
                origin: "env.split".into(),
                reason: format!("the split `{split}` has no tasks, so there is nothing to demonstrate"),
            });
        }
        Ok(DemonstrationRequest {
            split,
            count,
            invalid_action_prob: config.sft.invalid_action_prob,
            max_turns: config.env.max_turns,
            // Admissible actions take most of the memory.
            keep_admissible: template.lists_admissible(),
            seed: config.seed,
            ..DemonstrationRequest::default()
        })
    }
}

fn no_expert(config: &Config) -> TrainError {
    TrainError::Config {
        origin: "sft.steps".into(),
        reason: format!(
            "the world `{}` has no expert to imitate; give it one (in Python `serve(.., expert=..)`), or set sft.steps to 0 and \
             policy.model to a pretrained model",
            config.env.kind
        ),
    }
}

/// Reports progress on this thread, because observers need not be thread-safe.
fn with_progress<T: Send>(
    request: DemonstrationRequest<'_>,
    progress: &mut dyn FnMut(usize) -> ControlFlow<()>,
    meet: impl FnOnce(&DemonstrationRequest<'_>) -> Result<T, EnvError> + Send,
) -> Result<T, EnvError> {
    let (sender, receiver) = mpsc::channel();
    let stopped = &AtomicBool::new(false);
    thread::scope(|scope| {
        let playing = scope.spawn(move || {
            let played = || {
                let _ = sender.send(());
                if stopped.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            meet(&DemonstrationRequest { played: &played, ..request })
        });
        for (before, ()) in receiver.iter().enumerate() {
            if progress(before + 1).is_break() {
                stopped.store(true, Ordering::Relaxed);
            }
        }
        playing.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
