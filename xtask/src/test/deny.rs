//! What may be depended on, by `deny.toml`.

use super::{Outcome, stream};
use crate::cargo::{Workspace, cargo};
use anyhow::Result;

/// Checks licences, sources and bans; skipped where cargo-deny is not installed. The list of advisories is not looked at:
/// it is fetched each time, and a test must not depend on what somebody published today.
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
