//! Starts a sandbox, enforces its limits, and ends it.

mod child;
mod collect;
mod filter;
mod kernel;
mod layout;
mod rooted;
mod usage;

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope, path_beneath_rules,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;
use rustix::process::{Signal, WaitId, WaitIdOptions};
use seccompiler::BpfProgram;

use self::child::{ENDED, FAILED, Plan, RUNNING, USER};
use self::kernel::Side;
use self::layout::Layout;
pub(super) use self::rooted::copy_folder;
use crate::{Command, End, Files, Limits, Outcome, Root, SandboxError, Stage};

/// User and group id of `nobody`, for sandboxes started by root.
const NOBODY: u32 = 65_534;

/// Interval of memory and CPU checks.
const LOOK: Duration = Duration::from_millis(20);

/// Interval between checks of the writable folders' size.
const MEASURE: Duration = Duration::from_millis(500);

/// Landlock version to request; older kernels enforce what they support.
const LANDLOCK: ABI = ABI::V6;

#[derive(Debug)]
pub(super) struct Sandbox {
    layout: Layout,
    filter: BpfProgram,
    /// Folder on which the new root is mounted before it becomes `/`.
    root: CString,
    start: CString,
    /// User and group id in the sandbox.
    user: u32,
    /// An image's writable folders; `size` is their initial size.
    writable: Vec<(CString, PathBuf)>,
    size: u64,
    page: u64,
    tick: Duration,
}

fn kernel_error(stage: Stage) -> impl Fn(io::Error) -> SandboxError {
    move |source| SandboxError::Kernel { stage, source }
}

impl Sandbox {
    pub(super) fn new(folders: &[PathBuf]) -> Result<Self, SandboxError> {
        Self::of_layout(Layout::new(folders)?, Path::new("/work"), USER, Vec::new())
    }

    pub(super) fn in_root(root: &Root) -> Result<Self, SandboxError> {
        let of_folder = |(inside, folder): &(PathBuf, PathBuf)| Ok((layout::c_path(inside)?, folder.clone()));
        let writable = root.writable.iter().map(of_folder).collect::<Result<_, SandboxError>>()?;
        // Image programs expect to be root; here root has no capabilities.
        Self::of_layout(Layout::of_image(root)?, &root.start, 0, writable)
    }

    fn of_layout(
        layout: Layout,
        start: &Path,
        user: u32,
        writable: Vec<(CString, PathBuf)>,
    ) -> Result<Self, SandboxError> {
        let filter = filter::filter().map_err(kernel_error(Stage::Seccomp))?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let sandbox = Self {
            layout,
            filter,
            start: layout::c_path(start)?,
            user,
            size: writable.iter().map(|(_, folder)| rooted::size(folder)).sum(),
            writable,
            root: layout::c_path(&std::env::temp_dir().canonicalize().unwrap_or_else(|_| "/tmp".into()))?,
            page: rustix::param::page_size() as u64,
            tick: Duration::from_secs(1) / u32::try_from(ticks).unwrap_or(100),
        };
        sandbox.run(&Command::shell("exit 0"), &Files::new(), &Limits::default())?;
        Ok(sandbox)
    }

