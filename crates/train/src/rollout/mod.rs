//! Rollouts: environments and a sampler, without a barrier between turns.
//!
//! A trajectory with a complete response steps its environment at once and requests its next
//! response. A finished one is replaced by the next in line. Trajectories are assigned to lanes by
//! their index in the batch. Each lane has its own sampler and thread, so the samples do not depend
//! on timing or the number of processors.
//!
//! | File | Subject |
//! |---|---|
//! | `mod.rs` | the lanes of a rollout and what they share |
//! | `lane` | one lane: its trajectories from reset to end |
//! | [`branch`] | states in the middle of an episode, which trajectories are continued from |
//! | [`continuations`] | values of states, from continuations of them |
//! | [`pool`] | environments on separate threads, with timeouts and retries |
//! | `first_prompts` | the check that first prompts fit the context |
//! | `faults` | trajectories that ended through no fault of the policy |
//! | [`engines`], [`prompting`], [`tasks`] | samplers, prompts as tokens, the order of tasks |
//! | `conversations` | requests of agents as tokens |
//! | `compaction` | summaries that replace the turns before them |
//! | [`pictures`] | pictures of observations in prompts |
//! | [`observations`] | observations cut to their length, and as the results of calls |

pub mod branch;
pub mod compaction;
pub mod continuations;
mod conversations;
pub mod engines;
pub mod env_runner;
pub(crate) mod faults;
pub(crate) mod first_prompts;
mod lane;
pub mod observations;
pub mod pictures;
pub mod pool;
pub mod prompting;
pub mod tasks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use faults::{is_faulty, run_with_resampling};
use turnwise_core::{
    EnvError, Environment, Observation, Purpose, Sampler, SamplingParams, Seed, Task, TaskSet, Trajectory,
};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{Config, Layout, Validity};
use crate::rollout::branch::Branch;
use crate::rollout::compaction::Compaction;
use crate::rollout::engines::{sampling_lanes, sampling_params};
use crate::rollout::lane::Lane;
use crate::rollout::pictures::PicturePrompts;
use crate::rollout::pool::{EnvCalls, EnvPool};
use crate::rollout::prompting::Prompter;

/// One trajectory to be sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Task to play.
    pub task: Task,
    /// Index of its group in the batch.
    pub group: usize,
    /// Its place in the group.
    pub sample: usize,
    /// Text that every prompt that starts a sequence begins with, such as notes of earlier trials; empty for none.
    pub preamble: String,
    /// Number of earlier attempts that failed for reasons other than the policy; each attempt has
    /// its own draws.
    pub attempt: u64,
    /// The state that the episode continues from, instead of the start of its task. The trajectory then has the turns
    /// before it, too.
    pub branch: Option<Arc<Branch>>,
}

impl Job {
    /// A first attempt from the start of the task, without a preamble.
    pub fn new(task: Task, group: usize, sample: usize) -> Self {
        Self { task, group, sample, preamble: String::new(), attempt: 0, branch: None }
    }

    /// Starts the episode in an environment and returns what the agent sees first.
    fn start(&self, environment: &mut dyn Environment, seed: Seed) -> Result<Observation, EnvError> {
        match &self.branch {
            Some(branch) => branch.restore(environment),
            None => environment.reset(&self.task, seed),
        }
    }
}

/// Everything a rollout reads.
pub struct RolloutContext<'a> {
    /// Makes the environments.
    pub task_set: Arc<dyn TaskSet>,
    /// Limits of calls to environments that must be waited for.
    pub env_calls: EnvCalls,
    /// Text to ids and back.
    pub tokenizer: &'a Tokenizer,
    /// Template that makes prompts of observations.
    pub template: &'a PromptTemplate,
    /// The model's chat format around the prompts, if it has one that is used.
    pub chat: Option<&'a ChatFormat>,
    /// Pictures that prompts show.
    pub pictures: Option<&'a PicturePrompts>,
    /// Parser that makes actions of responses.
    pub parser: &'a ActionParser,
    /// When a response counts as a valid action.
    pub valid: Validity,
    /// Layout of turns as sequences.
    pub layout: Layout,
    /// Earlier turns shown in a windowed prompt.
    pub history: usize,
    /// When the policy summarizes a concatenated sequence; `None` for never.
    pub compaction: Option<Compaction>,
    /// Sampling parameters.
    pub params: SamplingParams,
    /// Maximum turns of an episode, for worlds that do not count them (0: no limit).
    pub max_turns: usize,
    /// Maximum tokens of a sequence.
    pub max_context: usize,
    /// Trajectories under way at once in each lane.
    pub slots: usize,
    /// The run's seed.
    pub run_seed: u64,
    /// Purpose of the draws.
    pub purpose: Purpose,
    /// The training step, or another number that identifies this rollout.
    pub step: u64,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
}

impl<'a> RolloutContext<'a> {
    /// Creates the rollout context of a config: training at step 0, with the configured lanes.
    pub fn new(
        config: &Config,
        task_set: Arc<dyn TaskSet>,
        prompter: Prompter<'a>,
        parser: &'a ActionParser,
        temperature: f32,
        stop: &'a AtomicBool,
    ) -> Self {
        let Prompter { template, tokenizer, chat, pictures } = prompter;
        Self {
            task_set,
            env_calls: EnvCalls::new(&config.rollout),
            tokenizer,
            template,
            chat,
            pictures,
            parser,
            valid: config.prompt.valid,
            layout: config.prompt.layout,
            history: config.prompt.history,
            compaction: Compaction::of(&config.prompt),
            params: sampling_params(config, prompter, temperature),
            max_turns: config.env.max_turns,
            max_context: config.rollout.max_context,
            slots: sampling_lanes(config).1,
            run_seed: config.seed,
            purpose: Purpose::Rollout,
            step: 0,
            stop,
        }
    }
}

/// Counters that grow while a rollout runs, for progress displays.
#[derive(Debug, Default)]
pub struct RolloutProgress {
    /// Finished trajectories.
    pub finished: AtomicUsize,
    /// Solved ones among them.
    pub solved: AtomicUsize,
    /// Environment steps.
    pub turns: AtomicUsize,
    /// Tokens sampled.
    pub tokens: AtomicUsize,
}

/// Samples all jobs, one thread per sampler, and returns the trajectories in job order; `None` when
/// the rollout was stopped from outside. `tick` is called about ten times a second.
///
/// # Errors
/// Fails on a sampler that failed as a whole ([`turnwise_core::SampleError::Backend`]), or a lane's thread that
/// ended in a panic. A request that is rejected and an environment that fails end their own trajectory
/// only.
pub fn run<S: Sampler + Send>(
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

/// Samples all jobs as [`run`] does and hands each trajectory to `done` with the index of its job, on the thread of its
/// sampler, so that they need not all be kept. Returns false when the rollout was stopped from outside.
///
/// # Errors
/// Those of [`run`].
pub fn run_each<S: Sampler + Send>(
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

/// Assigns jobs to lanes: whole groups, which share their prompt, if every lane gets the same
/// number; otherwise single jobs.
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

/// Decrements the number of running lanes when its thread ends for any reason. The main thread
/// polls it.
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
        // One lane would have more than the other.
        assert_eq!(deal(&jobs(&[4]), 2), [[0, 2], [1, 3]]);
        assert_eq!(deal(&jobs(&[2, 1, 2, 1]), 2), [[0, 2, 4], [1, 3, 5]]);
        assert_eq!(deal(&[], 2), [[0; 0], [0; 0]]);
    }
}
