//! Training from pictures: prompts, log-probs, masked contexts, resumes, and rejected inputs.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::{
    ContextMask, ImageHandle, Part, Purpose, Seed, Task, TokenSequence, Trajectory, Turn, TurnSpan,
};
use turnwise_env::prompt::PICTURE;
use turnwise_model::vision::FIRST_PICTURE_TOKEN;
use turnwise_train::Registries;
use turnwise_train::config::{Config, ConfigSource, Layout, load};
use turnwise_train::learners::policy::PolicyLearner;
use turnwise_train::record::directory::read_trajectories;
use turnwise_train::record::metrics::read_metrics;
use turnwise_train::rollout::EnvRunner;
use turnwise_train::rollout::pictures::PicturePrompts;
use turnwise_train::run::source::{NativeSource, NewRun, PolicySource as _};
use turnwise_train::setup::World;
use turnwise_train::step::masked_contexts::MaskedPrompts;
use turnwise_train::{NoopObserver, Observer, Phase, Position, Run, RunDirectory, RunEnd, TrainError, setup};

use crate::common::{self, Notes};

const SMALL: &[&str] = &[
    "env.generator.train=20",
    "env.generator.valid=4",
    "env.generator.test=4",
    "env.max_turns=4",
    "policy.scratch.layers=1",
    "policy.scratch.vision.layers=1",
    "sft.steps=3",
    "sft.demonstrations=12",
    "sft.checkpoint_every=1",
    "eval.tasks=2",
    "rollout.tasks_per_step=3",
    "rollout.group_size=4",
    "train.steps=3",
    "train.num_minibatches=2",
    "train.checkpoint_every=1",
    "train.learning_rate=1e-3",
    "train.skip_zero_advantage=false",
    "train.recompute_old_logprobs=true",
    "objective.kl.coef=0.01",
];

fn config(name: &str, preset: Option<&str>, pictures: &Path, more: &[&str]) -> Result<Config, TrainError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configs/vision/{name}.toml"));
    let mut overrides = vec![format!("env.pictures={}", pictures.display())];
    overrides.extend(more.iter().filter(|text| !text.is_empty()).map(|text| (*text).to_owned()));
    load(&ConfigSource {
        preset: preset.map(str::to_owned),
        files: vec![file],
        overrides,
        ..ConfigSource::default()
    })
}

fn train(config: Config, root: &Path) {
    let mut run = Run::builder(config).directory(root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished);
}

struct StopAfter<'a>(usize, &'a AtomicBool);

impl Observer for StopAfter<'_> {
    fn event(&mut self, _: turnwise_train::Event<'_>) {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 {
            self.1.store(true, Ordering::SeqCst);
        }
    }

    fn evaluate(
        &mut self,
        _: &mut turnwise_train::EvaluationPoint<'_>,
    ) -> Result<std::ops::ControlFlow<()>, String> {
        Ok(std::ops::ControlFlow::Continue(()))
    }
}

