//! The one owner of memory behind a Crossdock host.
//!
//! A [`Backend`] holds the devices, the budget, the pools and the books of one host. It opens an [`Account`] for each
//! plugin instance, whose [`Account::memory`] is the interface `crossdock.host.memory/1` that the instance is given:
//! everything that a plugin allocates, copies and launches comes through there and is counted under its name.
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
//!     ((*memory).alloc.unwrap())(memory, Device::CPU, 4096, 64, std::ptr::null_mut(), &mut block, err)
//! })?;
//! assert_eq!(backend.leaks()[0].to_string(), "'example' holds 4096 bytes in 1 block on cpu");
//!
//! unsafe { ((*memory).free.unwrap())(memory, block.block, std::ptr::null(), 0, 0) };
//! assert!(backend.leaks().is_empty());
//! # Ok::<(), Error>(())
//! ```
//!
//! **Devices.** `cpu` always, `untouchable` ([`BackendBuilder::untouchable`]) for tests. Both have immediate streams: a
//! function returns when its work is done, and no event is ever made. `cuda:N` where there is a driver, which is looked for
//! when one is first named; each device is started when it is first used. What a CUDA stream is given runs later, in its
//! order; nothing here waits for it but the functions that say so, and copies to memory that is not pinned.
//! [`Backend::cuda`] says what there is, or what is missing.
//!
//! **Pinned memory** is plain host memory until a CUDA device has been started, and of the driver's from then on; the ledger
//! has it as `cuda_host:0`. Copies from and to other host memory go through up to 100 MiB of pinned chunks a device, which
//! are nobody's and on no book.
//!
//! **CUDA IPC.** [`Account::allocate_shareable`] gives blocks that another process can open: [`Backend::export_ipc`] describes
//! a range of one, [`Backend::open_ipc`] opens it there. The event after which it may be read goes along. What is opened is the
//! exporter's, and on no book of the opener.
//!
//! **By file.** [`Account::allocate_exportable`] gives blocks that go to another process as an open file
//! ([`Backend::export_file`], [`Backend::open_file`]). Nobody has to wait for anybody's end, and no event goes along.
//!
//! **Lifetime.** A block keeps its account open, and an account its backend. Freeing goes to the account that
//! allocated, whatever memory object it is called with, and never waits: see `cuda::pool`. A stream belongs to one backend;
//! another one refuses it.
//!
//! **What `pointer` knows.** Blocks of `untouchable` and whatever a CUDA driver that was started knows, with base and length.
//! Any other address is taken for the host's, and its block is not looked for.
//!
//! **Where no stream is given**, alloc takes the device's default one; fill and launch that of the device on which
//! their (first) address is known to lie, else that of `cpu`. A copy takes that of the CUDA device that it goes to, or comes
//! from. On a stream of a host device a copy of a CUDA device's has run when the call returns.
//!
//! The backend has no global state, holds no lock while it runs a kernel's twin, and lets nothing unwind out.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Crossdock runs on Linux, on x86-64 and aarch64");

mod account;
mod backend;
pub mod cuda;
mod device;
mod entry;
mod fault;
mod forks;
mod ledger;
mod outside;
mod policies;
mod process_wide;
mod resource;
mod trace;
mod vtable;

pub use account::{Account, Reserved};
pub use backend::{Backend, BackendBuilder, WeakBackend};
pub use cuda::{
    CudaDevice, CudaMissing, CudaPresence, FileMemory, IpcDescription, IpcExport, IpcMemory, before_exit,
};
pub use device::{DeviceDescription, physical_memory_bytes};
pub use fault::{Faults, Operation};
pub use forks::count as fork_count;
pub use ledger::{AccountUse, Copied, DeviceUse, Leak, LedgerSnapshot, Traffic};
pub use outside::Charge;
pub use process_wide::ProcessWide;
pub use trace::{Moment, Record, Trace, note_bytes};
