//! System calls that a new process makes before its command starts.
//!
//! The new process contains only a copy of the thread that started it, so locks that other threads
//! held, such as the allocator's, are never released. Therefore this module never allocates, locks
//! or panics. It makes system calls directly if their C wrapper does more (`fork`, `setresuid`,
//! `sigaction`).

#![expect(unsafe_code, reason = "the standard library has none of these calls")]

use std::ffi::{CStr, c_char, c_int, c_long};
use std::ptr;

#[derive(Clone, Copy, Debug)]
pub(super) struct Errno(pub(super) i32);

pub(super) type Done = Result<(), Errno>;

/// `struct clone_args`, version 0.
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// `struct mount_attr`
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// `struct landlock_path_beneath_attr`
#[repr(C, packed)]
struct PathBeneath {
    access: u64,
    folder: c_int,
}

pub(super) const ATTR_RDONLY: u64 = 0x1;
pub(super) const ATTR_NOSUID: u64 = 0x2;
pub(super) const ATTR_NODEV: u64 = 0x4;
pub(super) const ATTR_NOEXEC: u64 = 0x8;
const OPEN_TREE_CLONE: c_long = 1;
const MOVE_MOUNT_F_EMPTY_PATH: c_long = 4;
const LANDLOCK_RULE_PATH_BENEATH: c_long = 1;

fn errno() -> Errno {
    // SAFETY: the address of this thread's `errno` is always valid.
    Errno(unsafe { *libc::__errno_location() })
}

fn check(result: c_long) -> Result<c_long, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

macro_rules! call {
    ($number:expr $(, $argument:expr)*) => {
        // SAFETY: every pointer argument is a borrowed value of the kernel's type that outlives the
        // call, which changes no other memory of this process.
        check(unsafe { libc::syscall($number $(, $argument)*) })
    };
}

pub(super) enum Side {
    New,
    Old { process: i32, handle: c_int },
}

/// Copies the calling thread into a new process, with `clone3`'s flags; if `handle` is set, the
/// parent gets a pidfd.
pub(super) fn clone(flags: c_int, handle: bool) -> Result<Side, Errno> {
    let mut descriptor: c_int = -1;
    let flags = flags | if handle { libc::CLONE_PIDFD } else { 0 };
    let arguments = CloneArgs {
        flags: u64::from(flags.cast_unsigned()),
        pidfd: if handle { (&raw mut descriptor).expose_provenance() as u64 } else { 0 },
        exit_signal: u64::from(libc::SIGCHLD.cast_unsigned()),
        ..CloneArgs::default()
    };
    match call!(libc::SYS_clone3, &raw const arguments, size_of::<CloneArgs>())? {
        0 => Ok(Side::New),
        process => Ok(Side::Old { process: process as i32, handle: descriptor }),
    }
}

pub(super) fn exit(code: c_int) -> ! {
    // SAFETY: `_exit` runs no code of this process.
    unsafe { libc::_exit(code) }
}

/// Makes the kernel kill this process when the thread that started it ends.
pub(super) fn end_with_parent() -> Done {
    call!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0).map(drop)
}

pub(super) fn duplicate_above(descriptor: c_int, least: c_int) -> Result<c_int, Errno> {
    call!(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, least).map(|number| number as c_int)
}

/// Duplicates a descriptor; `exec` closes the copy unless `keep` is set.
pub(super) fn duplicate(descriptor: c_int, number: c_int, keep: bool) -> Done {
    call!(libc::SYS_dup3, descriptor, number, if keep { 0 } else { libc::O_CLOEXEC }).map(drop)
}

pub(super) fn close_from(number: c_int) -> Done {
    call!(libc::SYS_close_range, number, u32::MAX, 0).map(drop)
}

/// Reads a byte; `None` at the end of the input.
pub(super) fn read_byte(descriptor: c_int) -> Result<Option<u8>, Errno> {
    let mut byte = 0u8;
    let count = call!(libc::SYS_read, descriptor, &raw mut byte, 1)?;
    Ok((count == 1).then_some(byte))
}

pub(super) fn write_all(descriptor: c_int, mut bytes: &[u8]) -> Done {
    while !bytes.is_empty() {
        let count = call!(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len())?;
        bytes = bytes.get(count as usize..).unwrap_or_default();
    }
    Ok(())
}

pub(super) fn send_descriptor(socket: c_int, bytes: &[u8], descriptor: c_int) -> Done {
    // `struct cmsghdr` and one descriptor, with the kernel's alignment.
    #[repr(C)]
    struct Control {
        header: libc::cmsghdr,
        descriptor: c_int,
    }
    // SAFETY: zero is a valid value of both, which are structs of numbers and pointers.
    let (mut control, mut message) =
        unsafe { (std::mem::zeroed::<Control>(), std::mem::zeroed::<libc::msghdr>()) };
    control.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<c_int>()) as _;
    control.header.cmsg_level = libc::SOL_SOCKET;
    control.header.cmsg_type = libc::SCM_RIGHTS;
    control.descriptor = descriptor;
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>() as _;
    call!(libc::SYS_sendmsg, socket, &raw const message, libc::MSG_NOSIGNAL).map(drop)
}

/// Changes user and group in the namespace, and drops supplementary groups if allowed.
pub(super) fn become_user(user: u32, group: u32) -> Done {
    // Not allowed in a user namespace created without root; files of the user's groups then stay
    // accessible.
    let _ = call!(libc::SYS_setgroups, 0, ptr::null::<u32>());
    call!(libc::SYS_setresgid, group, group, group)?;
    call!(libc::SYS_setresuid, user, user, user).map(drop)
}

