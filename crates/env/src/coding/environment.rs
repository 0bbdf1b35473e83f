//! One episode on a repository.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task, Tool};

use super::repository::Repository;
use super::set::Shared;
use super::tools::{self, Call};
use crate::saved::SavedEpisode;

/// A coding environment.
#[derive(Debug)]
pub struct CodingEnv {
    shared: Arc<Shared>,
    tools: Vec<Tool>,
    max_turns: usize,
    episode: Option<Saved>,
    over: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    turns: usize,
    files: Repository,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "coding";
    const FORMAT: &'static str = "turnwise.coding.episode";
    const VERSION: u32 = 1;
}

impl CodingEnv {
    pub(super) fn new(shared: Arc<Shared>, max_turns: usize) -> Self {
        Self { shared, tools: tools::tools(), max_turns, episode: None, over: false }
    }

    /// Returns the current files.
    pub fn files(&self) -> Option<&Repository> {
        self.episode.as_ref().map(|episode| &episode.files)
    }

    fn call(&self, episode: &mut Saved, call: Call) -> Result<Step, EnvError> {
        let files = &mut episode.files;
        let answer = match call {
            Call::List => Ok(files.list()),
            Call::View { path, first, last } => files.view(&path, first, last),
            Call::Search { text } => files.search(&text),
            Call::Edit { path, place, new } => files.edit(&path, &place, &new),
            Call::Run { command } => {
                let (text, after) = self.shared.workshop.run(&command, files, &self.shared.limits)?;
                if let Some(after) = after {
                    *files = after;
                }
                Ok(text)
            }
            Call::Submit => return self.submit(episode),
        };
        Ok(tools::answered(answer))
    }

    fn submit(&self, episode: &Saved) -> Result<Step, EnvError> {
        let task = self.shared.task(&episode.task)?;
        let values = self.shared.workshop.submitted(task, &episode.files, &self.shared.limits)?;
        let passed = task.passed(&values);
        let success = passed == task.checks.len();
        Ok(Step {
            reward: f64::from(u8::from(success)),
            terminated: true,
            success,
            understood: true,
            metrics: vec![Metric::last("checks_passed", passed as f64 / task.checks.len().max(1) as f64)],
            ..Step::default()
        })
    }
}

impl Environment for CodingEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        self.episode = None;
        self.over = false;
        let known = self.shared.task(&task.id)?;
        let files = Repository::new(&known.files);
        let text = format!("Files: {}", files.list());
        self.episode = Some(Saved { task: task.id.clone(), turns: 0, files });
        Ok(Observation::new(text))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let mut episode = self.episode.take().ok_or(EnvError::NotReset)?;
        if self.over {
            let error = format!("{}: the episode is over; call `reset` before the next `step`", episode.task);
            self.episode = Some(episode);
            return Err(EnvError::Other(error));
        }
        let step = match tools::read(action) {
            Ok(call) => self.call(&mut episode, call),
            Err(reason) => Ok(tools::answered(Err(reason))),
        };
        episode.turns += 1;
        let truncated = episode.turns >= self.max_turns;
        self.episode = Some(episode);
        let mut step = step?;
        step.truncated = truncated && !step.terminated;
        self.over = step.terminated || step.truncated;
        Ok(step)
    }

    fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Saves the files and the number of turns, but not the limits, which are settings. Finished
    /// episodes cannot be saved.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if self.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        episode.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        self.shared.task(&saved.task)?;
        saved.files.check().map_err(EnvError::State)?;
        self.over = false;
        self.episode = Some(saved);
        Ok(())
    }
}
