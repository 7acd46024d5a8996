//! Confines the process of a plugin before it loads the plugin.
//!
//! Landlock denies files and the network. A filter of system calls (`system_calls`) denies sockets,
//! other processes, programs and other interfaces of the kernel. The process can still compute,
//! allocate memory, start threads, and send messages to the host.

use std::path::{Path, PathBuf};

use crossdock_memory::Stream;
use crossdock_plugin_api::{Device, Error, Result};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::sandbox::system_calls::filter_system_calls;

/// The readable paths: the folders of shared libraries, and the files that the libraries read.
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

/// Additional readable paths for the CUDA driver. They contain information about the driver and the
/// devices.
const READABLE_FOR_CUDA: [&str; 7] = [
    "/proc/driver/nvidia",
    "/proc/devices",
    "/proc/sys/vm/mmap_min_addr",
    "/sys/bus/pci",
    "/sys/devices",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
];

/// Irrevocably gives up the rights of this process that a plugin does not need. If there is a
/// device, `stream` opens it between the two steps of the confinement. The first step, which denies
/// access to files, comes before the start of the device, so that it also confines the driver's
/// threads. The second step denies system calls. It comes after the start of the device, which
/// needs some of these calls.
///
/// # Errors
/// The system does not support the confinement, or the device does not start. Then the process must
/// not load a plugin.
pub fn confine(device: Option<Device>, stream: impl FnOnce(Device) -> Result<Stream>) -> Result<()> {
    // Each thread has its own capabilities, so this process drops them before it starts threads.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none).map_err(|errno| {
        Error::unsupported(format!("this system cannot drop the capabilities of a process: {errno}"))
    })?;
    restrict_files(device.is_some())?;
    if let Some(device) = device {
        let failed = |e: Error| e.context(format_args!("cannot start {device} in a plugin's own process"));
        stream(device).and_then(|stream| start(&stream)).map_err(failed)?;
    }
    filter_system_calls(device.is_some())
}

/// Uses each kind of memory once, because the driver initialises its parts at their first use.
fn start(stream: &Stream) -> Result<()> {
    let memory = stream.memory();
    let zeros = memory.alloc_pinned(64)?.freeze_now();
    let mut buffer = memory.alloc(stream, 64)?;
    stream.copy(&mut buffer, 0, &zeros, 0, 64)?;
    let buffer = buffer.freeze(stream)?;
    buffer.host_view(stream)?;
    stream.synchronize()
}

/// The character devices of the CUDA driver. The driver opens them repeatedly and controls them by
/// `ioctl`.
fn device_files() -> Vec<PathBuf> {
    let is_nvidia = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("nvidia");
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    entries.filter(is_nvidia).map(|entry| entry.path()).collect()
}

/// Denies access to the network and to all files that a plugin does not need.
fn restrict_files(has_cuda: bool) -> Result<()> {
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
    let use_device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::ReadDir;
    // The driver writes the names of its threads, and does not start if it cannot write them.
    let threads = has_cuda.then_some("/proc/self/task");
    let name_threads = read | AccessFs::WriteFile | AccessFs::Truncate;
    let ruleset = Ruleset::default()
        // The system must support the first version of Landlock. Later versions restrict more, and
        // are used if the system supports them.
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
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(devices, use_device)))
        .and_then(|ruleset| ruleset.add_rules(path_beneath_rules(threads, name_threads)))
        .and_then(|ruleset| ruleset.restrict_self())
        .map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            Err(Error::unsupported("this system cannot confine a process: its kernel has no Landlock"))
        }
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

/// The memory that a process may allocate in addition to the host's memory limit for the plugin.
const BASE_BYTES: u64 = 256 << 20;
/// The memory that the CUDA driver allocates for code and streams after its start.
const DRIVER_BYTES: u64 = 1 << 30;

/// Limits the memory of this process to `memory_limit_bytes` (0: no limit) and the additional
/// memory that a process needs. The limit applies to all data of the process (`RLIMIT_DATA`),
/// whichever allocator is used. It does not apply to address space, because drivers reserve much of
/// it, or to memory that a driver has already allocated. The process's own host library limits
/// device memory. Also disables core dumps.
///
/// # Errors
/// The system rejects the limits.
pub fn limit_memory(memory_limit_bytes: u64, has_cuda: bool) -> Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let driver_bytes = if has_cuda { data_bytes().saturating_add(DRIVER_BYTES) } else { 0 };
    let data = plugin_bytes(memory_limit_bytes).map(|bytes| Some(bytes.saturating_add(driver_bytes)));
    let data = data.map(|data| (Resource::Data, Rlimit { current: data, maximum: data }));
    for (resource, limit) in [Some((Resource::Core, none)), data].into_iter().flatten() {
        setrlimit(resource, limit).map_err(|errno| {
            Error::unsupported(format!("this system cannot limit the memory of a process: {errno}"))
        })?;
    }
    Ok(())
}

/// The maximum memory of a process without the memory of the driver. `memory_limit_bytes` is the
/// host's limit (0: no limit).
fn plugin_bytes(memory_limit_bytes: u64) -> Option<u64> {
    (memory_limit_bytes > 0).then(|| memory_limit_bytes.saturating_add(BASE_BYTES))
}

/// The maximum host memory of a process, including the memory of the driver. `memory_limit_bytes`
/// is the host's limit (0: no limit).
pub fn max_memory_bytes(memory_limit_bytes: u64, has_cuda: bool) -> Option<u64> {
    let driver_bytes = if has_cuda { DRIVER_BYTES } else { 0 };
    plugin_bytes(memory_limit_bytes).map(|bytes| bytes.saturating_add(driver_bytes))
}

/// The current data segment of this process (VmData), in bytes.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
