//! Conversations with tool calls grow to the ids that `transformers` gives for the whole: recorded
//! for our templates, hashed for Qwen2.5 and Qwen3 (with TURNWISE_DATA).
#![expect(clippy::unwrap_used, reason = "a test")]
#![allow(clippy::print_stderr, reason = "a test says why it skips")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use turnwise_text::chat::{Answered, Call, ChatFormat, ChatSettings, ChatTemplate, Message, Stretch, Tool};
use turnwise_text::{TextError, Tokenizer};

#[derive(Deserialize)]
struct Recorded {
    tools: Vec<String>,
    conversations: BTreeMap<String, Vec<String>>,
    templates: BTreeMap<String, BTreeMap<String, Option<Grown>>>,
}

#[derive(Deserialize)]
struct Grown {
    replies: Vec<String>,
    ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Hashed {
    replies: Vec<String>,
    count: usize,
    hash: String,
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    serde_json::from_slice(&std::fs::read(golden("calls").join(name)).unwrap()).unwrap()
}

fn recorded() -> Recorded {
    read("grown.json")
}

impl Recorded {
    fn tools(&self) -> Vec<Tool> {
        self.tools.iter().map(|tool| Tool::from_json(tool).unwrap()).collect()
    }

    fn conversation(&self, name: &str) -> Vec<Value> {
        self.conversations[name].iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}

/// Names in the small tokenizer for Llama's tokens, as in `make.py`.
const LLAMA: [(&str, &str); 4] = [
    ("<|im_start|>", "<|start_header_id|>"),
    ("<think>", "<|end_header_id|>"),
    ("<|im_end|>", "<|eot_id|>"),
    ("<|endoftext|>", "<|begin_of_text|>"),
];

fn small(template: &str) -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let source = golden("calls").join(format!("{template}.jinja"));
    let names: &[(&str, &str)] = if template == "llama" { &LLAMA } else { &[] };
    for entry in std::fs::read_dir(golden("hub/whole")).unwrap() {
        let path = entry.unwrap().path();
        let mut text = std::fs::read_to_string(&path).unwrap();
        for (old, new) in names {
            text = text.replace(old, new);
        }
        std::fs::write(folder.path().join(path.file_name().unwrap()), text).unwrap();
    }
    let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
    with_template(tokenizer, &std::fs::read_to_string(source).unwrap())
}

fn with_template(tokenizer: Tokenizer, source: &str) -> Tokenizer {
    let end = tokenizer.end_tokens().to_vec();
    let named = [("bos_token".to_owned(), "<|begin_of_text|>".to_owned())];
    let template =
        ChatTemplate::new([("default".to_owned(), source.to_owned())].into(), named.into()).unwrap();
    tokenizer.with_chat(template, end)
}

fn text<'a>(message: &'a Value, key: &str) -> &'a str {
    message[key].as_str().unwrap()
}

/// Grows a conversation: first message, then each sampled reply and the text between replies.
fn grow(
    tokenizer: &Tokenizer,
    tools: &[Tool],
    messages: &[Value],
    replies: &[String],
) -> Result<Vec<u32>, TextError> {
    let (system, messages) = match messages {
        [first, rest @ ..] if first["role"] == "system" => (Some(text(first, "content").to_owned()), rest),
        _ => (None, messages),
    };
    let format = ChatFormat::new(tokenizer, ChatSettings { system, thinking: None })?;
    assert!(format.takes_tools());
    let mut ids = format.first(tokenizer, tools, text(&messages[0], "content"))?;
    let mut rest = &messages[1..];
    for reply in replies {
        assert_eq!(rest[0]["role"], "assistant");
        ids.extend(tokenizer.encode(reply));
        ids.push(format.close());
        let count = rest[1..].iter().take_while(|message| message["role"] == "tool").count();
        let results: Vec<Answered<'_>> = rest[1..=count]
            .iter()
            .map(|message| Answered {
                id: text(message, "tool_call_id"),
                name: text(message, "name"),
                text: text(message, "content"),
            })
            .collect();
        rest = &rest[1 + count..];
        let user =
            rest.first().filter(|message| message["role"] == "user").map(|message| text(message, "content"));
        rest = &rest[usize::from(user.is_some())..];
        let last = ids.last().copied();
        ids.extend(match (results.as_slice(), user) {
            ([], user) => format.next(tokenizer, user.unwrap(), last)?,
            (results, user) => format.next_after_calls(tokenizer, tools, results, user, last)?,
        });
    }
    assert!(rest.is_empty());
    Ok(ids)
}

