//! The tests of everything that works with devices, over the simulated CUDA driver: what `cpu` and `untouchable` run at once
//! runs late here, in an order that a seed decides, and every access out of order is reported.

use super::{Outcome, Run, stream};
use crate::programs::Program;
use crate::sim_cuda::lay_out;
use anyhow::Result;

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

/// Those of them whose unit tests do; the others' are those of the step `rust`.
const UNIT_TESTED: &[&str] = &["memory/backend", "isolation"];

/// The integration tests that use no device beyond plain host memory, in every package.
const ON_CPU: &str = "cpu";

/// Whether a test program works with devices.
fn works_with_devices(program: &Program) -> bool {
    if program.is_unit { UNIT_TESTED.contains(&program.package.as_str()) } else { program.name != ON_CPU }
}

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

/// The devices that tests run on: `cpu` and `untouchable` are those of the step `rust`.
const DEVICES: (&str, &str) = ("CROSSDOCK_TEST_DEVICES", "cuda");

/// Runs them on each machine, or on one of them. Leaks and accesses out of order end a test program with a status of their own.
pub(super) fn run(run: &Run<'_>) -> Result<Outcome> {
    let mut all = Outcome::Passed(Default::default());
    let programs = run.tests_of(|package| TESTED.contains(&package.folder.as_str()))?;
    for machine in run.tier.one_of("simulated machine", MACHINES) {
        let Machine { seed, devices, peer, lack } = machine;
        let lacking: Vec<String> = lack.iter().map(|name| (*name).to_owned()).collect();
        let folder = lay_out(run.workspace, &lacking)?;
        stream::line(&format!("seed {seed}, {devices} devices, peer access {peer}, without {lack:?}"));
        let variables = [
            ("LD_LIBRARY_PATH", folder.display().to_string()),
            ("CROSSDOCK_SIM_CUDA_SEED", seed.to_string()),
            ("CROSSDOCK_SIM_CUDA_DEVICES", devices.to_string()),
            ("CROSSDOCK_SIM_CUDA_PEER", u8::from(*peer).to_string()),
            (DEVICES.0, DEVICES.1.to_owned()),
        ];
        let has_use = |program: &&Program| {
            works_with_devices(program) && (!peer || !WITHOUT_PEERS.contains(&&*program.name))
        };
        let programs: Vec<Program> = programs.iter().filter(has_use).cloned().collect();
        all = all.and(run.programs(&programs, &variables)?);
    }
    Ok(all)
}
