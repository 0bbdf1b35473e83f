//! Rollouts: each trajectory continues without waiting for others.
//!
//! Trajectories are assigned to lanes by their index in the batch. Each lane has its own sampler
//! and thread, so samples do not depend on timing or the number of processors.
//!
//! In training, `RolloutQueue::next` starts rollouts on threads, and `SamplingJob::run` plays
//! rounds of groups until the batch is full. [`EnvRunner::play`] runs one lane per sampler.
//! `Lane::play` samples responses and steps environments, slow ones on the threads of `EnvPool`.

mod arguments;
pub mod branch;
pub mod compaction;
pub mod continuations;
mod conversations;
pub mod engines;
mod env_runner;
pub(crate) mod faults;
pub(crate) mod first_prompts;
mod lane;
pub mod observations;
mod overflow;
pub mod pictures;
mod pool;
pub mod prompting;
pub(crate) mod queue;
mod sample;
pub mod tasks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use env_runner::{EnvRunner, Played, Rollout};
pub use faults::is_faulty;
use turnwise_core::{
    EnvError, Environment, Observation, Purpose, Sampler, SamplingParams, Seed, Task, TaskSet, Trajectory,
};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{Layout, Validity};
use crate::rollout::branch::Branch;
use crate::rollout::compaction::Compaction;
use crate::rollout::lane::Lane;
use crate::rollout::pictures::PicturePrompts;
use crate::rollout::pool::{EnvCalls, EnvPool};

/// A trajectory to sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Task to play.
    pub task: Task,
    /// Group index in the batch.
    pub group: usize,
    /// Index within the group.
    pub sample: usize,
    /// Text before each sequence's first prompt, such as notes of earlier trials; may be empty.
    pub preamble: String,
    /// Number of earlier attempts that failed for reasons other than the policy; each attempt has
    /// its own seeds.
    pub attempt: u64,
    /// State to continue from, instead of the task's start. The trajectory includes the turns
    /// before the state.
    pub branch: Option<Arc<Branch>>,
}

impl Job {
    /// Creates a first attempt from the task's start, without a preamble.
    pub fn new(task: Task, group: usize, sample: usize) -> Self {
        Self { task, group, sample, preamble: String::new(), attempt: 0, branch: None }
    }

    fn start(&self, environment: &mut dyn Environment, seed: Seed) -> Result<Observation, EnvError> {
        match &self.branch {
            Some(branch) => branch.restore(environment),
            None => environment.reset(&self.task, seed),
        }
    }
}

pub(crate) struct RolloutContext<'a> {
    pub(crate) task_set: Arc<dyn TaskSet>,
    pub(crate) env_calls: EnvCalls,
    pub(crate) tokenizer: &'a Tokenizer,
    pub(crate) template: &'a PromptTemplate,
    pub(crate) chat: Option<&'a ChatFormat>,
    pub(crate) pictures: Option<&'a PicturePrompts>,
    pub(crate) parser: &'a ActionParser,
    pub(crate) valid: Validity,
    pub(crate) layout: Layout,
    pub(crate) history: usize,
    pub(crate) compaction: Option<Compaction>,
    pub(crate) params: SamplingParams,
    /// Turn limit for environments without their own limit; 0: no limit.
    pub(crate) max_turns: usize,
    pub(crate) max_model_len: usize,
    /// Concurrent trajectories per lane.
    pub(crate) slots: usize,
    pub(crate) run_seed: u64,
    pub(crate) purpose: Purpose,
    /// The training step, or another number that identifies this rollout.
    pub(crate) step: u64,
    pub(crate) stop: &'a AtomicBool,
}

/// Counters of a running rollout.
#[derive(Debug, Default)]
pub struct RolloutProgress {
    /// Finished trajectories.
    pub finished: AtomicUsize,
    /// Solved trajectories.
    pub solved: AtomicUsize,
    /// Environment steps.
    pub turns: AtomicUsize,
    /// Sampled tokens.
    pub tokens: AtomicUsize,
}

