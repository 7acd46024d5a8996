//! Initialization, devices, contexts, and names of error codes.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)] // the CUDA header has the names and the docs

use std::ffi::{c_char, c_int, c_uint};

use crate::codes::{CONTEXT_IS_DESTROYED, INVALID_CONTEXT, INVALID_VALUE, NO_DEVICE, describe};
use crate::door::guarded;
use crate::leaks;
use crate::state::{Handle, current_context, pop_context, push_context, put};

super::exports! {
    fn cuInit(sim, flags: c_uint) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if sim.devices.is_empty() {
            return Err(NO_DEVICE);
        }
        sim.started = true;
        leaks::watch();
        Ok(())
    }

    fn cuDriverGetVersion(sim, version: *mut c_int) {
        put(version, sim.config.version)
    }

    fn cuDeviceGetCount(sim, count: *mut c_int) {
        put(count, sim.devices.len() as c_int)
    }

    fn cuDeviceGet(sim, device: *mut c_int, ordinal: c_int) {
        sim.device(ordinal)?;
        put(device, ordinal)
    }

    fn cuDeviceGetName(sim, name: *mut c_char, length: c_int, device: c_int) {
        sim.device(device)?;
        let text = c"Simulated CUDA device".to_bytes();
        let capacity = usize::try_from(length).ok().filter(|n| *n > 0 && !name.is_null()).ok_or(INVALID_VALUE)?;
        let n = text.len().min(capacity - 1);
        name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n);
        *name.add(n) = 0;
        Ok(())
    }

    fn cuDeviceGetUuid_v2(sim, uuid: *mut [u8; 16], device: c_int) {
        let device = sim.device(device)?;
        let mut bytes = *b"crossdock-sim-00";
        bytes[14] += (device / 10) as u8;
        bytes[15] += (device % 10) as u8;
        put(uuid, bytes)
    }

    fn cuDeviceTotalMem_v2(sim, bytes: *mut usize, device: c_int) {
        sim.device(device)?;
        put(bytes, sim.config.memory_bytes as usize)
    }

    fn cuDeviceGetAttribute(sim, value: *mut c_int, attribute: c_int, device: c_int) {
        sim.device(device)?;
        put(value, attribute_of(sim.config.capability as c_int, attribute))
    }

    fn cuDeviceCanAccessPeer(sim, can: *mut c_int, device: c_int, peer: c_int) {
        let (device, peer) = (sim.device(device)?, sim.device(peer)?);
        put(can, c_int::from(sim.config.peer && device != peer))
    }

    fn cuDeviceGetDefaultMemPool(sim, pool: *mut Handle, device: c_int) {
        let device = sim.device(device)?;
        put(pool, sim.devices[device].default_pool)
    }

    fn cuDevicePrimaryCtxRetain(sim, context: *mut Handle, device: c_int) {
        let device = sim.device(device)?;
        sim.devices[device].retained += 1;
        put(context, sim.devices[device].context)
    }

    fn cuDevicePrimaryCtxRelease_v2(sim, device: c_int) {
        let device = sim.device(device)?;
        let retained = &mut sim.devices[device].retained;
        *retained = retained.checked_sub(1).ok_or(INVALID_CONTEXT)?;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(sim, device: c_int, flags: *mut c_uint, active: *mut c_int) {
        let device = sim.device(device)?;
        put(flags, 0)?;
        put(active, c_int::from(sim.devices[device].retained > 0))
    }

    fn cuCtxGetCurrent(_sim, context: *mut Handle) {
        put(context, current_context())
    }

    fn cuCtxSetCurrent(sim, context: Handle) {
        if context != 0 {
            let device = sim.device_of(context)?;
            if sim.devices[device].retained == 0 {
                return Err(CONTEXT_IS_DESTROYED);
            }
        }
        pop_context();
        if context == 0 { Ok(()) } else { push_context(context) }
    }

    fn cuCtxPushCurrent_v2(sim, context: Handle) {
        sim.device_of(context)?;
        push_context(context)
    }

    fn cuCtxPopCurrent_v2(_sim, context: *mut Handle) {
        let popped = pop_context().ok_or(INVALID_CONTEXT)?;
        if context.is_null() { Ok(()) } else { put(context, popped) }
    }

    fn cuCtxGetDevice(sim, device: *mut c_int) {
        put(device, sim.current()? as c_int)
    }

    fn cuCtxSynchronize(sim) {
        let device = sim.current()?;
        sim.reject_capturing_streams(device)?;
        sim.reject_during_capture()?;
        sim.finish_device(device)
    }

    fn cuCtxRecordEvent(sim, context: Handle, event: Handle) {
        let device = sim.device_of(context)?;
        sim.record_device(event, device)
    }
}

/// Returns an attribute of a Hopper device, or 0 for an attribute that no caller needs.
fn attribute_of(capability: c_int, attribute: c_int) -> c_int {
    match attribute {
        1 => 1024,       // maximum threads in a block
        2 | 3 => 1024,   // maximum block dimensions x and y
        4 => 64,         // maximum block dimension z
        5 => c_int::MAX, // maximum grid dimension x
        6 | 7 => 65535,  // maximum grid dimensions y and z
        8 => 48 << 10,   // bytes of shared memory in a block, by default
        10 => 32,        // threads in a warp
        16 => 132,       // multiprocessors
        39 => 2048,      // maximum threads on a multiprocessor
        75 => capability / 10,
        76 => capability % 10,
        97 => 227 << 10,         // bytes of shared memory in a block, at most
        31 | 41 | 83 | 115 => 1, // concurrent kernels, unified addressing, managed memory, memory pools
        _ => 0,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, name: *mut *const c_char) -> c_int {
    guarded("cuGetErrorName", || {
        let known = describe(code);
        // SAFETY: the contract of cuGetErrorName requires `name` to be null or valid for a write.
        unsafe { put(name, known.map_or(std::ptr::null(), |(name, _)| name.as_ptr())) }?;
        known.map(drop).ok_or(INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    guarded("cuGetErrorString", || {
        let known = describe(code);
        // SAFETY: the contract of cuGetErrorString requires `text` to be null or valid for a write.
        unsafe { put(text, known.map_or(std::ptr::null(), |(_, text)| text.as_ptr())) }?;
        known.map(drop).ok_or(INVALID_VALUE)
    })
}
