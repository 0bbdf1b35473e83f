//! Tests of the native engine's answers over HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnwise_serve::engine::EngineSettings;

use crate::client::ask;
use crate::model::{COUNT, Served, request, serve};

fn small() -> EngineSettings {
    EngineSettings { lanes: 2, max_num_seqs: 16, ..EngineSettings::default() }
}

fn post(served: &Served, path: &str, body: &str) -> (u16, Value) {
    let (status, text) = ask(&served.server, path, Some(body), None);
    (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")))
}

/// Returns the answer to a request that the model has learned.
fn chat(served: &Served, call: bool, more: &str) -> Value {
    let (status, answer) = post(served, "/v1/chat/completions", &request(call, more));
    assert_eq!(status, 200, "{answer}");
    answer
}

fn text(served: &Served, body: &Value) -> Value {
    let (status, answer) = post(served, "/v1/completions", &body.to_string());
    assert_eq!(status, 200, "{answer}");
    answer
}

/// Returns the chunks of a stream without its end.
fn stream(served: &Served, path: &str, body: &str) -> Vec<Value> {
    let (status, text) = ask(&served.server, path, Some(body), None);
    assert_eq!(status, 200, "{text}");
    let events: Vec<&str> =
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

#[test]
fn a_chat_is_answered_with_what_the_request_asks_for() {
    let served = serve(small());
    let answer = chat(&served, false, "");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": COUNT, "refusal": null }));
    assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&json!("stop"), &json!(null)));
    assert!(choice.get("token_ids").is_none() && answer.get("prompt_token_ids").is_none());
    let whole = answer["usage"]["completion_tokens"].as_u64().unwrap();

    let cut = chat(&served, false, r#", "max_completion_tokens": 3"#);
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert_eq!(cut["usage"]["completion_tokens"], 3);
    assert!(COUNT.starts_with(cut["choices"][0]["message"]["content"].as_str().unwrap()));

    let stopped = chat(&served, false, r#", "stop": ["xx", "hree f"]"#);
    assert_eq!(stopped["choices"][0]["message"]["content"], "one two t");
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");

    let more =
        chat(&served, false, r#", "n": 2, "logprobs": true, "top_logprobs": 2, "return_token_ids": true"#);
    assert_eq!(more["choices"].as_array().unwrap().len(), 2);
    assert_eq!(more["usage"]["completion_tokens"], 2 * whole);
    assert_eq!(more["prompt_token_ids"].as_array().unwrap().len() as u64, more["usage"]["prompt_tokens"]);
    for choice in more["choices"].as_array().unwrap() {
        let entries = choice["logprobs"]["content"].as_array().unwrap();
        assert_eq!(entries.len() as u64, whole, "one for every token, the end token too");
        assert_eq!(choice["token_ids"].as_array().unwrap().len() as u64, whole);
        let words: String = entries.iter().map(|entry| entry["token"].as_str().unwrap()).collect();
        assert_eq!(words, format!("{COUNT}<|im_end|>"));
        for entry in entries {
            assert_eq!(entry["top_logprobs"][0]["token"], entry["token"], "greedy takes the best");
            assert_eq!(entry["top_logprobs"][0]["logprob"], entry["logprob"]);
            assert!(entry["top_logprobs"][1]["logprob"].as_f64() < entry["logprob"].as_f64());
        }
    }
}

#[test]
fn a_stream_has_the_same_answer_as_the_whole() {
    let served = serve(small());
    let more = r#", "n": 2, "logprobs": true, "return_token_ids": true"#;
    let whole = chat(&served, false, more);
    let more = format!(r#"{more}, "stream": true, "stream_options": {{"include_usage": true}}"#);
    let chunks = stream(&served, "/v1/chat/completions", &request(false, &more));
    assert!(chunks.len() > 8, "it comes in parts");
    for index in 0..2 {
        let mine = |chunk: &&Value| chunk["choices"][0]["index"] == index;
        let parts: Vec<&Value> = chunks.iter().filter(mine).map(|chunk| &chunk["choices"][0]).collect();
        let content: String = parts.iter().filter_map(|part| part["delta"]["content"].as_str()).collect();
        assert_eq!(content, COUNT);
        assert_eq!(parts[0]["delta"]["role"], "assistant");
        assert!(parts[1..].iter().all(|part| part["delta"].get("role").is_none()));
        let finish: Vec<&str> = parts.iter().filter_map(|part| part["finish_reason"].as_str()).collect();
        assert_eq!(finish, ["stop"]);
        let joined = |key: &[&str]| -> Vec<Value> {
            let of = |part: &&Value| key.iter().fold((**part).clone(), |value, key| value[*key].clone());
            parts.iter().flat_map(|part| of(part).as_array().cloned().unwrap_or_default()).collect()
        };
        let choice = &whole["choices"][index];
        assert_eq!(Value::Array(joined(&["token_ids"])), choice["token_ids"]);
        assert_eq!(Value::Array(joined(&["logprobs", "content"])), choice["logprobs"]["content"]);
    }
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    let prompts: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk.get("prompt_token_ids")).collect();
    assert_eq!(prompts, [&whole["prompt_token_ids"]]);
}

#[test]
fn calls_of_tools_are_read() {
    let served = serve(small());
    let answer = chat(&served, true, "");
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("I ask."), &json!("tool_calls"))
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"], json!({ "name": "weather", "arguments": r#"{"city":"Oslo"}"# }));
    assert!(call["id"].as_str().unwrap().starts_with("call_"));

    let chunks = stream(&served, "/v1/chat/completions", &request(true, r#", "stream": true"#));
    let content: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(content, "I ask.");
    let last = &chunks.last().unwrap()["choices"][0];
    assert_eq!(last["delta"]["tool_calls"][0]["function"], call["function"]);
    assert_eq!(
        (&last["delta"]["tool_calls"][0]["index"], &last["finish_reason"]),
        (&json!(0), &json!("tool_calls"))
    );

    // The conversation continues with the result.
    let id = &call["id"];
    let more = format!(
        r#", "messages": [{{"role": "user", "content": "How is Oslo?"}}, {{"role": "assistant", "content": "I ask.", "tool_calls": [{call}]}}, {{"role": "tool", "tool_call_id": {id}, "content": "rain"}}], "max_tokens": 4"#
    );
    chat(&served, true, &more);

    let none = chat(&served, true, r#", "tool_choice": "none""#);
    assert_eq!(none["choices"][0]["message"]["content"], crate::model::CALL);
    assert_eq!(none["choices"][0]["finish_reason"], "stop");
}

#[test]
fn a_seed_gives_the_same_bytes_whatever_else_runs() {
    let served = serve(small());
    let sampled = |seed: &str| {
        let more = format!(r#", "temperature": 1.9, "max_tokens": 60, "logprobs": true, "n": 2{seed}"#);
        chat(&served, false, &more)["choices"].to_string()
    };
    let alone = sampled(r#", "seed": 7"#);
    let others: Vec<String> = std::thread::scope(|scope| {
        let same: Vec<_> = (0..24)
            .map(|index| {
                let sampled = &sampled;
                scope.spawn(move || sampled(if index % 3 == 0 { r#", "seed": 7"# } else { "" }))
            })
            .collect();
        same.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (index, other) in others.iter().enumerate() {
        assert_eq!(index % 3 == 0, *other == alone, "request {index}");
    }
    assert_ne!(sampled(r#", "seed": 8"#), alone);
}

#[test]
fn text_is_continued() {
    let served = serve(small());
    let prompt = "<|im_start|>user\nCount.<|im_end|>\n<|im_start|>assistant\n";
    let asked = json!({ "model": "learned", "prompt": prompt, "temperature": 0, "max_tokens": 50 });
    let with = |more: Value| {
        let mut asked = asked.clone();
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        asked
    };
    let answer = text(&served, &with(json!({ "return_token_ids": true, "logprobs": 2 })));
    let choice = &answer["choices"][0];
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!(COUNT), &json!("stop")));
    assert_eq!(answer["object"], "text_completion");
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["text_offset"][1], logprobs["tokens"][0].as_str().unwrap().chars().count());
    assert_eq!(logprobs["top_logprobs"][0].as_object().unwrap().len(), 2);
    // Token ids are accepted as a prompt.
    let ids = &choice["prompt_token_ids"];
    let again = text(&served, &with(json!({ "prompt": ids })));
    assert_eq!(again["choices"][0]["text"], COUNT);
    let several = text(&served, &with(json!({ "prompt": [ids, ids], "n": 2 })));
    let indices: Vec<u64> = several["choices"]
        .as_array()
        .unwrap()
        .iter()
        .map(|choice| choice["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 2, 3]);
    assert_eq!(
        several["usage"]["prompt_tokens"].as_u64(),
        answer["usage"]["prompt_tokens"].as_u64().map(|n| 2 * n)
    );
    // The default is 16 tokens.
    let short = text(&served, &json!({ "model": "endless", "prompt": "a" }));
    assert_eq!(
        (&short["usage"]["completion_tokens"], &short["choices"][0]["finish_reason"]),
        (&json!(16), &json!("length"))
    );
    let chunks = stream(&served, "/v1/completions", &with(json!({ "stream": true })).to_string());
    let streamed: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["text"].as_str()).collect();
    assert_eq!(streamed, COUNT);
}

#[test]
fn what_cannot_be_answered_is_rejected_with_the_reason() {
    let served = serve(EngineSettings { max_queued: 40, ..small() });
    let rejected = |path: &str, body: &str| {
        let (status, answer) = post(&served, path, body);
        let of = |key: &str| answer["error"][key].as_str().unwrap_or_default().to_owned();
        (status, of("code"), of("param"), of("message"))
    };
    let chat = |more: &str| rejected("/v1/chat/completions", &request(false, more));
    let (status, code, param, message) = chat(r#", "max_tokens": 5000"#);
    assert_eq!((status, code.as_str(), param.as_str()), (400, "context_length_exceeded", "messages"));
    assert!(message.contains("4096 tokens") && message.contains("5000 in the completion"), "{message}");
    let long = json!({ "model": "learned", "prompt": "a b ".repeat(4000) }).to_string();
    let (status, code, param, _) = rejected("/v1/completions", &long);
    assert_eq!((status, code.as_str(), param.as_str()), (400, "context_length_exceeded", "prompt"));
    let (status, code, _, message) = chat(r#", "model": "other""#);
    assert_eq!((status, code.as_str()), (404, "model_not_found"));
    assert!(message.contains("learned, endless, copy, gone"), "{message}");
    let (status, _, _, message) = chat(r#", "model": "endless""#);
    assert!(status == 400 && message.contains("use /v1/completions"), "{message}");
    let (status, _, _, message) = chat(r#", "model": "gone""#);
    assert!(status == 500 && message.contains("nowhere"), "{message}");
    let (status, _, param, _) = chat(r#", "tool_choice": "required""#);
    assert_eq!((status, param.as_str()), (400, "tool_choice"));
    let (status, _, _, message) = chat(r#", "n": 41"#);
    assert!(status == 429 && message.contains("more than 40"), "{message}");
    let (status, _, _, message) =
        rejected("/v1/completions", &json!({ "model": "learned", "prompt": [[9_999_999]] }).to_string());
    assert!(status == 400 && message.contains("outside the vocabulary"), "{message}");
    assert_eq!(served.engine.load(), 0);
}

#[test]
fn the_next_turn_of_a_conversation_computes_only_what_is_new() {
    let served = serve(small());
    let first = chat(&served, false, "");
    let more = format!(
        r#", "messages": [{{"role": "user", "content": "Count."}}, {{"role": "assistant", "content": "{COUNT}"}}, {{"role": "user", "content": "And now?"}}], "max_tokens": 4"#
    );
    let second = chat(&served, false, &more);
    let count = |answer: &Value, key: &str| answer["usage"][key].as_u64().unwrap();
    let said = count(&first, "total_tokens");
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    // The end token of the response was sampled but never computed.
    assert_eq!(cached, said - 1);
    assert!(count(&second, "prompt_tokens") > said);
}

#[test]
fn models_are_loaded_when_asked_for_and_make_room() {
    let served = serve(EngineSettings { max_loaded: 2, ..small() });
    let loaded = || {
        let (_, models) = ask(&served.server, "/v1/models", None, None);
        let models: Value = serde_json::from_str(&models).unwrap();
        let models = models["data"].as_array().unwrap();
        let is_loaded = |model: &&Value| model["max_model_len"] == 4096;
        models
            .iter()
            .filter(is_loaded)
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(loaded(), ["learned"]);
    let ask = |model: &str| text(&served, &json!({ "model": model, "prompt": "a", "max_tokens": 2 }));
    ask("endless");
    assert_eq!(loaded(), ["learned", "endless"]);
    ask("learned");
    ask("copy");
    assert_eq!(loaded(), ["learned", "copy"], "the one that was asked for longest ago made room");
    ask("endless");
    assert_eq!(loaded(), ["endless", "copy"]);
}

#[test]
fn an_aborted_stream_frees_its_sequences() {
    let served = serve(small());
    // This takes seconds.
    for stream in [true, false] {
        let body =
            json!({ "model": "endless", "prompt": "a", "max_tokens": 4000, "n": 100, "stream": stream })
                .to_string();
        let mut connection = TcpStream::connect(served.server.address()).unwrap();
        write!(
            connection,
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // Sequences are queued one by one. A stream may begin before the last one, and needs a
        // client that keeps reading.
        let begun = Instant::now();
        while served.engine.load() <= 50 {
            assert!(begun.elapsed() < Duration::from_mins(1), "most of it should be still to do");
            if stream {
                assert!(connection.read(&mut [0; 500]).unwrap() > 0, "the stream should not end");
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(connection);
        let begun = Instant::now();
        while served.engine.load() > 0 {
            assert!(begun.elapsed() < Duration::from_mins(1), "{} are still in work", served.engine.load());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(chat(&served, false, "")["choices"][0]["message"]["content"], COUNT);
}

#[test]
fn a_hundred_clients_share_the_batch() {
    let served = serve(small());
    std::thread::scope(|scope| {
        for index in 0..100 {
            let served = &served;
            scope.spawn(move || {
                let answer = chat(served, index % 2 == 0, "");
                let content = answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
                assert_eq!(content, if index % 2 == 0 { "I ask." } else { COUNT });
            });
        }
    });
    assert_eq!(served.engine.load(), 0);
}
