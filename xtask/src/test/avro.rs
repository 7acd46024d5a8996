//! Builds the example `examples/avro-plugin`, which is not in the workspace, and runs its tests.

use super::separate::Plugin;
use super::{Outcome, Run};
use anyhow::Result;

/// The plugin.
pub const PLUGIN: Plugin = Plugin {
    folder: "examples/avro-plugin",
    file: "libcrossdock_avro_plugin.so",
    target: "avro",
    tests: "tests/python/avro",
    variable: "CROSSDOCK_AVRO_PLUGIN",
};

/// Runs the tests that compare the plugin with Polars.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    PLUGIN.run(run, |_, _| Ok(Vec::new()))
}
