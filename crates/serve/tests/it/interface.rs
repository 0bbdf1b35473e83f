//! Tests of routes, bodies and errors as OpenAI clients see them.

use serde_json::{Value, json};
use turnwise_serve::Limits;
use turnwise_serve::openai::{ChatRequest, TextPrompt, TextRequest, ToolChoice};

use crate::client::{ask, body, chat, start};

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn chats_models_and_other_paths_are_answered() {
    let (server, _gone) = start(Limits::default(), None);
    let (status, text) = chat(&server, "hello", "");
    let answer = json_of(&text);
    assert_eq!((status, &answer["object"], &answer["model"]), (200, &json!("chat.completion"), &json!("m")));
    let message = json!({ "role": "assistant", "content": "hello", "refusal": null });
    assert_eq!(answer["choices"][0]["message"], message);
    assert_eq!(answer["usage"]["total_tokens"], 5);
    assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 1);

    let (status, text) = ask(&server, "/v1/models", None, None);
    let models = json_of(&text);
    assert_eq!(
        (status, &models["object"], &models["data"][0]["id"]),
        (200, &json!("list"), &json!("org/scripted"))
    );
    let (status, text) = ask(&server, "/v1/models/org/scripted", None, None);
    assert_eq!((status, &json_of(&text)["object"]), (200, &json!("model")));
    let (status, text) = ask(&server, "/v1/models/other", None, None);
    assert_eq!((status, &json_of(&text)["error"]["code"]), (404, &json!("model_not_found")));
    assert_eq!(ask(&server, "/health", None, None).0, 200);

    let (status, text) = ask(&server, "/v1/reward", Some("{}"), Some("episode-7"));
    assert_eq!((status, json_of(&text)), (200, json!({ "key": "episode-7", "bytes": 2 })));
    for (path, body, expected) in
        [("/v1/other", Some("{}"), 404), ("/v1", None, 404), ("/v1/chat/completions", None, 405)]
    {
        let (status, text) = ask(&server, path, body, None);
        assert_eq!((status, &json_of(&text)["error"]["type"]), (expected, &json!("invalid_request_error")));
    }
    let (status, text) = ask(&server, "/v1/completions", Some(r#"{"model": "m", "prompt": "a"}"#), None);
    assert!(status == 404 && text.contains("use /v1/chat/completions"), "{text}");
}

#[test]
fn an_answer_is_streamed_whether_it_comes_whole_or_in_chunks() {
    let (server, _gone) = start(Limits::default(), None);
    let events = |word: &str, more: &str| {
        let (status, text) = chat(&server, word, more);
        assert_eq!(status, 200, "{text}");
        let events =
            text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap().to_owned());
        events.collect::<Vec<String>>()
    };
    let stream = r#", "stream": true"#;
    let whole = events("hello", r#", "stream": true, "stream_options": {"include_usage": true}"#);
    assert_eq!(whole.len(), 3);
    let first = json_of(&whole[0]);
    assert_eq!(first["object"], "chat.completion.chunk");
    assert_eq!(first["choices"][0]["delta"], json!({ "role": "assistant", "content": "hello" }));
    assert_eq!(first["choices"][0]["finish_reason"], "stop");
    let usage = json_of(&whole[1]);
    assert_eq!((&usage["choices"], &usage["usage"]["completion_tokens"]), (&json!([]), &json!(2)));
    assert_eq!(whole[2], "[DONE]");
    assert_eq!(events("hello", stream).len(), 2, "usage is sent if asked for");

    let chunks = events("two", stream);
    let content = |event: &str| json_of(event)["choices"][0]["delta"]["content"].clone();
    assert_eq!((content(&chunks[0]), content(&chunks[1])), (json!("a"), json!("b")));
    assert_eq!(chunks[2..], ["[DONE]"]);

    let broken = events("lose later", stream);
    assert_eq!(json_of(&broken[1])["error"]["type"], "server_error");
    assert_eq!(broken.len(), 2, "a stream that broke has no end");
}

#[test]
fn an_answer_that_is_lost_is_an_error_of_the_server() {
    let (server, _gone) = start(Limits::default(), None);
    for word in ["lose", "panic"] {
        let (status, text) = chat(&server, word, "");
        assert_eq!((status, &json_of(&text)["error"]["type"]), (500, &json!("server_error")), "{word}");
    }
    assert_eq!(chat(&server, "still", "").0, 200);
}

#[test]
fn a_key_is_needed_where_there_is_one() {
    let (server, _gone) = start(Limits::default(), Some("secret"));
    for (key, expected) in [(None, 401), (Some("Secret"), 401), (Some("secret"), 200)] {
        for (path, body) in [
            ("/v1/models", None),
            ("/v1/chat/completions", Some(body("a", ""))),
            ("/v1/reward", Some("{}".to_owned())),
        ] {
            let (status, text) = ask(&server, path, body.as_deref(), key);
            assert_eq!(status, expected, "{path} {key:?}");
            assert!(status == 200 || json_of(&text)["error"]["code"] == "invalid_api_key", "{text}");
        }
    }
}

/// Rejected requests, with the field that the error names.
#[test]
fn a_field_that_is_wrong_or_not_supported_is_named() {
    let rejected = |more: &str| {
        let error = ChatRequest::read(body("a", more).as_bytes()).unwrap_err();
        assert_eq!(error.status, 400);
        (error.param.clone().unwrap(), error.to_string())
    };
    for (more, param, words) in [
        (r#", "temperature": 3"#, "temperature", "from 0 to 2"),
        (r#", "temperature": "hot""#, "temperature", "expected f64"),
        (r#", "top_p": -0.5"#, "top_p", "from 0 to 1"),
        (r#", "n": 0"#, "n", "from 1 to 128"),
        (r#", "max_tokens": -1"#, "max_tokens", "invalid value"),
        (r#", "stop": [""]"#, "stop", "none of them empty"),
        (r#", "top_logprobs": 3"#, "top_logprobs", "needs `logprobs`"),
        (r#", "logprobs": true, "top_logprobs": 21"#, "top_logprobs", "to 20"),
        (r#", "frequency_penalty": 0.5"#, "frequency_penalty", "not supported"),
        (r#", "logit_bias": {"5": 1}"#, "logit_bias", "not supported"),
        (r#", "response_format": {"type": "json_object"}"#, "response_format", "not supported"),
        (r#", "reasoning_effort": "low""#, "reasoning_effort", "not supported"),
        (r#", "nonsense": 1"#, "nonsense", "not supported"),
        (r#", "stream_options": {}"#, "stream_options", "needs `stream`"),
        (r#", "tool_choice": "always""#, "tool_choice", "required"),
        (r#", "tools": [{"type": "function"}]"#, "tools", "missing field `name`"),
        (r#", "chat_template_kwargs": {"x": 1}"#, "chat_template_kwargs", "unknown field `x`"),
        (r#", "messages": []"#, "messages", "empty"),
        (r#", "messages": [{"role": "user"}]"#, "messages[0].content", "missing"),
        (r#", "messages": [{"role": "boss", "content": "a"}]"#, "messages[0].role", "assistant, tool"),
        (r#", "messages": [{"role": "tool", "content": "a"}]"#, "messages[0].tool_call_id", "missing"),
        (r#", "messages": [{"role": "user", "content": "a", "x": 1}]"#, "messages[0].x", "not supported"),
        (
            r#", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]"#,
            "messages[0].content[0]",
            "missing field `url`",
        ),
        (
            r#", "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}]"#,
            "messages[0].content[1]",
            "\"input_audio\" are not supported",
        ),
    ] {
        let (named, message) = rejected(more);
        assert_eq!(named, param, "{more}: {message}");
        assert!(message.contains(words), "{more}: {message}");
    }
    let error = |body: &str| ChatRequest::read(body.as_bytes()).unwrap_err().to_string();
    assert!(error(r#"{"messages": [{"role": "user", "content": "a"}]}"#).contains("`model` is missing"));
    assert!(error("[]").contains("not a JSON object"));
    assert!(error("{").contains("not a JSON object"));
    let text = TextRequest::read(br#"{"model": "m", "prompt": "a", "echo": true}"#).unwrap_err();
    assert_eq!(text.param.unwrap(), "echo");
}

#[test]
fn fields_without_effect_and_those_of_clients_are_accepted() {
    let request = ChatRequest::read(
        br#"{"model": "m", "temperature": 0.5, "max_tokens": 9, "max_completion_tokens": 7, "stop": "x", "seed": -3,
             "frequency_penalty": 0, "logit_bias": null, "response_format": {"type": "text"}, "user": "me",
             "metadata": {"a": 1}, "service_tier": "auto", "store": false, "top_k": -1, "parallel_tool_calls": true,
             "tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 2}}}],
             "tool_choice": {"type": "function", "function": {"name": "f"}},
             "chat_template_kwargs": {"enable_thinking": false}, "return_token_ids": true, "logprobs": true,
             "messages": [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                          {"role": "assistant", "content": null, "refusal": null, "annotations": [], "audio": null,
                           "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                          {"role": "tool", "tool_call_id": "c", "content": ""}]}"#,
    )
    .unwrap();
    assert_eq!(request.messages[0].content.as_deref(), Some("a\nb"));
    assert_eq!(request.messages[1].tool_calls[0].function.name, "f");
    assert_eq!(request.tool_choice, ToolChoice::Function("f".into()));
    assert!(request.tools[0].json().contains(r#"{"b":1,"a":2}"#), "keys keep their order");
    assert_eq!(request.thinking, Some(false));
    let sampling = &request.sampling;
    assert_eq!((sampling.max_tokens, sampling.seed, sampling.top_k), (Some(7), Some(-3), 0));
    assert!(sampling.logprobs && sampling.return_token_ids && sampling.stop == ["x"]);

    let prompts = |prompt: &str| {
        let body = format!(r#"{{"model": "m", "prompt": {prompt}, "logprobs": 2}}"#);
        TextRequest::read(body.as_bytes()).unwrap().prompts
    };
    let text = |text: &str| TextPrompt::Text(text.into());
    assert_eq!(prompts(r#""a""#), [text("a")]);
    assert_eq!(prompts(r#"["a", "b"]"#), [text("a"), text("b")]);
    assert_eq!(prompts("[1, 2]"), [TextPrompt::Tokens(vec![1, 2])]);
    assert_eq!(prompts("[[1], [2]]"), [TextPrompt::Tokens(vec![1]), TextPrompt::Tokens(vec![2])]);
}
