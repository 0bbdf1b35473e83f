//! The papers' configs in `configs/paper`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use turnwise_credit::{EstimatorConfig, RefinementConfig};
use turnwise_decompose::turnrd::CreditRule;
use turnwise_model::{Device, ModelConfig};
use turnwise_objective::{Aggregation, RatioKind};
use turnwise_train::Registries;
use turnwise_train::config::{Config, ConfigSource, DecomposerConfig, Layout, Validity, load};
use turnwise_train::plan::memory::MemoryReport;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn files() -> BTreeMap<String, Config> {
    let mut found = BTreeMap::new();
    for folder in std::fs::read_dir(root().join("configs/paper")).unwrap() {
        let folder = folder.unwrap().path();
        // The CLI's tests resolve the sweeps.
        if !folder.is_dir() || folder.ends_with("sweeps") {
            continue;
        }
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let source = ConfigSource { files: vec![path], ..ConfigSource::default() };
            found.insert(name, load(&source).unwrap());
        }
    }
    found
}

#[test]
fn every_file_says_how_it_is_started_and_cites_its_values() {
    let files = files();
    assert!(files.len() >= 30, "only {} files", files.len());
    let mut names = std::collections::BTreeSet::new();
    for (path, config) in &files {
        let text = std::fs::read_to_string(root().join(path)).unwrap();
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with("# ") && format!("{first} ").contains(&format!("turnwise train {path} ")),
            "{path}: {first}"
        );
        assert!(
            text.lines().take(6).any(|line| line.contains("Not stated")) || path.contains("/salt/"),
            "{path}"
        );
        for line in text.lines() {
            assert!(line.len() <= 130, "{path}: {line}");
        }
        assert!(names.insert(config.name.clone()), "{path}: two runs are called {}", config.name);
        assert!(config.rollout.max_model_len >= config.rollout.max_response_tokens + 1024, "{path}");
        assert!(config.policy.model.as_ref().unwrap().starts_with("Qwen"), "{path}");
    }
}

/// The puzzles as text; the paper and verl-agent's scripts use pictures.
#[test]
fn the_puzzles_are_played_as_the_scripts_do() {
    let files = files();
    let puzzles: Vec<_> = files.iter().filter(|(path, _)| path.contains("-text-")).collect();
    assert_eq!(puzzles.len(), 4);
    for (path, config) in puzzles {
        let sokoban = path.contains("sokoban");
        assert_eq!(config.env.kind, if sokoban { "sokoban" } else { "ezpoints" }, "{path}");
        assert_eq!(config.prompt.template, format!("{}-verl-agent", config.env.kind), "{path}");
        // verl-agent: a move without one of Sokoban's words is invalid, too.
        let valid = if sokoban { Validity::Understood } else { Validity::Format };
        assert_eq!(config.prompt.validity, valid, "{path}");
        assert_eq!(config.env.max_turns, if sokoban { 15 } else { 8 }, "{path}");
        assert_eq!(config.rollout.group_size, if sokoban { 8 } else { 5 }, "{path}");
        assert_eq!((config.train.learning_rate, config.eval.temperature), (1e-6, 0.4), "{path}");
        assert_eq!(config.objective.kl.coef, 0.01, "{path}");
        let EstimatorConfig::Gigpo(gigpo) = &config.credit.estimator else { panic!("{path}") };
        assert_eq!((gigpo.omega, gigpo.gamma, gigpo.invalid_penalty), (1.0, 0.95, 0.1), "{path}");
        let stapo = path.contains("/stapo/");
        assert_eq!(config.credit.outliers.as_ref().map(|outliers| outliers.lambda), stapo.then_some(1.5));
        let selective = config.objective.selective.as_ref();
        assert_eq!(selective.map(|part| (part.alpha, part.gamma)), stapo.then_some((0.01, 0.01)), "{path}");
    }
}

/// STAPO's table 11: the puzzles as pictures, with verl-agent's loop.
#[test]
fn the_puzzles_are_seen_as_the_scripts_show_them() {
    let files = files();
    let puzzles: Vec<_> = files.iter().filter(|(path, _)| path.contains("-vl-")).collect();
    assert_eq!(puzzles.len(), 2);
    for (path, config) in puzzles {
        let sokoban = config.env.kind == "sokoban";
        assert!(path.contains(&config.env.kind), "{path}");
        let prompt = &config.prompt;
        assert_eq!(prompt.template, format!("{}-verl-agent", config.env.kind), "{path}");
        assert!(prompt.pictures && prompt.layout == Layout::Windowed && prompt.history == 0, "{path}");
        assert_eq!(config.env.max_turns, if sokoban { 15 } else { 8 }, "{path}");
        let batch = (config.rollout.tasks_per_step, config.rollout.group_size);
        assert_eq!(batch, if sokoban { (32, 8) } else { (16, 8) }, "{path}");
        assert_eq!((config.train.learning_rate, config.eval.temperature), (1e-6, 0.4), "{path}");
        assert_eq!((config.objective.kl.coef, config.rollout.max_response_tokens), (0.01, 512), "{path}");
        let EstimatorConfig::Gigpo(gigpo) = &config.credit.estimator else { panic!("{path}") };
        assert_eq!((gigpo.omega, gigpo.gamma, gigpo.invalid_penalty), (1.0, 0.95, 0.1), "{path}");
        assert_eq!(config.credit.outliers.as_ref().unwrap().lambda, 1.5, "{path}");
        let selective = config.objective.selective.as_ref().unwrap();
        assert_eq!((selective.alpha, selective.gamma), (0.01, 0.01), "{path}");
    }
}

