//! What the process of a plugin gives up before it loads the plugin.
//!
//! Landlock takes files and the network; a filter of system calls what else reaches outside: sockets, other processes, programs,
//! the kernel's own interfaces. What is left is to compute, to allocate, to start threads, and to speak with the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, Error, Result};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

/// What a plugin may read: what the libraries that it needs lie in, and what they look up.
const READABLE: [&str; 10] = [
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
    "/dev/null",
];

/// What a driver of CUDA reads besides: about itself, and about the devices.
const READABLE_FOR_CUDA: [&str; 7] = [
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/sys/vm/mmap_min_addr",
    "/sys/bus/pci",
    "/sys/devices",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
];

/// Takes from this process, for ever, what a plugin has no use for. Where it has a device, that is started in between: the driver's
/// threads have no more files than any other, and the system calls that starting takes are not left to plugins. `stream` opens it.
///
/// # Errors
/// The system cannot, or the device: nothing is loaded then.
pub fn confine(device: Option<Device>, stream: impl FnOnce(Device) -> Result<Stream>) -> Result<()> {
    // Before there are other threads, each of which has its own.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|errno| {
        Error::unsupported(format!("this system cannot take capabilities from a process: {errno}"))
    })?;
    files(device.is_some())?;
    if let Some(device) = device {
        let failed = |e: Error| e.context(format_args!("{device} in a plugin's own process"));
        stream(device).and_then(|stream| start(&stream)).map_err(failed)?;
    }
    calls(device.is_some())
}

/// Starts a device: with all that the driver leaves to the first use of each kind of memory.
fn start(stream: &Stream) -> Result<()> {
    let memory = stream.memory();
    let zeros = memory.alloc_pinned(64)?.freeze_now();
    let mut there = memory.alloc(stream, 64)?;
    stream.copy(&mut there, 0, &zeros, 0, 64)?;
    let there = there.freeze(stream)?;
    there.host_view(stream)?;
    stream.synchronize()
}

/// Devices are character files that the driver opens again and again, and speaks with by `ioctl`.
fn device_files() -> Vec<PathBuf> {
    let is_one = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("nvidia");
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

fn files(has_cuda: bool) -> Result<()> {
    let failed = |error: landlock::RulesetError| {
        Error::unsupported(format!("this system cannot confine a process (Landlock): {error}"))
    };
    let newest = ABI::V6;
    let read = AccessFs::from_read(newest);
    let libraries = std::env::var_os("LD_LIBRARY_PATH");
    let libraries = libraries.iter().flat_map(std::env::split_paths).filter(|path| path.is_absolute());
    let for_cuda = READABLE_FOR_CUDA.iter().filter(|_| has_cuda);
    let readable = READABLE.iter().chain(for_cuda).map(|path| Path::new(path).to_owned()).chain(libraries);
    let devices = if has_cuda { device_files() } else { Vec::new() };
    let work = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::ReadDir;
    // The driver names its threads there, and does not start where it cannot.
    let threads = has_cuda.then_some("/proc/self/task");
    let name = read | AccessFs::WriteFile | AccessFs::Truncate;
    let ruleset = Ruleset::default()
        // Without its first version there is no such thing; later ones take more.
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(failed)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(newest))
        .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(newest)))
        .and_then(|ruleset| ruleset.scope(Scope::from_all(newest)))
        .map_err(failed)?;
    let created = ruleset.create().map_err(failed)?;
    let status = created
        .add_rules(path_beneath_rules(readable, read))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(devices, work)))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(threads, name)))
        .and_then(|ruleset| ruleset.restrict_self())
        .map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            Err(Error::unsupported("this system cannot confine a process: its kernel has no Landlock"))
        }
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// What a process has for itself beside what its host lets a plugin allocate.
const OWN_BYTES: u64 = 256 << 20;
/// What a driver of CUDA takes for itself after its start: for code and streams.
const DRIVER_BYTES: u64 = 1 << 30;

/// Takes memory beyond a host's limit (bytes; 0: none) from this process, however it is allocated: by its data, for drivers take
/// address space as they like. What a driver has taken by now is its own; memory on devices is limited by the process's own host
/// alone. No crash leaves a file.
///
/// # Errors
/// The system cannot.
pub fn limit(memory_limit_bytes: u64, has_cuda: bool) -> Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let drivers = if has_cuda { data_bytes().saturating_add(DRIVER_BYTES) } else { 0 };
    let data = own_bytes(memory_limit_bytes).map(|bytes| Some(bytes.saturating_add(drivers)));
    let data = data.map(|data| (Resource::Data, Rlimit { current: data, maximum: data }));
    for (resource, limit) in [Some((Resource::Core, none)), data].into_iter().flatten() {
        setrlimit(resource, limit)
            .map_err(|errno| Error::unsupported(format!("this system cannot limit a process: {errno}")))?;
    }
    Ok(())
}

