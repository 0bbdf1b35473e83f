//! Finds engines and images, and starts containers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use turnwise_core::EnvError;
use turnwise_sandbox::{Command, End, Files, Limits, Root, Sandbox, SandboxError, Stage};

use super::commands::Start;
use super::{Engine, SweContainer, SweLimits, client};
use crate::coding::NUL;

const ENGINE_WALL: Duration = Duration::from_mins(5);
/// Extra time of the engine's client program beyond the timeout of its command.
const GRACE: Duration = Duration::from_secs(15);
const MOST_OUTPUT: usize = 16 << 20;

static COUNT: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
pub(in super::super) struct Host {
    settings: SweContainer,
    limits: SweLimits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Ran {
    pub(in super::super) end: End,
    pub(in super::super) output: Vec<u8>,
}

impl Ran {
    pub(in super::super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub(in super::super) fn ok(&self) -> bool {
        self.end == End::Exited(0)
    }
}

/// A container, which is removed when this value is dropped.
#[derive(Debug)]
pub(in super::super) struct Container {
    host: Arc<Host>,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Client {
        name: String,
        image: String,
        overlay: TempDir,
    },
    /// A sandbox on a folder into which the repository was copied.
    Rootfs {
        sandbox: Sandbox,
        _copy: TempDir,
    },
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err calls")]
fn failed(error: impl ToString) -> EnvError {
    EnvError::Other(format!("the world swe: {}", error.to_string()))
}

impl Host {
    pub(in super::super) fn new(settings: SweContainer, limits: SweLimits) -> Self {
        Self { settings, limits }
    }

    pub(in super::super) fn limits(&self) -> &SweLimits {
        &self.limits
    }

    pub(in super::super) fn repository(&self) -> &str {
        &self.settings.repository
    }

    /// Returns the images that the engine has. The error explains how to install or start the
    /// engine.
    pub(in super::super) fn listed(&self) -> Result<Listed, EnvError> {
        let engine = self.settings.engine;
        let mut known = HashSet::new();
        if let Some((program, advice)) = engine.program().zip(engine.advice()) {
            let advice = format!("{advice}, or choose another `env.container.engine`");
            let ended = client::run(&engine.list(), b"", ENGINE_WALL, MOST_OUTPUT).map_err(|error| {
                failed(format!(
                    "`env.container.engine` is \"{program}\", which does not start ({error}); {advice}"
                ))
            })?;
            let output = String::from_utf8_lossy(&ended.output).into_owned();
            if ended.code != Some(0) {
                let last: String = output.trim().chars().take(300).collect();
                return Err(failed(format!(
                    "`env.container.engine` is \"{program}\", which does not work ({last}); {advice}"
                )));
            }
            known.extend(output.lines().flat_map(names).map(str::to_owned));
        }
        if matches!(engine, Engine::Apptainer | Engine::Rootfs) {
            self.file("")?;
        }
        Ok(Listed(known))
    }

    pub(in super::super) fn missing(&self, listed: &Listed, images: &[&str]) -> Vec<String> {
        let is_missing = |image: &&&str| match self.file(image) {
            Ok(Some(file)) => !file.exists(),
            _ => !listed.has(image),
        };
        images.iter().filter(is_missing).map(|image| (*image).to_owned()).collect()
    }

    pub(in super::super) fn pull(&self, image: &str) -> String {
        let file = self.file(image).ok().flatten().unwrap_or_default();
        self.settings.engine.pull(image, &file)
    }

    /// Returns the image's file, or `None` for engines whose images are not files.
    fn file(&self, image: &str) -> Result<Option<PathBuf>, EnvError> {
        let name = image.replace(['/', ':'], "_");
        let file = match self.settings.engine {
            Engine::Docker | Engine::Podman => return Ok(None),
            Engine::Apptainer => format!("{name}.sif"),
            Engine::Rootfs => name,
        };
        let images = self.settings.images.as_ref().ok_or_else(|| {
            failed("`env.container.images` is missing; set it to the folder of the images, which this engine needs")
        })?;
        Ok(Some(images.join(file)))
    }

    /// Starts a container and removes the image's `hidden` paths.
    pub(in super::super) fn start(
        self: &Arc<Self>,
        image: &str,
        hidden: &[&str],
    ) -> Result<Container, EnvError> {
        let file = self.file(image)?;
        let scratch = tempfile::Builder::new().prefix("turnwise-swe-").tempdir().map_err(failed)?;
        let engine = self.settings.engine;
        let inner = match file {
            Some(folder) if engine == Engine::Rootfs => self.rooted(&folder, hidden, scratch)?,
            file => {
                let count = COUNT.fetch_add(1, Ordering::Relaxed);
                let name = format!("turnwise-swe-{}-{count}", std::process::id());
                let image = file.map_or_else(|| image.to_owned(), |file| file.display().to_string());
                let start = self.start_of(&name, &image, scratch.path());
                let ended =
                    client::run(&engine.start(&start), b"", ENGINE_WALL, MOST_OUTPUT).map_err(failed)?;
                if ended.code != Some(0) {
                    let output: String = String::from_utf8_lossy(&ended.output).chars().take(400).collect();
                    return Err(failed(format!("the image {image} does not start: {}", output.trim_end())));
                }
                Inner::Client { name, image, overlay: scratch }
            }
        };
        let container = Container { host: Arc::clone(self), inner };
        if !hidden.is_empty() {
            // The sandbox can remove only paths in the repository; others are not mounted.
            let ran = container.run("rm -rf -- \"$@\"", hidden, b"", ENGINE_WALL.as_secs())?;
            if !ran.ok() {
                let output: String = ran.text().chars().take(400).collect();
                return Err(failed(format!(
                    "the image {image}: {} cannot be hidden from the agent: {}",
                    hidden.join(", "),
                    output.trim_end()
                )));
            }
        }
        Ok(container)
    }

