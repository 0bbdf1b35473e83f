//! Runs commands and checks in a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use turnwise_core::EnvError;
use turnwise_sandbox::{Command, End, Files, Limits, Outcome, Python, Rust, Sandbox, SandboxError, Stage};

use super::language::Language;
use super::repository::Repository;
use super::rust::checks;
use super::task::CodingTask;

pub(crate) const NUL: &str = "the command has a NUL byte";

const DRIVER: &str = include_str!("driver.py");

/// Limits of an agent's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CodingLimits {
    /// Wall-clock seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub wall_s: u64,
    /// CPU seconds of all processes together; also applies to the checks.
    #[schemars(range(min = 1, max = 3600))]
    pub cpu_s: u64,
    /// Memory in MiB.
    #[schemars(range(min = 64, max = 1048576))]
    pub memory_mib: u64,
    /// Number of processes and threads.
    #[schemars(range(min = 4, max = 4096))]
    pub processes: u32,
    /// Size of all files in MiB.
    #[schemars(range(min = 8, max = 65536))]
    pub disk_mib: u64,
    /// Characters of output shown to the agent; the middle of longer output is cut.
    #[schemars(range(min = 100, max = 1000000))]
    pub output_chars: usize,
}

impl Default for CodingLimits {
    fn default() -> Self {
        Self { wall_s: 10, cpu_s: 5, memory_mib: 512, processes: 32, disk_mib: 16, output_chars: 2000 }
    }
}

impl CodingLimits {
    fn limits(&self) -> Limits {
        Limits {
            wall: Duration::from_secs(self.wall_s),
            cpu: Duration::from_secs(self.cpu_s),
            memory: self.memory_mib << 20,
            processes: self.processes,
            disk: self.disk_mib << 20,
            ..Limits::default()
        }
    }
}

/// Files and the calls to evaluate on them, isolated from other jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Job {
    /// File contents by path.
    pub files: BTreeMap<String, String>,
    /// Module that defines the names in the calls; empty if they need none.
    pub module: String,
    /// Python expressions.
    pub calls: Vec<String>,
    /// Limit in CPU seconds; calls that do not finish within it have no value.
    pub seconds: f64,
}

/// A sandbox with the programs of the chosen languages.
#[derive(Debug)]
pub struct Workshop {
    sandbox: Sandbox,
    python: Option<Python>,
    rust: Option<Rust>,
}

fn failed(error: &impl ToString) -> EnvError {
    EnvError::Other(format!("the world coding: {}", error.to_string()))
}

impl Workshop {
    /// Finds the languages' programs and prepares a sandbox.
    ///
    /// # Errors
    /// Fails if a program is missing or broken, or the kernel does not support the sandbox.
    pub fn new(languages: &[Language]) -> Result<Self, EnvError> {
        let wanted = |language| languages.contains(&language);
        let python =
            if wanted(Language::Python) { Some(needed(Python::find(), Language::Python)?) } else { None };
        let rust = if wanted(Language::Rust) { Some(needed(Rust::find(), Language::Rust)?) } else { None };
        let folders = python.iter().map(|python| python.folder.clone());
        let folders: Vec<_> = folders.chain(rust.iter().map(|rust| rust.folder.clone())).collect();
        let sandbox = Sandbox::new(&folders).map_err(|error| failed(&error))?;
        let workshop = Self { sandbox, python, rust };
        workshop.try_rust()?;
        Ok(workshop)
    }

    /// Compiles an empty crate, because only a build reveals that a linker is missing.
    fn try_rust(&self) -> Result<(), EnvError> {
        let Some(rust) = &self.rust else { return Ok(()) };
        let files =
            checks::files(Files::from([("src/lib.rs".to_owned(), Vec::new())]), "empty", &["1".to_owned()]);
        let limits = Limits { wall: Duration::from_mins(1), ..Limits::default() };
        let outcome = self.sandbox.run(&self.command(checks::command(rust, "empty")), &files, &limits);
        let outcome = outcome.map_err(|error| failed(&error))?;
        if checks::values(&outcome) == ["1"] {
            return Ok(());
        }
        // The linker's error comes last.
        let output = String::from_utf8_lossy(&outcome.output).into_owned();
        let output: String = output.chars().skip(output.chars().count().saturating_sub(600)).collect();
        Err(failed(&format!(
            "rustc builds no program in the sandbox ({:?}): {}; install a C compiler, which links programs as `cc`",
            outcome.end,
            output.trim_end()
        )))
    }

    fn command(&self, command: Command) -> Command {
        let programs = [
            self.python.as_ref().map(|python| &python.program),
            self.rust.as_ref().map(|rust| &rust.program),
        ];
        let folders = programs.into_iter().flatten().filter_map(|program| program.parent());
        let mut path: Vec<String> = folders.map(|folder| folder.display().to_string()).collect();
        path.extend(["/usr/local/bin", "/usr/bin", "/bin"].map(str::to_owned));
        let command = command.variable("PATH", path.join(":"));
        // The loader finds the compiler's libraries through `/proc`, which the sandbox lacks.
        match &self.rust {
            Some(rust) => command.variable("LD_LIBRARY_PATH", rust.folder.join("lib").display().to_string()),
            None => command,
        }
    }

    /// Runs a command on the files. Returns the text for the agent and, if the command ran, the
    /// files that it left.
    pub(super) fn run(
        &self,
        line: &str,
        files: &Repository,
        limits: &CodingLimits,
    ) -> Result<(String, Option<Repository>), EnvError> {
        if line.contains('\0') {
            return Ok((NUL.to_owned(), None));
        }
        // Sparse files of an earlier command return at full size.
        let outcome = self.outcome(Command::shell(line), &files.to_files(), &limits.limits())?;
        let Some(outcome) = outcome else {
            return Ok((format!("the files do not fit into {} MiB", limits.disk_mib), None));
        };
        let text = shown(outcome.end, &outcome.output, limits);
        Ok((text, Some(Repository::of_files(outcome.files))))
    }

