//! Runs an external environment program.
//!
//! A process that times out, exits or writes an invalid line is killed with its children, and its
//! requests fail. The next request that does not belong to a lost episode starts a new process.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::ProcessError;
use super::group::Group;
use super::protocol::{Answer, Envelope, FailureKind, Line, PROTOCOL, Request, Welcome};

/// How to run a program.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramSettings {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Working directory of the program; by default the current directory.
    pub directory: Option<PathBuf>,
    /// Settings sent with `hello`.
    pub settings: Value,
    /// Timeout of a response, for each step in the request.
    pub timeout: Duration,
    /// Timeout of the response to `hello`, including the time to load the program's data.
    pub start_timeout: Duration,
    /// Maximum bytes in a line from the program.
    pub max_line: usize,
}

/// Maximum time to wait for the rest of stderr after the program has exited.
const STDERR_WAIT: Duration = Duration::from_secs(1);

const STDERR: usize = 4096;
const GRACE: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program that starts on demand and restarts after failures.
#[derive(Debug)]
pub struct Program {
    settings: ProgramSettings,
    running: Mutex<Running>,
    starts: AtomicU64,
}

#[derive(Debug, Default)]
struct Running {
    process: Option<Arc<Process>>,
    failed: Option<(Instant, ProcessError)>,
}

impl Program {
    /// Creates a program without starting it.
    pub fn new(settings: ProgramSettings) -> Self {
        Self { settings, running: Mutex::default(), starts: AtomicU64::new(0) }
    }