#[test]
fn the_settings_are_the_papers() {
    for (path, config) in files() {
        if path.contains("-text-") || path.contains("-vl-") {
            continue;
        }
        let alfworld = path.contains("alfworld");
        assert_eq!(config.env.kind, if alfworld { "alfworld" } else { "webshop" }, "{path}");
        assert_eq!(config.rollout.group_size, 8, "{path}");
        // Only STAPO prints prompts (figures 12 to 15); the others use verl-agent's.
        let world = &config.env.kind;
        let prompts = if path.contains("/stapo/") { "stapo" } else { "verl-agent" };
        assert_eq!(config.prompt.template, format!("{world}-{prompts}"), "{path}");
        assert_eq!(config.rollout.temperature, 1.0, "{path}");
        if path.contains("/has/") {
            // HAS, tables 4 to 6.
            assert_eq!(config.env.max_turns, if alfworld { 40 } else { 15 }, "{path}");
            // Algorithm 1, line 4: M tasks with K trajectories each.
            assert_eq!((config.rollout.tasks_per_step, config.train.steps), (80, 10), "{path}");
            assert_eq!(config.train.learning_rate, 5e-6, "{path}");
            assert_eq!((config.eval.temperature, config.eval.tasks), (0.0, 100), "{path}");
            assert_eq!(config.objective.kl.coef, 0.04, "{path}");
            assert_eq!(config.objective.kl.adaptive.as_ref().unwrap().target, 0.04, "{path}");
            assert!(config.train.skip_equal_groups, "{path}");
            let EstimatorConfig::Grpo(grpo) = &config.credit.estimator else { panic!("{path}") };
            assert_eq!((grpo.ddof, grpo.invalid_penalty), (0, 0.0), "{path}");
            let DecomposerConfig::Turnrd(turnrd) = &config.decomposer else { panic!("{path}") };
            assert_eq!((turnrd.network.film, turnrd.round_steps), (alfworld, 1), "{path}");
            // Our choice, because the paper states none.
            assert_eq!(turnrd.hold_out, 10, "{path}");
            let network = &turnrd.network;
            assert_eq!((network.credits, network.epochs), (CreditRule::Projection, 5), "{path}");
            assert_eq!((network.older_per_new, network.min_improvement), (1e6, 0.0), "{path}");
            assert_eq!(turnrd.network.max_turns, if alfworld { 50 } else { 16 }, "{path}");
            assert_eq!(turnrd.network.value_weight, if alfworld { 1.0 } else { 0.5 }, "{path}");
            continue;
        }
        // STAPO (appendix E.1) and AEM (appendix G.2) agree on these.
        assert_eq!(config.env.max_turns, if alfworld { 50 } else { 15 }, "{path}");
        assert_eq!(config.rollout.max_model_len, if alfworld { 2560 } else { 4608 }, "{path}");
        assert_eq!(config.rollout.max_response_tokens, 512, "{path}");
        assert_eq!((config.train.learning_rate, config.eval.temperature), (1e-6, 0.4), "{path}");
        assert_eq!(config.objective.kl.coef, 0.01, "{path}");
        if path.contains("/stapo/") {
            assert_eq!(config.rollout.tasks_per_step, if alfworld { 16 } else { 8 }, "{path}");
            assert_eq!(config.train.steps, if alfworld { 150 } else { 300 }, "{path}");
            assert_eq!(config.env.reward_scale, 1.0, "{path}");
            let EstimatorConfig::Gigpo(gigpo) = &config.credit.estimator else { panic!("{path}") };
            assert_eq!((gigpo.omega, gigpo.invalid_penalty), (1.0, 0.1), "{path}");
            assert_eq!(config.credit.outliers.as_ref().unwrap().lambda, 1.5, "{path}");
            assert_eq!(config.objective.loss_agg_mode, Aggregation::TurnMean, "{path}");
            let selective = config.objective.selective.as_ref().unwrap();
            assert_eq!((selective.alpha, selective.gamma), (0.01, 0.01), "{path}");
            continue;
        }
        assert_eq!(
            (config.rollout.tasks_per_step, config.train.steps, config.env.reward_scale),
            (16, 150, 10.0),
            "{path}"
        );
        let [refinement] = config.credit.refinements.as_slice() else { panic!("{path}") };
        match refinement {
            RefinementConfig::Aem(aem) if path.contains("/aem/") => {
                let dapo = path.contains("dapo");
                let expected = if dapo { Aggregation::TokenMean } else { Aggregation::SeqMeanTokenMean };
                assert_eq!(config.objective.loss_agg_mode, expected, "{path}");
                assert_eq!((aem.lambda, aem.epsilon, aem.min_spread), (1.0, 1e-8, 0.1), "{path}");
            }
            RefinementConfig::Salt(salt) if path.contains("/salt/") => assert_eq!(salt.history, 3, "{path}"),
            other => panic!("{path}: {other:?}"),
        }
        let sequence = config.objective.ratio == RatioKind::SequenceToken;
        assert_eq!(sequence, path.contains("gspo"), "{path}");
        let rloo = matches!(config.credit.estimator, EstimatorConfig::Rloo(_));
        assert_eq!(rloo, path.contains("rloo"), "{path}");
    }
}

