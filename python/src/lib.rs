//! The extension module `crossdock._native`: sessions, tables and columns of the host, for Python.
//!
//! The import starts nothing: the first session looks for plugins and a driver. Copies, waits and
//! file accesses run with the interpreter's lock released.

// The examples of the docstrings begin with `>>>`, which is a quotation for clippy.
#![allow(clippy::doc_lazy_continuation)]

mod arrow;
mod cuda;
mod dlpack;
mod objects;
mod runtime;
mod vortex;

use pyo3::prelude::*;

#[pymodule]
mod _native {
    use super::*;
    use crate::runtime::{errors, isolation, process};

    #[pymodule_export]
    use crate::arrow::xlog::{xlog_capsule, xlog_schema, xlog_with_metadata};
    #[pymodule_export]
    use crate::cuda::context::{DeviceContext, cuda_device_count, device_parts};
    #[pymodule_export]
    use crate::cuda::host_buffer::HostBuffer;
    #[pymodule_export]
    use crate::cuda::ipc::cuda_ipc_size;
    #[pymodule_export]
    use crate::cuda::memory::DeviceMemory;
    #[pymodule_export]
    use crate::objects::column::Column;
    #[pymodule_export]
    use crate::objects::concat::{concatenate, table_of_columns, tensors_of};
    #[pymodule_export]
    use crate::objects::encoded::EncodedArray;
    #[pymodule_export]
    use crate::objects::parts::Part;
    #[pymodule_export]
    use crate::objects::rebuild::rebuild;
    #[pymodule_export]
    use crate::objects::scan::{Scan, ScanIterator};
    #[pymodule_export]
    use crate::objects::schema::{Field, Schema};
    #[pymodule_export]
    use crate::objects::session::Session;
    #[pymodule_export]
    use crate::objects::shared::SharedTable;
    #[pymodule_export]
    use crate::objects::table::Table;
    #[pymodule_export]
    use crate::objects::writer::Writer;
    #[pymodule_export]
    use crate::runtime::isolation::serve_isolated;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        process::refuse_subinterpreters(module.py())?;
        errors::add_to(module)?;
        process::register_hooks(module)?;
        isolation::serve_with(module)?;
        crossdock::registry::use_python_arguments();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
