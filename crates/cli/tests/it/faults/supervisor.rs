//! Runs a program and injects a fault into one of its writes, flushes or renames below a folder.
//!
//! The kernel stops a thread at such a system call and notifies this process (seccomp_unotify(2)).
//! The program and its libraries are tested unchanged, and normal builds need no hook.
#![expect(unsafe_code, reason = "system calls that the standard library does not have")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::disk::Disk;

/// Number under which the program has the descriptor that its system calls are read from.
const LISTENER: i32 = 777;

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, which `libc` does not have.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// Kind of an operation on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Write,
    Flush,
    Rename,
    Truncate,
}

/// A counted operation on files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    /// The path inside the folder; for a rename the new one.
    pub(super) path: PathBuf,
}

/// What happens at the chosen operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It fails with `EIO`; later ones succeed.
    Fails,
    /// The disk is full: half of a write succeeds, and every later write fails with `ENOSPC`.
    Fills,
    /// The process that does it, the program or one that it started, is killed in the middle: half of a write is done.
    Kill,
    /// The power fails before it: every process ends, and what was not flushed is lost.
    PowerCut,
}

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) errors: String,
    pub(super) operations: Vec<Operation>,
}

/// The system calls that are stopped at. `sendfile` and `copy_file_range` are how the standard library copies files.
const CALLS: &[libc::c_long] = &[
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
];

/// Returns true if the kernel lets this process supervise another.
pub(super) fn is_possible() -> bool {
    // `cat` waits for input and writes nothing, so it makes no call that must be answered.
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped());
    supervise(&mut command);
    command.spawn().is_ok_and(|child| listener_of(&Ending(child).0).is_ok())
}

/// Runs a program and does `fault` at the operation of this number (from 0) below `folder`. Without a fault it only counts.
pub(super) fn run(command: &mut Command, folder: &Path, fault: Option<(Fault, usize)>) -> io::Result<Ended> {
    let folder = fs::canonicalize(folder)?;
    let cuts = matches!(fault, Some((Fault::PowerCut, _)));
    let mut disk = if cuts { Some(Disk::of(&folder)?) } else { None };
    let said = tempfile::NamedTempFile::new()?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.reopen()?);
    supervise(command);
    let mut child = Ending(command.spawn()?);
    let listener = listener_of(&child.0)?;
    let mut state =
        State { folder: &folder, fault, operations: Vec::new(), full: false, cut: false, killed: None };
    while let Some(notice) = next(&listener)? {
        let answer = state.answer(&notice, disk.as_mut())?;
        if state.cut {
            child.0.kill()?;
        }
        if state.cut || state.killed.is_some_and(|killed| Some(killed) == process_of(notice.pid).ok()) {
            end(notice.pid);
        }
        send(&listener, notice.id, &answer)?;
    }
    let status = child.0.wait()?;
    if let Some(disk) = disk.filter(|_| state.cut) {
        disk.restore(&folder)?;
    }
    Ok(Ended { status, errors: fs::read_to_string(said.path())?, operations: state.operations })
}

/// A program that is killed with its test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The kernel's action for a system call.
enum Answer {
    Continue,
    /// It is skipped and returns this number.
    Value(i64),
    /// It is skipped and fails with this error.
    Error(i32),
}

struct State<'a> {
    folder: &'a Path,
    fault: Option<(Fault, usize)>,
    operations: Vec<Operation>,
    full: bool,
    /// The power has failed.
    cut: bool,
    /// The process that was killed.
    killed: Option<libc::pid_t>,
}

impl State<'_> {
    fn answer(&mut self, notice: &libc::seccomp_notif, disk: Option<&mut Disk>) -> io::Result<Answer> {
        let process = Process(notice.pid);
        let Some((kind, path)) = process.operation(&notice.data) else { return Ok(Answer::Continue) };
        let Ok(inside) = path.strip_prefix(self.folder) else { return Ok(Answer::Continue) };
        let number = self.operations.len();
        self.operations.push(Operation { kind, path: inside.to_owned() });
        let descriptor = notice.data.args[0];
        match self.fault.filter(|(_, at)| *at == number).map(|(fault, _)| fault) {
            Some(Fault::Fails) => return Ok(Answer::Error(libc::EIO)),
            Some(Fault::PowerCut) => {
                self.cut = true;
                return Ok(Answer::Error(libc::EIO));
            }
            Some(fault @ (Fault::Kill | Fault::Fills)) => {
                self.killed = process_of(notice.pid).ok().filter(|_| fault == Fault::Kill);
                self.full = fault == Fault::Fills;
                if notice.data.nr == libc::SYS_write as i32 {
                    return process.write_half(&notice.data);
                }
            }
            None => {}
        }
        if self.full && kind == Kind::Write {
            return Ok(Answer::Error(libc::ENOSPC));
        }
        if self.cut || self.killed.is_some() && self.killed == process_of(notice.pid).ok() {
            return Ok(Answer::Error(libc::EIO));
        }
        if let Some(disk) = disk.filter(|_| kind == Kind::Flush) {
            disk.flushed(&process.entry("fd").join(descriptor.to_string()))?;
        }
        Ok(Answer::Continue)
    }
}

