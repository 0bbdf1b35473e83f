use std::net::ToSocketAddrs as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, bail};
use turnwise_env::parse::CallFormat;
use turnwise_model::Device;
use turnwise_policy::run_folder;
use turnwise_serve::engine::{EngineServer, EngineSettings, ServedModel};
use turnwise_serve::{Limits, Server};

use super::{KEY_VARIABLE, ServeArgs, ToolCalls};
use crate::commands::chat::DeviceName;
use crate::console;
use crate::ui;

const GRACE: Duration = Duration::from_secs(10);

pub(super) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let stop = ui::interruptions()?;
    let mut addresses = args
        .address
        .to_socket_addrs()
        .with_context(|| format!("--address {}: give HOST:PORT, such as 127.0.0.1:8000", args.address))?;
    let address = addresses.next().with_context(|| format!("--address {}: no such host", args.address))?;
    let key = key(args)?;
    let is_loopback = address.ip().is_loopback();
    if !is_loopback && !args.allow_remote {
        bail!(
            "--address {}: other machines could reach it and use the model; allow that with --allow-remote, or use 127.0.0.1",
            args.address
        );
    }
    let models = models(args)?;
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    let settings = settings(args, key.clone())?;
    let engine = Arc::new(EngineServer::open(models, settings)?);
    let limits = Limits {
        connections: args.connections,
        loopback_hosts_only: is_loopback && key.is_none(),
        ..Limits::default()
    };
    let server = Server::start(address, Arc::clone(&engine), limits)?;
    if !is_loopback && key.is_none() {
        console::say(&format!(
            "warning: everybody who reaches {} can use the model: set {KEY_VARIABLE} or --api-key",
            server.address()
        ));
    }
    ui::print(&format!("Serving {} at {} (Ctrl-C ends it).", names.join(", "), server.base_url()));
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(50));
    }
    if engine.load() > 0 {
        console::say(&format!(
            "ending: requests in work have {} s; Ctrl-C once more ends at once",
            GRACE.as_secs()
        ));
    }
    server.stop(GRACE);
    Ok(ExitCode::SUCCESS)
}

fn key(args: &ServeArgs) -> anyhow::Result<Option<String>> {
    let (key, from) = match (&args.api_key, std::env::var(KEY_VARIABLE)) {
        (Some(key), _) => (key.clone(), "--api-key"),
        (None, Ok(key)) => (key, KEY_VARIABLE),
        (None, Err(std::env::VarError::NotPresent)) => return Ok(None),
        (None, Err(error)) => return Err(error).context(KEY_VARIABLE),
    };
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{from}: a key has at least one character, and only letters, digits and signs of ASCII");
    }
    Ok(Some(key))
}

fn settings(args: &ServeArgs, key: Option<String>) -> anyhow::Result<EngineSettings> {
    let counts = [
        ("--max-num-seqs", args.max_num_seqs),
        ("--max-queued", args.max_queued),
        ("--max-loaded", args.max_loaded),
        ("--connections", args.connections),
        ("--threads", args.threads.unwrap_or(1)),
    ];
    if let Some((option, _)) = counts.iter().find(|(_, count)| *count == 0) {
        bail!("{option} 0: give at least 1");
    }
    let defaults = EngineSettings::default();
    let device = if args.device == DeviceName::Cuda { Device::Cuda } else { Device::Cpu };
    // A GPU uses one engine with large batches.
    let lanes = if device == Device::Cuda { 1 } else { defaults.lanes };
    Ok(EngineSettings {
        max_num_seqs: args.max_num_seqs,
        max_queued: args.max_queued,
        max_model_len: args.max_model_len,
        max_loaded: args.max_loaded,
        lanes: args.threads.unwrap_or(lanes),
        device,
        calls: args.tool_calls.map(|format| match format {
            ToolCalls::Hermes => CallFormat::Hermes,
            ToolCalls::Llama => CallFormat::Llama,
            ToolCalls::Python => CallFormat::Python,
        }),
        key,
        ..defaults
    })
}

fn models(args: &ServeArgs) -> anyhow::Result<Vec<ServedModel>> {
    let name = args.name.clone().unwrap_or_else(|| name_of(&args.model));
    let mut models = vec![ServedModel { name: name.clone(), path: args.model.clone() }];
    if run_folder::is_run(&args.model) {
        for checkpoint in run_folder::whole_checkpoints(&args.model)? {
            let label = checkpoint.file_name().unwrap_or_default().to_string_lossy().into_owned();
            models.push(ServedModel { name: format!("{name}@{label}"), path: checkpoint });
        }
    }
    for text in &args.adapter {
        let (name, path) =
            text.split_once('=')
                .filter(|(name, path)| !name.is_empty() && !path.is_empty())
                .with_context(|| format!("--adapter {text}: give NAME=PATH, such as mine=runs/mine"))?;
        models.push(ServedModel { name: name.to_owned(), path: PathBuf::from(path) });
    }
    Ok(models)
}

fn name_of(path: &Path) -> String {
    let folder_name = |path: &Path| {
        let path = path.canonicalize().ok();
        path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned())
    };
    let whole = || path.display().to_string();
    if run_folder::is_run(path) {
        return folder_name(path).unwrap_or_else(whole);
    }
    match (run_folder::enclosing_run(path), run_folder::checkpoint_label(path)) {
        (Some(run), Some(label)) => format!("{}@{label}", folder_name(&run).unwrap_or_else(whole)),
        _ => folder_name(path).unwrap_or_else(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_named_by_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("household");
        let checkpoint = run.join("checkpoints/step-000012");
        std::fs::create_dir_all(&checkpoint).unwrap();
        for file in ["config.toml", "panel.json"] {
            std::fs::write(run.join(file), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("model")).unwrap();
        assert_eq!(name_of(&run), "household");
        assert_eq!(name_of(&checkpoint), "household@step-000012");
        assert_eq!(name_of(&folder.path().join("model")), "model");
        assert_eq!(name_of(Path::new("org/name@main")), "org/name@main");
    }
}
