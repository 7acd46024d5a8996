//! Provides memory on any device through the host's memory interface, `crossdock.host.memory/1`.
//!
//! A [`Buffer`] is a range of bytes on a device. It holds the owner that keeps the bytes alive and
//! the event after which they may be read. Its address is only a number. [`Buffer::host_view`]
//! gives the host access to the bytes: in place if the host can dereference the address, otherwise
//! in a copy. Work is enqueued on a [`Stream`]. A consumer of a buffer makes its stream, not its
//! thread, wait for the event.

mod buffer;
mod buffer_builder;
mod copies;
mod encoded;
mod encoded_bytes;
mod event;
mod host_kernels;
mod launch;
mod loader;
mod memory;
mod owner;
mod stored_source;
mod stream;
mod view;

pub use buffer::{Buffer, BufferMut, ForeignOwner};
pub use buffer_builder::BufferBuilder;
pub use copies::Copies;
pub use crossdock_plugin_api::{Code, Device, Error, Host, Result};
pub use encoded::EncodedBuffers;
pub use encoded_bytes::{read_encoded, write_encoded};
pub use event::{Event, Ready};
pub use host_kernels::HostKernel;
pub use launch::{Arg, Kernel, LaunchSize, WriteRange, bytes_of_host_arg, bytes_of_host_arg_mut};
pub use loader::{LoadRange, Loader};
pub use memory::{DeviceInfo, Memory};
pub use stored_source::StoredSource;
pub use stream::Stream;
pub use view::HostView;

/// Alignment in bytes of allocations, and of the buffers within an allocation. Arrow recommends 64.
pub const ALIGNMENT: usize = 64;
