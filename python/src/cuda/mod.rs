//! `crossdock.cuda`: contexts, allocations and views of device memory.

pub mod allocation;
pub mod array_interface;
pub mod context;
pub mod host_buffer;
pub mod ipc;
pub mod memory;
pub mod tensor;
