//! Trains runs in parallel processes, with retries. All state is in the run directories, with a
//! lock per run, so several programs may work on one sweep.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::layout::Layout;
use super::plan::{OnDisk, PlannedRun, on_disk, start_arguments, warm_arguments, warm_folder};
use super::process::{RunProcess, clear_remains, is_held};
use super::progress::{self, Progress};

/// Intervals at which processes are polled (`LOOK`) and progress is shown (`SHOW`).
const LOOK: Duration = Duration::from_millis(50);
const SHOW: Duration = Duration::from_secs(1);

pub(super) struct Limits {
    pub(super) jobs: usize,
    pub(super) retries: u32,
    pub(super) ignore_memory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The run had finished before this program started.
    Before,
    /// This program finished the run.
    Finished,
    Failed(String),
    /// The run was interrupted, or not started because the sweep was interrupted.
    Interrupted,
}

enum State {
    /// Waiting for a warm start, or until fewer runs are being trained.
    Waiting,
    Running(RunProcess),
    /// Another program has locked the run; the lock is checked again at the given time.
    Held(Instant),
    Ended(End),
}

struct Job {
    name: String,
    root: PathBuf,
    /// Index of the run with the job's config.
    run: usize,
    warm: Option<String>,
    /// Job that must finish before this one starts.
    after: Option<usize>,
    attempts: u32,
    state: State,
}

pub(super) struct Supervisor<'a> {
    runs: &'a [PlannedRun],
    layout: &'a Layout,
    limits: Limits,
    jobs: Vec<Job>,
    progress: Progress,
}

impl<'a> Supervisor<'a> {
    /// Fails if a run was started with different settings.
    pub(super) fn new(
        runs: &'a [PlannedRun],
        chosen: &[usize],
        layout: &'a Layout,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut warm_jobs: BTreeMap<&str, usize> = BTreeMap::new();
        for &index in chosen {
            let run = &runs[index];
            let name = run.entry.run_name();
            let root = layout.run(&name);
            let found = on_disk(&root, Some(&run.config))?;
            let mut after = None;
            if let (Some(warm), OnDisk::Absent) = (&run.warm_start, found) {
                after = Some(*warm_jobs.entry(warm).or_insert_with(|| {
                    jobs.push(Job {
                        name: format!("warm start {warm}"),
                        root: warm_folder(layout, warm),
                        run: index,
                        warm: Some(warm.clone()),
                        after: None,
                        attempts: 0,
                        state: State::Waiting,
                    });
                    jobs.len() - 1
                }));
            }
            let ended = found == OnDisk::Finished;
            let state = if ended { State::Ended(End::Before) } else { State::Waiting };
            jobs.push(Job { name, root, run: index, warm: None, after, attempts: 0, state });
        }
        let width = jobs.iter().map(|job| job.name.len()).max().unwrap_or(0);
        Ok(Self { runs, layout, limits, jobs, progress: Progress::new(width) })
    }

