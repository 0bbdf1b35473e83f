//! The worlds of this program: those of `turnwise-env`, with what other crates can read and open for them.

use std::path::Path;
use std::sync::Arc;

use turnwise_env::registry::Registry;
use turnwise_env::search::SearchKind;
use turnwise_train::config::{self, Config, ConfigSource};
use turnwise_train::{Methods, RunParts, TrainError};

/// The registry.
pub(crate) fn registry() -> Registry {
    let search = SearchKind::default().with_tables(Arc::new(|path| {
        turnwise_trajectory_io::parquet_rows(path).map_err(|error| error.to_string())
    }));
    Registry::builtin().with(search)
}

/// What runs are started and resumed with.
pub(crate) fn parts() -> RunParts {
    RunParts { worlds: registry(), ..RunParts::default() }
}

/// Reads, merges and checks a config.
pub(crate) fn load(source: &ConfigSource) -> Result<Config, TrainError> {
    config::load_with(source, &registry(), &Methods::builtin())
}

/// Reads the config of a run directory as it was resolved.
pub(crate) fn load_resolved(path: &Path) -> Result<Config, TrainError> {
    config::load_resolved_with(path, &registry(), &Methods::builtin())
}
