//! Runs one case in this process. The command starts a process for each case.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossdock::api::Device;

use super::case::{Case, Outcome};
use super::context::CaseContext;
use super::coverage;

/// Runs `case` and writes its outcome to the socket that is standard input. Standard output belongs
/// to the plugin.
///
/// # Errors
/// The socket cannot be written to.
pub fn run(
    case: &'static Case,
    plugin: &Path,
    device: Device,
    seed: u64,
    samples: &[PathBuf],
    limit: Duration,
) -> std::io::Result<()> {
    let mut to_parent = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    end_with_parent();
    let context = CaseContext::new(case.name, plugin, device, seed, samples, limit);
    let check = context.and_then(|context| (case.check)(&context));
    let outcome = Outcome::from_check(check.and_then(|()| coverage::require_data_call(case.name)));
    let mut report = outcome.to_json();
    report["coverage"] = coverage::recorded().to_json();
    to_parent.write_all(report.to_string().as_bytes())?;
    to_parent.flush()
}

/// Makes the system end this process with its parent, so that a killed command leaves no process
/// that blocks in a plugin. Also disables core files, because some cases crash on purpose.
fn end_with_parent() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: prctl gets two integers. setrlimit gets a pointer to a local, and only reads the
    // local.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
    }
}
