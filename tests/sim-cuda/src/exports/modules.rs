//! Code images, functions, and launches.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs
#![allow(clippy::too_many_arguments)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::codes::{INVALID_VALUE, NOT_FOUND};
use crate::image::Image;
use crate::launch::Shape;
use crate::state::{Handle, put};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    n_attributes: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct Attribute {
    id: c_uint,
    padding: c_uint,
    value: [c_uint; 16],
}

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER_DIMENSION: c_uint = 4;

super::exports! {
    fn cuModuleLoadData(sim, module: *mut Handle, image: *const c_void) {
        sim.current()?;
        let image = Image::read(image, sim.config.capability, sim.config.version)?;
        put(module, sim.load_module(image)?)
    }

    fn cuModuleUnload(sim, module: Handle) {
        sim.unload_module(module)
    }

    fn cuModuleGetFunction(sim, function: *mut Handle, module: Handle, name: *const c_char) {
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        let name = CStr::from_ptr(name).to_str().map_err(|_| NOT_FOUND)?;
        put(function, sim.function(module, name)?)
    }

    fn cuFuncSetAttribute(sim, function: Handle, attribute: c_int, value: c_int) {
        sim.set_function_attribute(function, attribute, value)
    }

    fn cuLaunchKernel(
        sim, function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: Handle, params: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        let slot = sim.stream(stream)?;
        if !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        let shape = Shape {
            blocks: [grid_x, grid_y, grid_z],
            threads: [block_x, block_y, block_z],
            cluster: [0; 3],
            shared_bytes,
        };
        sim.launch(function, &shape, slot, params)
    }

    fn cuLaunchKernelEx(
        sim, config: *const Config, function: Handle, params: *mut *mut c_void, extra: *mut *mut c_void
    ) {
        if config.is_null() || !extra.is_null() {
            return Err(INVALID_VALUE);
        }
        let Config { blocks, threads, shared_bytes, stream, attributes, n_attributes } = *config;
        let slot = sim.stream(stream)?;
        let mut shape = Shape { blocks, threads, cluster: [0; 3], shared_bytes };
        for i in 0..n_attributes as usize {
            let attribute = &*attributes.add(i);
            if attribute.id != CLUSTER_DIMENSION || sim.config.capability < 90 {
                return Err(INVALID_VALUE);
            }
            let [x, y, z, ..] = attribute.value;
            shape.cluster = [x, y, z];
        }
        sim.launch(function, &shape, slot, params)
    }
}