#[test]
fn conversations_with_calls_grow_to_the_recorded_ids() {
    let recorded = recorded();
    let tools = recorded.tools();
    for (template, cases) in &recorded.templates {
        let tokenizer = small(template);
        for (name, grown) in cases {
            let Some(Grown { replies, ids }) = grown else { continue };
            let messages = recorded.conversation(name);
            assert_eq!(&grow(&tokenizer, &tools, &messages, replies).unwrap(), ids, "{template}: {name}");
            assert_ne!(
                &grow(&tokenizer, &tools[..1], &messages, replies).unwrap(),
                ids,
                "{template}: {name}: the comparison notices a missing tool"
            );
        }
        let whole = |name: &str| cases.get(name).is_some_and(Option::is_some);
        assert!(whole("several calls") && whole("words between") && whole("system"));
        assert_eq!(
            whole("parallel calls"),
            template != "llama",
            "Llama's template takes one call in a reply"
        );
    }
}

#[test]
fn a_changed_result_changes_the_ids() {
    let recorded = recorded();
    let (tools, tokenizer) = (recorded.tools(), small("hermes"));
    let Some(Grown { replies, ids }) = &recorded.templates["hermes"]["thoughts between"] else { panic!() };
    let mut messages = recorded.conversation("thoughts between");
    messages[2]["content"] = "nothing.".into();
    assert_ne!(&grow(&tokenizer, &tools, &messages, replies).unwrap(), ids);
}

#[test]
fn hub_templates_grow_conversations_to_the_recorded_ids() {
    let Some(data) = std::env::var_os("TURNWISE_DATA") else {
        eprintln!("skipped: TURNWISE_DATA not set");
        return;
    };
    let data = Path::new(&data).join("tokenizers");
    let folder = tempfile::tempdir().unwrap();
    let packed = std::fs::File::open(data.join("qwen2.5/tokenizer.reconstructed.json.zst")).unwrap();
    let mut unpacked = zstd::Decoder::new(packed).unwrap();
    unpacked.window_log_max(27).unwrap();
    let mut json = std::fs::File::create(folder.path().join("tokenizer.json")).unwrap();
    std::io::copy(&mut unpacked, &mut json).unwrap();
    for name in ["generation_config.json", "tokenizer_config.json"] {
        std::fs::copy(data.join("qwen2.5").join(name), folder.path().join(name)).unwrap();
    }
    let recorded = recorded();
    let tools = recorded.tools();
    let hashes: BTreeMap<String, BTreeMap<String, Option<Hashed>>> = read("hashes.json");
    assert_eq!(hashes.len(), 2);
    for (template, cases) in &hashes {
        let tokenizer = Tokenizer::load_folder(folder.path()).unwrap();
        let source = std::fs::read_to_string(data.join("chat_templates").join(template)).unwrap();
        let tokenizer = with_template(tokenizer, &source);
        for (name, hashed) in cases {
            let Hashed { replies, count, hash } = hashed.as_ref().unwrap();
            let ids = grow(&tokenizer, &tools, &recorded.conversation(name), replies).unwrap();
            let joined = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let digest: Vec<String> =
                Sha256::digest(joined)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!((ids.len(), digest.concat()), (*count, hash.clone()), "{template}: {name}");
        }
    }
}

#[test]
fn replies_with_calls_are_written_as_the_template_does() {
    let recorded = recorded();
    for (template, cases) in &recorded.templates {
        let tokenizer = small(template);
        let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
        for (name, grown) in cases {
            let Some(Grown { replies, .. }) = grown else { continue };
            let messages = recorded.conversation(name);
            let spoken = messages.iter().filter(|message| message["role"] == "assistant");
            for (message, reply) in spoken.zip(replies) {
                let made: Vec<(&str, &str, String)> = message["tool_calls"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|call| {
                        let function = &call["function"];
                        (text(call, "id"), text(function, "name"), function["arguments"].to_string())
                    })
                    .collect();
                // `Value` does not keep the order of keys; nothing else differs.
                let sorted = made.iter().all(|(_, _, arguments)| !arguments.contains("most"));
                let calls: Vec<Call<'_>> =
                    made.iter().map(|(id, name, arguments)| Call { id, name, arguments }).collect();
                if !calls.is_empty() && sorted {
                    let written = format.reply_calling(text(message, "content"), &calls).unwrap();
                    assert_eq!(&written, reply, "{template}: {name}");
                }
            }
        }
    }
    let llama = small("llama");
    let format = ChatFormat::new(&llama, ChatSettings::default()).unwrap();
    let call = Call { id: "a", name: "f", arguments: "{}" };
    let error = format.reply_calling("", &[call, Call { id: "b", ..call }]).unwrap_err().to_string();
    assert!(error.contains("One call in a reply"), "{error}");
    assert!(format.reply_calling("", &[Call { arguments: "{", ..call }]).is_err());
}

