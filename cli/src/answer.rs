//! How the answer leaves the process, or that there is none.

use std::io::Write;

use crossdock::Error;

/// Why the command did not do what it was asked to.
pub enum Failure {
    Host(Error),
    /// Its own output could not be written.
    Output(std::io::Error),
    /// It did, and its answer is no.
    No,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// The answer, on standard output.
pub fn answer(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
