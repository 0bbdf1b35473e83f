//! Replies of a model to a conversation.

use std::net::TcpListener;

use serde_json::json;
use turnwise_decompose::{ChatError, ChatModel, ChatSettings};

use crate::double::{Reply, Server, answer};

fn settings(endpoint: &str) -> ChatSettings {
    ChatSettings {
        endpoint: endpoint.into(),
        model: "small".into(),
        api_key_env: String::new(),
        temperature: 0.5,
        max_tokens: 64,
        timeout_s: 20.0,
        retries: 1,
    }
}

const TALK: [(&str, &str); 3] = [("system", "You are Ann."), ("user", "Hi!"), ("assistant", "Hello.")];

#[test]
fn a_conversation_is_sent_as_it_is_and_a_failure_is_repeated() {
    let server = Server::start(vec![Reply::Silence], answer("Good day."));
    let model = ChatModel::new(settings(&server.endpoint)).unwrap();
    assert_eq!(model.reply(&TALK).unwrap(), "Good day.");
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    let expected = json!({
        "model": "small", "temperature": 0.5, "max_tokens": 64, "stream": false,
        "messages": [
            {"role": "system", "content": "You are Ann."}, {"role": "user", "content": "Hi!"},
            {"role": "assistant", "content": "Hello."},
        ],
    });
    assert_eq!(requests[1].body, expected);
}

#[test]
fn what_stays_without_a_reply_says_whether_to_try_again() {
    let fails =
        |server: &Server| match ChatModel::new(settings(&server.endpoint)).unwrap().reply(&TALK).unwrap_err()
        {
            ChatError::NoReply { reason, is_transient, .. } => (reason, is_transient),
            ChatError::Setting { .. } => unreachable!("the settings are fine"),
        };
    let server = Server::start(vec![], Reply::Status(404, "no such model".into()));
    let (reason, is_transient) = fails(&server);
    assert!(reason.contains("no such model") && !is_transient && server.requests().len() == 1);
    let server = Server::start(vec![], answer(" "));
    let (reason, is_transient) = fails(&server);
    assert!(reason.contains("raise max_tokens") && is_transient && server.requests().len() == 2);
}

#[test]
fn settings_that_cannot_work_are_named() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let good = settings(&format!("http://{address}/v1"));
    for (bad, key) in [
        (ChatSettings { endpoint: "localhost:8000".into(), ..good.clone() }, "endpoint"),
        (ChatSettings { model: String::new(), ..good.clone() }, "model"),
        (ChatSettings { api_key_env: "TURNWISE_NO_SUCH_KEY".into(), ..good.clone() }, "api_key_env"),
    ] {
        let error = ChatModel::new(bad).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key}: ")), "{error}");
    }
}
