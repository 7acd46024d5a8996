//! Memory on any device, through the one owner that a Crossdock host keeps behind `crossdock.host.memory/1`.
//!
//! A [`Buffer`] is a range on a device, with whatever keeps it alive and the event after which it may be read. Its
//! address is a number: only [`Buffer::host_view`] gives bytes, in place where the host may look, copied where not.
//! Work goes onto a [`Stream`]; consumers make streams wait, not threads.

mod buffer;
mod copies;
mod encoded;
mod encoded_bytes;
mod event;
mod growing;
mod host_kernels;
mod launch;
mod memory;
mod owner;
mod stream;
mod view;

pub use buffer::{Buffer, BufferMut, ForeignOwner};
pub use copies::Copies;
pub use crossdock_plugin_api::{Code, Device, Error, Host, Result};
pub use encoded_bytes::{read_encoded, write_encoded};
pub use event::{Event, Ready};
pub use growing::Growing;
pub use host_kernels::HostKernel;
pub use launch::{Arg, Kernel, WriteRange, bytes_of_host_arg, bytes_of_host_arg_mut};
pub use memory::{DeviceInfo, Memory};
pub use stream::Stream;
pub use view::HostView;

/// Addresses of allocations are multiples of this, and so are buffers laid out within one: what Arrow recommends.
pub const ALIGNMENT: usize = 64;