    pub(super) fn run(
        &self,
        command: &Command,
        files: &Files,
        limits: &Limits,
    ) -> Result<Outcome, SandboxError> {
        let words = Words::new(command)?;
        let (arguments, variables) = words.pointers();
        let (file_folders, files) = file_paths(files)?;
        let memory =
            format!("size={},nr_inodes={},mode=0755", limits.disk.max(1), limits.files.saturating_add(8));
        let memory = CString::new(memory).map_err(|error| SandboxError::Nul(error.to_string()))?;
        let rules = self.rules()?;
        let work = work_access().bits();
        let device = AccessFs::ReadFile;
        let processes = kernel_error(Stage::Processes);
        let socket =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (control, other) = socket.map_err(|error| processes(error.into()))?;
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| processes(error.into()))?;
        let (output, writer) = pipe;
        rustix::fs::fcntl_setfl(&output, rustix::fs::OFlags::NONBLOCK)
            .map_err(|error| processes(error.into()))?;
        let seconds = limits.cpu.as_secs() + 1;
        let mut access = vec![
            (c"/work", work),
            (c"/tmp", work),
            // Shared mappings of a writable `/dev/zero` are memory that no limit counts.
            (c"/dev", BitFlags::from(device).bits()),
            (c"/dev/null", (device | AccessFs::WriteFile).bits()),
        ];
        access.extend(self.writable.iter().map(|(inside, _)| (inside.as_c_str(), work)));
        let plan = Plan {
            control: other.as_raw_fd(),
            output: writer.as_raw_fd(),
            rules: rules.as_raw_fd(),
            root: &self.root,
            folders: &self.layout.folders,
            mounts: &self.layout.mounts,
            links: &self.layout.links,
            memory: &memory,
            file_folders: &file_folders,
            files: &files,
            limits: &[
                (libc::RLIMIT_AS, limits.memory),
                (libc::RLIMIT_CPU, seconds),
                (libc::RLIMIT_NPROC, u64::from(limits.processes) + 1),
                (libc::RLIMIT_FSIZE, limits.disk),
                (libc::RLIMIT_NOFILE, 256),
                (libc::RLIMIT_MEMLOCK, 0),
                (libc::RLIMIT_MSGQUEUE, 0),
                // At 0 a core dump handler would still run; at 1 the kernel skips it.
                (libc::RLIMIT_CORE, 1),
            ],
            access: &access,
            user: self.user,
            start: &self.start,
            filter: &self.filter,
            program: &words.program,
            arguments: &arguments,
            variables: &variables,
        };
        let spaces = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        let (process, handle) = match kernel::clone(spaces, true) {
            Ok(Side::New) => child::first(&plan),
            Ok(Side::Old { process, handle }) => (process, handle),
            Err(error) => return Err(kernel_error(Stage::Namespaces)(io::Error::from_raw_os_error(error.0))),
        };
        let running = Running::new(process, handle, self);
        drop((other, writer, rules));
        running.name_user()?;
        rustix::io::write(&control, &[0]).map_err(|error| processes(error.into()))?;
        running.watch(&control, &output, limits)
    }

    fn grown(&self, limits: &Limits) -> Option<End> {
        if self.writable.is_empty() {
            return None;
        }
        let size: u64 = self.writable.iter().map(|(_, folder)| rooted::size(folder)).sum();
        (size.saturating_sub(self.size) > limits.disk).then_some(End::Disk)
    }

    fn rules(&self) -> Result<OwnedFd, SandboxError> {
        let failed = kernel_error(Stage::Landlock);
        let make = || {
            let ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(ABI::V1))?
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(AccessFs::from_all(LANDLOCK))?
                .handle_access(AccessNet::from_all(LANDLOCK))?
                .scope(Scope::from_all(LANDLOCK))?
                .create()?;
            let readable = path_beneath_rules(&self.layout.readable, AccessFs::from_read(LANDLOCK));
            ruleset.add_rules(readable)
        };
        let created = make().map_err(|error| failed(io::Error::other(error)))?;
        Option::<OwnedFd>::from(created)
            .ok_or_else(|| failed(io::Error::other("the kernel did not enable it")))
    }
}

