//! Rollouts in a scripted environment: task limits, step metrics, slow environments.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, Metric, Observation, Purpose, RequestId,
    SampleError, SampleRequest, Sampler, Seed, Step, StopReason, Task, TaskLimits, TaskSet, Trajectory,
};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::{Layout, Validity};
use turnwise_train::rollout::{Job, Rollout, is_faulty};

use crate::common;

/// Counts steps. A goal may name a failure of the second step: `hang`, `broken`, `flaky` (once).
struct Counter {
    instant: bool,
    flaky: Arc<AtomicUsize>,
}

struct Episode {
    goal: String,
    steps: usize,
    instant: bool,
    flaky: Arc<AtomicUsize>,
}

impl Environment for Episode {
    fn reset(&mut self, task: &Task, _: Seed) -> Result<Observation, EnvError> {
        (self.goal, self.steps) = (task.goal.clone(), 0);
        Ok(Observation::new("one two three four five six seven eight"))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        self.steps += 1;
        if self.steps == 2 {
            match self.goal.as_str() {
                "hang" => {
                    let (_open, never) = mpsc::channel::<()>();
                    let _ = never.recv_timeout(Duration::from_secs(20));
                }
                "broken" => return Err(EnvError::Other("broken for good".into())),
                "flaky" if self.flaky.fetch_add(1, Ordering::SeqCst) == 0 => {
                    return Err(EnvError::Other("broken this time".into()));
                }
                _ => {}
            }
        }
        if !self.instant {
            std::thread::sleep(Duration::from_millis(action.text().len() as u64 * 7 % 5));
        }
        Ok(Step {
            observation: Observation::new(format!("{} after {}", self.steps, action.text())),
            reward: 1.0,
            terminated: self.steps == 4,
            success: self.steps == 4,
            understood: !action.text().contains("seven"),
            metrics: vec![Metric::sum("steps", 1.0), Metric::last("latest", self.steps as f64)],
            ..Step::default()
        })
    }
}

impl TaskSet for Counter {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn splits(&self) -> Vec<String> {
        Vec::new()
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(Vec::new())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        let (goal, flaky) = (String::new(), Arc::clone(&self.flaky));
        Ok(Box::new(Episode { goal, steps: 0, instant: self.instant, flaky }))
    }

    fn is_instant(&self) -> bool {
        self.instant
    }
}

struct Words<'a> {
    tokenizer: &'a Tokenizer,
    next: RequestId,
    waiting: Vec<(RequestId, SampleRequest)>,
}