#[test]
fn every_method_trains_from_pictures_and_resumes_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let pictures = folder.path().join("pictures");
    let all = ["credit.outliers.locate=all"];
    for (world, preset, more) in
        [("sokoban", "stapo", &all[..]), ("sokoban", "ppo", &[]), ("ezpoints", "gigpo", &[])]
    {
        let more: Vec<&str> =
            SMALL.iter().chain(more).copied().filter(|key| !is_foreign(key, world)).collect();
        let config = || config(world, Some(preset), &pictures, &more).unwrap();
        let registries = Registries::builtin();
        assert_eq!(registries.loss(&config()).unwrap().passes().masked_context.is_some(), preset == "stapo");
        assert_eq!(registries.pipeline(&config()).unwrap().required_inputs().values, preset == "ppo");
        let [whole, cut] =
            ["whole", "cut"].map(|name| folder.path().join(format!("{world}-{preset}-{name}")));
        train(config(), &whole);
        let stop = AtomicBool::new(false);
        let mut run = Run::builder(config()).directory(&cut).start(&mut NoopObserver).unwrap();
        let mut left = 9;
        // Later processes assign other tokens to pictures.
        while run.train(&mut StopAfter(left, &stop), &stop).unwrap() != RunEnd::Finished {
            drop(run);
            stop.store(false, Ordering::SeqCst);
            left += 6;
            run = common::resume(&cut, &mut NoopObserver).unwrap();
        }
        let weights = |root: &Path| {
            std::fs::read(root.join("checkpoints/step-000003/policy/model.safetensors")).unwrap()
        };
        assert!(left > 9, "the run was stopped");
        assert!(weights(&whole) == weights(&cut), "{world} {preset}: other bits after resuming");
        for line in read_metrics(&whole.join("metrics.jsonl")).unwrap() {
            if let Some(mismatch) = line.metrics.get("rollout/mismatch_kl") {
                assert!(mismatch < 1e-6, "{world} {preset}: {mismatch}");
            }
        }
        let file = RunDirectory::open(&whole).unwrap().trajectories(Position { phase: Phase::Rl, step: 3 });
        let trajectories = read_trajectories(&file).unwrap();
        for trajectory in &trajectories {
            let images: Vec<&ImageHandle> =
                trajectory.turns.iter().filter_map(|turn| turn.parts.iter().find_map(Part::image)).collect();
            assert_eq!(images.len(), trajectory.turns.len());
            assert!(images.iter().all(|image| pictures.join(format!("{}.png", image.sha256)).is_file()));
            let mut tokens = trajectory.sequences.iter().flat_map(|sequence| &sequence.tokens);
            assert!(tokens.all(|&token| token < FIRST_PICTURE_TOKEN));
        }
    }
}

fn is_foreign(key: &str, world: &str) -> bool {
    world == "ezpoints" && ["env.generator.valid", "env.generator.test"].iter().any(|of| key.starts_with(of))
}

fn runner_of(root: &Path) -> (Config, EnvRunner, Box<dyn PolicyLearner>) {
    let config = config("sokoban", None, &root.join("pictures"), SMALL).unwrap();
    let world = World::new(&config.env, &Registries::builtin(), &["train", "test"], &mut |_| ()).unwrap();
    let template = setup::template(&config, &Registries::builtin()).unwrap();
    let directory = RunDirectory::create(&root.join("run")).unwrap();
    let run = NewRun {
        config: &config,
        registries: &Registries::builtin(),
        phase: Phase::Rl,
        world: Some(&world),
        template: &template,
        directory: &directory,
        ignore_memory: true,
    };
    let (policy, tokenizer) = NativeSource.start(&run, &mut NoopObserver).unwrap();
    let runner = EnvRunner::new(&config, &Registries::builtin(), world, tokenizer, policy.vision()).unwrap();
    (config, runner, policy)
}

fn pictures(runner: &EnvRunner) -> Vec<(Task, ImageHandle)> {
    let mut environment = runner.world.task_set().environment().unwrap();
    let tasks: Vec<Task> = runner.world.task_set().tasks("train").unwrap().into_iter().take(2).collect();
    let seen = |task: Task| {
        let seen = environment.reset(&task, Seed::derive(0, Purpose::Environment, &[])).unwrap();
        let image = seen.image().unwrap().clone();
        (task, image)
    };
    tasks.into_iter().map(seen).collect()
}

