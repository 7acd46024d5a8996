//! One case in a process of its own.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock::api::Device;

use super::case::{Case, Outcome};
use super::coverage;
use super::subject::Ground;

/// Runs `case` and tells how it went through the socket that standard input is: standard output is the plugin's to write on.
pub fn run(
    case: &'static Case,
    plugin: &Path,
    device: Device,
    seed: u64,
    samples: &[PathBuf],
    limit: Duration,
) -> std::io::Result<()> {
    let mut to_parent = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    ends_with_its_parent();
    let ground = Ground::new(case.name, plugin, device, seed, samples, limit);
    let check = ground.and_then(|ground| (case.check)(&ground));
    let outcome = Outcome::of(check.and_then(|()| coverage::something_ran(case.name)));
    let mut told = outcome.to_json();
    told["coverage"] = coverage::noted().to_json();
    to_parent.write_all(told.to_string().as_bytes())?;
    to_parent.flush()
}

/// A command that is killed leaves no process behind that waits in a plugin for ever; and what crashes on purpose fills no disk
/// with core files.
fn ends_with_its_parent() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both set an attribute of this process, from values.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
}
