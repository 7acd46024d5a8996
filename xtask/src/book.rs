//! `cargo xtask book`: builds the documentation site with Sphinx.

use crate::cargo::{Workspace, cargo, run as run_command};
use crate::test::python::environment_of;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the pages.
const PAGES: &str = "docs";
/// The folder of the configuration of Sphinx.
const CONFIGURATION: &str = "docs/site";
const REQUIREMENTS: &str = "docs/site/requirements.txt";
/// The package of the command.
const COMMAND: &str = "crossdock-cli";

/// Options of `cargo xtask book`.
#[derive(clap::Args)]
pub struct Options {
    /// The folder for the site [default: target/book]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Builds the command, the plugins and the site.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut build = cargo();
    build.current_dir(&workspace.root).args(["build", "--quiet", "-p", COMMAND]);
    run_command(build.args(workspace.plugins().flat_map(|plugin| ["-p", &plugin.name])))?;
    let python = environment(workspace)?;
    let out = match &options.out {
        Some(out) => std::path::absolute(out).with_context(|| format!("cannot find {}", out.display()))?,
        None => workspace.target.join("book"),
    };
    run_command(&mut sphinx(workspace, &python, &workspace.built(false), &out))?;
    println!("{}", out.join("index.html").display());
    Ok(())
}

/// The interpreter of `target/book-venv`, which has the packages that build the site.
pub fn environment(workspace: &Workspace) -> Result<PathBuf> {
    environment_of(workspace, "book-venv", REQUIREMENTS)
}

/// The command that writes the site to the folder `out`. Warnings, such as broken links, are
/// errors.
/// `built` is the folder of the built command and plugins.
pub fn sphinx(workspace: &Workspace, python: &Path, built: &Path, out: &Path) -> Command {
    let mut command = Command::new(python);
    command.current_dir(&workspace.root).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("CROSSDOCK_BIN", built.join("crossdock"));
    // All pages are read again, because generated pages depend on other files than their own.
    command.args(["-m", "sphinx", "--builder", "html", "--quiet", "--fresh-env", "--nitpicky"]);
    command.args(["--fail-on-warning", "--conf-dir", CONFIGURATION, "--doctree-dir"]);
    command.arg(workspace.target.join("book-doctrees")).arg(PAGES).arg(out);
    command
}
