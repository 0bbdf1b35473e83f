//! An episode on one SWE-bench or R2E-Gym instance.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use turnwise_core::{Action, EnvError, Environment, Metric, Observation, Seed, Snapshot, Step, Task, Tool};

use super::grade::{self, Grade};
use super::instance::{SweInstance, SweTests, directives};
use super::patch;
use super::repository::Worktree;
use super::set::Shared;
use crate::coding::Content;
use crate::coding::tools::{self, Call};
use crate::saved::SavedEpisode;

const R2E_SCRIPT: &str = "run_tests.sh";
const R2E_TESTS: &str = "/r2e_tests";

/// An environment with one container.
#[derive(Debug)]
pub struct SweEnv {
    shared: Arc<Shared>,
    tools: Vec<Tool>,
    max_turns: usize,
    episode: Option<Episode>,
    over: bool,
}

#[derive(Debug)]
struct Episode {
    task: String,
    turns: usize,
    worktree: Worktree,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    task: String,
    turns: usize,
    /// Git diff from the files in the image to the current files.
    patch: Content,
}

impl SavedEpisode for Saved {
    const WORLD: &'static str = "swe";
    const FORMAT: &'static str = "turnwise.swe.episode";
    const VERSION: u32 = 1;
}

impl SweEnv {
    pub(super) fn new(shared: Arc<Shared>, max_turns: usize) -> Self {
        Self { shared, tools: tools::tools(), max_turns, episode: None, over: false }
    }

    fn worktree(&self, instance: &SweInstance, for_agent: bool) -> Result<Worktree, EnvError> {
        let hidden: &[&str] = match instance.tests {
            SweTests::R2eGym { .. } if for_agent => &[R2E_SCRIPT, "r2e_tests", R2E_TESTS],
            _ => &[],
        };
        let host = &self.shared.host;
        Worktree::new(host.start(&instance.image, hidden)?, host.repository(), hidden)
    }

    fn call(&self, episode: &Episode, call: Call) -> Result<Step, EnvError> {
        let worktree = &episode.worktree;
        let answer = match call {
            Call::List => Ok(worktree.list(".")?),
            Call::View { path, first, last } => worktree.view(&path, first, last)?,
            Call::Search { text } => worktree.search(&text)?,
            Call::Edit { path, place, new } => worktree.edit(&path, &place, &new)?,
            Call::Run { command } => worktree.run(&command, self.shared.host.limits())?,
            Call::Submit => return self.submit(episode),
        };
        Ok(tools::answered(answer))
    }

    fn submit(&self, episode: &Episode) -> Result<Step, EnvError> {
        let instance = self.shared.instance(&episode.task)?;
        let grade = match episode.worktree.patch()? {
            Some(patch) => self.grade(instance, &patch)?,
            None => Grade::default(),
        };
        Ok(Step {
            reward: f64::from(u8::from(grade.solved)),
            terminated: true,
            success: grade.solved,
            understood: true,
            metrics: vec![Metric::last("tests_passed", grade.passed as f64 / grade.tests.max(1) as f64)],
            ..Step::default()
        })
    }

    /// Grades the agent's diff in a fresh container, as SWE-bench and R2E-Gym do.
    fn grade(&self, instance: &SweInstance, change: &[u8]) -> Result<Grade, EnvError> {
        let worktree = self.worktree(instance, false)?;
        let seconds = self.shared.host.limits().tests_s;
        if !worktree.apply(change)? {
            return Ok(Grade::default());
        }
        match &instance.tests {
            SweTests::SweBench { base, patch: tests, fail_to_pass, pass_to_pass, command, format } => {
                let files = patch::parse(tests);
                let known: Vec<&str> = files.iter().filter_map(|file| file.old.as_deref()).collect();
                let new = files.iter().filter(|file| file.old.is_none());
                let new: Vec<&str> = new.filter_map(|file| file.new.as_deref()).collect();
                if !(worktree.reset(base, &known, &new)? && worktree.apply(tests.as_bytes())?) {
                    return Ok(Grade::default());
                }
                let arguments = directives(&instance.repo, tests);
                let quoted =
                    arguments.iter().map(|argument| format!(" '{}'", argument.replace('\'', "'\\''")));
                let line = format!(
                    "export LANG=C.UTF-8 LC_ALL=C.UTF-8 PYTHONIOENCODING=utf8\n{command}{}",
                    quoted.collect::<String>()
                );
                let ran = worktree.command(&line, seconds)?;
                let code = match ran.end {
                    turnwise_sandbox::End::Exited(code) => Some(code),
                    _ => None,
                };
                Ok(grade::swe_bench(&ran.text(), code, *format, fail_to_pass, pass_to_pass))
            }
            SweTests::R2eGym { expected } => {
                let line = format!(
                    "if [ -d {R2E_TESTS} ] && [ ! -e r2e_tests ]; then ln -s {R2E_TESTS} r2e_tests; fi\n\
                     if [ -f {R2E_SCRIPT} ]; then exec bash {R2E_SCRIPT}; else exec bash /root/{R2E_SCRIPT}; fi"
                );
                Ok(grade::r2e_gym(&worktree.command(&line, seconds)?.text(), expected))
            }
        }
    }
}

impl Environment for SweEnv {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        // Removes the last episode's container even if the reset fails.
        self.episode = None;
        self.over = false;
        let worktree = self.worktree(self.shared.instance(&task.id)?, true)?;
        let folder = self.shared.host.repository();
        let text = format!("The repository is in {folder}. Files: {}", worktree.overview()?);
        self.episode = Some(Episode { task: task.id.clone(), turns: 0, worktree });
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
            Ok(call) => self.call(&episode, call),
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

    /// Saves the diff between the image and the current files. Running processes and files ignored
    /// by git are not saved.
    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        let episode = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        if self.over {
            return Err(EnvError::State("the episode has ended; there is nothing to save".to_owned()));
        }
        let patch = episode.worktree.patch()?;
        let patch =
            patch.ok_or_else(|| EnvError::State("git gives no difference of the repository".to_owned()))?;
        Saved { task: episode.task.clone(), turns: episode.turns, patch: patch.into() }.save().map(Some)
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        let saved = Saved::read(snapshot)?;
        let worktree = self.worktree(self.shared.instance(&saved.task)?, true)?;
        if !worktree.apply(saved.patch.bytes())? {
            return Err(EnvError::State("the saved change does not fit the image".to_owned()));
        }
        self.over = false;
        self.episode = Some(Episode { task: saved.task, turns: saved.turns, worktree });
        Ok(())
    }

    fn close(&mut self) {
        self.episode = None;
    }
}
