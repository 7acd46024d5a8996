//! `crossdock devices`.

use clap::Args;
use crossdock::memory::{Backend, CudaDevice, CudaPresence, cuda};
use crossdock_kernel_library::images;
use serde_json::{Value, json};

use crate::answer::{Failure, answer};
use crate::text;

#[derive(Args)]
pub struct Devices {
    /// Prints them as JSON
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
            return answer(&json!({ "devices": list, "cuda": cuda }).to_string());
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
        answer(&out)
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

/// The driver, and what keeps a device from being used, or used well.
fn explain(cuda: &CudaPresence) -> String {
    let mut out = format!("cuda: driver for CUDA {}.{}\n", cuda.driver_version.0, cuda.driver_version.1);
    for (function, cost) in &cuda.lacks {
        out += &format!("cuda: the driver has no {function}: {cost}\n");
    }
    for device in &cuda.devices {
        if !device.memory_pools {
            out += &format!("{}: has no memory pools, without which it cannot be used\n", device.device);
        }
        match cuda::code_for(images(), device.compute_capability) {
            Ok(code) if code.starts_with("compute") => {
                out += &format!(
                    "{}: {code} is compiled when it is first used, which takes a while\n",
                    device.device
                );
            }
            Ok(_) => {}
            Err(error) => out += &format!("{}: no kernel runs there: {}\n", device.device, error.message()),
        }
    }
    out
}
