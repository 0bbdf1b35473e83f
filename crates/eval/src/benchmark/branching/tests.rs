use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::{
    Action, Completion, EnvError, Environment, FinishReason, Observation, RequestId, SampleError,
    SampleRequest, Seed, Snapshot, Step, TaskSet,
};
use turnwise_env::dataset::NoSettings;
use turnwise_env::registry::Registry;
use turnwise_env::world::{self, OpenOptions, WorldKind};
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::{Config, ConfigSource, Layout, Registries, load};
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::setup::World;
use turnwise_train::{NoopObserver, Run};

use super::*;

/// Four coin tosses: each head earns 0.1, and four heads earn 1 more.
#[derive(Default)]
struct Coin {
    tosses: u8,
    heads: u8,
    saves: bool,
}

const TOSSES: u8 = 4;
const HEAD: f64 = 0.7;

impl Environment for Coin {
    fn reset(&mut self, _: &Task, _: Seed) -> Result<Observation, EnvError> {
        (self.tosses, self.heads) = (0, 0);
        Ok(Observation::new("0 of 0"))
    }

    fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let even = || action.text().bytes().map(usize::from).sum::<usize>().is_multiple_of(2);
        let head = action.text().contains("head") || (!action.text().contains("tail") && even());
        self.tosses += 1;
        self.heads += u8::from(head);
        let over = self.tosses == TOSSES;
        let all = over && self.heads == TOSSES;
        Ok(Step {
            observation: Observation::new(format!("{} of {}", self.heads, self.tosses)),
            reward: 0.1 * f64::from(u8::from(head)) + f64::from(u8::from(all)),
            terminated: over,
            success: all,
            understood: true,
            ..Step::default()
        })
    }

    fn snapshot(&self) -> Result<Option<Snapshot>, EnvError> {
        Ok(self.saves.then(|| Snapshot(vec![self.tosses, self.heads])))
    }

    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), EnvError> {
        (self.tosses, self.heads) = (snapshot.0[0], snapshot.0[1]);
        Ok(())
    }
}

struct Coins {
    instant: bool,
    saves: bool,
}

impl TaskSet for Coins {
    fn name(&self) -> &'static str {
        "coins"
    }

    fn splits(&self) -> Vec<String> {
        vec!["train".into()]
    }

    fn tasks(&self, _: &str) -> Result<Vec<Task>, EnvError> {
        Ok(vec![Task::new("coin", "coin", "heads")])
    }

    fn environment(&self) -> Result<Box<dyn Environment>, EnvError> {
        Ok(Box::new(Coin { saves: self.saves, ..Coin::default() }))
    }

    fn is_instant(&self) -> bool {
        self.instant
    }
}

struct Toss<'a> {
    tokenizer: &'a Tokenizer,
    next: RequestId,
    waiting: Vec<(RequestId, Seed)>,
}

impl Sampler for Toss<'_> {
    fn submit(&mut self, request: SampleRequest) -> Result<RequestId, SampleError> {
        self.next += 1;
        self.waiting.push((self.next, request.seed));
        Ok(self.next)
    }

    fn poll(&mut self) -> Result<Vec<Completion>, SampleError> {
        let tokenizer = self.tokenizer;
        let answer = |(request, seed): (RequestId, Seed)| {
            let tokens = tokenizer.encode(if seed.rng().chance(HEAD) { "head" } else { "tail" });
            let numbers = vec![0.5; tokens.len()];
            Completion {
                request,
                logprobs: numbers.clone(),
                entropies: numbers,
                tokens,
                finish: FinishReason::Stop,
                weights_version: 0,
            }
        };
        Ok(self.waiting.drain(..).map(answer).collect())
    }

    fn end_session(&mut self, _: u64) {}

    fn weights_version(&self) -> u64 {
        0
    }
}

fn measure(world: Coins, settings: BranchingSettings, layout: Layout) -> Result<BranchedTask, EvalError> {
    measure_at(11, world, settings, layout)
}

