//! The filter of system calls (seccomp) of a plugin's process.

use std::collections::BTreeMap;

use crossdock_plugin_api::{Error, Result};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// The allowed system calls. All other system calls fail with EPERM, except the system calls that
/// have rules in [`filter_system_calls`].
const ALLOWED: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_msync,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
    // Files. Landlock decides which files the process can open.
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_statfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Sockets that are open already.
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    // Threads, signals, time.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_getpriority,
    libc::SYS_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    // A separate filter makes this call fail with ENOSYS.
    libc::SYS_clone3,
];

/// Old system calls that only x86-64 has.
#[cfg(target_arch = "x86_64")]
const ALSO_ALLOWED: &[libc::c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_open,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_dup2,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALSO_ALLOWED: &[libc::c_long] = &[];

/// Socket options that make the system pass credentials or open files of a sender to the receiver.
const SENDER_OPTIONS: [i32; 4] = [libc::SO_PASSCRED, libc::SO_PASSSEC, SO_PASSPIDFD, SO_PASSRIGHTS];
// Linux constants that the crate libc lacks for some C libraries.
const SO_PASSPIDFD: i32 = 76;
const SO_PASSRIGHTS: i32 = 83;
/// The allowed commands of `fcntl`. The process may share an open file with the host, so no allowed
/// command changes the flags, locks, leases or signals of an open file.
const FILE_COMMANDS: [i32; 7] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

/// Limits all threads of this process to the system calls that a plugin needs.
///
/// # Errors
/// The system does not support seccomp filters.
pub fn filter_system_calls(has_cuda: bool) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::unsupported(format!("this system cannot filter a process's system calls (seccomp): {error}"))
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let is = |argument, value: u64, operator| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
            .map_err(|error| failed(&error))
    };
    // The kernel ignores the upper half of a 32-bit argument, so only the lower half is compared.
    let is_int = |argument, value: i32, operator| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
            .map_err(|error| failed(&error))
    };
    let all = |conditions| SeccompRule::new(conditions).map_err(|error| failed(&error));
    let when = |argument, value: u64, operator| all(vec![is(argument, value, operator)?]);
    let apply = |rules, otherwise, matched| {
        let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| failed(&error))?;
        let program = BpfProgram::try_from(filter).map_err(|error| failed(&error))?;
        // This call also filters the threads that a CUDA driver has started.
        seccompiler::apply_filter_all_threads(&program).map_err(|error| failed(&error))
    };
    // The flags of `clone3` are in memory, which filters cannot read. After ENOSYS, C libraries
    // call `clone` instead.
    let not_implemented = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), SeccompAction::Allow, not_implemented)?;
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALSO_ALLOWED).map(|call| (*call, Vec::new())).collect();
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![when(0, thread, SeccompCmpOp::MaskedEq(thread))?]);
    // Only stream sockets are allowed, because a datagram socket of a pair can also send to any
    // other socket.
    const TYPE_MASK: u64 = 0xf;
    let (local, stream) = (is_int(0, libc::AF_UNIX, SeccompCmpOp::Eq)?, SeccompCmpOp::MaskedEq(TYPE_MASK));
    rules.insert(libc::SYS_socketpair, vec![all(vec![local, is_int(1, libc::SOCK_STREAM, stream)?])?]);
    // The process may set only its own limits and affinities. Without these rules, it could set the
    // limits and affinities of all processes of its user.
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity] {
        rules.insert(call, vec![all(vec![is_int(0, 0, SeccompCmpOp::Eq)?])?]);
    }
    let commands = FILE_COMMANDS.map(|command| all(vec![is_int(1, command, SeccompCmpOp::Eq)?]));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_>>()?);
    // These options make the system pass information about senders, and even open files, to the
    // receiver.
    let others = SENDER_OPTIONS.map(|option| is_int(2, option, SeccompCmpOp::Ne));
    rules.insert(libc::SYS_setsockopt, vec![all(others.into_iter().collect::<Result<_>>()?)?]);
    // Signals to this process and its threads are allowed, because `abort` sends them.
    let process = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![when(0, process, SeccompCmpOp::Eq)?]);
    rules.insert(libc::SYS_kill, vec![when(0, process, SeccompCmpOp::Eq)?]);
    if has_cuda {
        // The driver's requests have the type 'F', or numbers below 256 for unified memory.
        // Requests to terminals do not match these rules.
        let of_driver = |bits: u64, value| all(vec![is_int(1, value, SeccompCmpOp::MaskedEq(bits))?]);
        rules.insert(libc::SYS_ioctl, vec![of_driver(0xff00, 0x4600)?, of_driver(0xffff_ff00, 0)?]);
    }
    apply(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}
