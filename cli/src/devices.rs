//! `crossdock devices`: lists devices, and the features that CUDA lacks.

use clap::Args;
use crossdock::memory::{Backend, CudaDevice, CudaPresence, cuda};
use crossdock_kernel_library::images;
use serde_json::{Value, json};

use crate::output::{Failure, write_output};
use crate::text;

#[derive(Args)]
pub struct Devices {
    /// Prints the devices as JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self) -> Result<(), Failure> {
        let backend = Backend::builder().build();
        let host = backend.devices();
        let cuda = backend.cuda();
        let devices: &[CudaDevice] = cuda.map_or(&[], |cuda| &cuda.devices);
        if self.json {
            let of_host = host.iter().map(|device| {
                json!({
                    "name": device.name,
                    "description": device.description,
                    "memory_bytes": device.memory_bytes,
                    "compute_capability": null,
                })
            });
            let list: Vec<Value> = of_host.chain(devices.iter().map(as_json)).collect();
            let version =
                cuda.ok().map(|cuda| format!("{}.{}", cuda.driver_version.0, cuda.driver_version.1));
            let lacks = cuda.ok().map(|cuda| cuda.lacks.iter().map(|(name, _)| *name).collect::<Vec<_>>());
            let missing = cuda.err().map(|missing| missing.to_string());
            let cuda = json!({ "driver_version": version, "lacks": lacks, "missing": missing });
            return write_output(&json!({ "devices": list, "cuda": cuda }).to_string());
        }
        let row = |name: String, bytes, code: &str, description: &str| {
            let memory = if bytes == 0 { "?".into() } else { text::bytes(bytes) };
            vec![name, memory, code.to_owned(), description.to_owned()]
        };
        let mut lines: Vec<_> =
            host.iter().map(|d| row(d.name.clone(), d.memory_bytes, "", &d.description)).collect();
        lines.extend(devices.iter().map(|device| {
            let code = cuda::code_for(images(), device.compute_capability).unwrap_or_else(|_| "none".into());
            row(device.device.to_string(), device.memory_bytes, &code, &device.name)
        }));
        let mut out = text::table(&["device", "memory", "code", "description"], &lines, &["memory"]);
        match cuda {
            Err(missing) => out += &format!("cuda: {missing}\n"),
            Ok(cuda) => out += &explain(cuda),
        }
        write_output(&out)
    }
}

fn as_json(device: &CudaDevice) -> Value {
    let (major, minor) = device.compute_capability;
    json!({
        "name": device.device.to_string(),
        "description": device.name,
        "memory_bytes": device.memory_bytes,
        "compute_capability": format!("{major}.{minor}"),
        "code": cuda::code_for(images(), device.compute_capability).ok(),
        "memory_pools": device.memory_pools,
    })
}

/// Describes the driver's version, and everything that prevents or slows down the use of a device.
fn explain(cuda: &CudaPresence) -> String {
    let mut out = format!("cuda: driver for CUDA {}.{}\n", cuda.driver_version.0, cuda.driver_version.1);
    for (function, cost) in &cuda.lacks {
        out += &format!("cuda: the driver has no {function}: {cost}\n");
    }
    for device in &cuda.devices {
        if !device.memory_pools {
            out += &format!(
                "{}: cannot be used, because the device does not support memory pools\n",
                device.device
            );
        }
        match cuda::code_for(images(), device.compute_capability) {
            Ok(code) if code.starts_with("compute") => {
                out += &format!(
                    "{}: kernels are compiled from {code} at their first use, which takes time\n",
                    device.device
                );
            }
            Ok(_) => {}
            Err(error) => out += &format!("{}: cannot run kernels: {}\n", device.device, error.message()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock::api::Device;

    #[test]
    fn explains_for_each_device_why_it_cannot_be_used() {
        let device = |n, compute_capability, memory_pools| CudaDevice {
            device: Device::cuda(n),
            name: "a device".into(),
            memory_bytes: 1 << 30,
            compute_capability,
            memory_pools,
        };
        // The kernels contain compiled code for the first device. All compiled code is too new for
        // the second device and too old for the third device.
        let devices = vec![device(0, (9, 0), true), device(1, (1, 0), false), device(2, (99, 0), true)];
        let lacks = vec![("cuSomething", "copies are slower")];
        let text = explain(&CudaPresence { driver_version: (13, 0), devices, lacks });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert_eq!(lines[0], "cuda: driver for CUDA 13.0");
        assert_eq!(lines[1], "cuda: the driver has no cuSomething: copies are slower");
        assert_eq!(lines[2], "cuda:1: cannot be used, because the device does not support memory pools");
        assert!(lines[3].starts_with("cuda:1: cannot run kernels: "), "{text}");
        assert!(lines[4].starts_with("cuda:2: kernels are compiled from compute_"), "{text}");
    }

    #[test]
    fn device_json_contains_compute_capability_and_error_code() {
        let device = CudaDevice {
            device: Device::cuda(3),
            name: "a device".into(),
            memory_bytes: 1 << 30,
            compute_capability: (1, 2),
            memory_pools: true,
        };
        let expected = json!({
            "name": "cuda:3", "description": "a device", "memory_bytes": 1 << 30, "compute_capability": "1.2",
            "code": null, "memory_pools": true,
        });
        assert_eq!(as_json(&device), expected);
    }
}
