//! The devices that the tests run on.

use std::sync::OnceLock;

use crossdock_memory::Device;
use crossdock_memory_backend::{Backend, CudaMissing};

/// The devices that exist on every machine.
pub const DEVICES: [Device; 2] = [Device::CPU, Device::UNTOUCHABLE];

/// The environment variable that selects the devices. With the value `cuda`, tests run only on CUDA
/// devices. It is meant for a second run of the tests with a driver, after a first run without one.
pub const VARIABLE: &str = "CROSSDOCK_TEST_DEVICES";

/// The devices on which every test runs: [`DEVICES`], and `cuda:0` if there is a driver, real or
/// simulated. With `CROSSDOCK_TEST_DEVICES=cuda`, only `cuda:0`.
///
/// # Panics
///
/// If the variable has another value, or if it is `cuda` and there is no driver.
#[allow(clippy::panic)]
pub fn devices() -> &'static [Device] {
    static LISTED: OnceLock<Vec<Device>> = OnceLock::new();
    LISTED.get_or_init(|| {
        let requested = std::env::var_os(VARIABLE).map(|value| value.to_string_lossy().into_owned());
        let cuda = Backend::builder().build().cuda().map(|_| Device::cuda(0)).map_err(CudaMissing::clone);
        listed(requested.as_deref(), cuda).unwrap_or_else(|problem| panic!("{problem}"))
    })
}

/// Every ordered pair of devices, including each device with itself. With
/// `CROSSDOCK_TEST_DEVICES=cuda`, only the pairs with at least one CUDA device.
pub fn device_pairs() -> Vec<(Device, Device)> {
    pairs(devices())
}

fn pairs(listed: &[Device]) -> Vec<(Device, Device)> {
    let all: Vec<Device> =
        DEVICES.iter().chain(listed.iter().filter(|device| !DEVICES.contains(device))).copied().collect();
    let pairs_from = |from: Device| all.iter().map(move |to| (from, *to));
    let is_listed = |(from, to): &(Device, Device)| listed.contains(from) || listed.contains(to);
    all.iter().flat_map(|from| pairs_from(*from)).filter(is_listed).collect()
}

fn listed(requested: Option<&str>, cuda: Result<Device, CudaMissing>) -> Result<Vec<Device>, String> {
    match requested {
        None => Ok(DEVICES.into_iter().chain(cuda.ok()).collect()),
        Some("cuda") => match cuda {
            Ok(device) => Ok(vec![device]),
            Err(missing) => Err(format!("{VARIABLE}=cuda: {missing}")),
        },
        Some(other) => Err(format!("{VARIABLE}={other}: expected the value cuda, or an unset variable")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Device = Device::cuda(0);

    #[test]
    fn lists_every_device_without_the_variable() {
        assert_eq!(listed(None, Ok(GPU)).unwrap(), [Device::CPU, Device::UNTOUCHABLE, GPU]);
        assert_eq!(listed(None, Err(CudaMissing::Library)).unwrap(), DEVICES);
    }

    #[test]
    fn variable_value_cuda_selects_only_cuda_devices_and_requires_a_driver() {
        assert_eq!(listed(Some("cuda"), Ok(GPU)).unwrap(), [GPU]);
        let problem = listed(Some("cuda"), Err(CudaMissing::Library)).unwrap_err();
        assert!(problem.contains("libcuda.so was not found"), "{problem}");
    }

    #[test]
    fn pairs_of_cuda_and_other_devices_include_both_directions() {
        assert_eq!(pairs(&DEVICES).len(), 4);
        assert_eq!(pairs(&[Device::CPU, Device::UNTOUCHABLE, GPU]).len(), 9);
        let cuda = pairs(&[GPU]);
        assert_eq!(cuda.len(), 5);
        assert!(cuda.contains(&(Device::CPU, GPU)) && cuda.contains(&(GPU, Device::UNTOUCHABLE)), "{cuda:?}");
    }

    #[test]
    fn rejects_unknown_values_of_the_variable() {
        for value in ["", "cpu", "CUDA", "cuda:0"] {
            let problem = listed(Some(value), Ok(GPU)).unwrap_err();
            assert!(problem.contains("expected the value cuda"), "{problem}");
        }
    }
}
