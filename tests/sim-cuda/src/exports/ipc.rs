//! Functions of CUDA IPC, which the simulator, like some real drivers, does not support.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs

use std::ffi::c_uint;

use crate::codes::NOT_SUPPORTED;
use crate::state::Handle;

/// The layout of both `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
pub struct IpcHandle([u8; 64]);

super::exports! {
    fn cuIpcGetMemHandle(_sim, _handle: *mut IpcHandle, _address: u64) {
        Err(NOT_SUPPORTED)
    }

    fn cuIpcOpenMemHandle_v2(_sim, _address: *mut u64, _handle: IpcHandle, _flags: c_uint) {
        Err(NOT_SUPPORTED)
    }

    fn cuIpcCloseMemHandle(_sim, _address: u64) {
        Err(NOT_SUPPORTED)
    }

    fn cuIpcGetEventHandle(_sim, _handle: *mut IpcHandle, _event: Handle) {
        Err(NOT_SUPPORTED)
    }

    fn cuIpcOpenEventHandle(_sim, _event: *mut Handle, _handle: IpcHandle) {
        Err(NOT_SUPPORTED)
    }
}
