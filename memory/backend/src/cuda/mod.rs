//! The CUDA driver: whether it is here, and what it has.

mod driver;

use std::ffi::{c_char, c_int, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::Device;
use cudarc::driver::sys;
use thiserror::Error;

/// A driver that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPresence {
    /// The CUDA version that the driver can serve: (13, 0).
    pub driver_version: (u32, u32),
    /// At least one.
    pub devices: Vec<CudaDevice>,
}

/// One CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// `cuda:N`.
    pub device: Device,
    /// As the driver calls it.
    pub name: String,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
}

/// Why there is no CUDA, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CudaMissing {
    /// No driver is installed, or the loader does not find it.
    #[error(
        "no CUDA driver: libcuda.so was not found; install the NVIDIA driver, or put its folder into LD_LIBRARY_PATH"
    )]
    Library,
    /// The driver is older than this program knows how to use.
    #[error("the CUDA driver lacks '{symbol}'; install a newer NVIDIA driver")]
    Symbol {
        /// What it lacks.
        symbol: &'static str,
    },
    /// The driver refused.
    #[error("the CUDA driver answered {code} to {function}: {}", advice(*code))]
    Driver {
        /// Which function.
        function: &'static str,
        /// The driver's code, as a number: newer drivers have codes that nobody here knows.
        code: i32,
    },
    /// The driver works, and has nothing to drive.
    #[error("the CUDA driver has no device; check nvidia-smi and CUDA_VISIBLE_DEVICES")]
    NoDevice,
    /// The binding to the driver panicked.
    #[error("the CUDA driver could not be asked: {message}")]
    Panicked {
        /// Its message.
        message: String,
    },
}

/// What a person can do about the codes that a start of the driver is known to give.
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

/// Looks for the driver, starts it and asks what there is. Takes a few hundred milliseconds where it is found, so ask
/// once ([`crate::Backend::cuda`] does).
///
/// # Errors
/// Says what is missing and what to do. Never panics.
pub fn probe() -> Result<CudaPresence, CudaMissing> {
    catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: loads a library by the names that the driver has; its initialisers are the driver's.
        if unsafe { sys::is_culib_present() } { Driver.presence() } else { Err(CudaMissing::Library) }
    }))
    .unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        let message = text.to_string();
        std::mem::forget(payload);
        Err(CudaMissing::Panicked { message })
    })
}

/// The loaded library. Functions are taken out of it by name and called as returning integers: cudarc's own result
/// type is an enum, which a code that it does not list must never reach.
struct Driver;

impl Driver {
    fn presence(&self) -> Result<CudaPresence, CudaMissing> {
        // SAFETY: these are the driver's published signatures; every pointer is to a local of the length that is
        // passed along, and `init` comes first.
        unsafe {
            let init: unsafe extern "C" fn(c_uint) -> c_int = self.function("cuInit")?;
            let version: unsafe extern "C" fn(*mut c_int) -> c_int = self.function("cuDriverGetVersion")?;
            let count: unsafe extern "C" fn(*mut c_int) -> c_int = self.function("cuDeviceGetCount")?;
            check("cuInit", init(0))?;
            let mut number = 0;
            check("cuDriverGetVersion", version(&mut number))?;
            let mut n = 0;
            check("cuDeviceGetCount", count(&mut n))?;
            if n < 1 {
                return Err(CudaMissing::NoDevice);
            }
            let number = u32::try_from(number).unwrap_or(0);
            let devices = (0..n).map(|ordinal| self.device(ordinal)).collect::<Result<_, _>>()?;
            Ok(CudaPresence { driver_version: (number / 1000, number % 1000 / 10), devices })
        }
    }

    /// # Safety
    /// `cuInit` has succeeded.
    unsafe fn device(&self, ordinal: c_int) -> Result<CudaDevice, CudaMissing> {
        const MAJOR: c_int = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as c_int;
        const MINOR: c_int = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as c_int;
        // SAFETY: as in `presence`.
        unsafe {
            let get: unsafe extern "C" fn(*mut c_int, c_int) -> c_int = self.function("cuDeviceGet")?;
            let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int =
                self.function("cuDeviceGetName")?;
            let total: unsafe extern "C" fn(*mut usize, c_int) -> c_int =
                self.function("cuDeviceTotalMem_v2")?;
            let attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int =
                self.function("cuDeviceGetAttribute")?;
            let mut handle = 0;
            check("cuDeviceGet", get(&mut handle, ordinal))?;
            let mut text = [0 as c_char; 256];
            check("cuDeviceGetName", name(text.as_mut_ptr(), text.len() as c_int, handle))?;
            let mut memory_bytes = 0;
            check("cuDeviceTotalMem", total(&mut memory_bytes, handle))?;
            let (mut major, mut minor) = (0, 0);
            check("cuDeviceGetAttribute", attribute(&mut major, MAJOR, handle))?;
            check("cuDeviceGetAttribute", attribute(&mut minor, MINOR, handle))?;
            let text: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
            Ok(CudaDevice {
                device: Device::cuda(ordinal.into()),
                name: String::from_utf8_lossy(&text).into_owned(),
                memory_bytes: memory_bytes as u64,
                compute_capability: (u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)),
            })
        }
    }

    /// # Safety
    /// `F` is a function pointer of the signature that the driver publishes for `symbol`, and the library is present.
    unsafe fn function<F: Copy>(&self, symbol: &'static str) -> Result<F, CudaMissing> {
        // SAFETY: by this function's own contract; the library stays loaded for the life of the process.
        unsafe { sys::culib().get::<F>(symbol.as_bytes()) }
            .map(|found| *found)
            .map_err(|_| CudaMissing::Symbol { symbol })
    }
}

fn check(function: &'static str, code: c_int) -> Result<(), CudaMissing> {
    if code == 0 { Ok(()) } else { Err(CudaMissing::Driver { function, code }) }
}
