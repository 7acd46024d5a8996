//! The module `crossdock._native`: the host, its sessions and its tables, for Python.
//!
//! Importing it starts nothing: a host, its plugins and a driver are looked for by the first session. The interpreter's
//! lock is released around every copy, every wait and every access to files, and taken where Python's own objects are
//! touched.

mod arrow_in;
mod arrow_out;
mod buffer_protocol;
mod by_type;
mod bytes;
mod capsules;
mod column;
mod column_held;
mod compat_xlog;
mod cuda_allocation;
mod cuda_array_interface;
mod cuda_context;
mod cuda_host_buffer;
mod cuda_ipc;
mod cuda_memory;
mod cuda_tensor;
mod device;
mod dlpack_abi;
mod dlpack_formats;
mod dlpack_in;
mod dlpack_in_place;
mod dlpack_in_producer;
mod dlpack_out;
mod dlpack_tensor;
mod encoded;
mod errors;
mod exchange_api;
mod exchange_api_own;
mod files;
mod host_capsule;
mod isolation;
mod path;
mod process;
mod progress;
mod progress_bar;
mod schema;
mod session;
mod show;
mod table;
mod torch;
mod vortex_buffer;
mod vortex_in;
mod vortex_out;
mod warnings;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;

    #[pymodule_export]
    use crate::column::Column;
    #[pymodule_export]
    use crate::compat_xlog::{xlog_capsule, xlog_schema, xlog_with_metadata};
    #[pymodule_export]
    use crate::cuda_context::{DeviceContext, cuda_device_count};
    #[pymodule_export]
    use crate::cuda_host_buffer::HostBuffer;
    #[pymodule_export]
    use crate::cuda_ipc::cuda_ipc_size;
    #[pymodule_export]
    use crate::cuda_memory::DeviceMemory;
    #[pymodule_export]
    use crate::encoded::EncodedArray;
    #[pymodule_export]
    use crate::isolation::serve_isolated;
    #[pymodule_export]
    use crate::schema::{Field, Schema};
    #[pymodule_export]
    use crate::session::Session;
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        process::refuse_subinterpreters(module.py())?;
        errors::add_to(module)?;
        process::watch(module)?;
        isolation::serve_with(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