/// What a process may have without what a driver takes, of a host's limit (bytes; 0: none).
fn own_bytes(memory_limit_bytes: u64) -> Option<u64> {
    (memory_limit_bytes > 0).then(|| memory_limit_bytes.saturating_add(OWN_BYTES))
}

/// What it may have in all, of any kind of memory but a device's.
pub fn most_bytes(memory_limit_bytes: u64, has_cuda: bool) -> Option<u64> {
    let drivers = if has_cuda { DRIVER_BYTES } else { 0 };
    own_bytes(memory_limit_bytes).map(|bytes| bytes.saturating_add(drivers))
}

/// What counts as data of this process by now.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// System calls that are let through; others fail with EPERM.
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
    // Files that are open, or that Landlock lets it open.
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
    // The sockets that are there.
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
    // A newer one than every C library knows; a filter of its own answers that it is not there.
    libc::SYS_clone3,
];

/// The same where the machine has kept calls that others have in one form only.
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

/// Linux's own, which the crate libc has not for every C library.
const TOLD_OF_SENDERS: [i32; 4] = [libc::SO_PASSCRED, libc::SO_PASSSEC, SO_PASSPIDFD, SO_PASSRIGHTS];
const SO_PASSPIDFD: i32 = 76;
const SO_PASSRIGHTS: i32 = 83;
/// What `fcntl` may do: nothing that whoever shares the open file would notice. Its flags, locks, leases and signals are theirs too.
const FILE_COMMANDS: [i32; 7] = [
    libc::F_DUPFD,
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_ADD_SEALS,
    libc::F_GET_SEALS,
];

fn calls(has_cuda: bool) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::unsupported(format!("this system cannot filter a process's system calls (seccomp): {error}"))
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| failed(&error))?;
    let is = |argument, value: u64, operator| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
            .map_err(|error| failed(&error))
    };
    // Of numbers with 32 bits the kernel looks at no more, whatever stands above them.
    let is_int = |argument, value: i32, operator| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value as u64)
            .map_err(|error| failed(&error))
    };
    let all = |conditions| SeccompRule::new(conditions).map_err(|error| failed(&error));
    let when = |argument, value: u64, operator| all(vec![is(argument, value, operator)?]);
    let apply = |rules, otherwise, matched| {
        let filter = SeccompFilter::new(rules, otherwise, matched, arch).map_err(|error| failed(&error))?;
        let program = BpfProgram::try_from(filter).map_err(|error| failed(&error))?;
        // A driver has threads by now.
        seccompiler::apply_filter_all_threads(&program).map_err(|error| failed(&error))
    };
    // Its flags lie in memory, where no filter looks; C libraries fall back to `clone`.
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), SeccompAction::Allow, absent)?;
    let mut rules: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALSO_ALLOWED).map(|call| (*call, Vec::new())).collect();
    let thread = libc::CLONE_THREAD as u64;
    rules.insert(libc::SYS_clone, vec![when(0, thread, SeccompCmpOp::MaskedEq(thread))?]);
    // Streams alone: who has a socket of datagrams may send to any other, also from a pair.
    const KINDS: u64 = 0xf;
    let (local, stream) = (is_int(0, libc::AF_UNIX, SeccompCmpOp::Eq)?, SeccompCmpOp::MaskedEq(KINDS));
    rules.insert(libc::SYS_socketpair, vec![all(vec![local, is_int(1, libc::SOCK_STREAM, stream)?])?]);
    // Of this process alone: limits and places to run are the same user's to set for any of its processes.
    for call in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity] {
        rules.insert(call, vec![all(vec![is_int(0, 0, SeccompCmpOp::Eq)?])?]);
    }
    let commands = FILE_COMMANDS.map(|command| all(vec![is_int(1, command, SeccompCmpOp::Eq)?]));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_>>()?);
    // What a socket says of those who use it comes to both ends, as open files even.
    let told = TOLD_OF_SENDERS.map(|option| is_int(2, option, SeccompCmpOp::Ne));
    rules.insert(libc::SYS_setsockopt, vec![all(told.into_iter().collect::<Result<_>>()?)?]);
    // Its own threads, as `abort` does it.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![when(0, own, SeccompCmpOp::Eq)?]);
    rules.insert(libc::SYS_kill, vec![when(0, own, SeccompCmpOp::Eq)?]);
    if has_cuda {
        // Those of the driver's own: of the type 'F', and for unified memory small numbers. No terminal listens to either.
        let of_driver = |bits: u64, value| all(vec![is_int(1, value, SeccompCmpOp::MaskedEq(bits))?]);
        rules.insert(libc::SYS_ioctl, vec![of_driver(0xff00, 0x4600)?, of_driver(0xffff_ff00, 0)?]);
    }
    apply(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}
