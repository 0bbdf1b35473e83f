//! Sets up the new processes before the command starts.
//!
//! The first process is PID 1 of its namespace: it mounts the root, starts the command and waits
//! for it. When this process ends, the kernel kills all others. This code does not allocate memory
//! (see `kernel.rs`); all data is prepared in a [`Plan`].

use std::ffi::{CStr, CString, c_char, c_int};

use seccompiler::BpfProgram;

use super::kernel::{self, Done, Errno, Side};
use super::layout::Mount;
use crate::Stage;

pub(super) const USER: u32 = 1000;

/// Descriptors of the first process: the socket to the calling program, the output pipe and the
/// Landlock rules.
const CONTROL: c_int = 3;
const OUTPUT: c_int = 4;
const RULES: c_int = 5;
/// Lowest number for temporary copies of descriptors, above `CONTROL`, `OUTPUT` and `RULES`.
const HIGH: c_int = 64;

pub(super) const MOST_MOUNTS: usize = 48;

/// First byte of a message to the calling program.
pub(super) const STARTED: u8 = b'S';
pub(super) const READY: u8 = b'R';
pub(super) const RUNNING: u8 = b'X';
pub(super) const FAILED: u8 = b'F';
pub(super) const ENDED: u8 = b'E';

pub(super) struct Plan<'a> {
    pub(super) control: c_int,
    pub(super) output: c_int,
    pub(super) rules: c_int,
    /// Existing folder on which the new root is mounted before it becomes `/`.
    pub(super) root: &'a CStr,
    /// Folders relative to the root, parents first.
    pub(super) folders: &'a [CString],
    pub(super) mounts: &'a [Mount],
    pub(super) links: &'a [(CString, CString)],
    /// Mount options of `/work` and `/tmp`.
    pub(super) memory: &'a CStr,
    /// Input files and their folders relative to the root, parents first.
    pub(super) file_folders: &'a [CString],
    pub(super) files: &'a [(CString, &'a [u8])],
    pub(super) limits: &'a [(u32, u64)],
    /// Paths that exist only in the new root, with the Landlock rights below them.
    pub(super) access: &'a [(&'a CStr, u64)],
    pub(super) filter: &'a BpfProgram,
    /// User and group id in the sandbox.
    pub(super) user: u32,
    pub(super) start: &'a CStr,
    pub(super) program: &'a CStr,
    pub(super) arguments: &'a [*const c_char],
    pub(super) variables: &'a [*const c_char],
}

type Failed = (Stage, Errno);

fn at(stage: Stage) -> impl Fn(Errno) -> Failed {
    move |error| (stage, error)
}

pub(super) fn first(plan: &Plan<'_>) -> ! {
    let failed = match set_up(plan).and_then(|()| watch(plan)) {
        Ok(status) => {
            let [a, b, c, d] = status.to_ne_bytes();
            let _ = kernel::write_all(CONTROL, &[ENDED, a, b, c, d]);
            kernel::exit(0)
        }
        Err(failed) => failed,
    };
    report(failed)
}

fn report((stage, Errno(number)): Failed) -> ! {
    let [a, b, c, d] = number.to_ne_bytes();
    let _ = kernel::write_all(CONTROL, &[FAILED, stage as u8, a, b, c, d]);
    kernel::exit(1)
}

/// Moves the plan's descriptors to their fixed numbers and closes all others, including those of
/// other sandboxes.
fn take_descriptors(plan: &Plan<'_>) -> Done {
    let control = kernel::duplicate_above(plan.control, HIGH)?;
    let output = kernel::duplicate_above(plan.output, HIGH)?;
    let rules = kernel::duplicate_above(plan.rules, HIGH)?;
    kernel::duplicate(control, CONTROL, false)?;
    kernel::duplicate(output, OUTPUT, false)?;
    kernel::duplicate(rules, RULES, false)?;
    kernel::close_from(RULES + 1)
}

fn set_up(plan: &Plan<'_>) -> Result<(), Failed> {
    // The handlers are copies of the program's, and before Linux 6.12 Landlock cannot stop a
    // command from signalling this process.
    kernel::reset_signals();
    // First, so that later failures can be reported.
    if take_descriptors(plan).is_err() {
        kernel::exit(1);
    }
    // Waits until the program has mapped the user; at end of file, the program has ended.
    if !matches!(kernel::read_byte(CONTROL), Ok(Some(_))) {
        kernel::exit(1);
    }
    // Before the user changes, because only the program's user may enter some folders, and before
    // the new root hides what is below its mount point.
    kernel::make_mounts_private().map_err(at(Stage::Mounts))?;
    let mut copies = [-1; MOST_MOUNTS];
    for (copy, mount) in copies.iter_mut().zip(plan.mounts) {
        *copy = kernel::copy_mount(&mount.source).map_err(at(Stage::System))?;
    }
    kernel::become_user(plan.user, plan.user).map_err(at(Stage::Users))?;
    // After changing the user, which resets it.
    kernel::end_with_parent().map_err(at(Stage::Processes))?;
    // Fails if the program has just ended.
    kernel::write_all(CONTROL, &[STARTED]).map_err(at(Stage::Processes))?;
    kernel::new_session().map_err(at(Stage::Processes))?;
    make_root(plan, &copies)?;
    kernel::change_root().map_err(at(Stage::Root))?;
    kernel::change_folder(plan.start).map_err(at(Stage::Root))?;
    kernel::set_mount(c"/", kernel::ATTR_RDONLY | kernel::ATTR_NODEV, false).map_err(at(Stage::Root))
}

