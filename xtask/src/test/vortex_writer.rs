//! Builds the plugin vortex-writer, which is not in the workspace, and runs its tests.

use super::separate::Plugin;
use super::{Outcome, Run};
use anyhow::Result;

/// The plugin.
pub const PLUGIN: Plugin = Plugin {
    folder: "plugins/vortex-writer",
    file: "libcrossdock_vortex_writer_plugin.so",
    target: "vortex-writer",
    tests: "tests/python/vortex_writer",
    variable: "CROSSDOCK_VORTEX_WRITER_PLUGIN",
};

/// Runs the plugin's own tests, and the tests that read its files with vortex-data and with the
/// plugin vortex-file.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    PLUGIN.run(run, |_, _| Ok(Vec::new()))
}