/// SORL, appendices A.4 and A.5.
#[test]
fn off_policy_search_has_the_settings_of_its_paper() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/search");
    for (name, ppo) in [("so-ppo", true), ("so-grpo", false)] {
        let files = vec![folder.join(format!("{name}.toml"))];
        let config = load(&ConfigSource { files, ..ConfigSource::default() }).unwrap();
        // Three searches and an answer.
        assert_eq!((config.env.max_turns, config.train.steps, config.train.learning_rate), (4, 300, 1e-6));
        // A batch of 512 in minibatches of 256, each used once (appendix A.5: "one on-policy
        // update").
        assert_eq!((config.train.ppo_epochs, config.train.num_minibatches), (1, 2), "{name}");
        let group = if ppo { 1 } else { 8 };
        assert_eq!(
            (config.rollout.tasks_per_step * group, config.rollout.group_size),
            (512, group),
            "{name}"
        );
        // Ratios 0.285 of the policy's updates over 300 steps, and 0.015 of the critic's.
        assert_eq!(config.train.warmup, (0.285 * 300.0 * 2.0_f64).round() as u64, "{name}");
        let penalty = match &config.credit.estimator {
            EstimatorConfig::Ppo(estimator) if ppo => {
                assert_eq!((config.critic.learning_rate, config.critic.warmup), (1e-5, 9), "{name}");
                estimator.invalid_penalty
            }
            EstimatorConfig::Grpo(estimator) if !ppo => estimator.invalid_penalty,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(penalty, 0.0, "{name}: no paper of SORL's has one");
        let ratio = if ppo { RatioKind::Turn } else { RatioKind::Token };
        assert_eq!((config.objective.ratio, config.objective.kl.coef), (ratio, 0.001), "{name}");
        assert!(config.objective.normalization.is_some(), "{name}");
    }
}

fn shape(path: &str) -> ModelConfig {
    let large = path.contains("7b");
    let middle = path.contains("3b");
    let of = |small: usize, wide: usize| if large { wide } else { small };
    let size = |small: usize, mid: usize, wide: usize| if middle { mid } else { of(small, wide) };
    ModelConfig {
        vocab_size: of(151_936, 152_064),
        hidden_size: size(1536, 2048, 3584),
        intermediate_size: size(8960, 11_008, 18_944),
        num_hidden_layers: size(28, 36, 28),
        num_attention_heads: size(12, 16, 28),
        num_key_value_heads: of(2, 4),
        head_dim: 128,
        tie_word_embeddings: !large,
        ..ModelConfig::default()
    }
}

#[test]
fn every_run_fits_the_device_that_it_names() {
    for (path, config) in files() {
        // Models with pictures do not run on a device yet.
        if path.contains("-vl-") {
            assert_eq!(config.policy.device, Device::Cpu, "{path}");
            continue;
        }
        assert_eq!(config.policy.device, Device::Cuda, "{path}");
        let large = path.contains("7b");
        assert_eq!(config.policy.lora.is_some(), large || path.contains("/has/"), "{path}");
        let fits = |config: &Config| {
            let report = MemoryReport::new(config, &Registries::builtin(), &shape(&path), None);
            let device = report.device.unwrap();
            (device.plan.peak() as f64 / f64::from(1 << 30), device.size.unwrap() as f64 / f64::from(1 << 30))
        };
        let mut config = config;
        config.policy.device_memory = Some(80.0);
        let (needs, has) = fits(&config);
        assert!(needs <= has, "{path}: {needs:.1} of {has:.1} GiB");
        if large {
            // All weights with a reference exceed an H200, hence an adapter.
            config.policy.lora = None;
            config.policy.device_memory = Some(139.0);
            let (needs, has) = fits(&config);
            assert!(needs > has, "{path}: {needs:.1} of {has:.1} GiB");
        }
    }
}