/// Returns the Landlock rights in `/work` and `/tmp`: all except those for devices. Rights unknown
/// to the kernel are left out, because it rejects them.
fn work_access() -> BitFlags<AccessFs> {
    let version = match kernel::landlock_version() {
        ..=1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => LANDLOCK,
    };
    AccessFs::from_all(version) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

struct Words {
    program: CString,
    arguments: Vec<CString>,
    variables: Vec<CString>,
}

impl Words {
    fn new(command: &Command) -> Result<Self, SandboxError> {
        let text = |text: String| CString::new(text.as_str()).map_err(|_| SandboxError::Nul(text));
        let program = layout::c_path(&command.program)?;
        let mut arguments = vec![program.clone()];
        for argument in &command.arguments {
            arguments.push(text(argument.clone())?);
        }
        let variables = command.variables.iter();
        let variables =
            variables.map(|(name, value)| text(format!("{name}={value}"))).collect::<Result<_, _>>()?;
        Ok(Self { program, arguments, variables })
    }

    fn pointers(&self) -> (Vec<*const libc::c_char>, Vec<*const libc::c_char>) {
        let list = |texts: &[CString]| {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        (list(&self.arguments), list(&self.variables))
    }
}

type NamedFile<'a> = (CString, &'a [u8]);

fn file_paths(files: &Files) -> Result<(Vec<CString>, Vec<NamedFile<'_>>), SandboxError> {
    let mut folders = BTreeSet::new();
    let mut named = Vec::with_capacity(files.len());
    for (name, bytes) in files {
        let path = Path::new(name);
        let normal = path.components().all(|part| matches!(part, Component::Normal(_)));
        // `Path` would normalize `a//b`, `a/./b` and `a/`.
        let plain = !name.is_empty() && !name.split('/').any(|part| part.is_empty() || part == ".");
        if !(normal && plain) {
            return Err(SandboxError::Path(name.clone()));
        }
        let ancestors = path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty());
        folders.extend(ancestors.map(|parent| Path::new("data/work").join(parent)));
        named.push((layout::c_path(&Path::new("data/work").join(path))?, bytes.as_slice()));
    }
    let folders = folders.iter().map(|path| layout::c_path(path)).collect::<Result<_, _>>()?;
    Ok((folders, named))
}

/// A sandbox's first process, killed and reaped when dropped.
struct Running<'a> {
    process: i32,
    handle: OwnedFd,
    sandbox: &'a Sandbox,
    started: Instant,
}

impl<'a> Running<'a> {
    #[expect(unsafe_code, reason = "the kernel gives the handle as a number")]
    fn new(process: i32, handle: i32, sandbox: &'a Sandbox) -> Self {
        // SAFETY: `clone3` made this descriptor, and nothing else owns it.
        let handle = unsafe { OwnedFd::from_raw_fd(handle) };
        Self { process, handle, sandbox, started: Instant::now() }
    }

    /// Maps the namespace's user and group ids to this program's ids or, if this program is root
    /// and the kernel allows it, to those of `nobody`.
    fn name_user(&self) -> Result<(), SandboxError> {
        let write = |name: &str, text: &str| fs::write(format!("/proc/{}/{name}", self.process), text);
        let user = rustix::process::geteuid();
        let inside = self.sandbox.user;
        // `nobody` owns no files, and RLIMIT_NPROC does not apply to root.
        let as_nobody = user.is_root()
            && write("gid_map", &format!("{inside} {NOBODY} 1")).is_ok()
            && write("uid_map", &format!("{inside} {NOBODY} 1")).is_ok();
        if as_nobody {
            return Ok(());
        }
        let group = rustix::process::getegid().as_raw();
        write("setgroups", "deny")
            .and_then(|()| write("gid_map", &format!("{inside} {group} 1")))
            .and_then(|()| write("uid_map", &format!("{inside} {} 1", user.as_raw())))
            .map_err(kernel_error(Stage::Users))
    }

