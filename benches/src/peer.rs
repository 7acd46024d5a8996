//! Runs pyarrow's side of the benchmarks, `peer.py`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Result;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peer.py");

/// A Python interpreter with pyarrow.
pub struct Peer(PathBuf);

impl Peer {
    pub fn new(python: &Path) -> Result<Self> {
        let version =
            Command::new(python).args(["-c", "import pyarrow; print(pyarrow.__version__)"]).output();
        match version {
            Ok(out) if out.status.success() => {
                eprintln!("the peer is pyarrow {}", String::from_utf8_lossy(&out.stdout).trim());
                Ok(Self(python.to_path_buf()))
            }
            _ => Err(format!(
                "no pyarrow in '{}': run `cargo xtask test` once to create the environment, or pass --python",
                python.display()
            )
            .into()),
        }
    }

    /// Returns a command for the caller to run.
    pub fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(SCRIPT).args(arguments);
        command
    }

    fn run(&self, arguments: &[&OsStr]) -> Result<Vec<u8>> {
        let out = self.command(arguments).stderr(Stdio::inherit()).output()?;
        if out.status.success() {
            Ok(out.stdout)
        } else {
            Err(format!("peer.py failed: {}", out.status).into())
        }
    }

    /// Creates the input files that are missing in `folder`.
    pub fn create_inputs(&self, folder: &Path, flights: &Path) -> Result<()> {
        self.run(&["make".as_ref(), folder.as_ref(), flights.as_ref()]).map(drop)
    }

    /// Runs the peer, which prints times in ns.
    pub fn times(&self, arguments: &[&OsStr]) -> Result<Vec<u64>> {
        Ok(serde_json::from_slice(&self.run(arguments)?)?)
    }

    /// Runs the peer, which prints two lists of times in ns.
    pub fn pair(&self, arguments: &[&OsStr]) -> Result<[Vec<u64>; 2]> {
        Ok(serde_json::from_slice(&self.run(arguments)?)?)
    }
}
