//! Compares the sweeps that reproduce the papers' tables (`configs/paper/sweeps`) with what the
//! papers state.

use std::collections::BTreeMap;
use std::path::Path;

use turnwise_credit::anchor::Matching;
use turnwise_credit::has::DecomposerKind;
use turnwise_credit::outlier::Locate;
use turnwise_credit::selection::SelectionConfig;
use turnwise_credit::{EstimatorConfig, RefinementConfig};
use turnwise_decompose::turnrd::CreditRule;
use turnwise_objective::{Aggregation, RatioKind};
use turnwise_train::config::{Config, DecomposerConfig, load};

use super::file::SweepFile;

type Rows = &'static [(&'static str, &'static str)];

/// File, number of seeds, and each run's [`facts`].
const TABLES: &[(&str, usize, Rows)] = &[
    (
        "stapo-table-1-{W}-{S}",
        3,
        &[
            ("ppo", "ppo"),
            ("rloo", "rloo"),
            ("grpo", "grpo"),
            ("empg", "grpo empg"),
            ("gigpo", "gigpo"),
            ("stapo", "gigpo selective"),
        ],
    ),
    ("stapo-table-11-{P}", 1, &[("grpo", "grpo"), ("gigpo", "gigpo"), ("stapo", "gigpo selective")]),
    (
        "aem-table-1-{W}-{S}",
        3,
        &[
            ("grpo", "grpo"),
            ("grpo-aem", "grpo aem"),
            ("gspo", "grpo sequence"),
            ("gspo-aem", "grpo aem sequence"),
            ("dapo", "grpo dynamic"),
            ("dapo-aem", "grpo aem dynamic"),
        ],
    ),
    (
        "salt-table-1-{W}-{S}",
        3,
        &[
            ("grpo", "grpo"),
            ("grpo-salt", "grpo salt"),
            ("rloo", "rloo"),
            ("rloo-salt", "rloo salt"),
            ("dapo", "grpo dynamic"),
            ("dapo-salt", "grpo salt dynamic"),
            ("gspo", "grpo sequence"),
            ("gspo-salt", "grpo salt sequence"),
        ],
    ),
    (
        "stapo-table-3-{W}",
        3,
        &[
            ("shannon", "gigpo selective shannon"),
            ("mask-none", "gigpo"),
            ("mask-goal", "gigpo selective goal"),
            ("mask-history", "gigpo selective history"),
            ("single-penalty", "gigpo selective single"),
            ("increased-penalty", "gigpo selective increased"),
            ("stapo", "gigpo selective"),
        ],
    ),
    (
        "stapo-figure-4-{W}",
        3,
        &[
            ("gigpo", "gigpo"),
            ("all", "gigpo selective all"),
            ("lambda-0.0", "gigpo selective lambda=0"),
            ("lambda-1.5", "gigpo selective"),
            ("lambda-3.0", "gigpo selective lambda=3"),
        ],
    ),
    (
        "stapo-table-4-{W}",
        1,
        &[
            ("dapo", "grpo dynamic"),
            ("gigpo-dynamic", "gigpo dynamic"),
            ("stapo-dynamic", "gigpo selective dynamic"),
        ],
    ),
    (
        "stapo-table-5-alfworld",
        1,
        &[
            ("gigpo-llama-3.1-8b", "gigpo"),
            ("stapo-llama-3.1-8b", "gigpo selective"),
            ("gigpo-qwen2.5-14b", "gigpo"),
            ("stapo-qwen2.5-14b", "gigpo selective"),
        ],
    ),
    (
        "stapo-appendix-h-webshop",
        1,
        &[
            ("alpha-0", "gigpo"),
            ("alpha-0.005", "gigpo selective alpha=0.005"),
            ("alpha-0.01", "gigpo selective"),
            ("alpha-0.02", "gigpo selective alpha=0.02"),
            ("alpha-0.04", "gigpo selective alpha=0.04"),
        ],
    ),
    (
        "stapo-figure-6-webshop",
        1,
        &[
            ("gigpo", "gigpo"),
            ("stapo", "gigpo selective"),
            ("penalty-only", "gigpo selective alpha=0 gamma=0.01"),
        ],
    ),
    (
        "stapo-table-2-search-{S}",
        1,
        &[("gigpo", "gigpo alike g=5"), ("stapo", "gigpo alike selective alpha=0.001 g=5")],
    ),
    (
        "stapo-table-6-search",
        1,
        &[
            ("threshold-0.9", "gigpo alike selective alpha=0.001 g=5"),
            ("threshold-0.8", "gigpo alike=0.8 selective alpha=0.001 g=5"),
            ("threshold-0.7", "gigpo alike=0.7 selective alpha=0.001 g=5"),
            ("threshold-0.6", "gigpo alike=0.6 selective alpha=0.001 g=5"),
            ("threshold-0.5", "gigpo alike=0.5 selective alpha=0.001 g=5"),
        ],
    ),
    (
        "stapo-table-8-search",
        1,
        &[
            ("gigpo-g-5", "gigpo alike g=5"),
            ("gigpo-g-10", "gigpo alike g=10"),
            ("stapo-g-5", "gigpo alike selective alpha=0.001 g=5"),
        ],
    ),
    ("sorl-figure-5-nq", 3, &[("ppo", "ppo measured g=1"), ("so-ppo", "ppo turn normalized g=1")]),
    ("sorl-figure-5-hotpotqa", 3, &[("ppo", "ppo measured g=1"), ("so-ppo", "ppo turn normalized g=1")]),
    ("sorl-figure-6-nq", 1, &[("grpo", "grpo"), ("gspo", "grpo sequence"), ("so-grpo", "grpo normalized")]),
    ("sorl-figure-7-nq", 3, &[("ppo", "ppo measured g=1"), ("so-ppo", "ppo turn normalized g=1")]),
    (
        "aem-table-3-webshop",
        3,
        &[
            ("grpo", "grpo"),
            ("aem", "grpo aem"),
            ("reverse", "grpo aem reverse"),
            ("shuffle", "grpo aem shuffle"),
            ("trajectory", "grpo aem trajectory"),
            ("batch", "grpo aem batch"),
        ],
    ),
    (
        "aem-figure-3-webshop",
        1,
        &[
            ("grpo", "grpo"),
            ("mask-positive", "grpo aem mask-positive"),
            ("mask-negative", "grpo aem mask-negative"),
        ],
    ),
    (
        "has-table-1-webshop",
        3,
        &[
            ("flat-grpo", "grpo"),
            ("progressive", "grpo has progressive"),
            ("judge", "grpo has judge"),
            ("turnrd", "grpo has turnrd"),
        ],
    ),
    (
        "has-table-2-alfworld",
        3,
        &[("flat-grpo", "grpo"), ("turnrd", "grpo has turnrd"), ("turnrd-film", "grpo has turnrd film")],
    ),
    (
        "has-table-3-alfworld",
        1,
        &[
            ("alpha-1.0", "grpo"),
            ("alpha-0.25", "grpo has turnrd film has-alpha=0.25 rank=16"),
            ("alpha-0.5", "grpo has turnrd film rank=16"),
            ("alpha-0.75", "grpo has turnrd film has-alpha=0.75 rank=16"),
        ],
    ),
    (
        "has-appendix-b-alfworld",
        1,
        &[
            ("chosen", "grpo has turnrd film"),
            ("lr-1e-6", "grpo has turnrd film lr=1e-6"),
            ("lr-2e-6", "grpo has turnrd film lr=2e-6"),
            ("lr-1e-5", "grpo has turnrd film lr=1e-5"),
            ("kl-0.02", "grpo has turnrd film kl=0.02"),
            ("kl-0.1", "grpo has turnrd film kl=0.1"),
            ("clip-0.1", "grpo has turnrd film clip=0.1"),
            ("clip-0.3", "grpo has turnrd film clip=0.3"),
            ("k-4", "grpo has turnrd film g=4"),
            ("k-12", "grpo has turnrd film g=12"),
            ("rank-16", "grpo has turnrd film rank=16"),
        ],
    ),
    (
        "has-appendix-c-alfworld",
        1,
        &[
            ("chosen", "grpo has turnrd film"),
            ("larger", "grpo has turnrd film hidden=256x4"),
            ("progress-1", "grpo has turnrd film progress=1/1"),
            ("progress-2", "grpo has turnrd film progress=2/1"),
            ("k-4", "grpo has turnrd film g=4"),
            ("k-4-all-groups", "grpo has turnrd film all-groups g=4"),
            ("no-recency", "grpo has turnrd film half-life=1000000"),
        ],
    ),
    (
        "salt-history-webshop",
        1,
        &[
            ("h-1", "grpo salt h=1"),
            ("h-2", "grpo salt h=2"),
            ("h-3", "grpo salt"),
            ("h-4", "grpo salt h=4"),
            ("h-5", "grpo salt h=5"),
        ],
    ),
    (
        "salt-group-size-webshop",
        1,
        &[
            ("grpo-g-4", "grpo g=4"),
            ("salt-g-4", "grpo salt g=4"),
            ("grpo-g-8", "grpo"),
            ("salt-g-8", "grpo salt"),
            ("grpo-g-16", "grpo g=16"),
            ("salt-g-16", "grpo salt g=16"),
        ],
    ),
];