impl Sampler for Words<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push((self.next, request));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let tokenizer = self.tokenizer;
        let answer = |(id, request): (RequestId, SampleRequest)| {
            let mut rng = request.seed.rng();
            let words: Vec<&str> =
                (0..4).filter_map(|_| rng.choose(&["one", "two", "seven", "eight"]).copied()).collect();
            let mut tokens = tokenizer.encode(&words.join(" "));
            tokens.truncate(request.params.max_tokens);
            Completion {
                request: id,
                logprobs: vec![-1.0; tokens.len()],
                entropies: vec![1.0; tokens.len()],
                tokens,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        Ok(self.waiting.drain(..).map(answer).collect())
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn tokenizer() -> Tokenizer {
    let text = ["one two three four five six seven eight after 1 2 3 4"];
    Tokenizer::train(text.into_iter(), &TokenizerConfig::default()).unwrap()
}

struct Settings {
    instant: bool,
    threads: usize,
    timeout_s: f64,
    max_resamples: u64,
    max_turns: usize,
    valid: Validity,
}

impl Default for Settings {
    fn default() -> Self {
        let (threads, timeout_s, valid) = (16, 120.0, Validity::Format);
        Self { instant: true, threads, timeout_s, max_resamples: 0, max_turns: 0, valid }
    }
}

fn play(tasks: Vec<Task>, settings: &Settings) -> (Vec<Trajectory>, usize) {
    let counter = Counter { instant: settings.instant, flaky: Arc::default() };
    let runner = common::runner(counter, "plain", tokenizer(), None);
    let stop = AtomicBool::new(false);
    let mut config = common::rollout_config(Layout::Windowed, 4096, 3);
    (config.prompt.validity, config.env.max_turns) = (settings.valid, settings.max_turns);
    (config.rollout.env_threads, config.rollout.env_timeout_s) = (settings.threads, settings.timeout_s);
    let max_resamples = settings.max_resamples;
    let rollout = Rollout { max_resamples, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let jobs: Vec<Job> =
        tasks.into_iter().enumerate().map(|(group, task)| Job::new(task, group, 0)).collect();
    let sampler = || Words { tokenizer: &runner.tokenizer, next: 0, waiting: Vec::new() };
    let mut samplers = [sampler(), sampler()];
    let played = runner.play(&rollout, &jobs, &mut samplers, |_| {}).unwrap().unwrap();
    assert!(max_resamples > 0 || played.resampled == 0);
    (played.trajectories, played.resampled)
}

fn task(number: usize, goal: &str, limits: TaskLimits) -> Task {
    Task { limits, ..Task::new(format!("task/{number}"), "count", goal) }
}

#[test]
fn a_task_has_limits_of_its_own() {
    let limits = [
        TaskLimits::default(),
        TaskLimits { turns: Some(2), ..TaskLimits::default() },
        TaskLimits { response_tokens: Some(1), ..TaskLimits::default() },
        TaskLimits { observation_tokens: Some(3), ..TaskLimits::default() },
    ];
    let tasks = limits.iter().enumerate().map(|(number, limits)| task(number, "count", *limits)).collect();
    let (played, _) = play(tasks, &Settings::default());
    let [free, short, terse, blinkered] = played.try_into().unwrap();
    assert_eq!((free.turns.len(), free.stop), (4, StopReason::Terminated));
    assert_eq!((short.turns.len(), short.stop, short.success), (2, StopReason::MaxTurns, false));
    let (played, _) =
        play(vec![task(0, "count", limits[0])], &Settings { max_turns: 3, ..Settings::default() });
    assert_eq!((played[0].turns.len(), played[0].stop.clone()), (3, StopReason::MaxTurns), "the run's limit");
    assert!(terse.turns.iter().all(|turn| turn.response_ids.len() == 1));
    assert!(free.turns.iter().any(|turn| turn.response_ids.len() > 1));
    let tokenizer = tokenizer();
    let length = |text: &str| tokenizer.encode(text).len();
    assert!(blinkered.turns.iter().all(|turn| length(&turn.observation) <= 3));
    assert_eq!(free.turns[0].observation, "one two three four five six seven eight");
    assert!(free.turns[0].observation.starts_with(&blinkered.turns[0].observation));
}

#[test]
fn metrics_of_steps_add_up_or_replace() {
    let (played, _) = play(vec![task(0, "count", TaskLimits::default())], &Settings::default());
    assert_eq!((played[0].metrics["steps"], played[0].metrics["latest"]), (4.0, 4.0));
    assert!(played[0].turns.iter().all(|turn| turn.reward == 1.0 && turn.shaped_reward.is_none()));
}

#[test]
fn environments_that_are_waited_for_give_the_same_trajectories() {
    let tasks = || (0..12).map(|number| task(number, "count", TaskLimits::default())).collect();
    let (instant, _) = play(tasks(), &Settings::default());
    for threads in [1, 8] {
        let (waited, _) = play(tasks(), &Settings { instant: false, threads, ..Settings::default() });
        assert_eq!(waited, instant, "{threads} threads");
    }
}

#[test]
fn an_environment_that_hangs_or_breaks_ends_its_own_trajectory() {
    let goals = ["count", "hang", "broken", "count"];
    let tasks =
        || goals.iter().enumerate().map(|(number, goal)| task(number, goal, TaskLimits::default())).collect();
    let (threads, timeout_s, max_resamples) = (2, 0.3, 1);
    let settings = Settings { instant: false, threads, timeout_s, max_resamples, ..Settings::default() };
    let (played, again) = play(tasks(), &settings);
    assert_eq!(again, 2);
    let faulty: Vec<bool> = played.iter().map(is_faulty).collect();
    assert_eq!(faulty, [false, true, true, false]);
    let reason = |index: usize| match &played[index].stop {
        StopReason::EnvironmentError(reason) => reason.clone(),
        other => format!("{other:?}"),
    };
    assert!(reason(1).contains("step took longer than 0.3 s"), "{}", reason(1));
    assert!(reason(2).contains("broken for good"), "{}", reason(2));
    assert_eq!((played[1].turns.len(), played[2].turns.len()), (2, 2));
}

#[test]
fn a_trajectory_that_is_sampled_again_has_draws_of_its_own() {
    let tasks = |goal: &str| vec![task(0, goal, TaskLimits::default())];
    let settings = Settings { max_resamples: 2, ..Settings::default() };
    let (clean, _) = play(tasks("count"), &settings);
    let (flaky, again) = play(tasks("flaky"), &settings);
    assert_eq!((again, is_faulty(&flaky[0]), flaky[0].turns.len()), (1, false, 4));
    let actions = |trajectory: &Trajectory| -> Vec<String> {
        trajectory.turns.iter().map(|turn| turn.action.clone()).collect()
    };
    assert_ne!(actions(&flaky[0]), actions(&clean[0]));
    assert_eq!(play(tasks("flaky"), &settings), (flaky, again));
}

struct Receiver;

impl Environment for Receiver {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        Ok(Observation::new("call f"))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let arrived = match action.call() {
            Some(call) => format!("{} {} {}", call.id, call.name, call.arguments),
            None => format!("words: {}", action.text()),
        };
        Ok(Step { observation: Observation::new(arrived), ..Step::default() })
    }
}

struct Receivers;

impl TaskSet for Receivers {
    fn name(&self) -> &'static str {
        "receiver"
    }

    fn splits(&self) -> Vec<String> {
        Vec::new()
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(Vec::new())
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Receiver))
    }

    fn is_instant(&self) -> bool {
        true
    }
}

