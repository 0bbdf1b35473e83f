//! Tests with Python's `openai` package as the client.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use turnwise_serve::engine::{EngineServer, EngineSettings, ServedModel};
use turnwise_serve::{Limits, Server};

use crate::model::{serve, write};

#[test]
fn the_client_of_openai_gets_what_it_asks_for() {
    let python = || {
        let mut command =
            Command::new(std::env::var("TURNWISE_PYTHON").unwrap_or_else(|_| "python3".to_owned()));
        if let Ok(folder) = std::env::var("TURNWISE_OPENAI") {
            command.env("PYTHONPATH", folder);
        }
        command
    };
    let has_client = python().args(["-c", "import openai"]).output();
    if !has_client.is_ok_and(|output| output.status.success()) {
        println!(
            "skipped: Python has no package openai: set TURNWISE_OPENAI to a folder with it, or TURNWISE_PYTHON"
        );
        return;
    }
    let served = serve(EngineSettings { lanes: 2, max_num_seqs: 16, ..EngineSettings::default() });
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let models = vec![ServedModel { name: "learned".into(), path: folder.path().join("learned") }];
    let settings = EngineSettings { key: Some("secret".into()), lanes: 1, ..EngineSettings::default() };
    let engine = Arc::new(EngineServer::open(models, settings).unwrap());
    let keyed = Server::start(SocketAddr::from(([127, 0, 0, 1], 0)), engine, Limits::default()).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openai_client.py");
    let output =
        python().args([script, &served.server.base_url(), &keyed.base_url(), "secret"]).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("all answers as expected"), "{out}\n{error}");
    println!("{out}");
}