pub(super) fn new_session() -> Done {
    call!(libc::SYS_setsid).map(drop)
}

/// Stops mount changes from reaching other namespaces.
pub(super) fn make_mounts_private() -> Done {
    let none = ptr::null::<c_char>();
    call!(libc::SYS_mount, none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none).map(drop)
}

pub(super) fn mount_memory(target: &CStr, options: &CStr) -> Done {
    let kind = c"tmpfs".as_ptr();
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    call!(libc::SYS_mount, kind, target.as_ptr(), kind, flags, options.as_ptr()).map(drop)
}

pub(super) fn bind(source: &CStr, target: &CStr) -> Done {
    let none = ptr::null::<c_char>();
    call!(libc::SYS_mount, source.as_ptr(), target.as_ptr(), none, libc::MS_BIND, none).map(drop)
}

/// Copies a mount and those below it, without attaching the copy.
pub(super) fn copy_mount(source: &CStr) -> Result<c_int, Errno> {
    let flags = OPEN_TREE_CLONE | c_long::from(libc::AT_RECURSIVE) | c_long::from(libc::O_CLOEXEC);
    call!(libc::SYS_open_tree, libc::AT_FDCWD, source.as_ptr(), flags).map(|number| number as c_int)
}

pub(super) fn place_mount(mount: c_int, target: &CStr) -> Done {
    let empty = c"".as_ptr();
    call!(libc::SYS_move_mount, mount, empty, libc::AT_FDCWD, target.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
        .map(drop)
}

/// Sets a mount's attributes, and if `below` is set, those of all mounts below it.
pub(super) fn set_mount(target: &CStr, attributes: u64, below: bool) -> Done {
    let attributes = MountAttr { set: attributes, clear: 0, propagation: 0, user_namespace: 0 };
    let flags = if below { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<MountAttr>();
    call!(libc::SYS_mount_setattr, libc::AT_FDCWD, target.as_ptr(), flags, &raw const attributes, size)
        .map(drop)
}

pub(super) fn unmount(target: &CStr) -> Done {
    call!(libc::SYS_umount2, target.as_ptr(), libc::MNT_DETACH).map(drop)
}

/// Makes the working directory the root and unmounts the old root.
pub(super) fn change_root() -> Done {
    let here = c".".as_ptr();
    call!(libc::SYS_pivot_root, here, here)?;
    unmount(c".")
}

pub(super) fn change_folder(path: &CStr) -> Done {
    call!(libc::SYS_chdir, path.as_ptr()).map(drop)
}

pub(super) fn make_folder(path: &CStr) -> Done {
    match call!(libc::SYS_mkdirat, libc::AT_FDCWD, path.as_ptr(), 0o755) {
        Err(Errno(libc::EEXIST)) | Ok(_) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn make_link(target: &CStr, path: &CStr) -> Done {
    call!(libc::SYS_symlinkat, target.as_ptr(), libc::AT_FDCWD, path.as_ptr()).map(drop)
}

pub(super) fn make_file(path: &CStr, bytes: &[u8]) -> Done {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let file = call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o644)? as c_int;
    let written = write_all(file, bytes);
    call!(libc::SYS_close, file)?;
    written
}

pub(super) fn open(path: &CStr, flags: c_int) -> Result<c_int, Errno> {
    call!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags | libc::O_CLOEXEC)
        .map(|number| number as c_int)
}

pub(super) fn limit(resource: u32, value: u64) -> Done {
    let limits = [value, value];
    call!(libc::SYS_prlimit64, 0, resource, limits.as_ptr(), ptr::null::<u64>()).map(drop)
}

pub(super) fn drop_capabilities() -> Done {
    let header: [u32; 2] = [0x2008_0522, 0];
    let none = [0u32; 6];
    for capability in 0..64 {
        // Fails after the last capability.
        if call!(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0).is_err() {
            break;
        }
    }
    call!(libc::SYS_capset, header.as_ptr(), none.as_ptr()).map(drop)
}

/// Returns the version of Landlock, or 0 if the kernel lacks it.
pub(super) fn landlock_version() -> i64 {
    let ask_version = 1;
    call!(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, ask_version).unwrap_or(0)
}

pub(super) fn allow_below(rules: c_int, folder: c_int, access: u64) -> Done {
    let rule = PathBeneath { access, folder };
    call!(libc::SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &raw const rule, 0).map(drop)
}

/// Sets `no_new_privs` and enforces the Landlock rules.
pub(super) fn obey_landlock(rules: c_int) -> Done {
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    call!(libc::SYS_landlock_restrict_self, rules, 0).map(drop)
}

pub(super) fn reset_signals() {
    // On all architectures, zeros are the default.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP cannot be changed.
        let _ = call!(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<u64>(), 8);
    }
    let none = 0u64;
    let _ = call!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, ptr::null::<u64>(), 8);
}

/// Executes a program and returns only on failure. `arguments` and `variables` must end with a null
/// pointer.
pub(super) fn execute(program: &CStr, arguments: &[*const c_char], variables: &[*const c_char]) -> Errno {
    match call!(libc::SYS_execve, program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) {
        Err(error) => error,
        Ok(_) => Errno(0),
    }
}

/// Waits for any child; returns its id and `waitpid` status.
pub(super) fn wait() -> Result<(i32, i32), Errno> {
    let mut status: c_int = 0;
    loop {
        match call!(libc::SYS_wait4, -1, &raw mut status, 0, ptr::null::<u8>()) {
            Err(Errno(libc::EINTR)) => {}
            other => return other.map(|process| (process as i32, status)),
        }
    }
}
