//! Rollouts: environments and a sampler, without a barrier between turns.
//!
//! A trajectory whose response is complete steps its environment at once and asks for its next
//! response; a finished one makes room for the next in line. Trajectories are dealt to lanes by their
//! place in the batch; each lane has its own sampler and runs on its own thread, so what is sampled
//! does not depend on timing or on the number of processors.

pub mod actor;
pub mod engines;
pub mod prompting;
pub(crate) mod sample;
pub mod tasks;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use turnwise_core::{
    Action, Completion, Environment, FinishReason, Observation, Part, Purpose, RequestId, SCHEMA_VERSION,
    SampleError, SampleRequest, Sampler, SamplingParams, Seed, StopReason, Task, TaskSet, TokenSequence,
    Trajectory, Turn, TurnSpan,
};
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::{PromptKind, PromptTemplate, PromptView};
use turnwise_text::TextError;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;

use crate::TrainError;
use crate::rollout::prompting::Prompter;

/// How the turns of a trajectory become token sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Every turn is its own (prompt, response) sequence; the prompt carries the last turns as text.
    Windowed,
    /// The whole trajectory is one sequence.
    Concatenated,
}

/// One trajectory to be sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// What to play.
    pub task: Task,
    /// Which group of the batch it belongs to.
    pub group: usize,
    /// Its place in the group.
    pub sample: usize,
    /// What every prompt that starts a sequence begins with, such as what was learnt in earlier trials; empty for
    /// nothing.
    pub preamble: String,
}

