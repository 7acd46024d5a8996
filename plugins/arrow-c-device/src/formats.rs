//! Lists the four interfaces as formats.

use crossdock_plugin_api::{Device, Error, Format, Result, abi};

/// One of Arrow's C interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    Device,
    DeviceStream,
    Data,
    DataStream,
}

struct Row {
    interface: Interface,
    name: &'static str,
    description: &'static str,
    capsules: &'static [&'static str],
}

const TABLE: [Row; 4] = [
    Row {
        interface: Interface::Device,
        name: "arrow-c-device",
        description: "Arrow C Device arrays, one per batch, on any device",
        capsules: &["arrow_schema", "arrow_device_array"],
    },
    Row {
        interface: Interface::DeviceStream,
        name: "arrow-c-device-stream",
        description: "an Arrow C Device stream of all batches, on any device",
        capsules: &["arrow_device_array_stream"],
    },
    Row {
        interface: Interface::Data,
        name: "arrow-c-data",
        description: "Arrow C Data arrays, one per batch, in host memory",
        capsules: &["arrow_schema", "arrow_array"],
    },
    Row {
        interface: Interface::DataStream,
        name: "arrow-c-stream",
        description: "an Arrow C stream of all batches, in host memory",
        capsules: &["arrow_array_stream"],
    },
];

impl Interface {
    pub(crate) fn from_name(name: &str) -> Result<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.interface).ok_or_else(|| {
            let names: Vec<_> = TABLE.iter().map(|row| row.name).collect();
            Error::invalid_argument(format!(
                "arrow-c-device: no format '{name}', expected one of {}",
                names.join(", ")
            ))
        })
    }

    pub(crate) fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.interface == self).map_or("", |row| row.name)
    }

    /// Whether the structs of the interface state a device.
    pub(crate) fn has_device(self) -> bool {
        matches!(self, Interface::Device | Interface::DeviceStream)
    }

    /// The device to which arrays are exported in a call on `device`.
    pub(crate) fn target(self, device: Device) -> Device {
        if self.has_device() { device } else { Device::CPU }
    }
}

/// The formats that the exporter writes.
pub(crate) fn export_formats() -> Vec<Format> {
    let help =
        "which arrays a schema capsule precedes: each array (each, the default) or only the first (first)";
    import_formats().into_iter().map(|format| format.with_option("schema", help)).collect()
}

/// The formats that the importer reads. They have no options.
pub(crate) fn import_formats() -> Vec<Format> {
    TABLE
        .iter()
        .map(|row| {
            let mut format = Format::new(row.name, row.description);
            format.capsules = row.capsules.iter().map(|c| (*c).to_string()).collect();
            if !row.interface.has_device() {
                format.device_types = vec![abi::DEVICE_CPU];
            }
            format
        })
        .collect()
}
