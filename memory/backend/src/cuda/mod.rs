//! CUDA, through the driver alone: no toolkit, and no library of it, is needed to run.

mod answer;
mod at_exit;
mod captured;
mod context;
mod description;
mod device;
mod driver;
mod event;
mod file;
mod frees;
mod ipc;
mod missing;
mod modules;
mod pinned;
mod plain;
mod platform;
mod pool;
mod probe;
mod reaper;
mod staging;

pub(crate) use answer::Answer;
pub use at_exit::before_exit;
pub use description::IpcDescription;
pub(crate) use event::CudaEvent;
pub use file::FileMemory;
pub use ipc::{IpcExport, IpcMemory};
pub use missing::CudaMissing;
pub use modules::code_for;
pub(crate) use platform::Platform;
pub use probe::{CudaDevice, CudaPresence, probe};