/// Everything a rollout reads.
pub struct RolloutContext<'a> {
    /// Makes the environments.
    pub task_set: &'a dyn TaskSet,
    /// Text to ids and back.
    pub tokenizer: &'a Tokenizer,
    /// How observations become prompts.
    pub template: &'a PromptTemplate,
    /// The model's chat format around the prompts, where it has one that is used.
    pub chat: Option<&'a ChatFormat>,
    /// How responses become actions.
    pub parser: &'a ActionParser,
    /// How turns become sequences.
    pub layout: Layout,
    /// Earlier turns shown in a windowed prompt.
    pub history: usize,
    /// How responses are sampled.
    pub params: SamplingParams,
    /// Longest sequence in tokens.
    pub max_context: usize,
    /// Trajectories under way at once in each lane.
    pub slots: usize,
    /// The run's seed.
    pub run_seed: u64,
    /// What the draws are for.
    pub purpose: Purpose,
    /// The training step, or whatever else tells this rollout from others of its purpose.
    pub step: u64,
    /// Set from outside to stop early.
    pub stop: &'a AtomicBool,
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
pub fn run<S: Sampler + Send>(
    context: &RolloutContext<'_>,
    jobs: &[Job],
    samplers: &mut [S],
    mut tick: impl FnMut(&RolloutProgress),
) -> Result<Option<Vec<Trajectory>>, TrainError> {
    let progress = RolloutProgress::default();
    let results: Mutex<Vec<Option<Trajectory>>> = Mutex::new(vec![None; jobs.len()]);
    let running = AtomicUsize::new(samplers.len());
    let all = samplers.len().max(1);
    let outcome = std::thread::scope(|scope| {
        let handles: Vec<_> = samplers
            .iter_mut()
            .enumerate()
            .map(|(lane, sampler)| {
                let (progress, results, running) = (&progress, &results, &running);
                scope.spawn(move || {
                    let _guard = Running(running);
                    let mine: Vec<usize> = (lane..jobs.len()).step_by(all).collect();
                    Lane { context, jobs, progress, sampler, live: Vec::new() }.play(
                        &mine,
                        |job, trajectory| {
                            if let Ok(mut results) = results.lock() {
                                results[job] = Some(trajectory);
                            }
                        },
                    )
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

/// Counts a lane out when its thread ends, in whichever way, and wakes nobody: the main thread polls.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

/// A trajectory under way.
struct Live {
    job: usize,
    request: RequestId,
    environment: Box<dyn Environment>,
    trajectory: Trajectory,
    observation: Observation,
    history: Vec<(String, String)>,
    prompt: Vec<u32>,
}

struct Lane<'a, S> {
    context: &'a RolloutContext<'a>,
    jobs: &'a [Job],
    progress: &'a RolloutProgress,
    sampler: &'a mut S,
    live: Vec<Live>,
}

impl<S: Sampler> Lane<'_, S> {
    fn play(mut self, mine: &[usize], mut done: impl FnMut(usize, Trajectory)) -> Result<(), TrainError> {
        let mut waiting = mine.iter().copied();
        loop {
            while self.live.len() < self.context.slots.max(1) {
                let Some(job) = waiting.next() else { break };
                if let Some(trajectory) = self.begin(job)? {
                    self.finish(job, trajectory, &mut done);
                }
            }
            if self.live.is_empty() || self.context.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            for completion in self.sampler.poll()? {
                let Some(index) = self.live.iter().position(|live| live.request == completion.request) else {
                    continue;
                };
                let live = self.live.remove(index);
                let job = live.job;
                if let Some(trajectory) = self.advance(live, completion)? {
                    self.finish(job, trajectory, &mut done);
                }
            }
        }
    }

    fn finish(&mut self, job: usize, trajectory: Trajectory, done: &mut impl FnMut(usize, Trajectory)) {
        self.sampler.end_session(job as u64);
        self.progress.finished.fetch_add(1, Ordering::Relaxed);
        self.progress.solved.fetch_add(usize::from(trajectory.success), Ordering::Relaxed);
        done(job, trajectory);
    }

    /// Starts a trajectory; one that ends at once is returned.
    fn begin(&mut self, index: usize) -> Result<Option<Trajectory>, TrainError> {
        let job = &self.jobs[index];
        let mut trajectory = Trajectory {
            schema_version: SCHEMA_VERSION,
            task: job.task.clone(),
            group: job.group,
            sample: job.sample,
            step: self.context.step,
            turns: Vec::new(),
            final_observation: String::new(),
            final_state_key: None,
            stop: StopReason::Terminated,
            success: false,
            sequences: Vec::new(),
            advantages: None,
            explanation: None,
            metrics: std::collections::BTreeMap::new(),
        };
        let coordinates = [self.context.purpose as u64, self.context.step, job.group as u64];
        let seed = Seed::derive(self.context.run_seed, Purpose::Environment, &coordinates);
        let begun = self.context.task_set.environment().and_then(|mut environment| {
            let observation = environment.reset(&job.task, seed)?;
            Ok((environment, observation))
        });
        match begun {
            Ok((environment, observation)) => {
                let observation = self.shorten(observation, &job.task);
                let prompt = match self.first_prompt(job, &observation) {
                    Ok(prompt) => prompt,
                    Err(error) => {
                        trajectory.stop = StopReason::SampleError(error.to_string());
                        return Ok(Some(trajectory));
                    }
                };
                let live = Live {
                    job: index,
                    request: 0,
                    environment,
                    trajectory,
                    observation,
                    history: Vec::new(),
                    prompt,
                };
                self.ask(live)
            }
            Err(error) => {
                trajectory.stop = StopReason::EnvironmentError(error.to_string());
                Ok(Some(trajectory))
            }
        }
    }

    /// How the responses of a task are sampled: its own limit counts where it is the smaller one.
    fn params(&self, task: &Task) -> SamplingParams {
        let mut params = self.context.params.clone();
        params.max_tokens =
            task.limits.response_tokens.map_or(params.max_tokens, |limit| limit.min(params.max_tokens));
        params
    }

    /// The observation within the task's limit of tokens: the texts are cut where it is reached.
    fn shorten(&self, mut observation: Observation, task: &Task) -> Observation {
        let Some(mut room) = task.limits.observation_tokens else { return observation };
        for part in &mut observation.parts {
            let (Part::Text { text } | Part::ToolResult { text, .. }) = part else { continue };
            let tokens = self.context.tokenizer.encode(text);
            if tokens.len() > room {
                *text = self.context.tokenizer.decode(&tokens[..room]);
            }
            room = room.saturating_sub(tokens.len());
        }
        observation
    }

    fn prompter(&self) -> Prompter<'_> {
        let RolloutContext { template, tokenizer, chat, .. } = *self.context;
        Prompter { template, tokenizer, chat }
    }

    fn first_prompt(&self, job: &Job, observation: &Observation) -> Result<Vec<u32>, TextError> {
        let Job { task, preamble, .. } = job;
        let template = self.context.template;
        let words = observation.text();
        let seen = (&*words, observation.admissible.as_slice());
        let text = match self.context.layout {
            Layout::Concatenated => template.render_concatenated_first(&view(task, seen, &[], 0, 0)),
            Layout::Windowed => {
                template.render(&view(task, seen, &[], 0, self.context.history), PromptKind::Full)
            }
        };
        self.prompter().start(&format!("{preamble}{text}"))
    }

    /// Asks for the next response, or ends the trajectory where that cannot be.
    fn ask(&mut self, mut live: Live) -> Result<Option<Trajectory>, TrainError> {
        if live.prompt.len() >= self.context.max_context {
            return Ok(Some(end(live, StopReason::ContextOverflow)));
        }
        let job = &self.jobs[live.job];
        let turn = live.trajectory.turns.len() as u64;
        let coordinates = [self.context.step, job.group as u64, job.sample as u64, turn];
        let request = SampleRequest {
            session: live.job as u64,
            prompt: live.prompt.clone(),
            params: self.params(&job.task),
            seed: Seed::derive(self.context.run_seed, self.context.purpose, &coordinates),
        };
        match self.sampler.submit(request) {
            Ok(id) => {
                live.request = id;
                self.live.push(live);
                Ok(None)
            }
            // A request that can never be served ends its own trajectory; a broken backend ends the run.
            Err(SampleError::Request { reason, .. }) => Ok(Some(end(live, StopReason::SampleError(reason)))),
            Err(error) => Err(error.into()),
        }
    }

    /// Carries a response out and asks for the next.
    fn advance(&mut self, mut live: Live, completion: Completion) -> Result<Option<Trajectory>, TrainError> {
        let context = self.context;
        self.progress.turns.fetch_add(1, Ordering::Relaxed);
        self.progress.tokens.fetch_add(completion.tokens.len(), Ordering::Relaxed);
        let prompter = self.prompter();
        let response = prompter.response(&completion.tokens);
        let parsed = context.parser.parse(&prompter.whole(&response), &live.observation.admissible);
        record_tokens(&mut live, &completion, context.layout);
        let seen = std::mem::take(&mut live.observation);
        let action = Action::from(parsed.action);
        let turn = Turn {
            observation: seen.text().into_owned(),
            parts: if seen.is_plain() { Vec::new() } else { seen.parts },
            state_key: seen.state_key,
            admissible: seen.admissible,
            response,
            action: action.text().into_owned(),
            call: action.call().cloned(),
            valid: parsed.valid,
            reward: 0.0,
            shaped_reward: None,
            progress: None,
            response_ids: completion.tokens,
            old_logprobs: completion.logprobs,
            entropies: completion.entropies,
            weights_version: completion.weights_version,
        };
        let outcome = live.environment.step(&action);
        live.history.push((turn.observation.clone(), turn.action.clone()));
        live.trajectory.turns.push(turn);
        let step = match outcome {
            Ok(step) => step,
            Err(error) => return Ok(Some(end(live, StopReason::EnvironmentError(error.to_string())))),
        };
        if let Some(turn) = live.trajectory.turns.last_mut() {
            turn.reward = step.reward;
            turn.progress = step.progress;
        }
        for metric in step.metrics {
            metric.merge_into(&mut live.trajectory.metrics);
        }
        live.trajectory.success = step.success;
        live.observation = self.shorten(step.observation, &live.trajectory.task);
        if step.terminated {
            return Ok(Some(end(live, StopReason::Terminated)));
        }
        let limit = live.trajectory.task.limits.turns;
        if step.truncated || limit.is_some_and(|limit| live.trajectory.turns.len() >= limit) {
            return Ok(Some(end(live, StopReason::MaxTurns)));
        }
        if completion.finish == FinishReason::Context {
            return Ok(Some(end(live, StopReason::ContextOverflow)));
        }
        match self.next_prompt(&live, completion.finish) {
            Ok(prompt) => live.prompt = prompt,
            // A chat template that refuses these words ends this trajectory only.
            Err(error) => return Ok(Some(end(live, StopReason::SampleError(error.to_string())))),
        }
        self.ask(live)
    }

    fn next_prompt(&self, live: &Live, finish: FinishReason) -> Result<Vec<u32>, TextError> {
        let context = self.context;
        let task = &live.trajectory.task;
        let turn = live.trajectory.turns.len();
        let words = live.observation.text();
        let seen = (&*words, live.observation.admissible.as_slice());
        match context.layout {
            Layout::Windowed => {
                let view = view(task, seen, &live.history, turn, context.history);
                let preamble = &self.jobs[live.job].preamble;
                let text = context.template.render(&view, PromptKind::Full);
                self.prompter().start(&format!("{preamble}{text}"))
            }
            Layout::Concatenated => {
                let mut tokens = live
                    .trajectory
                    .sequences
                    .first()
                    .map(|sequence| sequence.tokens.clone())
                    .unwrap_or_default();
                let view = view(task, seen, &[], turn, 0);
                tokens.extend(self.prompter().between(&view, tokens.last().copied(), finish)?);
                Ok(tokens)
            }
        }
    }
}

fn view<'a>(
    task: &'a Task,
    (text, admissible): (&'a str, &'a [String]),
    history: &'a [(String, String)],
    turn: usize,
    window: usize,
) -> PromptView<'a> {
    PromptView { goal: &task.goal, history, window, observation: text, admissible, step: turn }
}

/// Keeps the ids that were seen and sampled; nothing is ever tokenised a second time.
fn record_tokens(live: &mut Live, completion: &Completion, layout: Layout) {
    let turn = live.trajectory.turns.len();
    let mut tokens = std::mem::take(&mut live.prompt);
    let start = tokens.len();
    tokens.extend(&completion.tokens);
    let span = TurnSpan { turn, start, end: tokens.len() };
    match (layout, live.trajectory.sequences.first_mut()) {
        (Layout::Concatenated, Some(sequence)) => {
            sequence.tokens = tokens;
            sequence.spans.push(span);
        }
        _ => live.trajectory.sequences.push(TokenSequence { tokens, spans: vec![span] }),
    }
}

fn end(mut live: Live, stop: StopReason) -> Trajectory {
    live.environment.close();
    live.trajectory.final_state_key = live.observation.state_key.take();
    live.trajectory.final_observation = live.observation.into_text();
    live.trajectory.stop = stop;
    live.trajectory
}
