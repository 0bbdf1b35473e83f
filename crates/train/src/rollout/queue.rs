//! Rollouts that run while the policy is updated (`rollout.max_staleness`).
//!
//! When step `k` waits for its rollout, all rollouts up to that of step `k + max_staleness` have
//! already started. Each rollout uses the weights at its start, so training does not depend on
//! timing. No rollout crosses a periodic checkpoint, so a resume starts the same rollouts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use turnwise_core::Sampler;
use turnwise_credit::selection::SelectionConfig;
use turnwise_credit::{Pipeline, StateValues};

use crate::TrainError;
use crate::config::Config;
use crate::record::metrics::Metrics;
use crate::record::observer::{Event, Observer};
use crate::record::state::RunState;
use crate::rollout::EnvRunner;
use crate::rollout::engines::sampling_lanes;
use crate::rollout::sample::{Sampled, SamplingJob};
use crate::rollout::tasks::TaskOrder;

const WAIT: Duration = Duration::from_millis(100);

pub(crate) trait SamplerSource {
    fn release(&mut self);

    fn samplers(
        &mut self,
        lanes: usize,
        max_num_seqs: usize,
        max_model_len: usize,
    ) -> Result<Vec<Box<dyn Sampler + Send>>, TrainError>;

    fn sampling_report(&mut self) -> SamplingReport;
}

/// Report of remote samplers.
#[derive(Clone, Debug, Default)]
pub struct SamplingReport {
    /// Metrics of the step.
    pub metrics: Metrics,
    /// Messages for the run.
    pub notes: Vec<String>,
}

pub(crate) struct RolloutQueue {
    runner: Arc<EnvRunner>,
    config: Arc<Config>,
    order: Arc<TaskOrder>,
    needs: CreditNeeds,
    under_way: VecDeque<UnderWay>,
    /// Receives the task position after the last started rollout.
    drawn: Option<Receiver<u64>>,
    stop: Arc<AtomicBool>,
}

#[derive(Clone, Copy)]
pub(crate) struct CreditNeeds {
    /// Whether credit compares the trajectories of a group, so that a single trajectory is useless.
    pub(crate) compares_groups: bool,
    pub(crate) state_values: Option<StateValues>,
}

impl CreditNeeds {
    pub(crate) fn of(pipeline: &Pipeline) -> Self {
        Self {
            compares_groups: pipeline.compares_groups(),
            state_values: pipeline.required_inputs().state_values,
        }
    }
}

struct UnderWay {
    began: u64,
    events: Receiver<Event<'static>>,
    thread: JoinHandle<Result<Option<(Sampled, Duration)>, TrainError>>,
}

impl RolloutQueue {
    pub(crate) fn new(
        runner: Arc<EnvRunner>,
        config: Arc<Config>,
        order: Arc<TaskOrder>,
        needs: CreditNeeds,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        Self { runner, config, order, needs, under_way: VecDeque::new(), drawn: None, stop }
    }