fn measure_at(
    run_seed: u64,
    world: Coins,
    settings: BranchingSettings,
    layout: Layout,
) -> Result<BranchedTask, EvalError> {
    let tokenizer = Arc::new(Tokenizer::train(std::iter::empty(), &TokenizerConfig::default()).unwrap());
    let (mut config, stop) = (Config { seed: run_seed, ..Config::default() }, AtomicBool::new(false));
    (config.prompt.template, config.prompt.layout) = ("plain".into(), layout);
    (config.env.max_turns, config.env.reward_scale) = (0, 10.0);
    (config.rollout.max_model_len, config.rollout.max_num_seqs) = (4096, 8);
    let world = World::of_tasks(Arc::new(world));
    let runner = EnvRunner::new(&config, &coins(), world, Arc::clone(&tokenizer), None).unwrap();
    let rollout = Rollout { max_resamples: 0, ..Rollout::new(&config, Purpose::Evaluation, &stop) };
    let task = Task::new("coins/0", "coins", "toss heads");
    let of_task = OfTask { settings: &settings, place: 0, task: &task, runner: &runner, rollout: &rollout };
    let sampler = || Toss { tokenizer: &tokenizer, next: 0, waiting: Vec::new() };
    branch_task(&of_task, &mut [sampler(), sampler()], &mut |_| ())
}

/// Returns `V` after `tosses` tosses with `heads` heads; rewards are multiplied by ten.
fn value(tosses: u8, heads: u8, gamma: f64) -> f64 {
    if tosses == TOSSES {
        return 0.0;
    }
    let all = |heads: u8| f64::from(u8::from(tosses + 1 == TOSSES && heads == TOSSES));
    HEAD * (1.0 + 10.0 * all(heads + 1) + gamma * value(tosses + 1, heads + 1, gamma))
        + (1.0 - HEAD) * gamma * value(tosses + 1, heads, gamma)
}

const SETTINGS: BranchingSettings =
    BranchingSettings { samples: 6, continuations: 400, budget: 0, gamma: 0.9 };

#[test]
fn values_are_those_of_the_policy() {
    for (layout, instant) in
        [(Layout::Concatenated, true), (Layout::Windowed, true), (Layout::Concatenated, false)]
    {
        let found = measure(Coins { instant, saves: true }, SETTINGS, layout).unwrap();
        assert_eq!((found.trajectories.len(), found.failed), (6, 0));
        let (mut deviations, mut wrong) = (Vec::new(), 0);
        for (trajectory, truth) in found.trajectories.iter().zip(&found.truth) {
            let (mut heads, gamma) = (0, SETTINGS.gamma);
            for (turn, (played, truth)) in trajectory.turns.iter().zip(truth).enumerate() {
                let tosses = turn as u8;
                let head = u8::from(played.action.contains("head"));
                let v = value(tosses, heads, gamma);
                let earned = f64::from(head) + 10.0 * f64::from(u8::from(heads + head == TOSSES));
                let q = earned + gamma * value(tosses + 1, heads + head, gamma);
                heads += head;
                assert!((played.credited_reward() - earned).abs() < 1e-9, "the scale counts");
                assert_eq!(truth.k, 400);
                if truth.a_star_error > 0.0 {
                    deviations.push((truth.a_star - (q - v)) / truth.a_star_error);
                }
                wrong += usize::from((truth.v - value(tosses, heads, 0.5)).abs() > 4.0 * truth.v_error);
            }
        }
        assert!(deviations.iter().all(|deviation| deviation.abs() < 4.5), "{layout:?}: {deviations:?}");
        assert!(deviations.len() > 12 && wrong > 8, "{layout:?}: {} {wrong}", deviations.len());
    }
}

#[test]
fn states_with_one_future_are_sampled_once_and_everything_comes_from_the_seed() {
    let few = BranchingSettings { continuations: 8, ..SETTINGS };
    let played = |layout| measure(Coins { instant: true, saves: true }, few, layout).unwrap();
    let found = played(Layout::Concatenated);
    let turns: usize = found.trajectories.iter().map(|trajectory| trajectory.turns.len()).sum();
    assert_eq!((turns, found.continuations), (24, 8 * found.states));
    assert!(found.states <= turns - 5, "{}", found.states);
    assert!(found.truth.iter().all(|truth| truth[0].returns == found.truth[0][0].returns));
    let again = played(Layout::Concatenated);
    assert_eq!((&again.truth, &again.trajectories), (&found.truth, &found.trajectories));
    let own: Vec<f64> =
        found.trajectories.iter().map(|trajectory| trajectory.step_returns(few.gamma)[0]).collect();
    assert_ne!(found.truth[0][0].returns[..6], own[..]);
}

