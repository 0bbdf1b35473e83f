//! Tests of models with a chat template: `chat`, and `eval` with every agent.
#![allow(clippy::unwrap_used)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use turnwise_core::{Purpose, Seed};
use turnwise_model::{Parameters, save_model};
use turnwise_text::chat::ChatTemplate;
use turnwise_text::{Tokenizer, TokenizerConfig};
use turnwise_train::config::ScratchConfig;

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
                      {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A small random model, with a chat template or without.
pub(crate) fn model(folder: &Path, chat: bool) -> String {
    let config = TokenizerConfig {
        special_tokens: ["<|im_start|>", "<|im_end|>"].map(String::from).to_vec(),
        ..TokenizerConfig::default()
    };
    let mut tokenizer = Tokenizer::train(["a"].into_iter(), &config).unwrap();
    if chat {
        let end = tokenizer.token_id("<|im_end|>").unwrap();
        tokenizer = tokenizer.with_chat(ChatTemplate::from_source(CHATML).unwrap(), vec![end]);
    }
    let shape = ScratchConfig {
        hidden_size: 16,
        layers: 1,
        heads: 2,
        key_value_heads: 1,
        intermediate_size: 32,
        ..ScratchConfig::default()
    };
    let shape = shape.model_config(tokenizer.vocab_size(), 8192);
    let weights = Parameters::init(shape, Seed::derive(1, Purpose::Init, &[])).unwrap();
    let folder = folder.join(if chat { "chat" } else { "plain" });
    save_model(&weights, &folder).unwrap();
    tokenizer.save_folder(&folder).unwrap();
    folder.display().to_string()
}

/// Runs `turnwise` and types `input`.
pub(crate) fn turnwise(arguments: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_turnwise"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments reads nothing.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    process.wait_with_output().unwrap()
}

#[test]
fn a_model_answers_line_by_line_and_repeats_itself_with_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    for (chat, arguments) in
        [(true, ["--system", "Be brief."].as_slice()), (false, &[]), (true, &["--plain"])]
    {
        let model = model(folder.path(), chat);
        let arguments = [&["chat", &model, "--max-tokens", "5", "--seed", "3"], arguments].concat();
        let talk = |input| {
            let output = turnwise(&arguments, input);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        };
        let printed = talk("hi\n\nagain\n/quit\nnever\n");
        assert!(!printed.is_empty());
        assert_eq!(printed, talk("hi\nagain\n"));
        assert!(String::from_utf8_lossy(&talk("/help\n")).contains("/reset"));
    }
}

#[test]
fn what_a_model_cannot_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (chat, plain) = (model(folder.path(), true), model(folder.path(), false));
    for (arguments, expected) in [
        (["chat", &chat, "--thinking", "on"], "no such switch"),
        (["chat", &plain, "--system", "x"], "no chat template"),
        (["chat", &chat, "--max-tokens", "0"], "--max-tokens 0"),
        (["eval", &chat, "--trials", "0"], "--trials 0"),
        (["eval", &chat, "--trials", "2"], "only --agent reflexion tries a task again"),
        (["eval", &plain, "--set", "prompt.chat=on"], "prompt.chat"),
    ] {
        let output = turnwise(&arguments, "");
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn any_model_is_evaluated_in_any_environment_with_any_agent() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), true);
    let out = folder.path().join("out.json");
    let short = "env.max_turns=2 rollout.max_response_tokens=4";
    let household = "env.generator.size=tiny env.generator.train=4 env.generator.valid_seen=2 env.generator.valid_unseen=2";
    let shop = "env.generator.products=60";
    let worlds = [
        ("alfworld", "plain", "valid_seen", household),
        ("webshop", "react", "test", shop),
        ("alfworld", "reflexion", "valid_seen", household),
    ];
    for (env, agent, split, small) in worlds {
        let mut arguments = vec!["eval", &model, "--env", env, "--agent", agent, "--tasks", "2"];
        if agent == "reflexion" {
            arguments.extend(["--trials", "2"]);
        }
        for setting in short.split_whitespace().chain(small.split_whitespace()) {
            arguments.extend(["--set", setting]);
        }
        arguments.extend(["--output", out.to_str().unwrap()]);
        let output = turnwise(&arguments, "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
        assert_eq!((&results[0]["agent"], &results[0]["split"]), (&agent.into(), &split.into()));
        assert_eq!(results[0]["success"]["trials"], 2);
        let trials = results[0]["trials"].as_array().map_or(0, Vec::len);
        assert_eq!(trials, if agent == "reflexion" { 2 } else { 0 });
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(printed.contains("trial 2:"), agent == "reflexion", "{printed}");
    }
    // A setting names the world as well as the option does, and brings its prompts and splits.
    let path = out.to_str().unwrap();
    let arguments =
        ["eval", &model, "env.kind=ezpoints", "eval.tasks=1", "env.max_turns=2", "--output", path];
    let output = turnwise(&[&arguments[..], &["rollout.max_response_tokens=4"]].concat(), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(results[0]["split"], "test");
}
