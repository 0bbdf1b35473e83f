//! Continuations from saved states: the same seeds give the same episode in both layouts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Completion, FinishReason, Purpose, RequestId, SampleError, SampleRequest, Sampler, TokenSequence,
    Trajectory,
};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::Registries;
use turnwise_train::config::{ConfigSource, Layout, load};
use turnwise_train::rollout::branch::branches;
use turnwise_train::rollout::{EnvRunner, Job, Rollout};
use turnwise_train::setup::World;

struct Walker<'a> {
    tokenizer: &'a Tokenizer,
    next: RequestId,
    waiting: Vec<(RequestId, SampleRequest)>,
}

impl Sampler for Walker<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push((self.next, request));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let tokenizer = self.tokenizer;
        let answer = |(id, request): (RequestId, SampleRequest)| {
            let mut rng = request.seed.rng();
            let word = rng.choose(&["up", "down", "left", "right", "fly"]).copied().unwrap_or_default();
            let tokens = tokenizer.encode(&format!("{word}\n"));
            let about = request.prompt.iter().map(|&token| token as f32).sum::<f32>();
            let numbers = vec![-1.0 / about; tokens.len()];
            let (logprobs, entropies) = (numbers.clone(), numbers);
            Completion {
                request: id,
                tokens,
                logprobs,
                entropies,
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

fn runner(layout: Layout) -> (turnwise_train::Config, EnvRunner) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/sokoban/small.toml");
    let layout = if layout == Layout::Windowed { "windowed" } else { "concatenated" };
    let overrides = ["env.generator.train=8", "env.max_turns=6", "rollout.max_model_len=4096"];
    let mut overrides: Vec<String> = overrides.map(str::to_owned).to_vec();
    overrides.push(format!("prompt.layout={layout}"));
    let config = load(&ConfigSource { files: vec![file], overrides, ..ConfigSource::default() }).unwrap();
    let runner = runner_of(&config);
    (config, runner)
}

fn runner_of(config: &turnwise_train::Config) -> EnvRunner {
    let world = World::new(&config.env, &Registries::builtin(), &["train"], &mut |_| ()).unwrap();
    let tokenizer = Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap();
    EnvRunner::new(config, &Registries::builtin(), world, Arc::new(tokenizer), None).unwrap()
}

fn run(runner: &EnvRunner, rollout: &Rollout<'_>, jobs: &[Job]) -> Vec<Trajectory> {
    let sampler = || Walker { tokenizer: &runner.tokenizer, next: 0, waiting: Vec::new() };
    runner.play(rollout, jobs, &mut [sampler(), sampler()], |_| {}).unwrap().unwrap().trajectories
}

#[test]
fn the_same_draws_from_a_saved_state_give_the_same_episode() {
    for layout in [Layout::Concatenated, Layout::Windowed] {
        let (config, runner) = runner(layout);
        let stop = AtomicBool::new(false);
        let rollout = Rollout { step: 3, ..Rollout::new(&config, Purpose::Rollout, &stop) };
        let tasks = runner.world.task_set().tasks("train").unwrap();
        let jobs: Vec<Job> = tasks[..3]
            .iter()
            .enumerate()
            .flat_map(|(group, task)| (0..3).map(move |sample| Job::new(task.clone(), group, sample)))
            .collect();
        let played = run(&runner, &rollout, &jobs);
        let mut others = 0;
        for (job, whole) in jobs.iter().zip(&played) {
            let states = branches(&runner, &rollout, whole).unwrap();
            assert_eq!(states.len(), whole.turns.len());
            for (turn, state) in states.into_iter().enumerate() {
                assert_eq!(state.turn(), turn);
                let from = |sample| Job { branch: Some(Arc::new(state.clone())), sample, ..job.clone() };
                let found = run(&runner, &rollout, &[from(job.sample), from(77)]);
                let [again, other]: [Trajectory; 2] = found.try_into().unwrap();
                assert_eq!(again.turns[turn..], whole.turns[turn..], "{layout:?}, turn {turn}");
                assert_eq!((&again.stop, again.success), (&whole.stop, whole.success));
                assert_eq!(again.final_observation, whole.final_observation);
                let expected: &[TokenSequence] = match layout {
                    Layout::Concatenated => &whole.sequences,
                    Layout::Windowed => &whole.sequences[turn..],
                };
                assert_eq!(again.sequences, expected, "{layout:?}, turn {turn}");
                others += usize::from(other.turns[turn..] != whole.turns[turn..]);
            }
        }
        assert!(others > played.len(), "other draws go elsewhere");
    }
}

/// Continuations from a summary, and from the actions around it, have the exact context.
#[test]
fn the_same_draws_around_a_summary_give_the_same_episode() {
    let (mut config, _) = runner(Layout::Concatenated);
    config.prompt.compact_after = Some(250);
    let runner = runner_of(&config);
    let stop = AtomicBool::new(false);
    let rollout = Rollout { step: 3, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let task = runner.world.task_set().tasks("train").unwrap().remove(0);
    let jobs: Vec<Job> = (0..4).map(|sample| Job::new(task.clone(), 0, sample)).collect();
    let mut summaries = 0;
    for (job, whole) in jobs.iter().zip(&run(&runner, &rollout, &jobs)) {
        for (turn, state) in branches(&runner, &rollout, whole).unwrap().into_iter().enumerate() {
            summaries += usize::from(whole.turns[turn].is_compaction());
            let job = Job { branch: Some(Arc::new(state)), ..job.clone() };
            let again = run(&runner, &rollout, &[job]).remove(0);
            assert_eq!(again.turns[turn..], whole.turns[turn..], "turn {turn}");
            assert_eq!((&again.stop, again.success), (&whole.stop, whole.success));
            let of = |sequence: &TokenSequence| sequence.spans.iter().any(|span| span.turn >= turn);
            let expected: Vec<&TokenSequence> =
                whole.sequences.iter().filter(|sequence| of(sequence)).collect();
            assert_eq!(again.sequences.iter().collect::<Vec<_>>(), expected, "turn {turn}");
        }
    }
    assert!(summaries > 3, "{summaries}");
}

#[test]
fn states_are_equal_if_their_futures_are() {
    let (config, runner) = runner(Layout::Concatenated);
    let stop = AtomicBool::new(false);
    let rollout = Rollout { step: 0, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let task = runner.world.task_set().tasks("train").unwrap().remove(0);
    let jobs: Vec<Job> = (0..12).map(|sample| Job::new(task.clone(), 0, sample)).collect();
    let played = run(&runner, &rollout, &jobs);
    let keys: Vec<Vec<String>> = played
        .iter()
        .map(|trajectory| {
            branches(&runner, &rollout, trajectory).unwrap().iter().map(|state| state.key(0)).collect()
        })
        .collect();
    for (a, first) in played.iter().enumerate() {
        for (b, second) in played.iter().enumerate() {
            for turn in 0..first.turns.len().min(second.turns.len()) {
                let responses = |of: &Trajectory| -> Vec<Vec<u32>> {
                    of.turns[..turn].iter().map(|turn| turn.response_ids.clone()).collect()
                };
                let same = responses(first) == responses(second);
                assert_eq!(keys[a][turn] == keys[b][turn], same, "{a} and {b}, turn {turn}");
            }
        }
        let mut own = keys[a].clone();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), keys[a].len(), "time passes: no state comes twice");
    }
}

#[test]
fn a_world_that_answers_differently_is_refused() {
    let (config, runner) = runner(Layout::Concatenated);
    let stop = AtomicBool::new(false);
    let rollout = Rollout { step: 0, ..Rollout::new(&config, Purpose::Rollout, &stop) };
    let task = runner.world.task_set().tasks("train").unwrap().remove(0);
    let mut played = run(&runner, &rollout, &[Job::new(task, 0, 0)]).remove(0);
    assert!(branches(&runner, &rollout, &played).is_ok());
    played.turns[1].observation.push('!');
    let refused = |played: &Trajectory| branches(&runner, &rollout, played).unwrap_err().to_string();
    assert!(refused(&played).contains("turn 1") && refused(&played).contains("another observation"));
    played.turns[0].reward += 1.0;
    assert!(refused(&played).contains("turn 0") && refused(&played).contains("another reward"));
    played.sequences.clear();
    assert!(refused(&played).contains("no tokens of its prompt"));
}