#[test]
fn a_budget_goes_where_the_error_is() {
    let settings = BranchingSettings { continuations: 8, budget: 600, ..SETTINGS };
    let found = measure(Coins { instant: true, saves: true }, settings, Layout::Concatenated).unwrap();
    assert!(found.continuations <= 600 && found.continuations > 12 * found.states + 50);
    let truth = || found.truth.iter().flatten();
    let most = truth().map(|truth| truth.k).max().unwrap();
    assert!(most > 30 && truth().all(|truth| truth.k >= 8 && truth.k % 2 == 0), "{most}");
    let spread = |spread: f64| (1, vec![-spread, spread, -spread, spread]);
    let of = |spreads: [f64; 2]| {
        let states = spreads.map(spread);
        allocation(&states.each_ref().map(|(uses, returns)| (*uses, returns.as_slice())), 4, 40)
    };
    let [less, more] = of([1.0, 3.0])[..] else { panic!() };
    assert!(less + more <= 40 && less + more >= 37 && more > 2 * less, "{less} {more}");
    let [first, second] = of([1.0, 0.0])[..] else { panic!() };
    assert!(first > second && second > 0, "{first} {second}");
    assert_eq!(of([0.0, 0.0]), [0, 0]);
    let small = BranchingSettings { budget: 10, ..settings };
    let fixed = measure(Coins { instant: true, saves: true }, small, Layout::Concatenated).unwrap();
    let none = BranchingSettings { budget: 0, ..settings };
    let none = measure(Coins { instant: true, saves: true }, none, Layout::Concatenated).unwrap();
    assert_eq!(fixed.truth, none.truth);
}

/// Each state's value is 0.1, and most pilots show no success.
#[test]
fn a_budget_does_not_bias_the_values() {
    let (states, pilot, each, rounds) = (12, 4, 4, 3000);
    let (mut fresh, mut reused, mut count) = (0.0, 0.0, 0.0);
    for round in 0..rounds {
        let mut rng = Seed::derive(5, Purpose::Continuation, &[round]).rng();
        let mut draw =
            |count: usize| (0..count).map(|_| f64::from(u8::from(rng.chance(0.1)))).collect::<Vec<f64>>();
        let pilots: Vec<Vec<f64>> = (0..states).map(|_| draw(pilot)).collect();
        let spread: Vec<(usize, &[f64])> = pilots.iter().map(|returns| (1, returns.as_slice())).collect();
        let more = allocation(&spread, each, 240);
        for (pilot, more) in pilots.iter().zip(more) {
            let new = draw(each + more);
            fresh += mean_and_error(&new).0;
            reused += mean_and_error(&[pilot.as_slice(), &new].concat()).0;
            count += 1.0;
        }
    }
    // Each mean has a standard error of at most 0.15 / sqrt(36,000).
    let (fresh, reused) = (fresh / count, reused / count);
    assert!((fresh - 0.1).abs() < 0.0032, "{fresh}");
    assert!(reused < 0.1 - 0.006, "the pilot in the estimate would bias it: {reused}");
}

#[test]
fn values_with_a_budget_are_those_of_the_policy() {
    let settings = BranchingSettings { continuations: 4, budget: 150, ..SETTINGS };
    let (mut sum, mut squares, rounds) = (0.0, 0.0, 400);
    for seed in 0..rounds {
        let world = Coins { instant: true, saves: true };
        let found = measure_at(seed, world, settings, Layout::Concatenated).unwrap();
        let v = found.truth[0][0].v;
        (sum, squares) = (sum + v, squares + v * v);
    }
    let n = rounds as f64;
    let (mean, true_value) = (sum / n, value(0, 0, SETTINGS.gamma));
    let error = ((squares / n - mean * mean) / n).sqrt();
    assert!((mean - true_value).abs() < 4.0 * error, "{mean} {true_value} {error}");
    assert!(error < 0.05 * true_value, "{error}");
}

#[test]
fn a_world_without_saved_states_is_refused() {
    let error = measure(Coins { instant: true, saves: false }, SETTINGS, Layout::Concatenated).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("`coins` cannot save and restore its states"), "{error}");
}

impl world::World for Coins {
    fn task_set(&self) -> &dyn TaskSet {
        self
    }
}

struct CoinKind;

