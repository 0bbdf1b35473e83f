//! Registries of the environments and methods that the program can use by name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use turnwise_env::registry::Registry;
use turnwise_train::{Methods, RunParts};

use crate::worlds;

/// Environments and methods that the program can use by name.
///
/// The default has the built-in ones; see [`crate::run`] for how to add your own.
#[derive(Clone)]
pub struct Registries {
    /// Environments by their `env.kind`.
    pub worlds: Registry,
    /// Estimators, refinements, loss terms and presets.
    pub methods: Methods,
}

impl Default for Registries {
    fn default() -> Self {
        Self { worlds: worlds::builtin(), methods: Methods::builtin() }
    }
}

impl Registries {
    /// Returns the registries and policies needed to start or resume a run.
    pub fn parts(&self) -> RunParts {
        let Self { worlds, methods } = self.clone();
        RunParts { worlds, methods, policies: worlds::policies(), ignore_memory: false }
    }
}

#[derive(Clone, Default)]
struct Program {
    registries: Registries,
    /// Command that starts this program again; empty for the current executable.
    command: Vec<OsString>,
}

/// Set by [`install`]; until then, defaults are used.
static PROGRAM: RwLock<Option<Program>> = RwLock::new(None);

pub(crate) fn install(registries: Registries, command: Vec<OsString>) {
    *PROGRAM.write().unwrap_or_else(PoisonError::into_inner) = Some(Program { registries, command });
}

fn program() -> Program {
    PROGRAM.read().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

pub(crate) fn registries() -> Registries {
    program().registries
}

pub(crate) fn methods() -> Methods {
    registries().methods
}

/// Returns the executable that starts this program again, and its first arguments.
pub(crate) fn executable() -> std::io::Result<(PathBuf, Vec<OsString>)> {
    let mut command = program().command.into_iter();
    match command.next() {
        Some(first) => Ok((first.into(), command.collect())),
        None => Ok((std::env::current_exe()?, Vec::new())),
    }
}
