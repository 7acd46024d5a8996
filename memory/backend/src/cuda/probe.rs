//! Whether the driver is here, and what it has.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::Device;
use thiserror::Error;

use super::driver::{
    ATTRIBUTE_CAPABILITY_MAJOR, ATTRIBUTE_CAPABILITY_MINOR, ATTRIBUTE_MEMORY_POOLS, Driver, SUCCESS,
};

/// A driver that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPresence {
    /// The CUDA version that the driver can serve: (13, 0).
    pub driver_version: (u32, u32),
    /// At least one.
    pub devices: Vec<CudaDevice>,
    /// Functions of newer drivers that this one lacks, each with what is slower without it.
    pub lacks: Vec<(&'static str, &'static str)>,
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
    /// Whether memory can be had from it in stream order, without which it cannot be worked on.
    pub memory_pools: bool,
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
    start().map(|(_, presence)| presence)
}

/// The same, with the driver to work with.
pub(crate) fn start() -> Result<(Driver, CudaPresence), CudaMissing> {
    catch_unwind(AssertUnwindSafe(|| {
        let driver = Driver::load()?;
        Ok((driver, driver.presence()?))
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

impl Driver {
    fn presence(&self) -> Result<CudaPresence, CudaMissing> {
        let (mut number, mut n) = (0, 0);
        // SAFETY: every pointer is to a local, and `init` comes first.
        unsafe {
            check("cuInit", (self.init)(0))?;
            check("cuDriverGetVersion", (self.driver_get_version)(&mut number))?;
            check("cuDeviceGetCount", (self.device_get_count)(&mut n))?;
        }
        if n < 1 {
            return Err(CudaMissing::NoDevice);
        }
        let number = u32::try_from(number).unwrap_or(0);
        let devices = (0..n).map(|ordinal| self.describe(ordinal)).collect::<Result<_, _>>()?;
        let lacks = match self.ctx_record_event {
            Some(_) => Vec::new(),
            None => vec![(
                "cuCtxRecordEvent",
                "memory that others have seen is freed by a thread that waits for the whole device; drivers from CUDA 12.5 \
                 on do without",
            )],
        };
        Ok(CudaPresence { driver_version: (number / 1000, number % 1000 / 10), devices, lacks })
    }

    fn describe(&self, ordinal: c_int) -> Result<CudaDevice, CudaMissing> {
        let mut handle = 0;
        let mut text = [0 as c_char; 256];
        let mut memory_bytes = 0;
        // SAFETY: the driver is started; every pointer is to a local of the length that is passed along.
        unsafe {
            check("cuDeviceGet", (self.device_get)(&mut handle, ordinal))?;
            check("cuDeviceGetName", (self.device_get_name)(text.as_mut_ptr(), text.len() as c_int, handle))?;
            check("cuDeviceTotalMem", (self.device_total_mem)(&mut memory_bytes, handle))?;
        }
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: as above.
            check("cuDeviceGetAttribute", unsafe { (self.device_get_attribute)(&mut value, which, handle) })?;
            Ok(u32::try_from(value).unwrap_or(0))
        };
        let text: Vec<u8> = text.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
        Ok(CudaDevice {
            device: Device::cuda(ordinal.into()),
            name: String::from_utf8_lossy(&text).into_owned(),
            memory_bytes: memory_bytes as u64,
            compute_capability: (
                attribute(ATTRIBUTE_CAPABILITY_MAJOR)?,
                attribute(ATTRIBUTE_CAPABILITY_MINOR)?,
            ),
            memory_pools: attribute(ATTRIBUTE_MEMORY_POOLS)? != 0,
        })
    }
}

fn check(function: &'static str, code: c_int) -> Result<(), CudaMissing> {
    if code == SUCCESS { Ok(()) } else { Err(CudaMissing::Driver { function, code }) }
}