fn make_root(plan: &Plan<'_>, copies: &[c_int]) -> Result<(), Failed> {
    let mounts = at(Stage::Mounts);
    kernel::mount_memory(plan.root, c"size=1m,nr_inodes=1024,mode=0755").map_err(&mounts)?;
    kernel::change_folder(plan.root).map_err(&mounts)?;
    for folder in plan.folders {
        kernel::make_folder(folder).map_err(&mounts)?;
    }
    for (target, path) in plan.links {
        kernel::make_link(target, path).map_err(&mounts)?;
    }
    for (copy, mount) in copies.iter().zip(plan.mounts) {
        if mount.is_file {
            kernel::make_file(&mount.target, b"").map_err(at(Stage::System))?;
        }
        kernel::place_mount(*copy, &mount.target).map_err(at(Stage::System))?;
        kernel::set_mount(&mount.target, mount.attributes, true).map_err(at(Stage::System))?;
    }
    kernel::mount_memory(c"data", plan.memory).map_err(&mounts)?;
    kernel::make_folder(c"data/work").map_err(&mounts)?;
    kernel::make_folder(c"data/tmp").map_err(&mounts)?;
    for folder in plan.file_folders {
        kernel::make_folder(folder).map_err(at(Stage::Files))?;
    }
    for (path, bytes) in plan.files {
        kernel::make_file(path, bytes).map_err(at(Stage::Files))?;
    }
    kernel::bind(c"data/work", c"work").map_err(&mounts)?;
    kernel::bind(c"data/tmp", c"tmp").map_err(&mounts)?;
    // The program reads the files through this folder after all processes have ended.
    let work = kernel::open(c"data/work", libc::O_RDONLY | libc::O_DIRECTORY).map_err(&mounts)?;
    kernel::send_descriptor(CONTROL, &[READY], work).map_err(at(Stage::Processes))?;
    kernel::unmount(c"data").map_err(&mounts)?;
    kernel::close_from(RULES + 1).map_err(&mounts)
}

fn watch(plan: &Plan<'_>) -> Result<i32, Failed> {
    // Returns once the new process has executed the command.
    match kernel::clone(libc::CLONE_VFORK, false).map_err(at(Stage::Processes))? {
        Side::New => report(command(plan)),
        Side::Old { process, .. } => {
            kernel::write_all(CONTROL, &[RUNNING]).map_err(at(Stage::Processes))?;
            loop {
                let (ended, status) = kernel::wait().map_err(at(Stage::Processes))?;
                if ended == process {
                    return Ok(status);
                }
            }
        }
    }
}

fn command(plan: &Plan<'_>) -> Failed {
    match prepare(plan) {
        Ok(()) => (Stage::Command, kernel::execute(plan.program, plan.arguments, plan.variables)),
        Err(failed) => failed,
    }
}

fn prepare(plan: &Plan<'_>) -> Result<(), Failed> {
    let processes = at(Stage::Processes);
    kernel::new_session().map_err(&processes)?;
    let input = kernel::open(c"/dev/null", libc::O_RDONLY).map_err(&processes)?;
    kernel::duplicate(input, 0, true).map_err(&processes)?;
    kernel::duplicate(OUTPUT, 1, true).map_err(&processes)?;
    kernel::duplicate(OUTPUT, 2, true).map_err(&processes)?;
    for (resource, value) in plan.limits {
        kernel::limit(*resource, *value).map_err(at(Stage::Limits))?;
    }
    kernel::drop_capabilities().map_err(at(Stage::Limits))?;
    let landlock = at(Stage::Landlock);
    for (path, access) in plan.access {
        let folder = kernel::open(path, libc::O_PATH).map_err(&landlock)?;
        kernel::allow_below(RULES, folder, *access).map_err(&landlock)?;
    }
    kernel::obey_landlock(RULES).map_err(&landlock)?;
    seccompiler::apply_filter(plan.filter).map_err(|_| (Stage::Seccomp, Errno(libc::EPERM)))
}