/// The program, or a thread of it, which is waiting in a system call.
struct Process(u32);

impl Process {
    fn entry(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.0.to_string()).join(name)
    }

    fn memory(&self, place: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        let read = File::open(self.entry("mem"))?.read_at(&mut bytes, place)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Returns the path at a place of its memory.
    fn path(&self, place: u64) -> Option<PathBuf> {
        let mut bytes = Vec::new();
        // Up to the end of a page at a time, because the next one may not be mapped.
        while bytes.len() < 4096 {
            let at = place + bytes.len() as u64;
            let piece = self.memory(at, 4096 - (at % 4096) as usize).ok()?;
            let end = piece.iter().position(|byte| *byte == 0);
            bytes.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
            if end.is_some() {
                let path = PathBuf::from(String::from_utf8(bytes).ok()?);
                return Some(fs::read_link(self.entry("cwd")).ok()?.join(path));
            }
        }
        None
    }

    fn operation(&self, data: &libc::seccomp_data) -> Option<(Kind, PathBuf)> {
        let call = i64::from(data.nr);
        let descriptor = |number: u64| fs::read_link(self.entry("fd").join(number.to_string())).ok();
        let [first, second, third, fourth, ..] = data.args;
        #[cfg(target_arch = "x86_64")]
        if call == libc::SYS_rename {
            return Some((Kind::Rename, self.path(second)?));
        }
        Some(match call {
            // Turnwise never renames relative to an open folder.
            libc::SYS_renameat | libc::SYS_renameat2 => (Kind::Rename, self.path(fourth)?),
            libc::SYS_fsync | libc::SYS_fdatasync => (Kind::Flush, descriptor(first)?),
            libc::SYS_ftruncate => (Kind::Truncate, descriptor(first)?),
            libc::SYS_copy_file_range => (Kind::Write, descriptor(third)?),
            _ => (Kind::Write, descriptor(first)?),
        })
    }

    /// Does half of a write in its place.
    fn write_half(&self, data: &libc::seccomp_data) -> io::Result<Answer> {
        let [descriptor, place, size, ..] = data.args;
        let bytes = self.memory(place, (size / 2) as usize)?;
        if bytes.is_empty() {
            return Ok(Answer::Error(libc::ENOSPC));
        }
        let file = File::from(taken(self.0, descriptor as i32)?);
        Ok(Answer::Value(io::Write::write(&mut &file, &bytes)? as i64))
    }
}

/// Installs the filter that stops the program at [`CALLS`].
fn supervise(command: &mut Command) {
    let statement = |code: u32, jump: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: jump, k };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    for call in CALLS {
        // The next statement if it is this call, the one behind otherwise.
        program.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, *call as u32));
        program.push(statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_USER_NOTIF));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
        // SAFETY: only system calls that are allowed between fork and exec, on memory that was prepared before.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            let listener = libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            );
            // The copy stays open in the program, so that it can be taken from there.
            if listener < 0 || libc::dup2(listener as i32, LISTENER) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: see above; the closure allocates nothing.
    unsafe { command.pre_exec(install) };
}

fn listener_of(child: &Child) -> io::Result<OwnedFd> {
    taken(child.id(), LISTENER)
}

/// Returns the process of a thread.
fn process_of(thread: u32) -> io::Result<libc::pid_t> {
    let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
    let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")).map(str::trim);
    Ok(process.and_then(|id| id.parse().ok()).ok_or(io::ErrorKind::NotFound)?)
}

/// Kills the process of a thread, if it is not gone yet.
fn end(thread: u32) {
    if let Ok(process) = process_of(thread) {
        // SAFETY: a plain system call.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }
}

/// Returns a descriptor of another process, or of a thread of one.
fn taken(process: u32, descriptor: i32) -> io::Result<OwnedFd> {
    let group = process_of(process)?;
    // SAFETY: both calls return a new descriptor or an error.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, group, 0);
        if process < 0 {
            return Err(io::Error::last_os_error());
        }
        let process = OwnedFd::from_raw_fd(process as i32);
        let found = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0);
        if found < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(found as i32))
    }
}

/// Waits for the next system call. Returns `None` once the program and its children have ended.
fn next(listener: &OwnedFd) -> io::Result<Option<libc::seccomp_notif>> {
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which lives longer than the call.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if poll.revents & libc::POLLIN == 0 {
            return Ok(None);
        }
        // SAFETY: the kernel requires a zeroed structure and fills it.
        let mut notice: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure has the size that the number of the request says.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE, &raw mut notice) } == 0 {
            return Ok(Some(notice));
        }
        // The thread was killed, or interrupted by a signal, in between.
        let error = io::Error::last_os_error();
        if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) {
            return Err(error);
        }
    }
}

fn send(listener: &OwnedFd, id: u64, answer: &Answer) -> io::Result<()> {
    let (val, error, flags) = match answer {
        Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Value(value) => (*value, 0, 0),
        Answer::Error(error) => (0, -error, 0),
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags };
    // SAFETY: the structure has the size that the number of the request says.
    if unsafe { libc::ioctl(listener.as_raw_fd(), SEND, &raw mut response) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    // It was killed.
    if error.raw_os_error() == Some(libc::ENOENT) { Ok(()) } else { Err(error) }
}
