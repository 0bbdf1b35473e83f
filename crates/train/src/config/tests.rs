use super::*;

fn with(overrides: &[&str]) -> Result<Config, TrainError> {
    from(None, &[], overrides)
}

fn from(preset: Option<&str>, texts: &[&str], overrides: &[&str]) -> Result<Config, TrainError> {
    from_with(preset, texts, overrides, load)
}

fn from_with(
    preset: Option<&str>,
    texts: &[&str],
    overrides: &[&str],
    load: impl FnOnce(&ConfigSource) -> Result<Config, TrainError>,
) -> Result<Config, TrainError> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(index, text): (usize, &&str)| {
        let path = folder.path().join(format!("{index}.toml"));
        std::fs::write(&path, text).unwrap();
        path
    };
    load(&ConfigSource {
        preset: preset.map(str::to_owned),
        files: texts.iter().enumerate().map(write).collect(),
        overrides: overrides.iter().map(|text| (*text).to_owned()).collect(),
        ..ConfigSource::default()
    })
}

fn resolved(path: &std::path::Path) -> Result<Config, TrainError> {
    let files = vec![path.to_owned()];
    load(&ConfigSource { files, purpose: ConfigPurpose::Resume, ..ConfigSource::default() })
}

fn preset(name: &str) -> Config {
    let overrides: &[&str] = if name == "has-judge" { &["decomposer.model=m"] } else { &[] };
    from(Some(name), &[], overrides).unwrap()
}

const STAPO_FILE: &str = "preset = \"stapo\"\nname = \"mine\"\n[credit.estimator]\nomega = 0.5\n[objective.kl]\ncoef = 0.3\n\
                          [rollout]\ngroup_size = 4\nfilter_groups = { kind = \"dynamic\" }\n[rollout.overlong]\npenalty = 0.5\n[rollout.compact_filter]\nmax_repeats = 5\n\
                          [train]\nppo_epochs = 3\nnum_minibatches = 5\n";

#[test]
fn a_preset_of_the_command_line_takes_the_place_of_the_files_method() {
    for name in presets().filter(|name| *name != "quickstart") {
        let overrides: &[&str] = if name == "has-judge" { &["decomposer.model=m"] } else { &[] };
        let wanted = preset(name);
        let config = from(Some(name), &[STAPO_FILE], overrides).unwrap();
        assert_eq!(config.credit, wanted.credit, "{name}");
        assert_eq!(config.objective, wanted.objective, "{name}");
        assert_eq!(config.decomposer, wanted.decomposer, "{name}");
        assert_eq!(config.rollout.filter_groups, wanted.rollout.filter_groups, "{name}");
        assert_eq!(config.rollout.overlong, wanted.rollout.overlong, "{name}");
        assert_eq!(config.rollout.compact_filter, wanted.rollout.compact_filter, "{name}");
        assert_eq!(config.preset.as_deref(), Some(name));
        assert_eq!((config.name.as_str(), config.rollout.group_size), ("mine", 4), "{name}");
        let minibatches = if name.starts_with("so-") { 2 } else { 5 };
        assert_eq!((config.train.ppo_epochs, config.train.num_minibatches), (3, minibatches), "{name}");
        let argument = format!("preset={name}");
        assert_eq!(
            from(None, &[STAPO_FILE], &[&[argument.as_str()], overrides].concat()).unwrap(),
            config,
            "{name}"
        );
    }
}

#[test]
fn a_method_without_a_critic_drops_the_files_settings_of_one() {
    let ppo = "preset = \"ppo\"\n[critic]\nlearning_rate = 1e-4\n";
    let without = from(Some("grpo"), &[ppo], &[]).unwrap();
    assert_eq!(without.critic, preset("grpo").critic);
    assert_ne!(from(Some("so-ppo"), &[ppo], &[]).unwrap().critic, preset("so-ppo").critic);
    let error = from(None, &[ppo], &["credit.estimator={kind=\"grpo\"}"]).unwrap_err().to_string();
    assert!(error.contains("critic.learning_rate"), "{error}");
}

#[test]
fn an_argument_that_names_a_kind_wins_over_no_other_argument() {
    let file = "[env]\nkind = \"ezpoints\"\nmax_turns = 3\n";
    let with = |overrides: &[&str]| from(None, &[file], overrides).unwrap();
    let first = with(&["env.kind=sokoban", "env.max_turns=7", "prompt.template=sokoban-compact"]);
    let last = with(&["env.max_turns=7", "prompt.template=sokoban-compact", "env.kind=sokoban"]);
    assert_eq!((&first, last.env.max_turns), (&last, 7));
}