impl WorldKind for CoinKind {
    type Settings = NoSettings;

    fn name(&self) -> &'static str {
        "coins"
    }

    fn summary(&self) -> &'static str {
        "four tosses"
    }

    fn open(&self, _: &NoSettings, _: &mut OpenOptions<'_>) -> Result<Box<dyn world::World>, EnvError> {
        Ok(Box::new(Coins { instant: true, saves: true }))
    }
}

fn coins() -> Registries {
    Registries { environments: Registry::builtin().with(CoinKind), ..Registries::builtin() }
}

fn run_config(layout: &str) -> Config {
    let settings = "env.kind=coins env.max_turns=4 env.reward_scale=10 prompt.template=plain prompt.validity=format \
                    prompt.history=2 policy.scratch.hidden_size=16 policy.scratch.layers=1 policy.scratch.heads=2 \
                    policy.scratch.key_value_heads=1 policy.scratch.intermediate_size=32 sft.steps=0 \
                    rollout.tasks_per_step=1 rollout.group_size=8 rollout.max_response_tokens=1 \
                    rollout.max_model_len=256 train.steps=1 train.warmup=0 train.num_minibatches=1 \
                    credit.estimator.continuations=400 credit.estimator.gamma=0.9 eval.splits=[]";
    let layout = format!("prompt.layout={layout}");
    let overrides = settings.split_whitespace().map(str::to_owned).chain([layout]).collect();
    let preset = Some("vineppo".into());
    let source = ConfigSource { preset, overrides, registries: coins(), ..ConfigSource::default() };
    load(&source).unwrap()
}

#[test]
fn values_in_training_are_those_of_the_benchmark() {
    for layout in ["concatenated", "windowed"] {
        let (folder, config) = (tempfile::tempdir().unwrap(), run_config(layout));
        let root = folder.path().join("run");
        let mut run = Run::builder(config.clone())
            .environments(coins().environments)
            .directory(&root)
            .start(&mut NoopObserver)
            .unwrap();
        let weights = run.weights().unwrap();
        run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap();
        let trained = read_trajectories(&root.join("trajectories/step-000001.jsonl.zst")).unwrap();
        let tokenizer = Tokenizer::load_folder(&root.join("checkpoints/step-000000/policy")).unwrap();
        let world = World::new(&config.env, &coins(), &["train"], &mut |_| ()).unwrap();
        let stop = AtomicBool::new(false);
        let runner = EnvRunner::new(&config, &coins(), world, Arc::new(tokenizer), None).unwrap();
        let analysis = AnalysisSettings { config: &config, runner: &runner, weights, stop: &stop };
        let settings = BranchingSettings { samples: 64, continuations: 400, budget: 0, gamma: 0.9 };
        let task = runner.world.task_set().tasks("train").unwrap().remove(0);
        let mut found = None;
        let mut done = |_, task| {
            found = Some(task);
            Ok(())
        };
        branch_tasks(&analysis, &settings, &[(0, task)], &mut done, &mut |_| ()).unwrap();
        let found = found.unwrap();
        let responses = |trajectory: &Trajectory, turn: usize| -> Vec<Vec<u32>> {
            trajectory.turns[..turn].iter().map(|turn| turn.response_ids.clone()).collect()
        };
        let (mut deviations, mut wrong) = (Vec::new(), 0);
        for trajectory in &trained {
            for (turn, played) in trajectory.turns.iter().enumerate() {
                let value = played.state_value.unwrap();
                let same = found.trajectories.iter().zip(&found.truth).find(|(other, _)| {
                    other.turns.len() > turn && responses(other, turn) == responses(trajectory, turn)
                });
                let Some((_, truth)) = same else { continue };
                // Both means have equally many returns of one distribution.
                let error = truth[turn].v_error * 2.0_f64.sqrt();
                deviations.push((value - truth[turn].v) / error.max(1e-9));
                wrong += usize::from((value / 10.0 - truth[turn].v).abs() > 4.5 * error);
            }
        }
        assert!(deviations.len() >= 8, "{layout}: {} states are of both", deviations.len());
        assert!(deviations.iter().all(|deviation| deviation.abs() < 4.5), "{layout}: {deviations:?}");
        assert_eq!(wrong, deviations.len(), "{layout}: the scale of the rewards counts");
    }
}