    fn watch(self, control: &OwnedFd, output: &OwnedFd, limits: &Limits) -> Result<Outcome, SandboxError> {
        let mut seen = Seen::default();
        let mut early = None;
        let mut next_look = self.started + LOOK;
        let mut next_measure = self.started + MEASURE;
        while early.is_none() {
            let now = Instant::now();
            if now >= next_look {
                early = self.over(limits, seen.running);
                next_look = now + LOOK;
            }
            if now >= next_measure {
                early = early.or_else(|| self.sandbox.grown(limits));
                next_measure = Instant::now() + MEASURE;
            }
            if now.duration_since(self.started) >= limits.wall {
                early = Some(End::WallTime);
            }
            let wait = LOOK.min(limits.wall.saturating_sub(now.duration_since(self.started)));
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let mut places = [
                PollFd::new(&self.handle, PollFlags::IN),
                PollFd::new(control, PollFlags::IN),
                PollFd::new(output, PollFlags::IN),
            ];
            match poll(&mut places, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(kernel_error(Stage::Processes)(error.into())),
            }
            let [ended, told, written] = places.map(|place| !place.revents().is_empty());
            if written && !seen.take_output(output, limits.output) {
                early = early.or(Some(End::Output));
            }
            if told {
                seen.take_message(control)?;
            }
            if ended {
                break;
            }
        }
        let sandbox = self.sandbox;
        drop(self);
        while seen.take_message(control)? {}
        if !seen.take_output(output, limits.output) {
            early = early.or(Some(End::Output));
        }
        early = early.or_else(|| sandbox.grown(limits));
        let work = seen.work.take();
        let end = match (early, seen.status) {
            (Some(end), _) => end,
            (None, Some(status)) => Seen::end(status),
            (None, None) => return Err(SandboxError::Killed),
        };
        let (files, left_out) =
            work.map_or_else(Default::default, |work| collect::collect(&work, limits.disk));
        Ok(Outcome { end, output: seen.output, files, left_out })
    }

    /// Returns the exceeded limit, if any. The memory limit applies only while the command runs.
    fn over(&self, limits: &Limits, running: bool) -> Option<End> {
        let usage = usage::usage(self.process);
        if running && usage.pages.saturating_mul(self.sandbox.page) > limits.memory {
            return Some(End::Memory);
        }
        let used = self.sandbox.tick.saturating_mul(u32::try_from(usage.ticks).unwrap_or(u32::MAX));
        (used > limits.cpu).then_some(End::CpuTime)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = rustix::process::pidfd_send_signal(&self.handle, Signal::KILL);
        // A namespace's first process ends after all others.
        while let Err(rustix::io::Errno::INTR) = rustix::process::waitid(
            WaitId::PidFd(std::os::fd::AsFd::as_fd(&self.handle)),
            WaitIdOptions::EXITED,
        ) {}
    }
}

#[derive(Default)]
struct Seen {
    output: Vec<u8>,
    work: Option<OwnedFd>,
    running: bool,
    status: Option<i32>,
}

impl Seen {
    fn take_output(&mut self, output: &OwnedFd, limit: usize) -> bool {
        let mut buffer = [0; 16_384];
        loop {
            match rustix::io::read(output, &mut buffer) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) | Err(_) => return true,
                Ok(count) => {
                    let room = limit - self.output.len();
                    self.output.extend_from_slice(&buffer[..count.min(room)]);
                    if count > room {
                        return false;
                    }
                }
            }
        }
    }

    /// Takes a message from the first process; returns false if none has arrived.
    fn take_message(&mut self, control: &OwnedFd) -> Result<bool, SandboxError> {
        let mut bytes = [0; 8];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut sent = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            control,
            &mut [io::IoSliceMut::new(&mut bytes)],
            &mut sent,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        );
        let count = match received {
            Ok(message) if message.bytes > 0 => message.bytes,
            _ => return Ok(false),
        };
        for message in sent.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.work = descriptors.last().or(self.work.take());
            }
        }
        match bytes.get(..count).unwrap_or_default() {
            [FAILED, stage, number @ ..] => {
                let stage = Stage::ALL.get(usize::from(*stage)).copied().unwrap_or(Stage::Processes);
                let number = i32::from_ne_bytes(number.try_into().unwrap_or_default());
                Err(kernel_error(stage)(io::Error::from_raw_os_error(number)))
            }
            [ENDED, status @ ..] => {
                self.status = Some(i32::from_ne_bytes(status.try_into().unwrap_or_default()));
                Ok(true)
            }
            [RUNNING] => {
                self.running = true;
                Ok(true)
            }
            // `STARTED` or `READY`.
            _ => Ok(true),
        }
    }

    fn end(status: i32) -> End {
        if libc::WIFSIGNALED(status) {
            match libc::WTERMSIG(status) {
                libc::SIGXCPU => End::CpuTime,
                signal => End::Signalled(signal),
            }
        } else {
            End::Exited(libc::WEXITSTATUS(status))
        }
    }
}