#[test]
fn log_probs_depend_on_the_picture_and_masking_keeps_the_current_one() {
    let folder = tempfile::tempdir().unwrap();
    let (_, runner, mut policy) = runner_of(folder.path());
    let prompter = runner.prompter();
    let shown = pictures(&runner);
    let response = runner.tokenizer.encode(" up\n");
    let text = format!("{}\n>", PICTURE.concat());
    let mut logprobs = |image: &ImageHandle| {
        let mut tokens = prompter.start_seeing(&text, Some(image), &[]).unwrap();
        let start = tokens.len();
        tokens.extend(&response);
        let span = TurnSpan { turn: 0, start, end: tokens.len() };
        policy.logprobs(&[&TokenSequence { tokens, spans: vec![span] }]).unwrap().remove(0)
    };
    let [first, second] = [&shown[0].1, &shown[1].1].map(&mut logprobs);
    assert_ne!(first, second, "the picture was swapped, and nothing changed");
    assert_eq!(first, logprobs(&shown[0].1));

    let turn = |image: &ImageHandle| Turn {
        observation: "######".into(),
        parts: vec![Part::Text { text: "######".into() }, Part::Image(image.clone())],
        response_ids: response.clone(),
        ..Turn::default()
    };
    let turns = shown.iter().map(|(_, image)| turn(image)).collect();
    let trajectory = Trajectory::new(shown[0].0.clone(), turns);
    let mask = ContextMask::GoalAndHistory;
    let prompts = MaskedPrompts { prompter, layout: Layout::Windowed, history: 2, mask };
    let masked = prompts.masked(&trajectory, 1).unwrap();
    let expected = prompter.start_seeing(&text, Some(&shown[1].1), &[]).unwrap();
    assert_eq!(masked.tokens, [expected, response.clone()].concat());
    let own = |image| prompter.start_seeing(&PICTURE.concat(), Some(image), &[]).unwrap();
    assert!(
        own(&shown[0].1).iter().all(|token| *token < FIRST_PICTURE_TOKEN || !masked.tokens.contains(token))
    );
}

#[test]
fn pictures_are_read_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let (config, runner, policy) = runner_of(folder.path());
    let shown = pictures(&runner);
    let place = |image: &ImageHandle| folder.path().join("pictures").join(format!("{}.png", image.sha256));
    let show = |image: Option<&ImageHandle>| {
        let shown = runner.prompter().start_seeing(&PICTURE.concat(), image, &[]);
        shown.map_err(|error| error.to_string())
    };
    std::fs::copy(place(&shown[1].1), place(&shown[0].1)).unwrap();
    let error = show(Some(&shown[0].1)).unwrap_err();
    assert!(error.contains(&shown[0].1.sha256) && error.contains(&shown[1].1.sha256), "{error}");
    let tokens = show(Some(&shown[1].1)).unwrap();
    let twice = runner.prompter().start_seeing(&PICTURE.concat().repeat(2), Some(&shown[1].1), &[]);
    assert!(twice.unwrap_err().to_string().contains("has 2 image tokens for 1 pictures"));
    std::fs::remove_file(place(&shown[1].1)).unwrap();
    let reader = runner.pictures.as_ref().unwrap();
    reader.begin_step(1);
    assert_eq!((show(Some(&shown[1].1)).unwrap(), reader.kept()), (tokens.clone(), 1));
    reader.begin_step(1);
    reader.begin_step(1);
    assert_eq!(reader.kept(), 0);
    let other = PicturePrompts::new(&config, policy.vision()).unwrap().unwrap();
    let prompt = runner.prompter().start(&PICTURE.concat(), &[]).unwrap();
    assert_eq!(other.insert(&prompt, Some(&shown[1].1)).unwrap(), tokens);
    let image = policy.vision().unwrap().tokens.image;
    let mut hidden: Vec<u32> =
        tokens.iter().map(|&token| if token < FIRST_PICTURE_TOKEN { token } else { image }).collect();
    other.show(&mut hidden, Some(&shown[1].1)).unwrap();
    assert_eq!(hidden, tokens);
    let mut two = prompt.repeat(2);
    let error = other.show(&mut two, Some(&shown[1].1)).unwrap_err().to_string();
    assert!(error.contains("has 2 image tokens for a picture of 1"), "{error}");
    let root = folder.path().join("foreign");
    std::fs::create_dir(&root).unwrap();
    let foreign = runner_of(&root);
    let foreign = PicturePrompts::new(&config, foreign.2.vision()).unwrap().unwrap();
    let error = foreign.insert(&prompt, Some(&shown[1].1)).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    assert!(show(None).unwrap_err().contains("gave an observation without a picture"));
}

