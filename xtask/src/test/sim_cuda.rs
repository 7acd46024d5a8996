//! The tests of everything that works with devices, over the simulated CUDA driver: what `cpu` and `untouchable` run at once
//! runs late here, in an order that a seed decides, and every access out of order is reported.

use super::counts::Counts;
use super::{Outcome, stream};
use crate::cargo::Workspace;
use crate::programs;
use crate::sim_cuda::lay_out;
use anyhow::Result;
use std::process::Command;

/// Folders of the packages whose tests work with devices.
pub const TESTED: &[&str] = &[
    "memory/backend",
    "memory/client",
    "kernels",
    "arrays",
    "plugins/arrow-ipc",
    "plugins/arrow-c-device",
    "plugins/dlpack",
    "isolation",
    "host",
    "cli",
    "tests/suite",
];

/// One machine to simulate.
struct Machine {
    seed: u64,
    devices: u32,
    /// Whether devices reach each other's memory.
    peer: bool,
    /// What an older driver lacks.
    lack: &'static [&'static str],
}

/// The first is the plainest; the last has an old driver, two devices, and no way between them.
const MACHINES: &[Machine] = &[
    Machine { seed: 1, devices: 1, peer: false, lack: &[] },
    Machine { seed: 2, devices: 2, peer: true, lack: &[] },
    Machine { seed: 3, devices: 2, peer: false, lack: &["cuCtxRecordEvent"] },
];

/// They take as long as all the others of their package together, and have no use for a device that another one reaches.
const WITHOUT_PEERS: [&str; 2] = ["cuda_faults", "verify"];

/// Runs them on each machine. Leaks and accesses out of order end a test program with a status of their own.
pub(super) fn run(workspace: &Workspace, release: bool) -> Result<Outcome> {
    let mut total = Counts::default();
    let mut failed = Vec::new();
    let programs = programs::tests(workspace, release, |package| TESTED.contains(&package.folder.as_str()))?;
    for machine in MACHINES {
        let Machine { seed, devices, peer, lack } = machine;
        let lacking: Vec<String> = lack.iter().map(|name| (*name).to_owned()).collect();
        let folder = lay_out(workspace, &lacking)?;
        println!("seed {seed}, {devices} devices, peer access {peer}, without {lack:?}");
        for program in programs.iter().filter(|program| !peer || !WITHOUT_PEERS.contains(&&*program.name)) {
            println!("{}", program.path.display());
            let mut command = Command::new(&program.path);
            command.current_dir(&program.folder).env("LD_LIBRARY_PATH", &folder);
            command.env("CROSSDOCK_SIM_CUDA_SEED", seed.to_string());
            command.env("CROSSDOCK_SIM_CUDA_DEVICES", devices.to_string());
            command.env("CROSSDOCK_SIM_CUDA_PEER", u8::from(*peer).to_string());
            match stream::cargo_test(&mut command)? {
                Outcome::Passed(counts) => total += counts,
                Outcome::Failed(counts, why) => {
                    total += counts;
                    failed.push(format!("seed {seed}: {why}"));
                }
                skipped => return Ok(skipped),
            }
        }
    }
    Ok(if failed.is_empty() { Outcome::Passed(total) } else { Outcome::Failed(total, failed.join("; ")) })
}
