//! Tests that no attempt of `attempts.rs` leaves its sandbox, and that it ends only its own.
//!
//! Harmless attempts also run outside a sandbox and must succeed there, to show that the sandbox
//! stops them.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};

use turnwise_sandbox::{Command, End, Files, Limits, Outcome, Python, Sandbox};

use crate::attempts::{ATTEMPTS, Attempt, Control, Expect, PRELUDE};

pub(crate) fn limits() -> Limits {
    Limits {
        wall: Duration::from_secs(30),
        cpu: Duration::from_secs(20),
        memory: 400 << 20,
        processes: 16,
        output: 1 << 20,
        disk: 8 << 20,
        files: 500,
    }
}

/// Opens a sandbox with Python. Returns `None` with a message if Python is missing or the kernel
/// refuses the sandbox. Panics on a refusal if `TURNWISE_REQUIRE_SANDBOX` is set.
pub(crate) fn sandbox() -> Option<(Sandbox, Python)> {
    let Some(python) = Python::find() else {
        println!("skipped: there is no python3 in PATH");
        return None;
    };
    match Sandbox::new(std::slice::from_ref(&python.folder)) {
        Ok(sandbox) => Some((sandbox, python)),
        Err(error) => {
            assert!(std::env::var_os("TURNWISE_REQUIRE_SANDBOX").is_none(), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

struct Host {
    folder: tempfile::TempDir,
    tcp: TcpListener,
    _socket: UnixListener,
    _abstract: UnixListener,
    abstract_name: String,
    open: fs::File,
}

const SECRET: &str = "the secret of the host";

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("secret"), SECRET).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        // A unique name per host, since two tests run at the same time.
        let abstract_name = format!("turnwise-{}-{}", process::id(), tcp.local_addr().unwrap().port());
        let address = SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
        let open = fs::File::open(folder.path().join("secret")).unwrap();
        rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
        Self {
            tcp,
            _socket: UnixListener::bind(folder.path().join("socket")).unwrap(),
            _abstract: UnixListener::bind_addr(&address).unwrap(),
            abstract_name,
            open,
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn code(&self, attempt: &Attempt) -> String {
        let body = attempt
            .code
            .replace("{SECRET}", &self.path("secret").display().to_string())
            .replace("{SOCKET}", &self.path("socket").display().to_string())
            .replace("{ABSTRACT}", &self.abstract_name)
            .replace("{PORT}", &self.tcp.local_addr().unwrap().port().to_string())
            .replace("{FD}", &self.open.as_raw_fd().to_string())
            .replace("{PID}", &process::id().to_string());
        format!("{PRELUDE}\n{body}\n")
    }
}

fn run(sandbox: &Sandbox, python: &Python, code: &str, limits: &Limits) -> Outcome {
    let command = Command::new(&python.program).arg("-I").arg("/work/attempt.py");
    let files = Files::from([("attempt.py".to_owned(), code.as_bytes().to_vec())]);
    sandbox.run(&command, &files, limits).unwrap()
}

fn outside(python: &Python, code: &str) -> String {
    let mut child = process::Command::new(&python.program)
        .args(["-I", "-c", code])
        .env("TURNWISE_SECRET", SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(SECRET.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn wrong(attempt: &Attempt, outcome: &Outcome) -> Option<String> {
    let text = String::from_utf8_lossy(&outcome.output);
    let as_expected = match attempt.expect {
        Expect::Refused => outcome.end == End::Exited(0) && text.contains("refused"),
        Expect::Time => matches!(outcome.end, End::WallTime | End::CpuTime),
        Expect::Memory => outcome.end == End::Memory,
        Expect::Output => outcome.end == End::Output,
        Expect::Ended => true,
    };
    let leaked = text.contains("ESCAPED") || text.contains(SECRET);
    let kept = outcome.files.values().any(|bytes| String::from_utf8_lossy(bytes).contains(SECRET));
    let shown: String = text.chars().take(400).collect();
    (leaked || kept || !as_expected).then(|| format!("{}: {:?}: {shown}", attempt.name, outcome.end))
}

#[test]
fn no_attempt_escapes() {
    let Some((sandbox, python)) = sandbox() else { return };
    let host = Host::new();
    assert!(ATTEMPTS.len() >= 40);
    let mut failures = Vec::new();
    for attempt in ATTEMPTS {
        let mut limits = limits();
        if matches!(attempt.expect, Expect::Time) || attempt.name == "fork without end" {
            (limits.wall, limits.cpu) = (Duration::from_secs(3), Duration::from_secs(1));
        }
        let code = host.code(attempt);
        let begun = Instant::now();
        let outcome = run(&sandbox, &python, &code, &limits);
        println!(
            "{}: {:?}: {}",
            attempt.name,
            outcome.end,
            String::from_utf8_lossy(&outcome.output).chars().take(100).collect::<String>()
        );
        failures.extend(wrong(attempt, &outcome));
        if begun.elapsed() > limits.wall + Duration::from_secs(10) {
            failures.push(format!("{}: took {:?}", attempt.name, begun.elapsed()));
        }
        if attempt.control == Control::Succeeds {
            let text = outside(&python, &code);
            if !text.contains("ESCAPED") {
                failures
                    .push(format!("{}: does not succeed outside of a sandbox either: {text}", attempt.name));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // Only the controls wrote to it.
    let secret = fs::read_to_string(host.path("secret")).unwrap();
    assert_eq!(secret, format!("{SECRET}x"), "one control appends a letter");
    assert!(!PathBuf::from("/usr/bin/turnwise-escaped").exists());
    // The next sandbox is not affected.
    let outcome = run(&sandbox, &python, "print(2 + 2)", &limits());
    assert_eq!((outcome.end, outcome.output.as_slice()), (End::Exited(0), &b"4\n"[..]));
}

fn processes_with(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own = process::id().to_string();
    numbers
        .filter(|number| *number != own && number.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|number| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(word)
        })
        .collect()
}

#[test]
fn processes_do_not_outlive_their_sandbox() {
    let Some((sandbox, python)) = sandbox() else { return };
    let word = format!("turnwise-left-{}", process::id());
    // A child, a grandchild in its own session that holds the output open, and one that ignores
    // signals.
    let body = format!(
        "def sleeper(*more):\n    code = 'import signal, sys, time\\n' + ''.join(more) + 'print(1, flush=True)\\ntime.sleep(300)'\n    \
         return subprocess.Popen([sys.executable, '-c', code, '{word}'], start_new_session=True)\n\
         sleeper()\nsleeper('signal.signal(15, signal.SIG_IGN)\\n')\n\
         if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        sleeper().wait()\n    os._exit(0)\n\
         time.sleep(1)\nprint('started')"
    );
    let code = format!("{PRELUDE}\n{body}\n");
    let begun = Instant::now();
    let outcome = run(&sandbox, &python, &code, &limits());
    assert!(String::from_utf8_lossy(&outcome.output).contains("started"), "{outcome:?}");
    assert_eq!(outcome.end, End::Exited(0));
    assert!(begun.elapsed() < Duration::from_secs(25), "the open output is not waited for");
    assert_eq!(processes_with(&word), Vec::<String>::new());
    // The search can fail: it finds a running process with this word.
    let mut child = process::Command::new("sh").args(["-c", "sleep 30; :", &word]).spawn().unwrap();
    let found = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !processes_with(&word).is_empty()
    });
    assert!(found);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn links_and_pipes_are_not_followed_when_files_come_back() {
    let Some((sandbox, _)) = sandbox() else { return };
    let host = Host::new();
    let line = format!(
        "ln -s {} stolen; ln -s / root; mkfifo pipe; mkdir -p a/b; echo good > a/b/c; ln -s c a/b/d; ln a/b/c hard; \
         mkdir closed; echo x > closed/x; chmod 000 closed",
        host.path("secret").display()
    );
    let outcome = sandbox.run(&Command::shell(&line), &Files::new(), &limits()).unwrap();
    assert_eq!(outcome.end, End::Exited(0), "{}", String::from_utf8_lossy(&outcome.output));
    let good = ["a/b/c", "hard"].map(|name| (name.to_owned(), b"good\n".to_vec()));
    let mut files = outcome.files.clone();
    // Root reads files despite their mode.
    let closed = usize::from(files.remove("closed/x").is_none());
    assert_eq!(files, Files::from(good));
    // Two links to the host and one within the sandbox; a named pipe cannot be created.
    assert_eq!(outcome.left_out, 3 + closed);
}
