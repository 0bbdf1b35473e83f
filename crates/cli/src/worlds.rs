use std::path::Path;
use std::sync::Arc;

use turnwise_core::EnvError;
use turnwise_decompose::{ChatError, ChatModel, ChatSettings};
use turnwise_env::registry::Registry;
use turnwise_env::search::{RetrieverSettings, SearchKind, TableReader};
use turnwise_env::swe::SweKind;
use turnwise_env::tau2::Tau2Kind;
use turnwise_env::tau2::user::{Chat, Tau2User};
use turnwise_retrieval::{RetrievalError, Retriever};
use turnwise_retrieval_service::{RetrievalConfig, open};
use turnwise_train::config::{self, Config, ConfigPurpose, ConfigSource};
use turnwise_train::run::source::PolicySource;
use turnwise_train::{Registries, Run, RunBuilder, TrainError};

use crate::registries::registries;

pub(crate) fn registry() -> Registry {
    registries().environments
}

/// Returns the built-in, remote (feature `remote`) and agent (feature `serve`) environments.
pub(crate) fn builtin() -> Registry {
    let tables: TableReader =
        Arc::new(|path| turnwise_trajectory_io::parquet_rows(path).map_err(|error| error.to_string()));
    let search = SearchKind::default().with_tables(Arc::clone(&tables));
    let worlds = Registry::builtin()
        .with(search.with_retrievers(Arc::new(retriever)))
        .with(SweKind::default().with_tables(tables))
        .with(Tau2Kind::default().with_chat(Arc::new(chat)));
    #[cfg(feature = "remote")]
    let worlds = turnwise_remote::environments::with_environments(worlds);
    #[cfg(feature = "serve")]
    let worlds = turnwise_agent::with_agents(worlds);
    worlds
}

/// Opens a retriever that the search environment does not implement itself: vectors, hybrids,
/// servers.
fn retriever(settings: &RetrieverSettings) -> Result<Arc<dyn Retriever>, RetrievalError> {
    let config = RetrievalConfig {
        kind: settings.kind,
        index: settings.index.clone().unwrap_or_default(),
        encoder: settings.model.clone().unwrap_or_default(),
        approximate: settings.approximate,
        servers: settings.url.iter().flat_map(|urls| urls.split_whitespace()).map(str::to_owned).collect(),
        // Naming a server permits requests to it.
        allow_remote: true,
        timeout_s: settings.timeout_s,
        retries: settings.retries,
        // The search environment caches answers itself.
        cache: 0,
        ..RetrievalConfig::default()
    };
    Ok(open(&config)?)
}

fn chat(user: &Tau2User) -> Result<Chat, EnvError> {
    let settings = ChatSettings {
        endpoint: user.endpoint.clone(),
        model: user.model.clone(),
        api_key_env: user.api_key_env.clone(),
        temperature: user.temperature,
        max_tokens: user.max_tokens,
        timeout_s: user.timeout_s,
        retries: user.retries,
    };
    let failed = |error: &ChatError| match error {
        ChatError::Setting { .. } => EnvError::Other(format!("[env] user.{error}")),
        ChatError::NoReply { is_transient: true, .. } => EnvError::Transient(format!("[env] user: {error}")),
        ChatError::NoReply { .. } => EnvError::Other(format!("[env] user: {error}")),
    };
    let model = ChatModel::new(settings).map_err(|error| failed(&error))?;
    Ok(Arc::new(move |messages| model.reply(messages).map_err(|error| failed(&error))))
}

pub(crate) fn run(config: Config) -> RunBuilder {
    let Registries { environments, methods } = registries();
    Run::builder(config).environments(environments).methods(methods).policies(policies())
}

fn policies() -> Arc<dyn PolicySource> {
    #[cfg(feature = "remote")]
    return Arc::new(turnwise_remote::engines::EngineSource::over(
        turnwise_remote::tinker::TinkerSource::default(),
    ));
    #[cfg(not(feature = "remote"))]
    Arc::new(turnwise_train::run::source::NativeSource)
}

pub(crate) fn source(source: ConfigSource) -> ConfigSource {
    ConfigSource { registries: registries(), ..source }
}

pub(crate) fn load(source: ConfigSource) -> Result<Config, TrainError> {
    config::load(&self::source(source))
}

/// Loads the part of a config that is needed to play an environment.
pub(crate) fn load_to_play(source: ConfigSource) -> Result<Config, TrainError> {
    load(ConfigSource { purpose: ConfigPurpose::Play, ..source })
}

pub(crate) fn load_of_run(root: &Path) -> Result<Config, TrainError> {
    load(ConfigSource::of_run(root))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use turnwise_retrieval::RetrieverKind;

    use super::*;

    #[cfg(feature = "remote")]
    #[test]
    fn configs_of_environments_behind_servers_are_sound() {
        const NAMES: [&str; 5] = ["openenv", "mcp", "appworld", "appworld-salt-grpo", "appworld-salt-rloo"];
        for name in NAMES {
            let file = format!("{}/../../configs/remote/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let config = load(ConfigSource { files: vec![file.into()], ..ConfigSource::default() }).unwrap();
            assert_eq!(Some(config.env.kind.as_str()), name.split('-').next());
        }
        let wrong = vec!["env.kind=\"openenv\"".to_owned(), "env.urls=7".to_owned()];
        let error =
            load(ConfigSource { overrides: wrong, ..ConfigSource::default() }).unwrap_err().to_string();
        assert!(error.contains("env.urls"), "{error}");
    }

    #[cfg(feature = "serve")]
    #[test]
    fn configs_of_agents_are_sound() {
        for name in ["goods", "guess"] {
            let file = format!("{}/../../examples/agents/{name}.toml", env!("CARGO_MANIFEST_DIR"));
            let config = load(ConfigSource { files: vec![file.into()], ..ConfigSource::default() }).unwrap();
            assert_eq!(config.env.kind, "agent");
        }
        let wrong = vec!["env.kind=\"agent\"".to_owned(), "env.reuse=true".to_owned()];
        let error =
            load(ConfigSource { overrides: wrong, ..ConfigSource::default() }).unwrap_err().to_string();
        assert!(error.contains("env.command") && error.contains("env.tasks"), "{error}");
    }

    #[test]
    fn servers_vectors_and_hybrids_are_opened() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://127.0.0.1:9/retrieve http://{}/retrieve", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).unwrap();
            let body = r#"{"result":[[{"document":{"id":"7","contents":"x"},"score":1.0}]]}"#;
            write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let http =
            RetrieverSettings { kind: RetrieverKind::Http, url: Some(url), ..RetrieverSettings::default() };
        assert_eq!(retriever(&http).unwrap().search(&["who?"], 3).unwrap()[0][0].passage.id, "7");

        let refused = |settings: RetrieverSettings| match retriever(&settings) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{settings:?} was opened"),
        };
        let nowhere = RetrieverSettings { url: Some("node7:8000".into()), ..http };
        assert!(refused(nowhere).contains("http://127.0.0.1:8000/retrieve"));
        for kind in [RetrieverKind::Dense, RetrieverKind::Hybrid] {
            let folder = tempfile::tempdir().unwrap();
            let settings = RetrieverSettings {
                kind,
                index: Some(folder.path().to_owned()),
                model: Some(folder.path().join("e5")),
                ..RetrieverSettings::default()
            };
            let error = refused(settings);
            assert!(error.contains(&folder.path().display().to_string()), "{error}");
        }
    }
}
