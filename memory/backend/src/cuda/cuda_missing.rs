//! Describes errors that occur when CUDA is started.

use thiserror::Error;

/// The reason why CUDA is unavailable, with advice.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CudaMissing {
    /// No driver is installed, or the loader does not find it.
    #[error(
        "no CUDA driver: libcuda.so was not found; install the NVIDIA driver, or put its folder into LD_LIBRARY_PATH"
    )]
    Library,
    /// The driver is too old.
    #[error("the CUDA driver lacks '{symbol}'; install a newer NVIDIA driver")]
    Symbol {
        /// The function that the driver lacks.
        symbol: &'static str,
    },
    /// The driver returned an error.
    #[error("the CUDA driver returned {code} from {function}: {}", advice(*code))]
    Driver {
        /// The function that returned the error.
        function: &'static str,
        /// The error code. It is a number, because newer drivers may return codes that are unknown
        /// here.
        code: i32,
    },
    /// The driver has no devices.
    #[error("the CUDA driver has no device; check nvidia-smi and CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// The binding to the driver panicked.
    #[error("starting the CUDA driver panicked: {message}")]
    Panicked {
        /// The message of the panic.
        message: String,
    },
}

/// Advice for the codes that drivers return when they are started.
fn advice(code: i32) -> &'static str {
    match code {
        2 => "out of memory; close other programs that use the GPU",
        3 | 4 => "it is shutting down",
        34 => "it is a stub library; remove the CUDA toolkit's stubs folder from LD_LIBRARY_PATH",
        100 => "no device; check nvidia-smi and CUDA_VISIBLE_DEVICES",
        101 => "no such device; check CUDA_VISIBLE_DEVICES",
        802 => "the system is not ready; start nvidia-fabricmanager, or wait until it runs",
        803 => "library and kernel module differ in version; reboot, or install both from one release",
        804 => "this GPU does not support the compatibility package; remove it from LD_LIBRARY_PATH",
        999 => "an unknown error; check nvidia-smi and dmesg",
        _ => "look the code up as CUresult in the driver's documentation, and check nvidia-smi",
    }
}
