//! One lane of a rollout: its trajectories from reset to end.
//!
//! Instantaneous environments ([`turnwise_core::TaskSet::is_instant`]) run in place, others in
//! [`super::pool`]. The order of results only affects batching, because seeds are derived from
//! indices such as the step.

mod prompts;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, Observation, Part, Purpose, Reply, RequestId,
    SampleError, SampleRequest, Sampler, SamplingParams, Seed, Step, StopReason, Trajectory, Turn, TurnKind,
};

use self::prompts::record_tokens;
use super::branch::Branch;
use super::pool::{LanePool, Outcome, Ticket};
use super::{Job, RolloutContext, RolloutProgress};
use crate::TrainError;
use crate::config::{Layout, Validity};
use crate::rollout::conversations::{agent_turn, calls_of};
use crate::rollout::observations::{as_result, shorten};
use crate::rollout::prompting::Prompter;

struct Live {
    job: usize,
    request: RequestId,
    /// `None` while an environment call runs, and after the environment failed.
    environment: Option<Box<dyn Environment>>,
    trajectory: Trajectory,
    observation: Observation,
    history: Vec<(String, String)>,
    prompt: Vec<u32>,
    asks: TurnKind,
    /// Tool calls of the last response that have not been executed yet.
    actions: VecDeque<Action>,
    results: Vec<Part>,
}

impl Live {
    fn begins_sequence(&self) -> bool {
        self.trajectory.turns.last().is_none_or(Turn::is_compaction)
    }
}

enum Waiting {
    Begin(usize),
    Step(Box<Live>, FinishReason),
}

const WAIT: Duration = Duration::from_millis(100);

/// Maximum time of sampling before the environments are checked again.
const SAMPLE: Duration = Duration::from_millis(10);

pub(super) struct Lane<'a, S> {
    context: &'a RolloutContext<'a>,
    jobs: &'a [Job],
    progress: &'a RolloutProgress,
    sampler: &'a mut S,
    environments: LanePool,
    live: Vec<Live>,
    waiting: HashMap<Ticket, Waiting>,
    /// Whether environments run on this thread.
    instant: bool,
}

impl<'a, S: Sampler> Lane<'a, S> {
    pub(super) fn new(
        context: &'a RolloutContext<'a>,
        jobs: &'a [Job],
        progress: &'a RolloutProgress,
        sampler: &'a mut S,
        environments: LanePool,
    ) -> Self {
        let instant = context.task_set.is_instant();
        let (live, waiting) = (Vec::new(), HashMap::new());
        Self { context, jobs, progress, sampler, environments, live, waiting, instant }
    }

