//! Owns and accounts for the memory of a Crossdock host.
//!
//! A [`Backend`] holds the devices, the budget, the pools and the ledger of one host. It opens an
//! [`Account`] for each plugin instance. The instance receives [`Account::memory`], the interface
//! `crossdock.host.memory/1`. The plugin allocates, copies and launches kernels through this
//! interface, and the ledger counts all of this under the account's name.
//!
//! ```
//! use crossdock_memory_backend::Backend;
//! use crossdock_plugin_api::{Device, Error, abi};
//!
//! let backend = Backend::builder().limit_bytes(1 << 20).build();
//! let account = backend.account("example");
//! let memory = account.memory();
//!
//! let mut block = abi::Allocation::default();
//! Error::check(|err| unsafe {
//!     let (alloc, stream) = ((*memory).alloc.unwrap(), std::ptr::null_mut());
//!     alloc(memory, Device::CPU, 4096, 64, stream, 0, &mut block, err)
//! })?;
//! assert_eq!(backend.leaks()[0].to_string(), "'example' holds 4096 bytes in 1 block on cpu");
//!
//! unsafe { ((*memory).free.unwrap())(memory, block.block, std::ptr::null(), 0, 0) };
//! assert!(backend.leaks().is_empty());
//! # Ok::<(), Error>(())
//! ```
//!
//! **Devices.** `cpu` always exists; `untouchable` ([`BackendBuilder::untouchable`]) exists in
//! tests. The streams of both are immediate: a function returns when its work is complete, and
//! there are no events. `cuda:N` exists if there is a CUDA driver. The backend looks for the driver
//! when a CUDA device is first named, and starts each device at its first use. Work on a CUDA
//! stream runs later, in stream order. The backend does not wait for this work, except in functions
//! that document it and in copies to memory that is not pinned. [`Backend::cuda`] returns the CUDA
//! devices, or the reason why there are none.
//!
//! **Pinned memory** is ordinary host memory until a CUDA device has been started, and pinned by
//! the driver after that. The ledger lists pinned memory as `cuda_host:0`. Copies between a CUDA
//! device and host memory that is not pinned use up to 100 MiB of pinned chunks per device. The
//! chunks belong to no account.
//!
//! **CUDA IPC.** [`Account::allocate_shareable`] returns blocks that another process can open:
//! [`Backend::export_ipc`] describes a range of a block, and [`Backend::open_ipc`] opens it in the
//! other process. The description includes the event after which the range may be read. Opened
//! memory belongs to the process that exported it, and is not in the ledger of the process that
//! opened it.
//!
//! **Files.** [`Account::allocate_exportable`] returns blocks that can be passed to another process
//! as an open file ([`Backend::export_file`], [`Backend::open_file`]). Neither process has to
//! outlive the other, and no event is passed.
//!
//! **Lifetime.** A block keeps its account open, and an account keeps its backend alive. A block is
//! freed through the account that allocated it, even if `free` is called with the memory object of
//! another account. Freeing never waits; see `cuda::pool`. A stream belongs to one backend; other
//! backends reject it.
//!
//! **Pointers.** `pointer` returns the device, base and length of blocks of `untouchable`, and of
//! all addresses that belong to a started CUDA driver. It reports any other address as host memory,
//! without base and length.
//!
//! **NULL streams.** `alloc` uses the default stream of its device. `fill` and `launch` use the
//! default stream of the device that their first address belongs to, or of `cpu` if that device is
//! unknown. A copy to a CUDA device uses the default stream of its target. A copy from a CUDA
//! device to the host uses the default stream of its source. A copy of CUDA memory on a stream of a
//! host device is complete when the call returns.
//!
//! The backend has no global state, holds no lock while it runs a kernel's CPU implementation, and
//! lets no panic escape.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Crossdock runs on Linux, on x86-64 and aarch64");

mod account;
mod backend;
pub mod cuda;
mod device;
mod entry;
mod fault;
mod foreign;
mod forks;
mod in_flight;
mod kept_threads;
mod ledger;
mod loader;
mod offers;
mod other_processes;
mod policies;
mod process_wide;
mod read_at;
mod resource;
mod tasks;
mod trace;
mod vtable;

pub use account::{Account, Reservation};
pub use backend::{Backend, BackendBuilder, WeakBackend};
pub use cuda::{
    Allocator, AllocatorFunctions, CudaDevice, CudaMissing, CudaPresence, FileMemory, IpcDescription,
    IpcExport, IpcMemory, before_exit,
};
pub use device::{DeviceDescription, physical_memory_bytes};
pub use fault::{Faults, Operation};
pub use foreign::Charge;
pub use forks::count as fork_count;
pub use in_flight::pause_for_files_in_flight;
pub use kept_threads::run_on_kept_thread;
pub use ledger::{AccountUse, CopyTraffic, DeviceUse, Leak, LedgerSnapshot, Traffic};
pub use loader::Loader;
pub use offers::{Lease, Offer, OfferAddress, Prepare};
pub use process_wide::ProcessWide;
pub use resource::SharedHostMemory;
pub use tasks::{InstanceTasks, TaskPool, Tasks};
pub use trace::{Phase, Record, Trace, note_bytes};