fn facts(config: &Config) -> String {
    let mut words = vec![config.credit.estimator.kind().to_owned()];
    for refinement in &config.credit.refinements {
        words.push(refinement.kind().to_owned());
        match refinement {
            RefinementConfig::Aem(aem) => {
                let table = toml::Table::try_from(aem).unwrap();
                for (key, usual) in [("mode", "normal"), ("scope", "group")] {
                    let value = table[key].as_str().unwrap();
                    words.extend((value != usual).then(|| value.to_owned()));
                }
                assert_eq!((aem.epsilon, aem.min_spread), (1e-8, 0.1));
            }
            RefinementConfig::Salt(salt) => {
                words.extend((salt.history != 3).then(|| format!("h={}", salt.history)));
            }
            RefinementConfig::Has(has) => {
                words.extend((has.decomposer == DecomposerKind::Progressive).then(|| "progressive".into()));
                match &config.decomposer {
                    DecomposerConfig::None => {}
                    DecomposerConfig::Judge(_) => words.push("judge".into()),
                    DecomposerConfig::Turnrd(turnrd) => {
                        words.push("turnrd".into());
                        let network = &turnrd.network;
                        assert_eq!(
                            (network.credits, network.epochs),
                            (CreditRule::Projection, 5),
                            "equation 5"
                        );
                        words.extend(network.film.then(|| "film".into()));
                        if (network.hidden, network.layers) != (128, 2) {
                            words.push(format!("hidden={}x{}", network.hidden, network.layers));
                        }
                        let progress = (network.value_weight, network.progress_weight);
                        if progress.1 != 0.01 {
                            words.push(format!("progress={}/{}", progress.0, progress.1));
                        }
                        let half_life = network.half_life;
                        words.extend((half_life != 4.0).then(|| format!("half-life={half_life}")));
                    }
                }
                words.extend((has.alpha != 0.5).then(|| format!("has-alpha={}", has.alpha)));
            }
            _ => {}
        }
    }
    if let EstimatorConfig::Gigpo(gigpo) = &config.credit.estimator
        && gigpo.anchor.matching == Matching::Similarity
    {
        let threshold = gigpo.anchor.threshold;
        words.push(if threshold == 0.9 { "alike".into() } else { format!("alike={threshold}") });
        let outliers = config.credit.outliers.as_ref().and_then(|outliers| outliers.anchor.as_ref());
        assert!(outliers.is_none_or(|anchor| *anchor == gigpo.anchor), "outliers have other anchor states");
    }
    if let Some(selective) = &config.objective.selective {
        words.push("selective".into());
        words.extend((selective.alpha != 0.01).then(|| format!("alpha={}", selective.alpha)));
        words.extend((selective.alpha != selective.gamma).then(|| format!("gamma={}", selective.gamma)));
        let table = toml::Table::try_from(selective).unwrap();
        for (key, usual) in [("mask", "goal+history"), ("penalty", "ti")] {
            let value = table[key].as_str().unwrap();
            words.extend((value != usual).then(|| value.to_owned()));
        }
        let outliers = config.credit.outliers.as_ref().unwrap();
        match outliers.locate {
            Locate::Normalized => {}
            Locate::Shannon => words.push("shannon".into()),
            Locate::All => words.push("all".into()),
        }
        words.extend((outliers.lambda != 1.5).then(|| format!("lambda={}", outliers.lambda)));
    } else {
        assert!(config.credit.outliers.is_none());
    }
    match config.objective.ratio {
        RatioKind::Turn => words.push("turn".into()),
        RatioKind::SequenceToken => words.push("sequence".into()),
        _ => {}
    }
    let normalization = config.objective.normalization.as_ref();
    words.extend(normalization.map(|on| if on.measure_only { "measured" } else { "normalized" }.to_owned()));
    if config.credit.refinements.iter().any(|refinement| refinement.kind() == "has") {
        words.extend(swept(config));
    }
    if let SelectionConfig::Dynamic(_) = config.rollout.filter_groups {
        assert_eq!(config.objective.clip.high, 0.28);
        words.push("dynamic".into());
    }
    words.extend((config.rollout.group_size != 8).then(|| format!("g={}", config.rollout.group_size)));
    words.join(" ")
}

