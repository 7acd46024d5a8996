//! The dock: loads plugins and moves tables between them.
pub mod convert;
pub mod discovery;
mod error;
mod host;
mod host_object;
mod janitor;
pub mod load;
pub mod metadata;
mod plugin;
mod reader;
pub mod registry;
mod session;
pub mod sink;
pub mod source;
mod table;
mod writer;

pub use crossdock_memory_backend as memory;
pub use crossdock_plugin_api as api;
pub use error::{Error, Result};
pub use host::{Host, HostBuilder};
pub use plugin::Plugin;
pub use reader::{ReadOptions, Reader};
pub use session::{Session, SessionBuilder};
pub use table::{ColumnSlice, IpcForm, Native, Table, Validity, Values};
pub use writer::{Finished, WriteOptions, Writer};
