//! Finds the CUDA driver and its devices.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::Device;

use super::cuda_missing::CudaMissing;
use super::driver::{
    ATTRIBUTE_CAPABILITY_MAJOR, ATTRIBUTE_CAPABILITY_MINOR, ATTRIBUTE_MEMORY_POOLS, Driver, SUCCESS,
};

/// A working driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaPresence {
    /// The CUDA version that the driver supports, as (major, minor): for example (13, 0).
    pub driver_version: (u32, u32),
    /// The devices, at least one.
    pub devices: Vec<CudaDevice>,
    /// Functions of newer drivers that this driver lacks, each with a description of what is slower
    /// without it.
    pub lacks: Vec<(&'static str, &'static str)>,
}

/// One CUDA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaDevice {
    /// The id of the device, which is displayed as `cuda:N`.
    pub device: Device,
    /// The name that the driver reports for the device.
    pub name: String,
    /// Device memory in bytes.
    pub memory_bytes: u64,
    /// The compute capability as (major, minor): for example (9, 0) for Hopper.
    pub compute_capability: (u32, u32),
    /// Whether the device has memory pools, which are required to use it.
    pub memory_pools: bool,
}

/// Loads and starts the driver, and describes its devices. Takes a few hundred milliseconds if a
/// driver is installed; [`crate::Backend::cuda`] caches the result.
///
/// # Errors
/// Returns what is missing, with advice. Never panics.
pub fn probe() -> Result<CudaPresence, CudaMissing> {
    start().map(|(_, presence)| presence)
}

/// Loads and starts the driver, and describes its devices.
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
        let (mut version, mut n) = (0, 0);
        // SAFETY: every pointer points to a local variable, and `cuInit` is called first.
        unsafe {
            check("cuInit", (self.init)(0))?;
            check("cuDriverGetVersion", (self.driver_get_version)(&mut version))?;
            check("cuDeviceGetCount", (self.device_get_count)(&mut n))?;
        }
        if n < 1 {
            return Err(CudaMissing::NoDevice);
        }
        let version = u32::try_from(version).unwrap_or(0);
        let devices = (0..n).map(|ordinal| self.describe(ordinal)).collect::<Result<_, _>>()?;
        let lacks = match self.ctx_record_event {
            Some(_) => Vec::new(),
            None => vec![(
                "cuCtxRecordEvent",
                "exported memory is freed by a thread that waits for the whole device; drivers of CUDA 12.5 and later avoid \
                 this",
            )],
        };
        Ok(CudaPresence { driver_version: (version / 1000, version % 1000 / 10), devices, lacks })
    }

    fn describe(&self, ordinal: c_int) -> Result<CudaDevice, CudaMissing> {
        let mut handle = 0;
        let mut text = [0 as c_char; 256];
        let mut memory_bytes = 0;
        // SAFETY: the driver is started; every pointer points to a local variable, and the length
        // that is passed with `text` is its length.
        unsafe {
            check("cuDeviceGet", (self.device_get)(&mut handle, ordinal))?;
            check("cuDeviceGetName", (self.device_get_name)(text.as_mut_ptr(), text.len() as c_int, handle))?;
            check("cuDeviceTotalMem", (self.device_total_mem)(&mut memory_bytes, handle))?;
        }
        let attribute = |which| {
            let mut value = 0;
            // SAFETY: the driver is started; the pointer points to a local variable, and `handle`
            // is a device.
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