#[test]
fn rules_of_training_do_not_stand_in_the_way_of_playing() {
    let run =
        "preset = \"stapo\"\n[eval]\nsplits = [\"valid_unseen\"]\n[train]\nkeep_best = \"valid_unseen\"\n";
    let other = &["eval.splits=[\"train\"]"][..];
    let error = from(None, &[run], other).unwrap_err().to_string();
    assert!(error.contains("train.keep_best") && error.contains("eval.splits"), "{error}");
    let to_play =
        |source: &ConfigSource| load(&ConfigSource { purpose: ConfigPurpose::Play, ..source.clone() });
    let config = from_with(None, &[run], other, to_play).unwrap();
    assert_eq!((config.eval.splits.as_slice(), config.train.keep_best), (&["train".to_owned()][..], None));
    assert!(from_with(None, &[run], &["rollout.group_size=0"], to_play).is_err());
}

#[test]
fn without_a_preset_of_the_command_line_the_file_wins_over_its_own() {
    let config = from(None, &[STAPO_FILE], &[]).unwrap();
    let stapo = preset("stapo");
    assert_eq!((config.objective.kl.coef, config.objective.selective), (0.3, stapo.objective.selective));
    assert_eq!(config.credit.outliers, stapo.credit.outliers);
    assert_eq!(config.preset.as_deref(), Some("stapo"));
    let files = [STAPO_FILE, "preset = \"gigpo\"\n[train]\nsteps = 3\n"];
    let config = from(None, &files, &["train.steps=5"]).unwrap();
    assert_eq!((config.preset.as_deref(), config.train.steps), (Some("gigpo"), 5));
    assert_eq!((config.objective.selective, config.objective.kl.coef), (None, 0.3));
}

#[test]
fn a_whole_config_is_a_start_and_no_method() {
    let config =
        from(Some("grpo"), &["preset = \"quickstart\"\n[sft]\nsteps = 0\n"], &["objective.kl.coef=0.5"])
            .unwrap();
    assert_eq!((config.sft.steps, config.objective.kl.coef), (0, 0.5));
    assert_eq!(config.policy, preset("quickstart").policy);
    assert_eq!((&config.credit, config.preset.as_deref()), (&preset("grpo").credit, Some("grpo")));
    let config = from(Some("quickstart"), &[STAPO_FILE], &[]).unwrap();
    assert_eq!((&config.policy, &config.sft), (&preset("quickstart").policy, &preset("quickstart").sft));
    assert_eq!((config.name.as_str(), config.preset.as_deref()), ("mine", Some("stapo")));
    assert_eq!(config.credit.outliers, preset("stapo").credit.outliers);
    let error = from(Some("grpo"), &[], &["preset=ppo"]).unwrap_err().to_string();
    assert!(error.contains("`ppo`") && error.contains("`grpo`"), "{error}");
}

#[test]
fn overrides_are_typed_and_win() {
    let config =
        with(&["train.steps=7", "name=here", "env.data=some/folder", "eval.splits=[\"a\"]"]).unwrap();
    assert_eq!(config.train.steps, 7);
    assert_eq!(config.name, "here");
    assert_eq!(config.env.settings["data"].as_str(), Some("some/folder"));
    assert_eq!(config.eval.splits, ["a"]);
    assert_eq!(with(&["objective.clip=[0.1, 0.3]"]).unwrap().objective.clip.high, 0.3);
}

#[test]
fn an_adapter_has_its_defaults_spelled_out() {
    assert_eq!(with(&[]).unwrap().policy.lora, None);
    let config = with(&["policy.lora.rank=8"]).unwrap();
    let lora = config.policy.lora.clone().unwrap();
    assert_eq!((lora.rank, lora.alpha, lora.dropout, lora.rslora), (8, 64.0, 0.0, false));
    assert_eq!(lora.targets, ["all-linear"]);
    assert_eq!(config.critic_lora(), Some(&lora));
    let text = config.to_toml().unwrap();
    assert!(text.contains("[policy.lora]\nrank = 8\nalpha = 64.0\ndropout = 0.0\nrslora = false"), "{text}");
    let both = with(&["policy.lora={}", "critic.lora={rank=4}", "credit.estimator={kind=\"ppo\"}"]).unwrap();
    assert_eq!(both.critic_lora().unwrap().rank, 4);
}