/// Returns the HAS settings that table 3 and the grids in appendices B and C vary.
fn swept(config: &Config) -> Vec<String> {
    let (rate, kl, clip) = (config.train.learning_rate, config.objective.kl.coef, config.objective.clip.high);
    assert_eq!(config.objective.clip.low, clip);
    let rank = config.policy.lora.as_ref().map_or(0, |lora| lora.rank);
    let equal_groups = config.train.skip_equal_groups;
    let all = [
        (rate != 5e-6).then(|| format!("lr={rate:e}")),
        (kl != 0.04).then(|| format!("kl={kl}")),
        (clip != 0.2).then(|| format!("clip={clip}")),
        (rank != 32).then(|| format!("rank={rank}")),
        (!equal_groups).then(|| "all-groups".into()),
    ];
    all.into_iter().flatten().collect()
}

fn check_shared(name: &str, config: &Config) {
    let paper = name.split('-').next().unwrap();
    let world = config.env.kind.as_str();
    if world == "search" {
        return check_search(name, paper, config);
    }
    let turns = match (paper, world) {
        (_, "webshop" | "sokoban") => 15,
        (_, "ezpoints") => 8,
        ("has", _) => 40,
        _ => 50,
    };
    assert_eq!(config.env.max_turns, turns);
    assert_eq!(config.rollout.temperature, 1.0);
    let penalty = match &config.credit.estimator {
        EstimatorConfig::Grpo(grpo) => grpo.invalid_penalty,
        EstimatorConfig::Rloo(rloo) => rloo.invalid_penalty,
        EstimatorConfig::Gigpo(gigpo) => gigpo.invalid_penalty,
        EstimatorConfig::Ppo(ppo) => ppo.invalid_penalty,
        other => panic!("{other:?}"),
    };
    let (kl, rate, scale, temperature, penalty_stated) = match paper {
        "stapo" => (0.01, 1e-6, 1.0, 0.4, 0.1),
        "aem" | "salt" => (0.01, 1e-6, 10.0, 0.4, 0.1),
        _ => (0.04, 5e-6, 1.0, 0.0, 0.0),
    };
    if !name.contains("has-appendix") {
        let coef = config.objective.kl.coef;
        assert_eq!(coef, kl, "a baseline keeps the KL of the method that it is compared with");
        assert_eq!(config.train.learning_rate, rate);
        assert!(paper != "has" || (config.rollout.group_size == 8 && config.train.skip_equal_groups));
    }
    assert_eq!((config.env.reward_scale, penalty), (scale, penalty_stated));
    assert_eq!(config.eval.temperature, temperature);
    let steps = match (paper, world) {
        ("has", _) => 10,
        ("stapo", "webshop") => 300,
        ("stapo", "sokoban") => 200,
        ("stapo", "ezpoints") => 100,
        _ => 150,
    };
    assert_eq!(config.train.steps, steps);
    let aggregation = config.objective.loss_agg_mode;
    let sequence = config.objective.ratio == RatioKind::SequenceToken;
    let dynamic = matches!(config.rollout.filter_groups, SelectionConfig::Dynamic(_));
    match paper {
        "stapo" => assert_eq!(aggregation, Aggregation::TurnMean),
        "aem" if !dynamic || sequence => assert_eq!(aggregation, Aggregation::SeqMeanTokenMean),
        _ => {}
    }
    if paper == "has" {
        assert_eq!(config.rollout.tasks_per_step, 80, "with 8 trajectories each 640 a round");
        assert_eq!(config.objective.kl.adaptive.as_ref().map(|adaptive| adaptive.target), Some(0.04));
    }
}