struct Replies<'a>(&'a Tokenizer, Vec<&'a str>, Option<RequestId>);

impl Sampler for Replies<'_> {
    fn submit(&mut self, _: SampleRequest) -> Result<RequestId, SampleError> {
        self.2 = Some(self.1.len() as RequestId);
        Ok(self.1.len() as RequestId)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let answer = |request| {
            let tokens = self.0.encode(self.1.remove(0));
            let (logprobs, entropies) = (vec![-1.0; tokens.len()], vec![1.0; tokens.len()]);
            Completion {
                request,
                tokens,
                logprobs,
                entropies,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        Ok(self.2.take().map(answer).into_iter().collect())
    }

    fn end_session(&mut self, _session: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

#[test]
fn an_action_that_the_world_does_not_understand_is_invalid_where_that_is_asked_for() {
    let tasks = || (0..8).map(|number| task(number, "count", TaskLimits::default())).collect();
    let flags = |valid: Validity| {
        let (played, _) = play(tasks(), &Settings { valid, ..Settings::default() });
        let turns = played.into_iter().flat_map(|trajectory| trajectory.turns);
        turns.map(|turn| (turn.valid, turn.action.contains("seven"))).collect::<Vec<_>>()
    };
    assert!(flags(Validity::Format).iter().all(|(valid, _)| *valid));
    let understood = flags(Validity::Understood);
    assert!(understood.iter().all(|(valid, seven)| *valid != *seven), "{understood:?}");
    assert!(understood.iter().any(|(valid, _)| !valid) && understood.iter().any(|(valid, _)| *valid));
}

#[test]
fn structured_calls_reach_the_world_and_the_trajectory() {
    let runner = common::runner(Receivers, "tools", tokenizer(), None);
    let (config, stop) = (common::rollout_config(Layout::Concatenated, 4096, 1), AtomicBool::new(false));
    let rollout = Rollout::new(&config, Purpose::Rollout, &stop);
    let limits = TaskLimits { turns: Some(3), ..TaskLimits::default() };
    let job = Job::new(task(0, "call", limits), 0, 0);
    // One as a demonstration writes it, one with reasoning before it, and one that is not a call.
    let written = runner.template.response(r#"f({"n":1})"#);
    let replies = vec![
        written.as_str(),
        "<think>so</think>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>f</tool_call>",
    ];
    let mut sampler = [Replies(&runner.tokenizer, replies, None)];
    let played = runner.play(&rollout, &[job], &mut sampler, |_| {}).unwrap().unwrap().trajectories.remove(0);
    let turns: Vec<(&str, bool)> =
        played.turns.iter().map(|turn| (turn.action.as_str(), turn.valid)).collect();
    assert_eq!(turns, [(r#"f({"n":1})"#, true), ("g({})", true), ("f", false)]);
    let ids: Vec<Option<&str>> =
        played.turns.iter().map(|turn| turn.calls.first().map(|call| call.id.as_str())).collect();
    assert_eq!(ids, [Some("call_0"), Some("call_1"), None]);
    assert_eq!(played.turns[1].observation, r#"call_0 f {"n":1}"#);
    assert_eq!(played.turns[2].observation, "call_1 g {}");
    assert_eq!(played.final_observation, "words: f");
}