#[test]
fn a_misspelt_key_names_the_nearest() {
    let error = with(&["train.stepz=7"]).unwrap_err().to_string();
    assert!(
        error.contains("argument `train.stepz=7`: train.stepz") && error.contains("Did you mean `steps`"),
        "{error}"
    );
    let error = with(&["train.steps=many"]).unwrap_err().to_string();
    assert!(error.contains("train.steps = \"many\": must be a whole number"), "{error}");
    let error = with(&["preset=has-judge"]).unwrap_err().to_string();
    assert!(error.contains("model"), "{error}");
    assert!(with(&["preset=has-judge", "decomposer.model=m"]).is_ok());
    let error = with(&["preset=grop"]).unwrap_err().to_string();
    assert!(error.contains("Did you mean \"grpo\""), "{error}");
    let error = from(None, &["\npreset = \"grop\"\n"], &[]).unwrap_err().to_string();
    assert!(error.contains("0.toml line 2: preset = \"grop\""), "{error}");
}

#[test]
fn every_error_has_its_file_and_line() {
    let text =
        "name = \"x\"\n[train]\nlearning_rat = 1.0\n[optimizer]\nbeta1 = 1.5\n[rollout]\ngroup_size = 1\n";
    let error = from(None, &[text], &["train.warmup=-1"]).unwrap_err().to_string();
    for expected in [
        "3 settings cannot be used:",
        "0.toml line 3: train.learning_rat: unknown key. Did you mean `learning_rate`?",
        "0.toml line 5: optimizer.beta1 = 1.5: must be at least 0 and below 1 (default 0.9)",
        "argument `train.warmup=-1`: train.warmup = -1: must be at least 0",
    ] {
        assert!(error.contains(expected), "{expected}\n\n{error}");
    }
    // Rules between settings are checked after all ranges.
    let error = from(None, &["[rollout]\ngroup_size = 1\n"], &[]).unwrap_err().to_string();
    assert!(error.contains("0.toml line 2: rollout.group_size: is 1"), "{error}");
    let error = from(None, &["name = x\n"], &[]).unwrap_err().to_string();
    assert!(error.contains("0.toml line 1: is not TOML"), "{error}");
}

#[test]
fn the_resolved_config_reads_back_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    for name in presets().chain(whole_configs()) {
        let config = preset(name);
        let read: Config = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(read, config, "{name}");
        assert_ne!(Config { seed: config.seed + 1, ..read }, config, "{name}");
        for text in [config.to_toml().unwrap(), config.to_annotated_toml().unwrap()] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(resolved(&path).unwrap(), config, "{name}");
            let source = ConfigSource { files: vec![path.clone()], ..ConfigSource::default() };
            assert_eq!(load(&source).unwrap(), config, "{name}");
        }
    }
}

#[test]
fn a_config_made_in_code_is_checked_too() {
    let mut config = Config::default();
    config.optimizer.clip_norm = f64::NAN;
    config.train.num_workers = 1_000_000_000;
    let error = config.check(&Registries::builtin()).unwrap_err().to_string();
    assert!(
        error.contains("optimizer.clip_norm = nan") && error.contains("train.num_workers = 1000000000"),
        "{error}"
    );
}

#[test]
fn every_key_says_what_it_means_and_allows() {
    fn walk(schema: &serde_json::Value, key: &str, wrong: &mut Vec<String>) {
        let bounded = ["minimum", "exclusiveMinimum"].iter().any(|name| schema.get(name).is_some())
            && ["maximum", "exclusiveMaximum"].iter().any(|name| schema.get(name).is_some());
        let number = ["integer", "number"].iter().any(|kind| schema["type"] == *kind);
        if number && !bounded && !key.ends_with("seed") {
            wrong.push(format!("{key} has no range"));
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let is_tag = inner.get("const").is_some() || name == "kind";
            if inner.get("description").is_none() && !is_tag {
                wrong.push(format!("{key}.{name} has no meaning"));
            }
            walk(inner, &format!("{key}.{name}"), wrong);
        }
        for list in ["oneOf", "anyOf", "prefixItems"] {
            schema[list].as_array().into_iter().flatten().for_each(|inner| walk(inner, key, wrong));
        }
        walk_items(schema, key, wrong);
    }
    fn walk_items(schema: &serde_json::Value, key: &str, wrong: &mut Vec<String>) {
        if schema["items"].is_object() {
            walk(&schema["items"], key, wrong);
        }
    }
    let mut wrong = Vec::new();
    walk(&serde_json::from_str(&schema(&Registries::builtin())).unwrap(), "config", &mut wrong);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
    if std::env::var_os("TURNWISE_WRITE_REFERENCE").is_some() {
        std::fs::write(path, reference_page()).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page == reference_page(),
        "{path} is stale; write it again with `turnwise config reference > {path}`"
    );
}

