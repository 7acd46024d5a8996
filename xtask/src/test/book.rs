//! Builds the documentation site. Broken links, and figures that docs/benchmarks.md does not
//! contain, are errors.

use super::{Outcome, Run, stream};
use crate::book;
use anyhow::Result;

/// Builds the site in `target/book`. Skipped if the packages cannot be installed, for example
/// without a network.
pub fn run(run: &Run<'_>) -> Result<Outcome> {
    let workspace = run.workspace;
    let python = match book::environment(workspace) {
        Ok(python) => python,
        Err(error) => return Ok(Outcome::Skipped(format!("the environment cannot be created: {error:#}"))),
    };
    let out = workspace.target.join("book");
    let mut sphinx = book::sphinx(workspace, &python, &workspace.built(run.release), &out);
    Ok(Outcome::check(stream::check(&mut sphinx)))
}
