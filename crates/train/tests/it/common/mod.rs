//! Runs that take a second.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part; a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use turnwise_core::TaskSet;
use turnwise_env::parse::ActionParser;
use turnwise_env::prompt::PromptTemplate;
use turnwise_env::registry::Registry;
use turnwise_text::Tokenizer;
use turnwise_text::chat::ChatFormat;
use turnwise_train::config::{Config, ConfigSource, Layout, load};
use turnwise_train::record::metrics::{MetricsLine, read_metrics};
use turnwise_train::rollout::EnvRunner;
use turnwise_train::setup::World;
use turnwise_train::{EvaluationPoint, Event, NoopObserver, Observer, Run, RunEnd, TrainError};

pub(crate) const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tiny.toml");

/// Two steps of a model with a few thousand weights on a dozen games. Nothing is ever solved; the
/// penalty for invalid turns is the only signal.
pub(crate) const TINY: &[&str] = &[
    "env.generator.size=tiny",
    "env.generator.train=12",
    "prompt.validity=admissible",
    "sft.demonstrations=12",
    "sft.steps=0",
    "rollout.group_size=4",
    "rollout.max_model_len=512",
    "train.steps=2",
    "train.learning_rate=1e-3",
    "train.skip_zero_advantage=false",
    "eval.splits=[\"valid_unseen\"]",
];

pub(crate) fn config(preset: Option<&str>, more: &[&str]) -> Result<Config, TrainError> {
    let overrides = TINY.iter().chain(more).map(|text| (*text).to_owned()).collect();
    load(&ConfigSource {
        preset: preset.map(str::to_owned),
        files: vec![FILE.into()],
        overrides,
        ..ConfigSource::default()
    })
}

pub(crate) fn runner(
    tasks: impl TaskSet + 'static,
    template: &str,
    tokenizer: Tokenizer,
    chat: Option<ChatFormat>,
) -> EnvRunner {
    let template = PromptTemplate::find(template, &Registry::builtin()).unwrap();
    let parser = ActionParser::new(template.rules().clone(), false);
    let (world, tokenizer) = (World::of_tasks(Arc::new(tasks)), Arc::new(tokenizer));
    EnvRunner { world, template, parser, tokenizer, chat, pictures: None }
}

pub(crate) fn rollout_config(layout: Layout, max_model_len: usize, slots: usize) -> Config {
    let mut config = Config { seed: 7, ..Config::default() };
    (config.prompt.layout, config.env.max_turns) = (layout, 0);
    (config.rollout.max_model_len, config.rollout.max_num_seqs) = (max_model_len, slots);
    config
}

pub(crate) fn resume(root: &Path, observer: &mut dyn Observer) -> Result<Run, TrainError> {
    resume_with(root, &[], None, observer)
}

pub(crate) fn resume_with(
    root: &Path,
    overrides: &[&str],
    from: Option<&str>,
    observer: &mut dyn Observer,
) -> Result<Run, TrainError> {
    let overrides = overrides.iter().map(|text| (*text).to_owned()).collect();
    let config = load(&ConfigSource { overrides, ..ConfigSource::of_run(root) })?;
    let run = Run::builder(config).directory(root);
    match from {
        Some(label) => run.checkpoint(label.parse().unwrap()).resume(observer),
        None => run.resume(observer),
    }
}

pub(crate) fn train(config: Config, what: &str) -> Vec<MetricsLine> {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    let steps = config.train.steps as usize;
    let mut run = Run::builder(config).directory(&root).start(&mut NoopObserver).unwrap();
    assert_eq!(run.train(&mut NoopObserver, &AtomicBool::new(false)).unwrap(), RunEnd::Finished, "{what}");
    let lines = read_metrics(&root.join("metrics.jsonl")).unwrap();
    assert_eq!(lines.len(), steps, "{what}");
    for line in &lines {
        for (tag, value) in &line.metrics.0 {
            assert!(value.is_finite(), "{what}: {tag} is {value}");
        }
        // Sampler and learner use the same numerics.
        assert!(line.metrics.get("rollout/mismatch_kl").unwrap() < 1e-6, "{what}");
    }
    lines
}

/// Two steps of any config of `configs`, with a tiny model.
const SHORT: &[&str] = &[
    "env.max_turns=3",
    "sft.steps=0",
    "rollout.group_size=2",
    "train.steps=2",
    "train.num_minibatches=1",
    "train.learning_rate=1e-3",
    "train.skip_zero_advantage=false",
];

/// Trains all configs of `configs/<name>` for two steps and returns their names in order. Each file
/// must have this environment kind, begin with its command, and have prompts that fit the context.
pub(crate) fn train_folder(name: &str, kind: &str, more: &[&str]) -> Vec<String> {
    let temporary = tempfile::tempdir().unwrap();
    let tiny = temporary.path().join("tiny.toml");
    let mut table: toml::Table = std::fs::read_to_string(FILE).unwrap().parse().unwrap();
    table["env"].as_table_mut().unwrap().remove("generator");
    std::fs::write(&tiny, table.to_string()).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut names = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&file).unwrap();
        let command = text.lines().next().unwrap();
        assert!(
            command.starts_with(&format!("# turnwise train configs/{name}/{stem}.toml")),
            "{stem}: the first line is the command that runs it, not `{command}`"
        );
        let mut overrides: Vec<String> = SHORT.iter().chain(more).map(|text| (*text).to_owned()).collect();
        if stem == "stapo" {
            // So few turns have no outliers.
            overrides.push("credit.outliers.locate=all".into());
        }
        let config =
            load(&ConfigSource { files: vec![file, tiny.clone()], overrides, ..ConfigSource::default() })
                .unwrap();
        assert_eq!(config.env.kind, kind, "{stem}");
        assert_eq!(config.name, format!("{name}-{stem}"));
        for line in train(config, &format!("{name}-{stem}")) {
            assert_eq!(line.metrics.get("rollout/overflow_rate"), Some(0.0), "{stem}: prompts do not fit");
        }
        names.push(stem);
    }
    names
}

#[derive(Default)]
pub(crate) struct Notes(pub(crate) Vec<String>);

impl Notes {
    pub(crate) fn have(&self, words: &[&str]) -> bool {
        self.0.iter().any(|note| words.iter().all(|word| note.contains(word)))
    }
}

impl Observer for Notes {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Note(text) = event {
            self.0.push(text);
        }
    }

    fn evaluate(&mut self, _: &mut EvaluationPoint<'_>) -> Result<ControlFlow<()>, String> {
        Ok(ControlFlow::Continue(()))
    }
}

/// Gives the four turns of each trajectory rising scores.
pub(crate) fn judge() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 0 && line != "\r\n" {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let body = r#"{"choices": [{"message": {"role": "assistant", "content": "[1, 2, 3, 4]"}}]}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}",
                body.len()
            );
            write!(stream, "{head}\r\nconnection: close\r\n\r\n{body}").unwrap();
        }
    });
    address
}
