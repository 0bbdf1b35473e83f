//! Containers of instances.
//!
//! | file | subject |
//! |---|---|
//! | `commands.rs` | command lines of docker, podman and apptainer |
//! | `client.rs` | runs a command line with limits |
//! | `host.rs` | looks for engines and images, starts containers |

mod client;
mod commands;
mod host;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(super) use host::{Container, Host, Listed, Ran};

use crate::coding::CodingLimits;

/// How containers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// `docker`.
    #[default]
    Docker,
    /// `podman`.
    Podman,
    /// `apptainer`, with images as `.sif` files.
    Apptainer,
    /// The sandbox of the environment `coding`, with images as unpacked folders. Needs Linux.
    Rootfs,
}

/// Settings of the containers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SweContainer {
    /// How containers run.
    pub engine: Engine,
    /// Folder of the images of `apptainer` (`NAME.sif`) and `rootfs` (folders `NAME`). `NAME` is the
    /// image's name with `_` for `/` and `:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<PathBuf>,
    /// Image of a SWE-bench instance that names none; `{id}` is its id in lower case with `_1776_`
    /// for `__`.
    pub image: String,
    /// Folder of the repository in the container.
    pub repository: String,
    /// Leave out instances whose image is missing; if false, a missing image is an error.
    pub skip_missing: bool,
}

impl Default for SweContainer {
    fn default() -> Self {
        Self {
            engine: Engine::default(),
            images: None,
            image: super::instance::IMAGE.to_owned(),
            repository: "/testbed".to_owned(),
            skip_missing: false,
        }
    }
}

/// Limits of a container and of the commands in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SweLimits {
    /// Wall-clock seconds of an agent's command.
    #[schemars(range(min = 1, max = 3600))]
    pub wall_s: u64,
    /// Wall-clock seconds of the tests after `submit`.
    #[schemars(range(min = 1, max = 86400))]
    pub tests_s: u64,
    /// Memory in MiB.
    #[schemars(range(min = 64, max = 1048576))]
    pub memory_mib: u64,
    /// Number of processes and threads.
    #[schemars(range(min = 4, max = 32768))]
    pub processes: u32,
    /// With `rootfs`, size of new files in the repository in MiB.
    #[schemars(range(min = 8, max = 65536))]
    pub disk_mib: u64,
    /// Characters of output shown to the agent; longer output is shortened in the middle.
    #[schemars(range(min = 100, max = 1000000))]
    pub output_chars: usize,
}

impl Default for SweLimits {
    fn default() -> Self {
        Self {
            wall_s: 90,
            tests_s: 1800,
            memory_mib: 4096,
            processes: 512,
            disk_mib: 1024,
            output_chars: 10_000,
        }
    }
}

impl SweLimits {
    /// Returns the limits for the text about how a command ended. Commands have no limit of CPU time
    /// below that of wall time.
    pub(super) fn of_command(&self) -> CodingLimits {
        CodingLimits {
            wall_s: self.wall_s,
            cpu_s: self.wall_s,
            memory_mib: self.memory_mib,
            processes: self.processes,
            disk_mib: self.disk_mib,
            output_chars: self.output_chars,
        }
    }
}