#[test]
fn a_template_of_single_calls_shows_the_results_of_several() {
    let tokenizer = small("llama");
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    let answered = |id, text| Answered { id, name: "f", text };
    let results = [answered("a", "one"), answered("b", "two")];
    let tools = recorded().tools();
    let ids = format.next_after_calls(&tokenizer, &tools, &results, None, None).unwrap();
    let part = |text| format!("<|start_header_id|>ipython<|end_header_id|>\n\n\"{text}\"<|eot_id|>");
    let expected =
        format!("<|eot_id|>{}{}<|start_header_id|>assistant<|end_header_id|>\n\n", part("one"), part("two"));
    assert_eq!(tokenizer.decode(&ids), expected);
    // A reply that ended with the closing token already has it.
    let closed = format.next_after_calls(&tokenizer, &tools, &results, None, Some(format.close())).unwrap();
    assert_eq!(closed, ids[1..]);
}

#[test]
fn a_template_without_tools_says_so() {
    let tokenizer = Tokenizer::load_folder(&golden("hub/whole")).unwrap();
    let format = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap();
    assert!(!format.takes_tools());
}

fn whole(
    tokenizer: &Tokenizer,
    tools: &[Tool],
    conversation: &[String],
) -> Result<Vec<Vec<Stretch>>, TextError> {
    let messages: Vec<Message> = conversation.iter().map(|text| Message::from_json(text).unwrap()).collect();
    let is_reply = |text: &String| text.contains(r#""role": "assistant""#);
    let replies: Vec<usize> = (0..messages.len()).filter(|&place| is_reply(&conversation[place])).collect();
    ChatFormat::new(tokenizer, ChatSettings::default())?
        .training_sequences(tokenizer, &messages, &replies, tools)
}

#[test]
fn whole_conversations_have_the_recorded_ids_and_replies() {
    let recorded = recorded();
    let tools = recorded.tools();
    for (template, cases) in &recorded.templates {
        let tokenizer = small(template);
        for (name, grown) in cases {
            let Some(Grown { replies, ids }) = grown else { continue };
            let conversation = &recorded.conversations[name];
            let [sequence] = whole(&tokenizer, &tools, conversation).unwrap().try_into().unwrap();
            let joined: Vec<u32> = sequence.iter().flat_map(|stretch| stretch.ids.clone()).collect();
            // The recorded ids continue after the last reply with its results and the start of the
            // next one.
            assert!(ids.starts_with(&joined) && joined.len() > ids.len() / 2, "{template}: {name}");
            let close = ChatFormat::new(&tokenizer, ChatSettings::default()).unwrap().close();
            let said: Vec<Vec<u32>> =
                sequence.iter().filter(|stretch| stretch.reply).map(|stretch| stretch.ids.clone()).collect();
            let expected: Vec<Vec<u32>> =
                replies.iter().map(|reply| [tokenizer.encode(reply), vec![close]].concat()).collect();
            assert_eq!(said, expected, "{template}: {name}");
            let [other] = whole(&tokenizer, &tools[..1], conversation).unwrap().try_into().unwrap();
            assert_ne!(other, sequence, "{template}: {name}: the comparison notices a missing tool");
        }
    }
}

#[test]
fn a_template_that_rewrites_earlier_replies_gives_several_sequences() {
    // Drops the reasoning of replies before the last question, like Qwen3's template.
    let source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last and m.reasoning_content \
                  %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}\
                  {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let tokenizer = with_template(Tokenizer::load_folder(&golden("hub/whole")).unwrap(), source);
    let say =
        |role: &str, text: &str, more: &str| format!(r#"{{"role": "{role}", "content": "{text}"{more}}}"#);
    let thought = r#", "reasoning_content": "hm""#;
    let conversation = [
        say("user", "a", ""),
        say("assistant", "b", thought),
        say("user", "c", ""),
        say("assistant", "d", thought),
    ];
    let shown = |sequences: Vec<Vec<Stretch>>| -> Vec<String> {
        sequences.iter().map(|all| all.iter().map(|one| tokenizer.decode(&one.ids)).collect()).collect()
    };
    let sequences = whole(&tokenizer, &[], &conversation).unwrap();
    assert!(sequences.iter().all(|one| one.iter().map(|stretch| stretch.reply).eq([false, true])));
    let user = |text: &str| format!("<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n");
    let reply = |text: &str| format!("<think>\nhm\n</think>\n\n{text}<|im_end|>");
    assert_eq!(
        shown(sequences),
        [
            format!("{}{}", user("a"), reply("b")),
            format!("{}b<|im_end|>\n{}{}", user("a"), user("c"), reply("d"))
        ]
    );
    // Without reasoning nothing is rewritten, so there is one sequence.
    let plain = conversation.map(|message| message.replace(thought, ""));
    assert_eq!(whole(&tokenizer, &[], &plain).unwrap().len(), 1);
}
