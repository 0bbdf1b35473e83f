//! Chat templates render like in `transformers`: recorded texts for our templates, recorded hashes
//! for hub models (with TURNWISE_DATA), and a live comparison (with TURNWISE_PYTHON).
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stderr, reason = "a test says why it skips")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use turnwise_text::TextError;
use turnwise_text::chat::{ChatTemplate, Message, RenderOptions, Tool};

#[derive(Deserialize)]
struct Case {
    name: String,
    messages: Vec<String>,
    tools: Option<Vec<String>>,
    add_generation_prompt: bool,
    enable_thinking: Option<bool>,
}

#[derive(Deserialize)]
struct Recorded<T> {
    cases: Vec<Case>,
    texts: T,
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/chat").join(name)
}

fn recorded() -> Recorded<BTreeMap<String, Vec<Option<String>>>> {
    serde_json::from_slice(&std::fs::read(golden("rendered.json")).unwrap()).unwrap()
}

fn template(source: &str) -> ChatTemplate {
    let named = [("bos_token", "<|begin|>"), ("eos_token", "<|im_end|>")];
    let named = named.map(|(name, text)| (name.to_owned(), text.to_owned()));
    ChatTemplate::new([("default".to_owned(), source.to_owned())].into(), named.into()).unwrap()
}

impl Case {
    fn render(&self, template: &ChatTemplate) -> Result<String, TextError> {
        let messages: Vec<Message> =
            self.messages.iter().map(|text| Message::from_json(text).unwrap()).collect();
        let tools = self.tools.iter().flatten().map(|text| Tool::from_json(text).unwrap()).collect();
        let options = RenderOptions {
            add_generation_prompt: self.add_generation_prompt,
            tools,
            thinking: self.enable_thinking,
        };
        template.render(&messages, &options)
    }
}

/// Compares every case; a text that `transformers` rejects must be rejected here too.
fn compare(what: &str, source: &str, cases: &[Case], texts: &[Option<String>]) {
    assert_eq!(cases.len(), texts.len());
    let template = template(source);
    for (case, text) in cases.iter().zip(texts) {
        let ours = case.render(&template);
        match text {
            Some(text) => assert_eq!(&ours.unwrap(), text, "{what}: {}", case.name),
            None => assert!(ours.is_err(), "{what}: {}: {ours:?}", case.name),
        }
    }
}

/// Returns the templates of hub models in the data folder, with the names in `cases.py`.
fn hub_templates() -> Option<BTreeMap<String, String>> {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        eprintln!("skipped: TURNWISE_DATA not set");
        return None;
    };
    let folder = PathBuf::from(data).join("tokenizers");
    let mut templates = BTreeMap::new();
    for within in ["chat_templates", "qwen2.5", "qwen3"] {
        for entry in std::fs::read_dir(folder.join(within)).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{within}/{}", path.file_name().unwrap().to_str().unwrap());
            if path.extension().is_some_and(|end| end == "jinja") {
                templates.insert(name, std::fs::read_to_string(path).unwrap());
            } else if name.ends_with("tokenizer_config.json") {
                let settings: serde_json::Value =
                    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
                templates.insert(name, settings["chat_template"].as_str().unwrap().to_owned());
            }
        }
    }
    Some(templates)
}

#[test]
fn templates_of_ours_render_as_recorded() {
    let recorded = recorded();
    assert_eq!(recorded.texts.len(), 4);
    for (name, texts) in &recorded.texts {
        let source = std::fs::read_to_string(golden("templates").join(name)).unwrap();
        compare(name, &source, &recorded.cases, texts);
    }
}

#[test]
fn the_comparison_notices_one_space() {
    let recorded = recorded();
    let source = std::fs::read_to_string(golden("templates/chatml.jinja")).unwrap();
    let wrong = template(&source.replace("'<|im_end|>\\n'", "'<|im_end|> \\n'"));
    let texts = &recorded.texts["chatml.jinja"];
    let same = recorded.cases.iter().zip(texts).filter(|(case, text)| case.render(&wrong).ok() == **text);
    assert!(same.count() < texts.len() / 4, "only refusals stay");
}

#[test]
fn hub_templates_render_as_recorded() {
    let Some(templates) = hub_templates() else { return };
    let hashes: BTreeMap<String, Vec<Option<String>>> =
        serde_json::from_slice(&std::fs::read(golden("hashes.json")).unwrap()).unwrap();
    let cases = recorded().cases;
    assert_eq!(hashes.len(), 7);
    for (name, expected) in hashes {
        let template = template(&templates[&name]);
        for (case, expected) in cases.iter().zip(expected) {
            let text = case.render(&template);
            let hash = text.as_ref().ok().map(|text| {
                let digest = Sha256::digest(text.as_bytes());
                let head = digest[..8].iter().fold(0_u64, |head, byte| head << 8 | u64::from(*byte));
                format!("{head:016x}")
            });
            assert_eq!(hash, expected, "{name}: {}: {text:?}", case.name);
        }
    }
}

#[test]
fn transformers_says_the_same_now() {
    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: TURNWISE_PYTHON not set to a Python with transformers");
        return;
    };
    let mut sources: BTreeMap<String, String> = recorded()
        .texts
        .into_keys()
        .map(|name| (name.clone(), std::fs::read_to_string(golden("templates").join(&name)).unwrap()))
        .collect();
    sources.extend(hub_templates().unwrap_or_default());
    let mut process = Command::new(python)
        .arg(golden("cases.py"))
        .arg("--live")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let asked = serde_json::json!({ "templates": sources.values().collect::<Vec<_>>() });
    process.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    let live: Recorded<Vec<Vec<Option<String>>>> = serde_json::from_slice(&output.stdout).unwrap();
    for ((name, source), texts) in sources.iter().zip(&live.texts) {
        compare(name, source, &live.cases, texts);
    }
}