    /// Evaluates jobs and returns, for each, the values of its calls before the first one that did
    /// not finish.
    ///
    /// # Errors
    /// Fails if the sandbox fails or the jobs together exceed a limit.
    pub fn values(&self, jobs: &[Job], limits: &Limits) -> Result<Vec<Vec<String>>, EnvError> {
        let too_large = || failed(&"the files of its tasks are too large for the sandbox");
        let outcome = self.evaluate(jobs, limits)?.ok_or_else(too_large)?;
        values_of(&outcome).ok_or_else(|| {
            let output: String = String::from_utf8_lossy(&outcome.output).chars().take(400).collect();
            failed(&format!("its checks gave no values ({:?}): {output}", outcome.end))
        })
    }

    /// Evaluates the task's checks on the agent's files. The result is empty if the files exceed
    /// the disk limit.
    pub(super) fn submitted(
        &self,
        task: &CodingTask,
        files: &Repository,
        limits: &CodingLimits,
    ) -> Result<Vec<String>, EnvError> {
        match task.language {
            Language::Python => {
                let seconds = limits.cpu_s as f64;
                let module = task.module.clone();
                self.values_of_agent(
                    Job { files: files.texts(), module, calls: task.calls(), seconds },
                    limits,
                )
            }
            Language::Rust => {
                let values =
                    self.rust_values(files.to_files(), &task.module, &task.calls(), &limits.limits())?;
                Ok(values.unwrap_or_default())
            }
        }
    }

    /// Evaluates calls on a Rust crate. Returns `None` if the files exceed the disk limit.
    pub(super) fn rust_values(
        &self,
        files: Files,
        name: &str,
        calls: &[String],
        limits: &Limits,
    ) -> Result<Option<Vec<String>>, EnvError> {
        let rust = self.rust.as_ref().ok_or_else(|| failed(&Language::Rust.missing()))?;
        let files = checks::files(files, name, calls);
        let outcome = self.outcome(checks::command(rust, name), &files, limits)?;
        Ok(outcome.map(|outcome| checks::values(&outcome)))
    }

    fn values_of_agent(&self, job: Job, limits: &CodingLimits) -> Result<Vec<String>, EnvError> {
        // The job's JSON contains the files again.
        let disk = (limits.disk_mib << 22) + (16 << 20);
        let outcome = self.evaluate(&[job], &Limits { disk, ..limits.limits() })?;
        let values = outcome.and_then(|outcome| values_of(&outcome)).and_then(|mut values| values.pop());
        Ok(values.unwrap_or_default())
    }

    /// Evaluates Python jobs. Returns `None` if the jobs exceed the disk limit when written as
    /// JSON, which may need six bytes per character.
    fn evaluate(&self, jobs: &[Job], limits: &Limits) -> Result<Option<Outcome>, EnvError> {
        let text = serde_json::to_vec(jobs).map_err(|error| failed(&error))?;
        let files = Files::from([("jobs.json".to_owned(), text)]);
        let python = self.python.as_ref().ok_or_else(|| failed(&Language::Python.missing()))?;
        let command = Command::new(&python.program).arg("-I").arg("-c").arg(DRIVER);
        self.outcome(command, &files, limits)
    }

    /// Runs a command in the sandbox. Returns `None` if the files exceed the disk limit.
    fn outcome(&self, command: Command, files: &Files, limits: &Limits) -> Result<Option<Outcome>, EnvError> {
        match self.sandbox.run(&self.command(command), files, limits) {
            Err(SandboxError::Kernel { stage: Stage::Files, .. }) => Ok(None),
            other => other.map(Some).map_err(|error| failed(&error)),
        }
    }
}

fn needed<T>(found: Option<T>, language: Language) -> Result<T, EnvError> {
    found.ok_or_else(|| failed(&language.missing()))
}

fn values_of(outcome: &Outcome) -> Option<Vec<Vec<String>>> {
    serde_json::from_slice(outcome.files.get("results.json")?).ok()
}

pub(crate) fn shown(end: End, output: &[u8], limits: &CodingLimits) -> String {
    let output = String::from_utf8_lossy(output);
    let characters = output.chars().count();
    let mut text = if characters <= limits.output_chars {
        output.trim_end().to_owned()
    } else {
        let half = limits.output_chars / 2;
        let head: String = output.chars().take(half).collect();
        let tail: String = output.chars().skip(characters - half).collect();
        format!("{head}\n({} characters left out)\n{}", characters - 2 * half, tail.trim_end())
    };
    let end = match end {
        End::Exited(0) => String::new(),
        End::Exited(code) => format!("exit code {code}"),
        End::Signalled(signal) => format!("killed by signal {signal}"),
        // Which of the two limits an endless loop exceeds first depends on the machine's load.
        End::WallTime | End::CpuTime => {
            format!("killed after {} s, or {} s of CPU time", limits.wall_s, limits.cpu_s)
        }
        End::Memory => format!("killed: more than {} MiB of memory", limits.memory_mib),
        End::Output => "killed: too much output".to_owned(),
        End::Disk => format!("killed: more than {} MiB of new files", limits.disk_mib),
    };
    if !end.is_empty() {
        text = if text.is_empty() { end } else { format!("{text}\n{end}") };
    }
    if text.is_empty() { "(no output)".to_owned() } else { text }
}
