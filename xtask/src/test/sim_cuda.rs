//! Runs the tests for devices on the simulated CUDA driver. The devices `cpu` and `untouchable` run
//! work immediately. The simulated driver runs work later, in an order that depends on a seed, and
//! reports each unordered access.

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

/// The folders whose unit tests use devices. The unit tests of other folders run only in the step
/// `rust`.
const UNIT_TESTED: &[&str] = &["memory/backend", "isolation"];

/// The name of the integration test programs that use no devices.
const ON_CPU: &str = "cpu";

/// Whether a test program uses devices.
fn works_with_devices(program: &Program) -> bool {
    if program.is_unit { UNIT_TESTED.contains(&program.package.as_str()) } else { program.name != ON_CPU }
}

/// A simulated machine.
struct Machine {
    seed: u64,
    devices: u32,
    /// Whether devices can access each other's memory.
    peer: bool,
    /// The driver functions that are removed, to simulate an older driver.
    lack: &'static [&'static str],
}

/// The simulated machines. The first machine is the simplest. The last machine has an old driver
/// and two devices without peer access.
const MACHINES: &[Machine] = &[
    Machine { seed: 1, devices: 1, peer: false, lack: &[] },
    Machine { seed: 2, devices: 2, peer: true, lack: &[] },
    Machine { seed: 3, devices: 2, peer: false, lack: &["cuCtxRecordEvent"] },
];

/// Test programs that do not run on the machine with peer access. They do not use peer access, and
/// take as long as all other programs of their package.
const WITHOUT_PEERS: [&str; 2] = ["cuda_faults", "verify"];

/// The value of the variable that selects the devices. The tests run only on CUDA devices, because
/// the step `rust` runs them on `cpu` and `untouchable`.
const DEVICES: (&str, &str) = ("CROSSDOCK_TEST_DEVICES", "cuda");

/// Runs the tests on each machine, or in the short tier on one machine. A program with leaks or
/// unordered accesses exits with a special status.
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