    fn rooted(&self, folder: &Path, hidden: &[&str], scratch: TempDir) -> Result<Inner, EnvError> {
        let inside = PathBuf::from(&self.settings.repository);
        let relative = inside.strip_prefix("/").unwrap_or(&inside);
        let copy = scratch.path().join("repository");
        turnwise_sandbox::copy_folder(&folder.join(relative), &copy).map_err(failed)?;
        let hidden = hidden.iter().map(PathBuf::from).filter(|path| path.is_absolute()).collect();
        let writable = vec![(inside.clone(), copy)];
        let root = Root { folder: folder.to_owned(), hidden, writable, start: inside };
        let sandbox = Sandbox::in_root(&root).map_err(failed)?;
        Ok(Inner::Rootfs { sandbox, _copy: scratch })
    }

    fn start_of<'a>(&'a self, name: &'a str, image: &'a str, overlay: &'a Path) -> Start<'a> {
        Start { name, image, folder: &self.settings.repository, limits: &self.limits, overlay }
    }
}

#[derive(Debug)]
pub(in super::super) struct Listed(HashSet<String>);

impl Listed {
    /// Returns true if the engine has the image. No tag means `:latest`.
    fn has(&self, image: &str) -> bool {
        let last = image.rsplit('/').next().unwrap_or_default();
        if last.contains(':') { self.0.contains(image) } else { self.0.contains(&format!("{image}:latest")) }
    }
}

/// Returns all names of a listed image, because podman lists the image `a/b:c` as
/// `docker.io/a/b:c`.
fn names(listed: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(listed), |name| name.split_once('/').map(|(_, rest)| rest))
}

impl Container {
    /// Runs a shell script in the repository's folder. A failing script gives an `Ok` result with
    /// its exit code.
    pub(in super::super) fn run(
        &self,
        script: &str,
        arguments: &[&str],
        input: &[u8],
        seconds: u64,
    ) -> Result<Ran, EnvError> {
        let wall = Duration::from_secs(seconds);
        let (name, image, overlay) = match &self.inner {
            Inner::Client { name, image, overlay } => (name, image, overlay),
            Inner::Rootfs { sandbox, .. } => return self.run_rooted(sandbox, script, arguments, input, wall),
        };
        let start = self.host.start_of(name, image, overlay.path());
        let line = self.host.settings.engine.execute(&start, seconds, script, arguments);
        let begun = Instant::now();
        let ended = client::run(&line, input, wall + GRACE, MOST_OUTPUT).map_err(failed)?;
        let killed = ended.code.is_none_or(|code| code == 137);
        let end = match ended.code {
            _ if ended.cut => End::Output,
            _ if ended.late || killed && begun.elapsed() >= wall => End::WallTime,
            Some(code) => End::Exited(code),
            None => End::Signalled(9),
        };
        Ok(Ran { end, output: ended.output })
    }

    fn run_rooted(
        &self,
        sandbox: &Sandbox,
        script: &str,
        arguments: &[&str],
        input: &[u8],
        wall: Duration,
    ) -> Result<Ran, EnvError> {
        let limits = &self.host.limits;
        let mut command =
            Command::new("/bin/sh").arg("-c").arg(format!("exec < /work/input\n{script}")).arg("sh");
        for argument in arguments {
            command = command.arg(*argument);
        }
        let command = command
            .variable("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .variable("HOME", "/tmp");
        let files = Files::from([("input".to_owned(), input.to_vec())]);
        let limits = Limits {
            wall,
            // So high that the wall time always ends it first.
            cpu: wall.saturating_mul(64),
            memory: limits.memory_mib << 20,
            processes: limits.processes,
            output: MOST_OUTPUT,
            disk: limits.disk_mib << 20,
            files: 65_536,
        };
        match sandbox.run(&command, &files, &limits) {
            Err(SandboxError::Kernel { stage: Stage::Files, .. }) => {
                Ok(Ran { end: End::Disk, output: Vec::new() })
            }
            Err(SandboxError::Nul(_)) => Ok(Ran { end: End::Exited(2), output: NUL.as_bytes().to_vec() }),
            other => other.map(|outcome| Ran { end: outcome.end, output: outcome.output }).map_err(failed),
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if let Inner::Client { name, .. } = &self.inner {
            // In `drop`, nobody can handle the error.
            let _ = client::run(&self.host.settings.engine.stop(name), b"", ENGINE_WALL, MOST_OUTPUT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_found_by_their_names_with_and_without_a_registry() {
        let lines = ["docker.io/a/b:c", "localhost:5000/d:latest", "e:1"];
        let listed = Listed(lines.into_iter().flat_map(names).map(str::to_owned).collect());
        for image in ["a/b:c", "docker.io/a/b:c", "d", "localhost:5000/d", "e:1"] {
            assert!(listed.has(image), "{image}");
        }
        for image in ["a/b", "a/b:d", "o/a/b:c", "e", "x/e:1"] {
            assert!(!listed.has(image), "{image}");
        }
    }
}
