//! The folders of a release, and helpers to run commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What all parts of a release have in common.
pub struct Work {
    /// The root of the repository.
    pub root: PathBuf,
    /// The folder of the release.
    pub out: PathBuf,
    /// The newest version of glibc that programs may need.
    pub glibc: String,
}

impl Work {
    /// The folder of build outputs, which are kept between releases.
    pub fn target(&self) -> PathBuf {
        self.root.join("target/dist")
    }
}

/// A Python package with the version that the tests use, such as `numpy==2.4.6`.
pub fn pinned(work: &Work, name: &str) -> Result<String> {
    let path = work.root.join("tests/python/requirements.txt");
    let pins = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let pin = pins.lines().find(|line| line.split_once("==").is_some_and(|(pinned, _)| pinned == name));
    Ok(pin.with_context(|| format!("{} has no {name}", path.display()))?.to_owned())
}

/// The Cargo that runs this program.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a command in this terminal, with its standard output on standard error.
pub fn run(command: &mut Command) -> Result<()> {
    command.stdout(std::io::stderr());
    let status = command.status().with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// The standard output of a command.
pub fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {}", show(command)))?;
    if !output.status.success() {
        bail!("{} failed: {}", show(command), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// The command line of a command.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Creates the folder of a file, and writes the file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    let write = || {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        std::fs::write(path, content)
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// The files of a folder and its subfolders, in the order of their paths.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
        {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}
