//! Runs the tests for devices on the simulated CUDA driver. Work that `cpu` and `untouchable` run
//! immediately runs later there, in an order that depends on a seed, and each access out of order
//! is reported.

use super::{Outcome, Run, stream};
use crate::programs::Program;
use crate::sim_cuda::lay_out;
use anyhow::Result;

/// The folders of packages with tests for devices.
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

/// The folders whose unit tests use devices. The step `rust` runs the unit tests of the others.
const UNIT_TESTED: &[&str] = &["memory/backend", "isolation"];

/// The name of the integration test programs without devices.
const ON_CPU: &str = "cpu";

/// Whether a test program works with devices.
fn works_with_devices(program: &Program) -> bool {
    if program.is_unit { UNIT_TESTED.contains(&program.package.as_str()) } else { program.name != ON_CPU }
}

/// A simulated machine.
struct Machine {
    seed: u64,
    devices: u32,
    /// Whether devices can access each other's memory.
    peer: bool,
    /// The functions that an older driver lacks.
    lack: &'static [&'static str],
}

/// The simulated machines. The first is the simplest; the last has an old driver and two devices
/// without peer access.
const MACHINES: &[Machine] = &[
    Machine { seed: 1, devices: 1, peer: false, lack: &[] },
    Machine { seed: 2, devices: 2, peer: true, lack: &[] },
    Machine { seed: 3, devices: 2, peer: false, lack: &["cuCtxRecordEvent"] },
];

/// These test programs take as long as all others of their package, and do not use peer access.
const WITHOUT_PEERS: [&str; 2] = ["cuda_faults", "verify"];

/// The devices of these tests. The step `rust` runs the tests on `cpu` and `untouchable`.
const DEVICES: (&str, &str) = ("CROSSDOCK_TEST_DEVICES", "cuda");

/// Runs the tests on each machine, or on one in the short tier. A program with leaks or accesses
/// out of order exits with a special status.
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
