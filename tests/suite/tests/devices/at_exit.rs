//! Tests that a process ends correctly while a plugin's instance is destroyed. The instance is the
//! last owner of a CUDA device.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::{Host, memory::Backend};
use crossdock_memory::Memory;
use crossdock_plugin_api::{Device, Plugin, PluginDescription, Result, abi, entry};

const CHILD: &str = "CROSSDOCK_TEST_LAST_OWNER";
const MESSAGE: &[u8] = b"the instance is destroyed\n";

/// A plugin whose instances are destroyed slowly and then write a message directly to standard
/// output.
struct Slow {
    memory: Memory,
}

impl Plugin for Slow {
    fn create(host: crossdock_plugin_api::Host) -> Result<Self> {
        Ok(Self { memory: Memory::from_host(&host)? })
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(300));
        let cuda = self.memory.devices().unwrap().iter().any(|known| known.device.r#type == abi::DEVICE_CUDA);
        assert!(cuda);
        // SAFETY: the pointer and the length belong to the constant `MESSAGE`.
        unsafe { libc::write(1, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    }
}

static SLOW: abi::PluginEntry = entry::<Slow>();
const ABOUT: PluginDescription = PluginDescription {
    name: "slow",
    version: "0.1.0",
    description: "is destroyed slowly",
    licence: "Apache-2.0",
    interfaces: "",
    formats: "",
    encodings: "",
    requires: "",
    api_range: abi::API_RANGE,
};

#[test]
fn process_exit_waits_for_instances_that_are_being_destroyed() {
    let name = "process_exit_waits_for_instances_that_are_being_destroyed";
    if let Err(missing) = Backend::builder().build().cuda() {
        writeln!(std::io::stderr(), "skipped: {name}: {missing}").unwrap();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "at_exit::child_process_with_a_slow_instance", "--nocapture"]);
    let output = child.env(CHILD, "1").output().unwrap();
    let is_destroyed = output.stdout.windows(MESSAGE.len()).any(|part| part == MESSAGE);
    assert!(output.status.success() && is_destroyed, "{output:?}");
}

/// Runs in the child process only.
#[test]
fn child_process_with_a_slow_instance() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let search = Search::nowhere().linked(LinkedPlugin::new(&SLOW, ABOUT.meta()));
    let host = Host::builder().search(search).build().unwrap();
    let session = host.session().device(Device::cuda(0)).open().unwrap();
    session.plugin("slow").unwrap();
    let stream = session.memory().default_stream(Device::cuda(0)).unwrap();
    // The copy reads pageable memory, so that the device allocates a staging buffer.
    let bytes = vec![1; 100_000];
    let copied = session.memory().alloc_with(&stream, bytes.len(), |to| {
        to.copy_from_slice(&bytes);
        Ok(())
    });
    copied.unwrap().freeze(&stream).unwrap();
}
