//! What every figure needs.

use std::path::PathBuf;

use crate::peer;

/// Both sides, and the files that they read.
pub struct Bench {
    /// Runs pyarrow's side.
    pub peer: peer::Peer,
    /// Where the files are.
    pub data: PathBuf,
    /// How often each side runs.
    pub runs: usize,
}
