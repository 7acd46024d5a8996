//! The driver's functions, under the names and signatures of its header, and the few of the simulator's own.
//!
//! Each is one call through the door: counted, made to fail where that is asked for, and never left by a panic.

pub mod control;
pub mod device;
pub mod ipc;
pub mod mapped;
pub mod memory;
pub mod modules;
pub mod streams;

/// Defines exported functions. The body sees the simulator, and answers `Ok(())` or a code.
macro_rules! exports {
    ($( fn $name:ident($sim:ident $(, $arg:ident: $type:ty)*) $body:block )*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> std::ffi::c_int {
            crate::door::call(stringify!($name), |$sim| {
                // SAFETY: the caller keeps to the driver's contract for the function of this name; pointers are checked
                // for null.
                #[allow(unused_unsafe)]
                unsafe { $body }
            })
        }
    )* };
}

use exports;
