//! Converts 10 million rows of the flights table through each plugin with the command, compared to
//! pyarrow in its own process. Also measures peak memory, which must not grow with the table.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::table::Table;
use crate::{Bench, Result};

/// The columns without nulls. pyarrow cannot export columns with nulls as DLPack tensors.
const PLAIN: &str = "year,month,day,sched_dep_time,sched_arr_time,flight,distance,hour,minute";

pub fn routes(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = crate::load::folder()?;
    let flights = bench.data.join("flights10m.arrows");
    let csv = bench.data.join("flights10m.csv");
    let plugin = bench.data.join("csv-plugin");
    build_csv(&plugin)?;
    let null = Path::new("/dev/null");
    let routes: [(&str, &str, &Path, &[&str]); 5] = [
        ("Arrow IPC, stream to stream", "long_ipc", &flights, &["--to", "arrow-ipc-stream"]),
        (
            "the same, and through Arrow C Device",
            "long_c_device",
            &flights,
            &["--to", "arrow-ipc-stream", "--via", "arrow-c-device"],
        ),
        (
            "9 columns of it, and through DLPack",
            "long_dlpack",
            &flights,
            &["--to", "arrow-ipc-stream", "--via", "dlpack", "--columns", PLAIN],
        ),
        ("9 columns of it, to CSV", "long_to_csv", &flights, &["--to", "csv", "--columns", PLAIN]),
        ("CSV to Arrow IPC", "long_from_csv", &csv, &["--from", "csv", "--to", "arrow-ipc-stream"]),
    ];
    for (what, peer, from, options) in routes {
        if !from.exists() {
            let mut make = command(&folder, &plugin);
            run(make.arg(&flights).arg(from).args(["--columns", PLAIN]))?;
        }
        let mut sides = [Vec::new(), Vec::new()];
        let mut peaks = [0, 0];
        for _ in 0..bench.runs.min(3) {
            let mut crossdock_command = command(&folder, &plugin);
            crossdock_command.arg(from).arg(null).args(options).args(["--validate", "layout"]);
            let peer_command = bench.peer.command(&[peer.as_ref(), from.as_ref(), PLAIN.as_ref()]);
            for (i, mut command) in [crossdock_command, peer_command].into_iter().enumerate() {
                let (time, peak) = run(&mut command)?;
                sides[i].push(time);
                peaks[i] = peaks[i].max(peak);
            }
        }
        let mib = peaks.map(|kib| kib >> 10);
        table.row(
            &format!("10 M rows, {what}; peak {} MiB, pyarrow {} MiB", mib[0], mib[1]),
            &sides[0],
            Some(&sides[1]),
        );
    }
    Ok(())
}

fn command(folder: &Path, plugin: &Path) -> Command {
    let mut command = Command::new(folder.join("crossdock"));
    command.args(["convert", "--quiet", "--plugins"]).arg(plugin);
    command
}

/// Builds the example plugin in C with its Makefile.
fn build_csv(to: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c-plugin");
    let to = std::path::absolute(to)?;
    let mut make = Command::new("make");
    run(make.arg("-s").arg("-C").arg(source).arg(format!("OUT={}", to.display()))).map(drop)
}

/// Runs a command. Returns its time in ns and its peak resident memory in KiB.
fn run(command: &mut Command) -> Result<(u64, i64)> {
    let start = Instant::now();
    let child = command.stdout(Stdio::null()).spawn()?;
    let pid = child.id() as libc::pid_t;
    let mut status = 0;
    // SAFETY: `rusage` has only integers, for which zero bytes are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `pid` is a child that was not waited for, and both pointers are writable.
    let waited_pid = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
    let time = start.elapsed().as_nanos() as u64;
    if waited_pid != pid {
        return Err(std::io::Error::last_os_error().into());
    }
    match ExitStatus::from_raw(status) {
        ok if ok.success() => Ok((time, usage.ru_maxrss)),
        status => Err(format!("{command:?}: {status}").into()),
    }
}
