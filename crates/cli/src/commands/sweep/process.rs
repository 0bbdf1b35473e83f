use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use turnwise_files::create_folders;
use turnwise_train::RunDirectory;
use turnwise_train::record::directory::{RunStatus, Status};
use turnwise_train::record::lock::{LOCK, RunLock};

use crate::{memory, registries};

pub(super) struct RunProcess {
    /// Holds the write end of the child's standard input, which closes when this program exits.
    child: Child,
    log: PathBuf,
    log_start: u64,
    started: f64,
}

impl RunProcess {
    /// Starts this program, appending its output to `log`. With `beside_others`, the started
    /// program returns freed memory to the operating system, because other runs need it.
    pub(super) fn start(arguments: &[String], log: &Path, beside_others: bool) -> anyhow::Result<Self> {
        if let Some(folder) = log.parent() {
            // Syncs the folder, because the runs are in its parent.
            create_folders(folder).with_context(|| folder.display().to_string())?;
        }
        let open = || OpenOptions::new().create(true).append(true).open(log);
        let output = open().with_context(|| log.display().to_string())?;
        let errors = open().with_context(|| log.display().to_string())?;
        let log_start = output.metadata().map_or(0, |metadata| metadata.len());
        let (program, first) = registries::executable().context("the path of this program is not known")?;
        let mut command = Command::new(program);
        command.args(first).args(arguments).stdin(Stdio::piped()).stdout(output).stderr(errors);
        if beside_others && std::env::var_os(memory::PURGE_DELAY_VARIABLE).is_none() {
            command.env(memory::PURGE_DELAY_VARIABLE, memory::DEFAULT_PURGE_DELAY.to_string());
        }
        // This program forwards Ctrl-C; a second one would kill a run.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().context("the process of the run cannot be started")?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Ok(Self { child, log: log.to_path_buf(), log_start, started })
    }

    /// Returns the start time in seconds since 1970, as in `metrics.jsonl`.
    pub(super) fn started(&self) -> f64 {
        self.started
    }

    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("the process of the run cannot be waited for")
    }

    /// Sends SIGINT, which makes the run write a checkpoint and stop.
    pub(super) fn interrupt(&mut self) {
        #[cfg(unix)]
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::INT);
        }
        #[cfg(not(unix))]
        let _ = self.child.kill();
    }

    pub(super) fn reason(&self, root: &Path, status: ExitStatus) -> String {
        let said = said_since(&self.log, self.log_start);
        let error = said.lines().rev().find_map(|line| line.strip_prefix("error: "));
        if let Some(error) = error {
            return error.to_owned();
        }
        let stored = RunDirectory::open(root).and_then(|run| run.read_json::<Status>("status.json"));
        if let Ok(Status { state: RunStatus::Failed, reason: Some(reason), .. }) = stored {
            return reason;
        }
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map(|line| format!("; it said last: {}", line.trim())).unwrap_or_default();
        // A killed process or a full disk leaves no message.
        let unwritable =
            match OpenOptions::new().append(true).open(&self.log).and_then(|mut log| log.write_all(b"\n")) {
                Err(error) => format!("; {}: {error}", self.log.display()),
                Ok(()) => String::new(),
            };
        format!("its process ended with {status}{last}{unwritable}")
    }
}

fn said_since(log: &Path, start: u64) -> String {
    let read = || {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

pub(super) fn is_held(root: &Path) -> anyhow::Result<bool> {
    Ok(root.join(LOCK).is_file() && RunLock::try_take(root)?.is_none())
}

pub(super) fn clear_remains(root: &Path) -> anyhow::Result<()> {
    if !root.is_dir() {
        return Ok(());
    }
    let Some(_lock) = RunLock::try_take(root)? else { return Ok(()) };
    if root.join("config.toml").exists() {
        return Ok(());
    }
    for entry in fs::read_dir(root).with_context(|| root.display().to_string())? {
        let path = entry.with_context(|| root.display().to_string())?.path();
        if path.file_name().is_some_and(|name| name == LOCK) {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| path.display().to_string())?;
    }
    Ok(())
}