    pub(crate) fn next(
        &mut self,
        source: &mut dyn SamplerSource,
        state: &RunState,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<Sampled>, TrainError> {
        let at = state.position.step;
        if let Some(pictures) = &self.runner.pictures {
            pictures.begin_step(self.config.rollout.max_staleness + 1);
        }
        if self.config.rollout.max_staleness == 0 {
            // Sampling has its own copy of the weights.
            source.release();
        }
        while at + (self.under_way.len() as u64) < first_to_wait(&self.config, at) {
            let rollout = self.begin(source, state)?;
            self.under_way.push_back(rollout);
        }
        let Some(rollout) = self.under_way.pop_front() else { return Ok(None) };
        let began = rollout.began;
        let Some((mut sampled, took)) = self.wait(rollout, observer, stop)? else { return Ok(None) };
        let report = source.sampling_report();
        report.notes.into_iter().for_each(|note| observer.event(Event::Note(note)));
        sampled.metrics.0.extend(report.metrics.0);
        let seconds = (took.as_secs_f64() - sampled.continuing).max(1e-9);
        sampled.metrics.set("perf/sampled_tokens_per_s", sampled.tokens as f64 / seconds);
        sampled.metrics.set("perf/env_steps_per_s", sampled.turns as f64 / seconds);
        if self.config.rollout.max_staleness > 0 {
            sampled.metrics.set("rollout/staleness", (at - began) as f64);
            sampled.metrics.set("perf/sampling_s", took.as_secs_f64());
        }
        Ok(Some(sampled))
    }

    fn begin(&mut self, source: &mut dyn SamplerSource, state: &RunState) -> Result<UnderWay, TrainError> {
        let config = &self.config;
        let step = state.position.step + self.under_way.len() as u64;
        let (lanes, slots) = sampling_lanes(config);
        let samplers = source.samplers(lanes, slots, config.rollout.max_model_len)?;
        let CreditNeeds { compares_groups, state_values } = self.needs;
        let fewest = if compares_groups { 2 } else { 1 };
        let (runner, order) = (Arc::clone(&self.runner), Arc::clone(&self.order));
        let config = Arc::clone(config);
        let job = SamplingJob { runner, config, order, samplers, step, first_task: 0, fewest, state_values };
        let first = self.drawn.take().filter(|_| !self.under_way.is_empty());
        let (drawn, after) = channel();
        let (reporter, events) = channel();
        let (tasks_drawn, stop) = (state.tasks_drawn, Arc::clone(&self.stop));
        let thread = std::thread::Builder::new()
            .name(format!("rollout {step}"))
            .spawn(move || {
                let first_task = match first {
                    None => tasks_drawn,
                    // The previous rollout reports its own failure.
                    Some(first) => match first.recv() {
                        Ok(first) => first,
                        Err(_) => return Ok(None),
                    },
                };
                work(SamplingJob { first_task, ..job }, &drawn, &reporter, &stop)
            })
            .map_err(TrainError::ThreadStart)?;
        self.drawn = Some(after);
        Ok(UnderWay { began: state.position.step, events, thread })
    }

    fn wait(
        &self,
        rollout: UnderWay,
        observer: &mut dyn Observer,
        stop: &AtomicBool,
    ) -> Result<Option<(Sampled, Duration)>, TrainError> {
        loop {
            match rollout.events.recv_timeout(WAIT) {
                Ok(event) => observer.event(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if stop.load(Ordering::Relaxed) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
        rollout.thread.join().unwrap_or(Err(TrainError::Thread))
    }
}

impl Drop for RolloutQueue {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for rollout in self.under_way.drain(..) {
            let _ = rollout.thread.join();
        }
    }
}

/// Runs the jobs. `drawn` gets the next task position as soon as it is known: before sampling, if
/// all groups are kept.
fn work(
    job: SamplingJob,
    drawn: &Sender<u64>,
    reporter: &Sender<Event<'static>>,
    stop: &AtomicBool,
) -> Result<Option<(Sampled, Duration)>, TrainError> {
    let started = Instant::now();
    let first = job.first_task;
    if job.config.rollout.filter_groups == SelectionConfig::All {
        let _ = drawn.send(first + job.config.rollout.tasks_per_step as u64);
    }
    let mut report = |event| drop(reporter.send(event));
    let Some(sampled) = job.run(&mut report, stop)? else { return Ok(None) };
    let _ = drawn.send(first + sampled.drawn);
    Ok(Some((sampled, started.elapsed())))
}

/// Returns the first step whose rollout may not start at step `at`, because its weights would be
/// too old, it would cross a periodic checkpoint, or training ends before it.
fn first_to_wait(config: &Config, at: u64) -> u64 {
    let boundary = |every: u64| at.checked_div(every).map_or(u64::MAX, |periods| (periods + 1) * every);
    let kept = config.train.keep_best.as_ref().map_or(0, |_| config.eval.every);
    let end = (at + config.rollout.max_staleness + 1).min(config.train.steps);
    end.min(boundary(config.train.checkpoint_every)).min(boundary(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollouts_begin_early_but_not_across_a_checkpoint() {
        let mut config = Config::default();
        (config.train.steps, config.train.checkpoint_every) = (10, 4);
        let begun = |config: &Config| (0..10).map(|at| first_to_wait(config, at)).collect::<Vec<_>>();
        config.rollout.max_staleness = 0;
        assert_eq!(begun(&config), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        config.rollout.max_staleness = 2;
        assert_eq!(begun(&config), [3, 4, 4, 4, 7, 8, 8, 8, 10, 10]);
        config.train.checkpoint_every = 0;
        assert_eq!(begun(&config), [3, 4, 5, 6, 7, 8, 9, 10, 10, 10]);
        config.train.keep_best = Some("valid".into());
        config.eval.every = 5;
        assert_eq!(begun(&config), [3, 4, 5, 5, 5, 8, 9, 10, 10, 10]);
    }
}