    /// Returns how often the program was started.
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// Returns the running process, or starts one.
    ///
    /// # Errors
    /// Returns [`ProcessError::Start`] or [`ProcessError::Handshake`]. If a start fails, all
    /// callers that waited for it get the same error.
    pub fn process(&self) -> Result<Arc<Process>, ProcessError> {
        let asked = Instant::now();
        let mut running = lock(&self.running);
        if let Some(process) = running.process.as_ref().filter(|process| process.is_alive()) {
            return Ok(Arc::clone(process));
        }
        // They waited for the failed start.
        if let Some((_, error)) = running.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        running.process = None;
        match Process::start(&self.settings) {
            Ok(process) => {
                let process = Arc::new(process);
                self.starts.fetch_add(1, Ordering::Relaxed);
                running.process = Some(Arc::clone(&process));
                Ok(process)
            }
            Err(error) => {
                running.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

#[derive(Debug)]
enum Waiting {
    Open(HashMap<u64, SyncSender<Result<Answer, ProcessError>>>),
    Closed(ProcessError),
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    shared: Arc<Shared>,
    lines: Sender<String>,
    next: AtomicU64,
    welcome: Welcome,
    timeout: Duration,
    permits: Permits,
}

#[derive(Debug)]
struct Shared {
    group: Mutex<Group>,
    waiting: Mutex<Waiting>,
    stderr: Mutex<Stderr>,
    stderr_ended: Condvar,
}

#[derive(Debug, Default)]
struct Stderr {
    kept: VecDeque<u8>,
    ended: bool,
}

impl Process {
    fn start(settings: &ProgramSettings) -> Result<Self, ProcessError> {
        let command = settings.command.join(" ");
        let failed = |reason: String| ProcessError::Start { command: command.clone(), reason };
        let Some((name, arguments)) = settings.command.split_first() else {
            return Err(failed("the command is empty; give the program and its arguments".to_owned()));
        };
        let mut spawned = Command::new(name);
        spawned.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &settings.directory {
            spawned.current_dir(directory);
        }
        let mut group = Group::spawn(&mut spawned).map_err(|error| failed(error.to_string()))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = group.take_pipes() else {
            return Err(failed("its input and output are not connected".to_owned()));
        };
        let shared = Arc::new(Shared {
            group: Mutex::new(group),
            waiting: Mutex::new(Waiting::Open(HashMap::new())),
            stderr: Mutex::default(),
            stderr_ended: Condvar::new(),
        });
        let (lines, queue) = channel::<String>();
        let max_line = settings.max_line;
        let threads: [Box<dyn FnOnce() + Send>; 3] = [
            Box::new(move || write_lines(stdin, &queue)),
            Box::new({
                let shared = Arc::clone(&shared);
                move || read_lines(stdout, max_line, &shared)
            }),
            Box::new({
                let shared = Arc::clone(&shared);
                move || keep_stderr(stderr, &shared)
            }),
        ];
        for thread in threads {
            let started = std::thread::Builder::new().name("world-program".to_owned()).spawn(thread);
            if let Err(error) = started {
                shared.fail("this process could not start a thread for it");
                return Err(failed(error.to_string()));
            }
        }
        let mut process = Self {
            shared,
            lines,
            next: AtomicU64::new(0),
            welcome: Welcome {
                protocol: PROTOCOL,
                name: String::new(),
                splits: Vec::new(),
                capabilities: super::protocol::Capabilities::default(),
                concurrency: 1,
                phrases: Vec::new(),
                tools: Vec::new(),
            },
            timeout: settings.start_timeout,
            permits: Permits::new(1),
        };
        let refused = |reason: String| ProcessError::Handshake { command: command.clone(), reason };
        let hello = Request::Hello {
            protocol: PROTOCOL,
            client: concat!("turnwise ", env!("CARGO_PKG_VERSION")),
            settings: &settings.settings,
        };
        let welcome: Welcome = process.ask(&hello).map_err(|error| refused(error.to_string()))?;
        if welcome.protocol != PROTOCOL {
            let reason = format!(
                "it speaks version {} of the protocol, this program version {PROTOCOL}; update the older of the two",
                welcome.protocol
            );
            return Err(refused(reason));
        }
        if welcome.splits.is_empty() {
            return Err(refused(
                "it has no splits; name at least one, `train`, in the answer to `hello`".to_owned(),
            ));
        }
        process.permits = Permits::new(welcome.concurrency.max(1));
        process.welcome = welcome;
        process.timeout = settings.timeout;
        Ok(process)
    }

    /// Returns the response to `hello`.
    pub(crate) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns true if the process accepts requests.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(&*lock(&self.shared.waiting), Waiting::Open(_))
    }

    /// Sends a request and waits for the response.
    ///
    /// # Errors
    /// Returns [`ProcessError::Answer`] if the program responds with an error, and
    /// [`ProcessError::Lost`] if it times out, writes an invalid line or exits.
    pub fn call(&self, request: &Request<'_>) -> Result<Box<RawValue>, ProcessError> {
        // The timeout starts only when the program has a free slot.
        let _permit = self.permits.take();
        let limit = self.timeout.saturating_mul(request.answers());
        let (id, answer) = self.send(request)?;
        let answer = match answer.recv_timeout(limit) {
            Ok(answer) => answer?,
            Err(RecvTimeoutError::Timeout) => {
                let reason = format!("it did not answer `{}` within {limit:?} and was killed", request.op());
                let error = self.shared.fail(&reason);
                self.forget(id);
                return Err(error);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(self.shared.fail("its reader ended")),
        };
        accept(answer)
    }

    /// Sends a request and parses the response.
    ///
    /// # Errors
    /// Fails like [`Process::call`], or with [`ProcessError::Form`] if parsing fails.
    pub fn ask<T: DeserializeOwned>(&self, request: &Request<'_>) -> Result<T, ProcessError> {
        read(request.op(), &self.call(request)?)
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn notify(&self, request: &Request<'_>) {
        if let Ok((id, _)) = self.send(request) {
            self.forget(id);
        }
    }

    fn forget(&self, id: u64) {
        if let Waiting::Open(requests) = &mut *lock(&self.shared.waiting) {
            requests.remove(&id);
        }
    }

    #[allow(clippy::type_complexity, reason = "a channel of results")]
    fn send(
        &self,
        request: &Request<'_>,
    ) -> Result<(u64, Receiver<Result<Answer, ProcessError>>), ProcessError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let form =
            |error: serde_json::Error| ProcessError::Form { op: request.op(), reason: error.to_string() };
        let mut line = serde_json::to_string(&Envelope { id, request }).map_err(form)?;
        line.push('\n');
        let (sender, receiver) = sync_channel(1);
        match &mut *lock(&self.shared.waiting) {
            Waiting::Open(requests) => requests.insert(id, sender),
            Waiting::Closed(error) => return Err(error.clone()),
        };
        if self.lines.send(line).is_err() {
            return Err(self.shared.fail("its input is closed"));
        }
        Ok((id, receiver))
    }
}

impl Drop for Process {
    /// Requests an exit and kills the process after a grace period.
    fn drop(&mut self) {
        if self.is_alive() {
            self.notify(&Request::Shutdown {});
        }
        // Ends the writer, which closes the program's stdin.
        self.lines = channel().0;
        let until = Instant::now() + GRACE;
        while Instant::now() < until {
            if lock(&self.shared.group).has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.shared.fail("it is not needed any more");
    }
}

impl Shared {
    /// Kills the process and fails all pending requests.
    fn fail(&self, reason: &str) -> ProcessError {
        let mut waiting = lock(&self.waiting);
        let error = match &*waiting {
            Waiting::Closed(error) => error.clone(),
            Waiting::Open(_) => {
                let reason = reason.to_owned();
                ProcessError::Lost { reason, stderr: self.stderr() }
            }
        };
        if let Waiting::Open(requests) = std::mem::replace(&mut *waiting, Waiting::Closed(error.clone())) {
            for sender in requests.into_values() {
                let _ = sender.send(Err(error.clone()));
            }
        }
        drop(waiting);
        lock(&self.group).kill();
        error
    }

    fn end(&self) -> String {
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(10));
            let mut group = lock(&self.group);
            let ended = group.has_ended().then(|| group.status()).flatten();
            drop(group);
            if let Some(status) = ended {
                // Processes outside the group may hold stderr open.
                let stderr = lock(&self.stderr);
                drop(self.stderr_ended.wait_timeout_while(stderr, STDERR_WAIT, |stderr| !stderr.ended));
                return format!("it ended by itself ({status})");
            }
        }
        "it closed its output".to_owned()
    }

    fn stderr(&self) -> String {
        let bytes: Vec<u8> = lock(&self.stderr).kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        if text.is_empty() { text } else { format!("; the end of its stderr:\n{text}") }
    }
}

fn accept(answer: Answer) -> Result<Box<RawValue>, ProcessError> {
    match answer {
        Answer::Ok(value) => Ok(value),
        Answer::Error(failure) => Err(ProcessError::Answer {
            transient: failure.kind == FailureKind::Transient,
            message: failure.message,
            traceback: match failure.traceback.trim_end() {
                "" => String::new(),
                lines => format!("\n{lines}"),
            },
        }),
    }
}

pub(super) fn read_answer<T: DeserializeOwned>(op: &'static str, answer: Answer) -> Result<T, ProcessError> {
    read(op, &accept(answer)?)
}

fn read<T: DeserializeOwned>(op: &'static str, value: &RawValue) -> Result<T, ProcessError> {
    serde_json::from_str(value.get()).map_err(|error| ProcessError::Form { op, reason: error.to_string() })
}

fn write_lines(mut stdin: std::process::ChildStdin, queue: &Receiver<String>) {
    while let Ok(line) = queue.recv() {
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            break;
        }
    }
}

fn read_lines(stdout: std::process::ChildStdout, max_line: usize, shared: &Shared) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stdout.by_ref().take(max_line as u64 + 1).read_until(b'\n', &mut line) {
            Ok(0) => {
                shared.fail(&shared.end());
                return;
            }
            Ok(length) if length > max_line => {
                shared.fail(&format!(
                    "it wrote a line of more than {max_line} bytes (env.max_line_bytes) and was killed"
                ));
                return;
            }
            Ok(_) => {}
            Err(error) => {
                shared.fail(&format!("its output cannot be read: {error}"));
                return;
            }
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let read = serde_json::from_slice::<Line>(&line).map_err(|error| error.to_string());
        match read.and_then(|line| Ok((line.id, line.answer().map_err(str::to_owned)?))) {
            Ok((id, answer)) => {
                let waiting = match &mut *lock(&shared.waiting) {
                    Waiting::Open(requests) => requests.remove(&id),
                    Waiting::Closed(_) => return,
                };
                // Only `close` has no waiting request.
                if let Some(sender) = waiting {
                    let _ = sender.send(Ok(answer));
                }
            }
            Err(error) => {
                let start: String = String::from_utf8_lossy(&line).trim_end().chars().take(80).collect();
                shared.fail(&format!(
                    "it wrote a line to stdout that is no answer ({error}) and was killed; whatever is not an answer belongs on \
                     stderr: {start:?}"
                ));
                return;
            }
        }
    }
}

fn keep_stderr(mut stderr: std::process::ChildStderr, shared: &Shared) {
    let mut piece = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut piece) {
        let kept = &mut lock(&shared.stderr).kept;
        kept.extend(&piece[..length]);
        let surplus = kept.len().saturating_sub(STDERR);
        kept.drain(..surplus);
    }
    lock(&shared.stderr).ended = true;
    shared.stderr_ended.notify_all();
}

#[derive(Debug)]
struct Permits {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Permit<'a>(&'a Permits);

impl Permits {
    fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    fn take(&self) -> Permit<'_> {
        let mut free = lock(&self.free);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}
