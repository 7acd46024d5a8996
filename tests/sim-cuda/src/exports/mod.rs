//! The driver's functions, with the names and signatures of the CUDA header, and the control
//! functions of the simulator.
//!
//! Each driver function is one call of the FFI door, which counts the call, injects failures, and
//! catches panics.

pub mod control;
pub mod device;
pub mod ipc;
pub mod mapped;
pub mod memory;
pub mod modules;
pub mod streams;

/// Defines exported functions. The body of a function uses the locked simulator, and returns
/// `Ok(())` or an error code.
macro_rules! exports {
    ($( fn $name:ident($sim:ident $(, $arg:ident: $type:ty)*) $body:block )*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            crate::door::call(stringify!($name), |$sim| {
                // SAFETY: the caller fulfils the contract of the CUDA function with the same name;
                // `put` checks pointers for null.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

use exports;
