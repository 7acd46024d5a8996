//! Writes the result of a command to standard output, and lists the ways in which a command fails.

use std::io::{ErrorKind, Write};

use crossdock::Error;

/// Why the command did not succeed.
pub enum Failure {
    Host(Error),
    /// Standard output could not be written.
    Output(std::io::Error),
    /// The reader of standard output has closed it, because it needs no more. This is not an error,
    /// so that pipelines such as `crossdock convert a.arrow - | head` succeed.
    ReaderClosed,
    /// The command printed a negative result. The exit status is 1, without an error message.
    Negative,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self::ReaderClosed,
            _ => Self::Output(error),
        }
    }
}

/// Writes the result to standard output.
///
/// # Errors
/// [`Failure::Output`] if standard output cannot be written.
pub fn write_output(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}
