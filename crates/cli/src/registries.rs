//! Environments and methods that the program knows by name.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use turnwise_train::{Methods, Registries};

use crate::worlds;

/// Returns the program's environments and methods, including those that the build's features add.
/// Add your own environments and methods before you call [`crate::run`].
pub fn builtin() -> Registries {
    Registries { environments: worlds::builtin(), methods: Methods::builtin() }
}

#[derive(Clone)]
struct Program {
    registries: Registries,
    /// Command that starts this program again; empty for the current executable.
    command: Vec<OsString>,
}

impl Default for Program {
    fn default() -> Self {
        Self { registries: builtin(), command: Vec::new() }
    }
}

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

pub(crate) fn executable() -> std::io::Result<(PathBuf, Vec<OsString>)> {
    let mut command = program().command.into_iter();
    match command.next() {
        Some(first) => Ok((first.into(), command.collect())),
        None => Ok((std::env::current_exe()?, Vec::new())),
    }
}
