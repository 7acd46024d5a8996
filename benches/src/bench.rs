//! The context of the benchmarks that compare with pyarrow.

use std::path::PathBuf;

use crate::peer;

/// The peer, the input files and the number of runs.
pub struct Bench {
    /// Runs pyarrow's side.
    pub peer: peer::Peer,
    /// The folder of the input files.
    pub data: PathBuf,
    /// The number of runs of each side.
    pub runs: usize,
}