fn check_search(name: &str, paper: &str, config: &Config) {
    assert_eq!((config.env.max_turns, config.eval.temperature), (4, 0.0));
    let batch = config.rollout.tasks_per_step * config.rollout.group_size;
    let (kl, aggregation) = (config.objective.kl.coef, config.objective.loss_agg_mode);
    assert_eq!((kl, config.train.learning_rate), (0.001, 1e-6));
    let penalty = |expected: f64| {
        let table = toml::Table::try_from(&config.credit.estimator).unwrap();
        assert_eq!(table["invalid_penalty"].as_float(), Some(expected), "{name}");
    };
    if paper == "stapo" {
        assert_eq!((aggregation, config.rollout.tasks_per_step), (Aggregation::TurnMean, 256));
        penalty(0.01);
    } else {
        assert_eq!((aggregation, batch), (Aggregation::SeqMeanTokenMean, 512));
        // 256 trajectories per mini-batch, and 128 in figure 7.
        assert_eq!(config.train.num_minibatches, if name.contains("figure-7") { 4 } else { 2 });
        assert_eq!(config.train.ppo_epochs, 1);
        penalty(0.0);
        let critic = config.credit.estimator.kind() == "ppo";
        assert!(!critic || config.critic.learning_rate == 1e-5);
    }
}