#[test]
fn a_switch_that_is_written_lets_its_settings_stand() {
    let base = "[objective.kl]\ncoef = 0.1\napply_to = \"reward\"\n[credit.estimator]\nkind = \"gigpo\"\nanchor = { matching = \
                \"similarity\", threshold = 0.8 }\n";
    let config =
        from(None, &[base], &["objective.kl.coef=0", "credit.estimator.anchor.matching=exact"]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, toml::to_string(&config).unwrap()).unwrap();
    assert_eq!(resolved(&path).unwrap(), config);
}

/// Without RL steps, a critic cannot warm up.
#[test]
fn the_warm_start_of_a_method_with_a_critic_is_no_contradiction() {
    let steps = |steps: &str| with(&["credit.estimator={kind=\"ppo\"}", "critic.warmup_steps=20", steps]);
    assert_eq!(steps("train.steps=0").unwrap().critic.warmup_steps, 20);
    assert!(steps("train.steps=20").unwrap_err().to_string().contains("critic.warmup_steps: is 20"));
}

#[test]
fn an_override_is_found_however_it_is_spelt() {
    let kind = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&text| text.to_owned()).collect();
        overridden(&overrides, "env.kind").unwrap()
    };
    for spelt in ["env.kind=webshop", "env.kind = \"webshop\"", "env={kind='webshop', max_turns=3}"] {
        assert_eq!(kind(&[spelt]).as_deref(), Some("webshop"), "{spelt}");
    }
    assert_eq!(kind(&["env.kind=alfworld", "env.kind=webshop"]).as_deref(), Some("webshop"));
    assert_eq!(kind(&["env.max_turns=3", "envkind=webshop"]), None);
    assert!(overridden(&["env.kind".to_owned()], "env.kind").is_err());
}

#[test]
fn every_embedded_config_is_its_file() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs");
    let load = |preset: Option<&str>, files: Vec<std::path::PathBuf>| {
        let source = ConfigSource { preset: preset.map(str::to_owned), files, ..ConfigSource::default() };
        let mut config = load(&source).unwrap();
        config.preset = None;
        config.to_toml().unwrap()
    };
    let mut count = 0;
    for name in whole_configs() {
        let file = root.join(format!("{name}.toml"));
        assert_eq!(load(Some(name), Vec::new()), load(None, vec![file.clone()]), "{name}");
        let over = |preset: Option<&str>, files: Vec<std::path::PathBuf>| {
            let overrides = vec!["train.steps=3".to_owned(), "name=other".to_owned()];
            let source = ConfigSource {
                preset: preset.map(str::to_owned),
                files,
                overrides,
                ..ConfigSource::default()
            };
            super::load(&source).unwrap().train.steps
        };
        assert_eq!((over(Some(name), Vec::new()), over(None, vec![file])), (3, 3));
        count += 1;
        let summary = config_summary(name).unwrap();
        assert!((15..200).contains(&summary.len()) && !summary.contains("turnwise"), "{name}: {summary}");
    }
    assert!(count > 20, "{count}");
    let source = ConfigSource { preset: Some("sokoban/smal".into()), ..ConfigSource::default() };
    assert!(super::load(&source).unwrap_err().to_string().contains("sokoban/small"));
}

#[test]
fn a_world_of_another_build_names_the_feature() {
    let load = |kind: &str| {
        let source = ConfigSource { overrides: vec![format!("env.kind={kind}")], ..ConfigSource::default() };
        super::load(&source).unwrap_err().to_string()
    };
    for kind in ["openenv", "mcp", "appworld"] {
        let error = load(kind);
        assert!(
            error.contains("env.kind") && error.contains("cargo build --release --features remote"),
            "{error}"
        );
    }
    assert!(load("webship").contains("did you mean `webshop`?"), "{}", load("webship"));
}

#[test]
fn a_config_of_the_repository_that_is_not_here_says_how_to_write_it() {
    let missing = |file: &str| {
        load(&ConfigSource { files: vec![file.into()], ..ConfigSource::default() }).unwrap_err().to_string()
    };
    let error = missing("nowhere/configs/webshop/small.toml");
    assert!(error.contains("config show --preset webshop/small > small.toml"), "{error}");
    assert!(!missing("nowhere/small.toml").contains("--preset"));
}
