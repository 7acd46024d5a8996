//! `cargo xtask bless`: the committed record of the ABI's layout.

use crate::cargo::Workspace;
use anyhow::{Context, Result};

/// Writes `plugin-api/abi/layout.txt` and says whether it changed.
pub fn run(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join("plugin-api/abi/layout.txt");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let now = crossdock_plugin_api::layout::render();
    if before == now {
        println!("{} is up to date", path.display());
        return Ok(());
    }
    std::fs::write(&path, &now).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}: see the difference with git, and decide whether it breaks the ABI", path.display());
    Ok(())
}
