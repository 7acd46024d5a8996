//! A process that ends while a plugin's instance is being destroyed, which is the last to have a CUDA device.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::{Host, memory::Backend};
use crossdock_memory::Memory;
use crossdock_plugin_api::{About, Device, Plugin, Result, abi, entry};

const PLAYING: &str = "CROSSDOCK_TEST_LAST_OWNER";
const TOLD: &[u8] = b"all of it has been given back\n";

/// Takes its time to end, and says so past all that the process buffers.
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
        // SAFETY: a constant and its length.
        unsafe { libc::write(1, TOLD.as_ptr().cast(), TOLD.len()) };
    }
}

static SLOW: abi::PluginEntry = entry::<Slow>();
const ABOUT: About = About {
    name: "slow",
    version: "0.1.0",
    description: "takes its time to end",
    licence: "Apache-2.0",
    interfaces: "",
    formats: "",
    encodings: "",
};

#[test]
fn a_process_ends_after_the_instances_that_are_being_destroyed() {
    let name = "a_process_ends_after_the_instances_that_are_being_destroyed";
    if let Err(missing) = Backend::builder().build().cuda() {
        writeln!(std::io::stderr(), "skipped: {name}: {missing}").unwrap();
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "at_exit::the_last_owner_is_the_janitor", "--nocapture"]);
    let output = child.env(PLAYING, "1").output().unwrap();
    let told = output.stdout.windows(TOLD.len()).any(|part| part == TOLD);
    assert!(output.status.success() && told, "{output:?}");
}

/// What the process does; nothing in one that is not it.
#[test]
fn the_last_owner_is_the_janitor() {
    if std::env::var_os(PLAYING).is_none() {
        return;
    }
    let search = Search::nowhere().linked(LinkedPlugin::new(&SLOW, ABOUT.meta()));
    let host = Host::builder().search(search).build().unwrap();
    let session = host.session().device(Device::cuda(0)).open().unwrap();
    session.plugin("slow").unwrap();
    let stream = session.memory().default_stream(Device::cuda(0)).unwrap();
    // From memory that is not pinned, so that the device has some of its own for copies.
    let bytes = vec![1; 100_000];
    let copied = session.memory().alloc_with(&stream, bytes.len(), |to| {
        to.copy_from_slice(&bytes);
        Ok(())
    });
    copied.unwrap().freeze(&stream).unwrap();
}
