//! The workspace's metadata from Cargo, and helpers to run commands.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace that contains this xtask.
pub struct Workspace {
    /// The root folder.
    pub root: PathBuf,
    /// The target folder.
    pub target: PathBuf,
    /// The members.
    pub packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Debug, Clone, Default)]
pub struct Package {
    pub name: String,
    /// The folder relative to the root, such as `memory/client`.
    pub folder: String,
    pub dependencies: Vec<Dependency>,
    /// The names of the cdylib targets, spelled as in the file names of the libraries.
    pub cdylibs: Vec<String>,
}

/// A dependency of a member.
#[derive(Debug, Clone)]
pub struct Dependency {
    pub name: String,
    /// Whether the dependency is in `[dev-dependencies]`.
    pub dev: bool,
}

/// The Cargo that runs this xtask.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command in this terminal.
///
/// # Errors
/// Returns an error if the exit status is not 0.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// The command line of a command.
pub fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub fn load() -> Result<Self> {
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let output = command.output().with_context(|| format!("cannot start {}", show(&command)))?;
        if !output.status.success() {
            bail!("{} failed: {}", show(&command), String::from_utf8_lossy(&output.stderr).trim());
        }
        Self::from_json(&serde_json::from_slice(&output.stdout).context("cargo metadata: not JSON")?)
    }

    fn from_json(json: &Value) -> Result<Self> {
        let root = PathBuf::from(text(&json["workspace_root"])?);
        let target = PathBuf::from(text(&json["target_directory"])?);
        let packages = list(&json["packages"])?;
        let packages = packages.iter().map(|p| Package::from_json(p, &root)).collect::<Result<_>>()?;
        Ok(Self { root, target, packages })
    }

    /// Whether there is a member with this name.
    pub fn has(&self, name: &str) -> bool {
        self.packages.iter().any(|p| p.name == name)
    }

    /// The members that build plugins: the crates in `plugins/` with a cdylib target.
    pub fn plugins(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|p| p.folder.starts_with("plugins/") && !p.cdylibs.is_empty())
    }

    /// The folder of a profile's build outputs.
    pub fn built(&self, release: bool) -> PathBuf {
        self.target.join(if release { "release" } else { "debug" })
    }
}

impl Package {
    fn from_json(json: &Value, root: &Path) -> Result<Self> {
        let manifest = Path::new(text(&json["manifest_path"])?);
        let folder = manifest
            .parent()
            .and_then(|f| f.strip_prefix(root).ok())
            .context("cargo metadata: a member is outside the root")?;
        let mut dependencies = Vec::new();
        for d in list(&json["dependencies"])? {
            dependencies.push(Dependency { name: text(&d["name"])?.to_owned(), dev: d["kind"] == "dev" });
        }
        let mut cdylibs = Vec::new();
        for target in list(&json["targets"])? {
            if list(&target["kind"])?.iter().any(|kind| kind == "cdylib") {
                cdylibs.push(text(&target["name"])?.replace('-', "_"));
            }
        }
        let name = text(&json["name"])?.to_owned();
        Ok(Self { name, folder: folder.to_string_lossy().into_owned(), dependencies, cdylibs })
    }
}

fn text(json: &Value) -> Result<&str> {
    json.as_str().with_context(|| format!("cargo metadata: expected a string, got {json}"))
}

fn list(json: &Value) -> Result<&Vec<Value>> {
    json.as_array().with_context(|| format!("cargo metadata: expected a list, got {json}"))
}
