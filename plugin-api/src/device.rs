//! Devices, and their names.

use std::fmt;

use crate::abi;
use crate::error::{Error, Result};

/// A device. Its type and id are the numbers that Arrow and DLPack define.
pub type Device = abi::Device;

impl Device {
    /// Host memory.
    pub const CPU: Device = Device { id: -1, r#type: abi::DEVICE_CPU, reserved: 0 };
    /// The test device: host memory whose device addresses fault when the host dereferences them.
    pub const UNTOUCHABLE: Device = Device { id: 0, r#type: abi::DEVICE_EXT_DEV, reserved: 0 };

    /// Returns the CUDA device with this id.
    pub const fn cuda(id: i64) -> Device {
        Device { id, r#type: abi::DEVICE_CUDA, reserved: 0 }
    }

    /// Two devices are equal if their keys are equal. The key ignores the id of the CPU and the
    /// reserved field.
    const fn key(self) -> (i32, i64) {
        (self.r#type, if self.r#type == abi::DEVICE_CPU { -1 } else { self.id })
    }

    /// Converts Arrow's `device_type` and `device_id`. If the type is the CPU, the id is ignored.
    pub const fn from_arrow(r#type: i32, id: i64) -> Device {
        if r#type == abi::DEVICE_CPU { Device::CPU } else { Device { id, r#type, reserved: 0 } }
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Device {}

impl Ord for Device {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Device {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.r#type {
            abi::DEVICE_CPU => f.write_str("cpu"),
            abi::DEVICE_CUDA => write!(f, "cuda:{}", self.id),
            abi::DEVICE_CUDA_HOST => write!(f, "cuda_host:{}", self.id),
            abi::DEVICE_CUDA_MANAGED => write!(f, "cuda_managed:{}", self.id),
            abi::DEVICE_EXT_DEV => f.write_str("untouchable"),
            other => write!(f, "device type {other}, id {}", self.id),
        }
    }
}

impl std::str::FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Device::CPU),
            "untouchable" => Ok(Device::UNTOUCHABLE),
            "cuda" => Ok(Device::cuda(0)),
            _ => text
                .strip_prefix("cuda:")
                .and_then(|n| n.parse::<u32>().ok())
                .map(|n| Device::cuda(n.into()))
                .ok_or_else(|| {
                    Error::invalid_argument(format!(
                        "device '{text}' is unknown: expected cpu, cuda or cuda:N"
                    ))
                }),
        }
    }
}
