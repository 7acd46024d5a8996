//! Builds the plugin parquet, which is not in the workspace, and runs its tests.

use super::separate::Plugin;
use super::{Outcome, Run};
use crate::sim_cuda::lay_out;
use anyhow::Result;

/// The plugin.
pub const PLUGIN: Plugin = Plugin {
    folder: "plugins/parquet",
    file: "libcrossdock_parquet_plugin.so",
    target: "parquet",
    tests: "tests/python/parquet",
    variable: "CROSSDOCK_PARQUET_PLUGIN",
};

/// Runs the plugin's own tests, and the tests that compare it with pyarrow and Polars, also on the
/// simulated CUDA driver.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    PLUGIN.run(run, |_, _| Ok(vec![("CROSSDOCK_SIM_CUDA", lay_out(run.workspace, &[])?)]))
}