#[test]
fn every_table_has_the_rows_and_the_settings_of_the_paper() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/paper/sweeps");
    let mut left: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap().replace(".toml", ""))
        .collect();
    for (pattern, seeds, rows) in TABLES {
        let worlds: &[&str] = match pattern {
            _ if pattern.contains("{W}") => &["alfworld", "webshop"],
            _ if pattern.contains("{P}") => &["sokoban", "ezpoints"],
            _ => &[""],
        };
        let sizes: &[&str] = match pattern {
            search if search.contains("search-{S}") => &["3b", "7b"],
            others if others.contains("{S}") => &["1.5b", "7b"],
            _ => &[""],
        };
        for (world, size) in worlds.iter().flat_map(|world| sizes.iter().map(move |size| (world, size))) {
            let name = pattern.replace("{W}", world).replace("{P}", world).replace("{S}", size);
            left.retain(|file| *file != name);
            let sweep = SweepFile::read(&folder.join(format!("{name}.toml"))).unwrap();
            assert_eq!(sweep.name, name);
            let mut found: BTreeMap<String, usize> = BTreeMap::new();
            let expected: BTreeMap<&str, &str> = rows.iter().copied().collect();
            for entry in sweep.entries().unwrap() {
                let config =
                    load(&entry.source).unwrap_or_else(|error| panic!("{name}/{}: {error}", entry.name));
                assert_eq!(facts(&config), expected[entry.name.as_str()], "{name}/{}", entry.name);
                check_shared(&name, &config);
                // HAS: the best held-out checkpoint in tables 1 and 2, adapters of rank 16 in table 3.
                let best = name.starts_with("has-table-") && !name.contains("-3-");
                assert_eq!(config.train.keep_best.is_some(), best, "{name}");
                let rank = config.policy.lora.as_ref().map(|lora| lora.rank);
                assert!(name != "has-table-3-alfworld" || rank == Some(16), "{name}: {rank:?}");
                assert_eq!(config.prompt.pictures, pattern.contains("{P}"), "{name}");
                let model = config.policy.model.as_ref().unwrap().to_str().unwrap().to_lowercase();
                assert!(size.is_empty() || model.contains(size), "{name}: {model}");
                *found.entry(entry.name).or_default() += 1;
            }
            assert_eq!(found.len(), rows.len(), "{name}");
            assert!(found.values().all(|count| count == seeds), "{name}: {found:?}");
        }
    }
    assert!(left.is_empty(), "sweeps that no table of this test has: {left:?}");
}
