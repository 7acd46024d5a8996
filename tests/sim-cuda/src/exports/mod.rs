//! The driver's functions, with the names and signatures of its header, and the control functions.
//!
//! Each is one call through the FFI door, which counts it, injects failures, and catches panics.

pub mod control;
pub mod device;
pub mod ipc;
pub mod mapped;
pub mod memory;
pub mod modules;
pub mod streams;

/// Defines exported functions. The body gets the simulator, and returns `Ok(())` or a code.
macro_rules! exports {
    ($( fn $name:ident($sim:ident $(, $arg:ident: $type:ty)*) $body:block )*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            crate::door::call(stringify!($name), |$sim| {
                // SAFETY: the caller fulfils the driver's contract for the function of this name;
                // `put` checks pointers for null.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

use exports;
