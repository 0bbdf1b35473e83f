//! Command lines of docker, podman and apptainer.

use std::path::Path;

use super::{Engine, SweLimits};

/// Seconds after which a container ends by itself, in case nothing removed it.
const LIFE_S: u32 = 86_400;

#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) name: &'a str,
    /// Image name, or the path of an image file.
    pub(super) image: &'a str,
    pub(super) folder: &'a str,
    pub(super) limits: &'a SweLimits,
    /// Folder for the container's changes (apptainer).
    pub(super) overlay: &'a Path,
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Engine {
    pub(super) fn program(self) -> Option<&'static str> {
        match self {
            Self::Docker => Some("docker"),
            Self::Podman => Some("podman"),
            Self::Apptainer => Some("apptainer"),
            Self::Rootfs => None,
        }
    }

    pub(super) fn advice(self) -> Option<&'static str> {
        match self {
            Self::Docker => {
                Some("install docker (https://docs.docker.com/engine/install) and start its daemon")
            }
            Self::Podman => Some("install podman (https://podman.io)"),
            Self::Apptainer => Some("install apptainer (https://apptainer.org)"),
            Self::Rootfs => None,
        }
    }

    /// Returns the command that prints a line `NAME:TAG` for each image, and fails if the engine is
    /// not running. For apptainer, the command prints no images, because its images are files.
    pub(super) fn list(self) -> Vec<String> {
        match self.program() {
            Some(program) if self != Self::Apptainer => {
                words(&[program, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"])
            }
            Some(program) => words(&[program, "--version"]),
            None => Vec::new(),
        }
    }

    pub(super) fn pull(self, image: &str, file: &Path) -> String {
        let file = file.display();
        match self {
            Self::Docker | Self::Podman => format!("{} pull {image}", self.program().unwrap_or_default()),
            Self::Apptainer => format!("apptainer pull {file} docker://{image}"),
            Self::Rootfs => format!(
                "mkdir -p {file} && docker export $(docker create {image}) | tar -x -C {file} && chmod -R u+rwX,a+rX {file}"
            ),
        }
    }

    /// Returns the command that starts a container without network access and without running the
    /// image's entry point.
    pub(super) fn start(self, start: &Start<'_>) -> Vec<String> {
        let Start { name, image, folder, limits, overlay } = start;
        let Some(program) = self.program() else { return Vec::new() };
        if self == Self::Apptainer {
            let mut line = words(&[
                program,
                "instance",
                "start",
                "--containall",
                "--no-home",
                "--net",
                "--network",
                "none",
            ]);
            line.extend(words(&["--overlay", &overlay.display().to_string(), image, name]));
            return line;
        }
        let memory = format!("{}m", limits.memory_mib);
        let mut line =
            words(&[program, "run", "--detach", "--rm", "--init", "--pull", "never", "--name", name]);
        line.extend(words(&["--network", "none", "--memory", &memory, "--memory-swap", &memory]));
        line.extend(words(&["--pids-limit", &limits.processes.to_string()]));
        line.extend(words(&["--security-opt", "no-new-privileges", "--workdir", folder]));
        line.extend(words(&["--entrypoint", "sleep", image, &LIFE_S.to_string()]));
        line
    }

    /// Returns the command that runs a script. The command uses `timeout`, because killing the
    /// engine's client would leave the script running.
    pub(super) fn execute(
        self,
        start: &Start<'_>,
        seconds: u64,
        script: &str,
        arguments: &[&str],
    ) -> Vec<String> {
        let Some(program) = self.program() else { return Vec::new() };
        let mut line = match self {
            Self::Apptainer => {
                let instance = format!("instance://{}", start.name);
                words(&[program, "exec", "--pwd", start.folder, &instance])
            }
            _ => words(&[program, "exec", "--interactive", "--workdir", start.folder, start.name]),
        };
        line.extend(words(&["timeout", "-s", "KILL", &seconds.to_string(), "sh", "-c"]));
        if self == Self::Apptainer {
            // Apptainer needs cgroups for its own memory limit.
            line.push(format!("ulimit -v {}\n{script}", start.limits.memory_mib << 10));
        } else {
            line.push(script.to_owned());
        }
        line.push("sh".to_owned());
        line.extend(words(arguments));
        line
    }

    pub(super) fn stop(self, name: &str) -> Vec<String> {
        match self.program() {
            Some(program) if self == Self::Apptainer => words(&[program, "instance", "stop", name]),
            Some(program) => words(&[program, "rm", "--force", "--volumes", name]),
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_those_of_the_programs() {
        let limits = SweLimits { memory_mib: 100, processes: 9, ..SweLimits::default() };
        let start = Start {
            name: "c1",
            image: "a/b:c",
            folder: "/testbed",
            limits: &limits,
            overlay: Path::new("/over"),
        };
        let line = |engine: Engine, words: Vec<String>| {
            assert_eq!(words.first().map(String::as_str), engine.program());
            words[1..].join(" ")
        };
        for engine in [Engine::Docker, Engine::Podman] {
            assert_eq!(
                line(engine, engine.start(&start)),
                "run --detach --rm --init --pull never --name c1 --network none --memory 100m --memory-swap 100m \
                 --pids-limit 9 --security-opt no-new-privileges --workdir /testbed --entrypoint sleep a/b:c 86400"
            );
            assert_eq!(
                line(engine, engine.execute(&start, 5, "cat \"$1\"", &["x y"])),
                "exec --interactive --workdir /testbed c1 timeout -s KILL 5 sh -c cat \"$1\" sh x y"
            );
            assert_eq!(line(engine, engine.stop("c1")), "rm --force --volumes c1");
            assert_eq!(line(engine, engine.list()), "image ls --format {{.Repository}}:{{.Tag}}");
        }
        let engine = Engine::Apptainer;
        let sif = Start { image: "/images/a_b_c.sif", ..start };
        assert_eq!(
            line(engine, engine.start(&sif)),
            "instance start --containall --no-home --net --network none --overlay /over /images/a_b_c.sif c1"
        );
        assert_eq!(
            line(engine, engine.execute(&sif, 5, "ls", &[])),
            "exec --pwd /testbed instance://c1 timeout -s KILL 5 sh -c ulimit -v 102400\nls sh"
        );
        assert_eq!(line(engine, engine.stop("c1")), "instance stop c1");
        assert_eq!(Engine::Docker.pull("a/b:c", Path::new("")), "docker pull a/b:c");
        assert!(Engine::Rootfs.start(&start).is_empty());
    }
}