    /// Supervises the jobs until all have ended, or until `stop` is set and every process has
    /// exited.
    pub(super) fn work(mut self, stop: &AtomicBool) -> Vec<(usize, End)> {
        let mut shown = Instant::now();
        let mut interrupted = false;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            for index in 0..self.jobs.len() {
                self.look_at(index, stopping);
            }
            if stopping && !interrupted {
                interrupted = true;
                for job in &mut self.jobs {
                    if let State::Running(process) = &mut job.state {
                        process.interrupt();
                    }
                }
            }
            if stopping {
                for job in &mut self.jobs {
                    if matches!(job.state, State::Waiting | State::Held(_)) {
                        job.state = State::Ended(End::Interrupted);
                    }
                }
            }
            if self.jobs.iter().all(|job| matches!(job.state, State::Ended(_))) {
                break;
            }
            if shown.elapsed() >= SHOW {
                shown = Instant::now();
                self.show();
            }
            std::thread::sleep(LOOK);
        }
        let ends = self.jobs.into_iter().filter(|job| job.warm.is_none());
        ends.filter_map(|job| match job.state {
            State::Ended(end) => Some((job.run, end)),
            _ => None,
        })
        .collect()
    }

    fn look_at(&mut self, index: usize, stopping: bool) {
        let Job { state, root, .. } = &mut self.jobs[index];
        match state {
            State::Ended(_) => {}
            State::Running(process) => match process.ended() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    let reason = process.reason(root, status);
                    self.ended(index, status.success(), reason, stopping);
                }
                Err(error) => self.fail(index, format!("{error:#}")),
            },
            State::Held(next) => {
                if Instant::now() >= *next {
                    self.jobs[index].state = State::Waiting;
                    self.begin(index, stopping);
                }
            }
            State::Waiting => self.begin(index, stopping),
        }
    }

    fn ended(&mut self, index: usize, success: bool, reason: String, stopping: bool) {
        let job = &mut self.jobs[index];
        let finished = on_disk(&job.root, None).is_ok_and(|found| found == OnDisk::Finished);
        if finished {
            self.finish(index, End::Finished);
        } else if stopping {
            job.state = State::Ended(End::Interrupted);
            let name = job.name.clone();
            self.progress.end(&name, "stopped; the sweep goes on from its checkpoint");
        } else if is_held(&job.root).unwrap_or(false) {
            job.state = State::Held(Instant::now() + SHOW);
        } else {
            job.attempts += 1;
            let reason =
                if success { "its process ended before all steps were done".to_owned() } else { reason };
            if job.attempts <= self.limits.retries {
                job.state = State::Waiting;
                let name = job.name.clone();
                self.progress.say(&name, &format!("failed, is tried again: {reason}"));
            } else {
                self.fail(index, reason);
            }
        }
    }

    fn finish(&mut self, index: usize, end: End) {
        let job = &mut self.jobs[index];
        job.state = State::Ended(end);
        let outcome = if job.warm.is_none() { progress::outcome(&job.root) } else { String::new() };
        let name = job.name.clone();
        self.progress.end(&name, format!("finished  {outcome}").trim_end());
    }

    fn fail(&mut self, index: usize, reason: String) {
        let job = &mut self.jobs[index];
        let name = job.name.clone();
        self.progress.end(&name, &format!("failed: {reason}"));
        job.state = State::Ended(End::Failed(reason));
    }

    fn begin(&mut self, index: usize, stopping: bool) {
        if stopping {
            return;
        }
        if let Some(after) = self.jobs[index].after {
            match &self.jobs[after].state {
                State::Ended(End::Finished | End::Before) => {}
                State::Ended(End::Failed(reason)) => {
                    let reason = format!("its warm start failed: {reason}");
                    return self.fail(index, reason);
                }
                _ => return,
            }
        }
        let running = self.jobs.iter().filter(|job| matches!(job.state, State::Running(_))).count();
        if running >= self.limits.jobs {
            return;
        }
        if let Err(error) = self.try_begin(index) {
            self.fail(index, format!("{error:#}"));
        }
    }

    fn try_begin(&mut self, index: usize) -> anyhow::Result<()> {
        let job = &self.jobs[index];
        let run = &self.runs[job.run];
        if is_held(&job.root)? {
            self.jobs[index].state = State::Held(Instant::now() + SHOW);
            return Ok(());
        }
        let config = job.warm.is_none().then_some(&run.config);
        let mut arguments = match on_disk(&job.root, config)? {
            OnDisk::Finished => {
                self.finish(index, End::Before);
                return Ok(());
            }
            OnDisk::Begun => vec!["train".into(), "--resume".into(), job.root.display().to_string()],
            OnDisk::Absent => {
                clear_remains(&job.root)?;
                let mut arguments = match &job.warm {
                    Some(name) => warm_arguments(run, name, self.layout),
                    None => start_arguments(run, self.layout),
                };
                arguments.extend(self.limits.ignore_memory.then(|| "--ignore-memory".to_owned()));
                arguments
            }
        };
        arguments.push("--stop-at-end-of-input".to_owned());
        let log = self.layout.log(&job.name.replace(' ', "-"));
        let process = RunProcess::start(&arguments, &log, self.limits.jobs > 1)?;
        self.jobs[index].state = State::Running(process);
        Ok(())
    }

    fn show(&mut self) {
        for job in &self.jobs {
            let config = &self.runs[job.run].config;
            let rl_steps = if job.warm.is_some() { 0 } else { config.train.steps };
            let since = |started| progress::of_run(&job.root, config.sft.steps, rl_steps, started);
            match &job.state {
                State::Running(process) => self.progress.show(&job.name, &since(process.started())),
                State::Held(_) => {
                    self.progress.show(&job.name, &format!("in another process: {}", since(0.0)));
                }
                State::Waiting | State::Ended(_) => {}
            }
        }
    }
}
