//! `crossdock devices`.

use clap::Args;
use crossdock::memory::Backend;
use serde_json::json;

use super::{Failure, answer, text};

#[derive(Args)]
pub struct Devices {
    /// Prints them as JSON
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self) -> Result<(), Failure> {
        let backend = Backend::builder().build();
        let mut rows = Vec::new();
        for device in backend.devices() {
            rows.push((device.name, device.description, device.memory_bytes, None));
        }
        let cuda = backend.cuda();
        for device in cuda.iter().flat_map(|cuda| &cuda.devices) {
            let capability = Some(device.compute_capability);
            rows.push((device.device.to_string(), device.name.clone(), device.memory_bytes, capability));
        }
        let missing = cuda.as_ref().err().map(|missing| missing.to_string());
        if self.json {
            let device = |(name, description, bytes, capability): &(_, _, _, Option<(u32, u32)>)| {
                let (name, description, bytes): (&String, &String, &u64) = (name, description, bytes);
                json!({
                    "name": name,
                    "description": description,
                    "memory_bytes": bytes,
                    "compute_capability": capability.map(|(major, minor)| format!("{major}.{minor}")),
                })
            };
            let version = cuda.ok().map(|c| format!("{}.{}", c.driver_version.0, c.driver_version.1));
            let list: Vec<_> = rows.iter().map(device).collect();
            let out = json!({ "devices": list, "cuda": { "driver_version": version, "missing": missing } });
            return answer(&out.to_string());
        }
        let lines: Vec<_> = rows
            .into_iter()
            .map(|(name, description, bytes, _)| {
                vec![name, if bytes == 0 { "?".into() } else { text::bytes(bytes) }, description]
            })
            .collect();
        let mut out = text::table(&["device", "memory", "description"], &lines, &["memory"]);
        match (missing, cuda) {
            (Some(missing), _) => out += &format!("cuda: {missing}\n"),
            (None, Ok(cuda)) => {
                out +=
                    &format!("cuda: driver for CUDA {}.{}\n", cuda.driver_version.0, cuda.driver_version.1);
            }
            (None, Err(_)) => {}
        }
        answer(&out)
    }
}
