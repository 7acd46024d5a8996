//! Checks dependencies against `deny.toml`.

use super::{Outcome, stream};
use crate::cargo::{Workspace, cargo};
use anyhow::Result;

/// Checks licences, sources and bans. Skipped if cargo-deny is not installed. Advisories are not
/// checked, because their list is downloaded. A new advisory would change the result of the test
/// without a change of the code.
pub fn run(workspace: &Workspace) -> Result<Outcome> {
    if !cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::Skipped("cargo-deny is not installed".to_owned()));
    }
    let mut command = cargo();
    command.current_dir(&workspace.root).args([
        "deny",
        "--log-level",
        "error",
        "check",
        "--hide-inclusion-graph",
    ]);
    Ok(Outcome::check(stream::check(command.args(["bans", "licenses", "sources"]))))
}
