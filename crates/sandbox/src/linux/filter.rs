//! System calls that a command may make; all others, even future ones, fail with `ENOSYS`.

use std::collections::BTreeMap;
use std::io;

use libc::{
    CLONE_NEWCGROUP, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWTIME, CLONE_NEWUSER,
    CLONE_NEWUTS,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// System calls that are always allowed.
///
/// Excluded on purpose: `socket`, `ptrace`, mounts, namespaces, keys, `bpf`, `perf_event_open`,
/// `io_uring_*`, `userfaultfd`, `mknod`, `pidfd_getfd`, modules, clocks; System V IPC and
/// `memfd_create`, because no limit counts their memory; and `clone3`, because a filter cannot read
/// its flags (the C library falls back to `clone`).
#[rustfmt::skip]
const ALLOWED: &[libc::c_long] = &[
    // Files.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_readlinkat, libc::SYS_getdents64, libc::SYS_getcwd,
    libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat, libc::SYS_renameat2,
    libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat,
    libc::SYS_ftruncate, libc::SYS_truncate, libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_flock,
    libc::SYS_utimensat, libc::SYS_umask, libc::SYS_dup, libc::SYS_dup3, libc::SYS_fcntl, libc::SYS_ioctl,
    libc::SYS_pipe2, libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee, libc::SYS_copy_file_range, libc::SYS_fadvise64,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr,
    libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_flistxattr, libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch, libc::SYS_readahead,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_signalfd4, libc::SYS_nanosleep, libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_getitimer, libc::SYS_setitimer,
    libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun, libc::SYS_times,
    // Memory.
    libc::SYS_brk, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_msync,
    libc::SYS_mincore, libc::SYS_mlock, libc::SYS_munlock, libc::SYS_membarrier,
    // Processes, threads and signals of this sandbox.
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigpending, libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigqueueinfo, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_futex,
    libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_set_tid_address, libc::SYS_rseq,
    libc::SYS_gettid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid,
    libc::SYS_setsid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid,
    libc::SYS_getresgid, libc::SYS_getgroups, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setresuid,
    libc::SYS_setresgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_capget, libc::SYS_prctl,
    libc::SYS_prlimit64, libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_getrusage, libc::SYS_getpriority,
    libc::SYS_setpriority, libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal,
    // The machine.
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom, libc::SYS_getcpu,
    // Socket pairs; `socket` itself is not allowed.
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_shutdown,
    libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_getsockname, libc::SYS_getpeername,
];

#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const OLDER: &[libc::c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_dup2,
    libc::SYS_pipe, libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd,
    libc::SYS_inotify_init, libc::SYS_fork, libc::SYS_vfork, libc::SYS_pause, libc::SYS_alarm, libc::SYS_getpgrp,
    libc::SYS_arch_prctl, libc::SYS_time, libc::SYS_getdents,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

const NAMESPACES: libc::c_int = CLONE_NEWCGROUP
    | CLONE_NEWIPC
    | CLONE_NEWNET
    | CLONE_NEWNS
    | CLONE_NEWPID
    | CLONE_NEWTIME
    | CLONE_NEWUSER
    | CLONE_NEWUTS;

pub(super) fn filter() -> io::Result<BpfProgram> {
    let condition = |argument, length, operator, value| {
        SeccompCondition::new(argument, length, operator, value)
            .and_then(|condition| SeccompRule::new(vec![condition]))
            .map_err(io::Error::other)
    };
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|number| (*number, Vec::new())).collect();
    let none = SeccompCmpOp::MaskedEq(u64::from(NAMESPACES.cast_unsigned()));
    rules.insert(libc::SYS_clone, vec![condition(0, SeccompCmpArgLen::Qword, none, 0)?]);
    let local = u64::from(libc::AF_UNIX.cast_unsigned());
    // A shared anonymous mapping keeps its pages until the last is unmapped, and no limit counts
    // them.
    let flags = |mask: i32, value: i32| {
        let mask = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
        condition(3, SeccompCmpArgLen::Qword, mask, u64::from(value.cast_unsigned()))
    };
    rules.insert(
        libc::SYS_mmap,
        vec![flags(libc::MAP_ANONYMOUS, 0)?, flags(libc::MAP_TYPE, libc::MAP_PRIVATE)?],
    );
    rules.insert(libc::SYS_socketpair, vec![condition(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, local)?]);
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let filter =
        SeccompFilter::new(rules, refused, SeccompAction::Allow, machine).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}
