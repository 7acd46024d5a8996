//! Supports CUDA devices through the driver library only. Neither the CUDA toolkit nor any other
//! CUDA library is needed at run time.

mod allocator;
mod at_exit;
mod captured;
mod context;
mod cuda_missing;
mod description;
mod device;
mod driver;
mod driver_error;
mod event;
mod file;
mod frees;
mod ipc;
mod kept;
mod modules;
mod pinned;
mod platform;
mod pool;
mod probe;
mod reaper;
mod shareable;
mod staging;

pub use allocator::{Allocator, AllocatorFunctions};
pub use at_exit::before_exit;
pub(crate) use context::note_own_thread;
pub use cuda_missing::CudaMissing;
pub use description::IpcDescription;
pub(crate) use driver_error::DriverError;
pub(crate) use event::CudaEvent;
pub use file::FileMemory;
pub use ipc::{IpcExport, IpcMemory};
pub use modules::code_for;
pub(crate) use platform::Platform;
pub use probe::{CudaDevice, CudaPresence, probe};