    pub(super) fn play(
        mut self,
        mine: &[usize],
        mut done: impl FnMut(usize, Trajectory),
    ) -> Result<(), TrainError> {
        let mut next = mine.iter().copied();
        loop {
            while self.live.len() + self.waiting.len() < self.context.slots.max(1) {
                let Some(job) = next.next() else { break };
                if let Some(trajectory) = self.begin(job)? {
                    self.finish(job, trajectory, &mut done);
                }
            }
            let idle = self.live.is_empty() && self.waiting.is_empty();
            if idle || self.context.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            for (job, trajectory) in self.take_outcomes()? {
                self.finish(job, trajectory, &mut done);
            }
            if self.live.is_empty() {
                continue;
            }
            // A remote sampler may not answer.
            let wait = if self.waiting.is_empty() { WAIT } else { SAMPLE };
            let completions = self.sampler.poll_until(Instant::now() + wait)?;
            for (request, reason) in self.sampler.take_failures() {
                let Some(index) = self.live.iter().position(|live| live.request == request) else { continue };
                let live = self.live.remove(index);
                let job = live.job;
                let trajectory = self.end(live, StopReason::SampleError(reason));
                self.finish(job, trajectory, &mut done);
            }
            for completion in completions {
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

    /// Returns the trajectories that ended. Waits for environments only if there is nothing to
    /// sample.
    fn take_outcomes(&mut self) -> Result<Vec<(usize, Trajectory)>, TrainError> {
        let mut ended = Vec::new();
        if self.waiting.is_empty() {
            return Ok(ended);
        }
        let wait = if self.live.is_empty() { WAIT } else { Duration::ZERO };
        for (ticket, outcome) in self.environments.poll(Instant::now() + wait) {
            let (job, trajectory) = match (self.waiting.remove(&ticket), outcome) {
                (Some(Waiting::Begin(job)), Outcome::Begun(environment, observation)) => {
                    (job, self.on_reset(job, Ok((environment, observation)))?)
                }
                (Some(Waiting::Begin(job)), Outcome::Failed(error)) => (job, self.on_reset(job, Err(error))?),
                (Some(Waiting::Step(mut live, finish)), Outcome::Stepped(environment, step)) => {
                    live.environment = Some(environment);
                    (live.job, self.stepped(*live, Ok(step), finish)?)
                }
                (Some(Waiting::Step(live, finish)), Outcome::Failed(error)) => {
                    (live.job, self.stepped(*live, Err(error), finish)?)
                }
                (None | Some(_), _) => continue,
            };
            ended.extend(trajectory.map(|trajectory| (job, trajectory)));
        }
        Ok(ended)
    }

    fn finish(&mut self, job: usize, trajectory: Trajectory, done: &mut impl FnMut(usize, Trajectory)) {
        self.sampler.end_session(job as u64);
        self.progress.finished.fetch_add(1, Ordering::Relaxed);
        self.progress.solved.fetch_add(usize::from(trajectory.success), Ordering::Relaxed);
        done(job, trajectory);
    }

    fn begin(&mut self, index: usize) -> Result<Option<Trajectory>, TrainError> {
        let job = &self.jobs[index];
        let coordinates = [self.context.purpose as u64, self.context.step, job.group as u64];
        let seed = Seed::derive(self.context.run_seed, Purpose::Environment, &coordinates);
        if !self.instant {
            let ticket = self.environments.begin(job.clone(), seed);
            self.waiting.insert(ticket, Waiting::Begin(index));
            return Ok(None);
        }
        let begun = self.context.task_set.environment().and_then(|mut environment| {
            let observation = job.start(&mut *environment, seed)?;
            Ok((environment, observation))
        });
        self.on_reset(index, begun)
    }

    fn on_reset(
        &mut self,
        index: usize,
        begun: Result<(Box<dyn Environment>, Observation), EnvError>,
    ) -> Result<Option<Trajectory>, TrainError> {
        let job = &self.jobs[index];
        let branch = job.branch.as_deref();
        let mut trajectory = Trajectory {
            group: job.group,
            sample: job.sample,
            step: self.context.step,
            ..branch
                .map_or_else(|| Trajectory::new(job.task.clone(), Vec::new()), |branch| branch.before.clone())
        };
        match begun {
            Ok((environment, observation)) => {
                let observation = shorten(observation, &job.task, self.context.tokenizer);
                trajectory.tools = environment.tools().to_vec();
                let prompt = if let Some(branch) = branch {
                    Ok(branch.prompt.clone())
                } else {
                    let RolloutContext { layout, history, .. } = *self.context;
                    let shown = (&observation, &job.preamble[..]);
                    self.prompter().first((layout, history), &job.task, shown, &trajectory.tools)
                };
                let prompt = match prompt {
                    Ok(prompt) => prompt,
                    Err(error) => {
                        self.close(environment);
                        trajectory.stop = StopReason::SampleError(error.to_string());
                        return Ok(Some(trajectory));
                    }
                };
                let live = Live {
                    job: index,
                    request: 0,
                    environment: Some(environment),
                    observation,
                    history: branch.map_or_else(Vec::new, Branch::history),
                    asks: branch.map_or(TurnKind::Action, Branch::kind),
                    trajectory,
                    prompt,
                    actions: VecDeque::new(),
                    results: Vec::new(),
                };
                self.ask(live)
            }
            Err(error) => {
                trajectory.stop = StopReason::EnvironmentError(error.to_string());
                Ok(Some(trajectory))
            }
        }
    }

    /// Returns the sampling parameters. A task's smaller token limit applies to actions, not to
    /// summaries.
    fn params(&self, live: &Live) -> SamplingParams {
        let mut params = self.context.params.clone();
        if let Some(compaction) = self.context.compaction.filter(|_| live.asks == TurnKind::Compaction) {
            params.max_tokens = compaction.max_tokens;
            return params;
        }
        let asked = live.observation.conversation.as_deref();
        let limits = [live.trajectory.task.limits.response_tokens, asked.and_then(|asked| asked.max_tokens)];
        params.max_tokens = limits.into_iter().flatten().fold(params.max_tokens, usize::min);
        params.stop_strings.extend(asked.into_iter().flat_map(|asked| asked.stop.iter().cloned()));
        params
    }

    fn prompter(&self) -> Prompter<'_> {
        let RolloutContext { template, tokenizer, chat, pictures, .. } = *self.context;
        Prompter { template, tokenizer, chat, pictures }
    }

    fn ask(&mut self, mut live: Live) -> Result<Option<Trajectory>, TrainError> {
        if live.prompt.len() >= self.context.max_model_len {
            return Ok(Some(self.end(live, StopReason::ContextOverflow)));
        }
        let job = &self.jobs[live.job];
        let turn = live.trajectory.turns.len() as u64;
        // A retry has other seeds, at coordinates that no sample has.
        let sample = job.sample as u64 | job.attempt << 32;
        let coordinates = [self.context.step, job.group as u64, sample, turn];
        let request = SampleRequest {
            session: live.job as u64,
            prompt: live.prompt.clone(),
            params: self.params(&live),
            seed: Seed::derive(self.context.run_seed, self.context.purpose, &coordinates),
        };
        match self.sampler.submit(request) {
            Ok(id) => {
                live.request = id;
                self.live.push(live);
                Ok(None)
            }
            // A rejected request ends only its trajectory.
            Err(SampleError::Request { reason, .. }) => {
                Ok(Some(self.end(live, StopReason::SampleError(reason))))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn advance(&mut self, mut live: Live, completion: Completion) -> Result<Option<Trajectory>, TrainError> {
        let context = self.context;
        self.progress.tokens.fetch_add(completion.tokens.len(), Ordering::Relaxed);
        if live.asks == TurnKind::Compaction {
            return self.summarized(live, completion);
        }
        self.progress.turns.fetch_add(1, Ordering::Relaxed);
        let prompter = self.prompter();
        let response = prompter.response(&completion.tokens);
        let first = context.layout == Layout::Windowed || live.begins_sequence();
        let whole = prompter.whole(&response, first);
        let parsed = context.parser.parse(&whole, &live.observation.admissible);
        let prompt_tokens = live.prompt.len();
        record_tokens(&mut live, &completion, context.layout);
        let seen = std::mem::take(&mut live.observation);
        let (mut valid, mut words) = (parsed.valid, parsed.action.clone());
        let turn = live.trajectory.turns.len();
        if let Some(asked) = &seen.conversation {
            let (reply, well_formed) = prompter.reply(asked, &parsed, (&whole, completion.finish), turn);
            valid = well_formed;
            if reply.calls.is_empty() {
                words.clone_from(&reply.content);
            }
            let response_tokens = completion.tokens.len();
            live.actions = [Action::Reply(Reply { prompt_tokens, response_tokens, ..reply })].into();
        } else {
            live.actions = parsed.into_actions(&format!("call_{turn}")).into();
        }
        live.results.clear();
        let turn = Turn {
            kind: TurnKind::Action,
            observation: seen.text().into_owned(),
            parts: if seen.is_plain() { Vec::new() } else { seen.parts },
            state_key: seen.state_key,
            admissible: seen.admissible,
            response,
            action: words,
            calls: live.actions.iter().flat_map(calls_of).collect(),
            valid,
            reward: 0.0,
            shaped_reward: None,
            progress: None,
            state_value: None,
            token_rewards: Vec::new(),
            response_ids: completion.tokens,
            old_logprobs: completion.logprobs,
            entropies: completion.entropies,
            clipped: Vec::new(),
            weights_version: completion.weights_version,
            agent: seen.conversation.as_deref().map(|asked| agent_turn(asked, &live.trajectory.tools)),
        };
        live.history.push((turn.observation.clone(), turn.action.clone()));
        live.trajectory.turns.push(turn);
        self.act(live, completion.finish)
    }

    fn act(&mut self, mut live: Live, finish: FinishReason) -> Result<Option<Trajectory>, TrainError> {
        let action = live.actions.front().cloned().unwrap_or_default();
        match live.environment.take() {
            Some(environment) if !self.instant => {
                let ticket = self.environments.step(environment, action);
                self.waiting.insert(ticket, Waiting::Step(Box::new(live), finish));
                Ok(None)
            }
            Some(mut environment) => {
                let outcome = environment.step(&action);
                live.environment = outcome.is_ok().then_some(environment);
                self.stepped(live, outcome, finish)
            }
            None => self.stepped(live, Err(EnvError::NotReset), finish),
        }
    }

    fn stepped(
        &mut self,
        mut live: Live,
        outcome: Result<Step, EnvError>,
        finish: FinishReason,
    ) -> Result<Option<Trajectory>, TrainError> {
        let step = match outcome {
            Ok(step) => step,
            Err(error) => return Ok(Some(self.end(live, StopReason::EnvironmentError(error.to_string())))),
        };
        if let Some(turn) = live.trajectory.turns.last_mut() {
            turn.reward += step.reward;
            turn.progress = step.progress.or(turn.progress);
            turn.valid &= step.understood || self.context.valid != Validity::Understood;
        }
        for metric in step.metrics {
            metric.merge_into(&mut live.trajectory.metrics);
        }
        for given in step.rewards {
            let Some(turn) = live.trajectory.turns.get_mut(given.turn) else { continue };
            turn.reward += given.reward;
            if let Some(agent) = &mut turn.agent {
                agent.rewards.push((given.rule, given.reward));
            }
        }
        live.trajectory.success = step.success;
        let mut seen = step.observation;
        if let Some(Action::Call(call)) = live.actions.pop_front() {
            live.results.extend(as_result(std::mem::take(&mut seen.parts), &call));
            if !live.actions.is_empty() && !step.terminated && !step.truncated {
                return self.act(live, finish);
            }
            seen.parts = std::mem::take(&mut live.results);
        }
        live.observation = shorten(seen, &live.trajectory.task, self.context.tokenizer);
        if step.terminated {
            return Ok(Some(self.end(live, StopReason::Terminated)));
        }
        let limit = live.trajectory.task.limits.turns_within(self.context.max_turns);
        if step.truncated || live.trajectory.actions() >= limit {
            return Ok(Some(self.end(live, StopReason::MaxTurns)));
        }
        // An agent's next request may belong to another conversation.
        if finish == FinishReason::Context && live.observation.conversation.is_none() {
            return Ok(Some(self.end(live, StopReason::ContextOverflow)));
        }
        let prompt = self.next_prompt(&mut live, finish);
        match prompt.and_then(|prompt| self.or_compaction(&mut live, prompt, finish)) {
            Ok(prompt) => live.prompt = prompt,
            // A chat template that rejects this text ends only this trajectory.
            Err(error) => return Ok(Some(self.end(live, StopReason::SampleError(error.to_string())))),
        }
        self.ask(live)
    }

    fn close(&mut self, mut environment: Box<dyn Environment>) {
        if self.instant {
            environment.close();
        } else {
            self.environments.close(environment);
        }
    }

    fn end(&mut self, mut live: Live, stop: StopReason) -> Trajectory {
        if let Some(environment) = live.environment.take() {
            self.close(environment);
        }
        live.trajectory.final_state_key = live.observation.state_key.take();
        live.trajectory.final_observation = live.observation.into_text();
        live.trajectory.stop = stop;
        live.trajectory
    }
}
