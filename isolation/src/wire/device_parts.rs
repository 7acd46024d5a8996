//! Devices in messages.

use crossdock_plugin_api::Device;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct DeviceParts {
    r#type: i32,
    id: i64,
}

impl From<Device> for DeviceParts {
    fn from(device: Device) -> Self {
        Self { r#type: device.r#type, id: device.id }
    }
}

impl From<DeviceParts> for Device {
    fn from(device: DeviceParts) -> Self {
        Self::from_arrow(device.r#type, device.id)
    }
}
