//! Rollouts: environments and a sampler, without a barrier between turns.
//!
//! A trajectory whose response is complete steps its environment at once and asks for its next
//! response; a finished one makes room for the next in line. Trajectories are dealt to lanes by their
//! place in the batch; each lane has its own sampler and runs on its own thread, so what is sampled
//! does not depend on timing or on the number of processors.
//!
//! | File | Subject |
//! |---|---|
//! | `mod.rs` | the lanes of a rollout and what they share |
//! | `lane` | one lane: its trajectories from reset to end |
//! | [`pool`] | environments on threads of their own, with timeouts and retries |
//! | `faults` | trajectories that ended through no fault of the policy |
//! | [`engines`], [`prompting`], [`tasks`] | samplers, prompts as tokens, the order of tasks |
//! | [`observations`] | observations cut to their length, and as the results of calls |

pub mod actor;
pub mod engines;
pub(crate) mod faults;
mod lane;
pub mod observations;
pub mod pool;
pub mod prompting;
pub mod tasks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use faults::{is_faulty, run_with_resampling};
use turnwise_core::{Purpose, Sampler, SamplingParams, Task, TaskSet, Trajectory};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::config::{Config, Layout, Validity};
use crate::rollout::engines::{sampling_lanes, sampling_params};
use crate::rollout::lane::Lane;
use crate::rollout::pool::{EnvCalls, EnvPool};
use crate::rollout::prompting::Prompter;

/// One trajectory to be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Task to play.
    pub task: Task,
    /// Index of its group in the batch.
    pub group: usize,
    /// Its place in the group.
    pub sample: usize,
    /// Text that every prompt that starts a sequence begins with, such as notes of earlier trials; empty for none.
    pub preamble: String,
    /// Number of earlier samples of it that failed through no fault of the policy; each time has draws of its own.
    pub attempt: u64,
}

impl Job {
    /// A first attempt without a preamble.
    pub fn new(task: Task, group: usize, sample: usize) -> Self {
        Self { task, group, sample, preamble: String::new(), attempt: 0 }
    }
}

/// Everything a rollout reads.
pub struct RolloutContext<'a> {
    /// Makes the environments.
    pub task_set: Arc<dyn TaskSet>,
    /// Calls of environments that may have to be waited for.
    pub env_calls: EnvCalls,
    /// Text to ids and back.
    pub tokenizer: &'a Tokenizer,
    /// Template that makes prompts of observations.
    pub template: &'a PromptTemplate,
    /// The model's chat format around the prompts, where it has one that is used.
    pub chat: Option<&'a ChatFormat>,
    /// Parser that makes actions of responses.
    pub parser: &'a ActionParser,
    /// When a response counts as a valid action.
    pub valid: Validity,
    /// Layout of turns as sequences.
    pub layout: Layout,
    /// Earlier turns shown in a windowed prompt.
    pub history: usize,
    /// Sampling parameters.
    pub params: SamplingParams,
    /// Longest sequence in tokens.
    pub max_context: usize,
    /// Trajectories under way at once in each lane.
    pub slots: usize,
    /// The run's seed.
    pub run_seed: u64,
    /// Purpose of the draws.
    pub purpose: Purpose,
    /// The training step, or whatever else tells this rollout from others of its purpose.
    pub step: u64,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
}

impl<'a> RolloutContext<'a> {
    /// Context of a config's rollout: training at step 0, in lanes as wide as the config says.
    pub fn new(
        config: &Config,
        task_set: Arc<dyn TaskSet>,
        prompter: Prompter<'a>,
        parser: &'a ActionParser,
        temperature: f32,
        stop: &'a AtomicBool,
    ) -> Self {
        let Prompter { template, tokenizer, chat } = prompter;
        Self {
            task_set,
            env_calls: EnvCalls::new(&config.rollout),
            tokenizer,
            template,
            chat,
            parser,
            valid: config.prompt.valid,
            layout: config.prompt.layout,
            history: config.prompt.history,
            params: sampling_params(config, prompter, temperature),
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
/// A sampler that failed as a whole ([`turnwise_core::SampleError::Backend`]), or a lane's thread that ended in a
/// panic. A request that is refused and an environment that fails end their own trajectory only.
pub fn run<S: Sampler + Send>(
    context: &RolloutContext<'_>,
    jobs: &[Job],
    samplers: &mut [S],
    mut tick: impl FnMut(&RolloutProgress),
) -> Result<Option<Vec<Trajectory>>, TrainError> {
    let progress = RolloutProgress::default();
    let results: Mutex<Vec<Option<Trajectory>>> = Mutex::new(vec![None; jobs.len()]);
    let running = AtomicUsize::new(samplers.len());
    let dealt = deal(jobs, samplers.len().max(1));
    let pool = EnvPool::new(Arc::clone(&context.task_set), context.env_calls);
    let outcome = std::thread::scope(|scope| {
        let handles: Vec<_> = samplers
            .iter_mut()
            .zip(&dealt)
            .map(|(sampler, mine)| {
                let (progress, results, running) = (&progress, &results, &running);
                let environments = pool.lane();
                scope.spawn(move || {
                    let _guard = Running(running);
                    Lane::new(context, jobs, progress, sampler, environments).play(mine, |job, trajectory| {
                        if let Ok(mut results) = results.lock() {
                            results[job] = Some(trajectory);
                        }
                    })
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
    });
    outcome?;
    if context.stop.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let results = results.into_inner().map_err(|_| TrainError::Thread)?;
    Ok(Some(results.into_iter().flatten().collect()))
}

/// The jobs of every lane. Whole groups, whose samples share their prompt, go to lanes in turn where every lane gets as
/// many; else jobs do.
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

/// Counts a lane out when its thread ends, in whichever way, and wakes nobody: the main thread polls.
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
