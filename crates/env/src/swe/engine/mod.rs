//! Containers of instances.

mod client;
mod commands;
mod host;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(super) use host::{Container, Host, Listed, Ran};

use crate::coding::CodingLimits;

/// Container engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// `docker`.
    #[default]
    Docker,
    /// `podman`.
    Podman,
    /// `apptainer`, with `.sif` images.
    Apptainer,
    /// No engine: the sandbox of the environment `coding` on folders with unpacked images (Linux
    /// only).
    Rootfs,
}

/// Container settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SweContainer {
    /// Container engine.
    pub engine: Engine,
    /// Folder of the images, for `apptainer` (files `NAME.sif`) and `rootfs` (folders `NAME`).
    /// `NAME` is the image's name with each `/` and `:` replaced by `_`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<PathBuf>,
    /// Image for SWE-bench instances whose record names none. `{id}` is the lower-case instance id
    /// with `__` replaced by `_1776_`.
    pub image: String,
    /// Repository folder in the container.
    pub repository: String,
    /// Whether to skip instances whose image is missing; if false, a missing image is an error.
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

/// Limits of a container and its commands.
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
    /// Maximum size of new files in the repository, in MiB (`rootfs` only).
    #[schemars(range(min = 8, max = 65536))]
    pub disk_mib: u64,
    /// Characters of output shown to the agent; the middle of longer output is cut.
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
    /// Returns the limits with which a command's output is formatted.
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