#[test]
fn what_cannot_show_pictures_is_rejected_by_its_key() {
    let folder = tempfile::tempdir().unwrap();
    let load =
        |more: &[&str]| config("sokoban", None, folder.path(), more).map_err(|error| error.to_string());
    for (more, key) in [
        (&["prompt.layout=concatenated"][..], "prompt.layout: is \"concatenated\""),
        (&["prompt.pictures=false"], "policy.scratch.vision: is set, and prompts show no pictures"),
        (&["policy.device=cuda"], "policy.device: is \"cuda\", and models that read pictures"),
        (&["policy.scratch.vision.heads=5"], "policy.scratch.vision.hidden_size: is 16"),
        (&["policy.scratch.vision.max_pixels=100"], "policy.scratch.vision.max_pixels: is 100"),
        (
            &["policy.scratch.heads=16", "policy.scratch.key_value_heads=16"],
            "policy.scratch.hidden_size: is 64",
        ),
        (&["policy.scratch.vision.depth=2"], "policy.scratch.vision.depth"),
        (
            &["rollout.engine={urls=[\"http://127.0.0.1:9\"], adapter_dir=\"a\", kind=\"sglang\"}"],
            "rollout.engine.kind: is \"sglang\"",
        ),
        (
            &["rollout.engine={urls=[\"http://127.0.0.1:9\"], adapter_dir=\"a\", route=\"completions\"}"],
            "rollout.engine.route: is \"completions\", which takes no pictures",
        ),
    ] {
        let error = load(more).unwrap_err();
        assert!(error.contains(key), "{more:?}: {error}");
    }
    let file = folder.path().join("own.toml");
    let start = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let source = ConfigSource { files: vec![file.clone()], ..ConfigSource::default() };
        let run = turnwise_train::config::load(&source).and_then(|config| {
            Run::builder(config).directory(folder.path().join("run")).start(&mut Notes::default())
        });
        run.map(drop).unwrap_err().to_string()
    };
    let world = |kind: &str, more: &str| {
        format!("[env]\nkind = \"{kind}\"\n{more}\n[prompt]\npictures = true\nlayout = \"windowed\"\n")
    };
    let error = start(&world("alfworld", ""));
    assert!(
        error.contains("prompt.pictures: is true, and the world `alfworld` draws no pictures"),
        "{error}"
    );
    let error = start(&format!("{}template = \"sokoban-compact\"", world("sokoban", "")));
    assert!(
        error.contains("env.pictures: is missing") && error.contains("policy.scratch.vision: is missing")
    );
    let text = folder.path().join("text");
    let source = ConfigSource { preset: Some("quickstart".into()), ..ConfigSource::default() };
    let mut tiny = turnwise_train::config::load(&source).unwrap();
    (tiny.env.kind, tiny.prompt.template) = ("sokoban".into(), "sokoban-compact".into());
    tiny.env.settings = toml::Table::new();
    (tiny.sft.steps, tiny.sft.demonstrations, tiny.train.steps) = (0, 10, 0);
    tiny.eval.splits = vec!["test".into()];
    train(tiny, &text);
    let model = format!(
        "[policy]\nmodel = {:?}\n[rollout]\nmax_model_len = 512\nmax_response_tokens = 16\n[train]\nsteps = 1\n[eval]\nsplits = [\"test\"]\n",
        text.display().to_string()
    );
    let drawn = format!("pictures = {:?}", folder.path().display().to_string());
    let error = start(&format!("{}template = \"sokoban-compact\"\n{model}", world("sokoban", &drawn)));
    assert!(error.contains("prompt.pictures: is true, and the policy reads no pictures"), "{error}");
    let error = start(&format!("{}template = \"plain\"\n{model}", world("sokoban", &drawn)));
    assert!(error.contains("prompt.template: is \"plain\", which has no section [pictures]"), "{error}");
}