/// Samples all jobs, one thread per sampler; returns trajectories in job order, or `None` if
/// stopped. Calls `tick` about ten times per second.
pub(crate) fn run<S: Sampler + Send>(
    context: &RolloutContext<'_>,
    jobs: &[Job],
    samplers: &mut [S],
    tick: impl FnMut(&RolloutProgress),
) -> Result<Option<Vec<Trajectory>>, TrainError> {
    let results: Mutex<Vec<Option<Trajectory>>> = Mutex::new(vec![None; jobs.len()]);
    let done = |job: usize, trajectory| {
        if let Ok(mut results) = results.lock() {
            results[job] = Some(trajectory);
        }
    };
    if !run_each(context, jobs, samplers, &done, tick)? {
        return Ok(None);
    }
    let results = results.into_inner().map_err(|_| TrainError::Thread)?;
    Ok(Some(results.into_iter().flatten().collect()))
}

/// Passes each finished trajectory to `done` on its sampler's thread instead of collecting all
/// trajectories, which saves memory. Returns false if stopped.
pub(crate) fn run_each<S: Sampler + Send>(
    context: &RolloutContext<'_>,
    jobs: &[Job],
    samplers: &mut [S],
    done: &(dyn Fn(usize, Trajectory) + Sync),
    mut tick: impl FnMut(&RolloutProgress),
) -> Result<bool, TrainError> {
    let progress = RolloutProgress::default();
    let running = AtomicUsize::new(samplers.len());
    let dealt = deal(jobs, samplers.len().max(1));
    let pool = EnvPool::new(Arc::clone(&context.task_set), context.env_calls);
    std::thread::scope(|scope| {
        let handles: Vec<_> = samplers
            .iter_mut()
            .zip(&dealt)
            .map(|(sampler, mine)| {
                let (progress, running) = (&progress, &running);
                let environments = pool.lane();
                scope.spawn(move || {
                    let _guard = Running(running);
                    Lane::new(context, jobs, progress, sampler, environments).play(mine, done)
                })
            })
            .collect();
        while running.load(Ordering::Acquire) > 0 {
            std::thread::park_timeout(Duration::from_millis(100));
            tick(&progress);
        }
        let mut first_error = Ok(());
        for handle in handles {
            let result = handle.join().unwrap_or(Err(TrainError::Thread));
            if first_error.is_ok() {
                first_error = result;
            }
        }
        first_error
    })?;
    Ok(!context.stop.load(Ordering::Relaxed))
}

/// Assigns jobs to lanes. Keeps a group's jobs, which share a prompt, in one lane, unless the lanes
/// would get unequal numbers of jobs.
fn deal(jobs: &[Job], lanes: usize) -> Vec<Vec<usize>> {
    let sizes: Vec<usize> = jobs.chunk_by(|a, b| a.group == b.group).map(<[Job]>::len).collect();
    let even = sizes.len().is_multiple_of(lanes) && sizes.iter().all(|size| *size == sizes[0]);
    let together = if even { sizes.first().copied().unwrap_or(1) } else { 1 };
    let mut dealt = vec![Vec::new(); lanes];
    for job in 0..jobs.len() {
        dealt[job / together % lanes].push(job);
    }
    dealt
}

/// Decrements the count of running threads when a thread ends, even by a panic.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_to_one_lane_where_that_is_fair() {
        let jobs = |sizes: &[usize]| -> Vec<Job> {
            let groups = sizes.iter().enumerate();
            let of = |(group, &size)| (0..size).map(move |sample| Job::new(Task::default(), group, sample));
            groups.flat_map(of).collect()
        };
        assert_eq!(deal(&jobs(&[3, 3]), 2), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(deal(&jobs(&[2; 4]), 2), [[0, 1, 4, 5], [2, 3, 6, 7]]);
        assert_eq!(deal(&jobs(&[4]), 2), [[0, 2], [1, 3]]);
        assert_eq!(deal(&jobs(&[2, 1, 2, 1]), 2), [[0, 2, 4], [1, 3, 5]]);
        assert_eq!(deal(&[], 2), [[0; 0], [0; 0]]);
    }
}
