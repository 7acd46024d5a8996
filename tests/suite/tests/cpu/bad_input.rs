//! The command on bad input and in bad places, with the real plugins: exit 1, one line, no file.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossdock_test_support::replay;
use crossdock_tests::{assert_nothing_left, assert_refused, command, crossdock, csv_plugin, faults, sample};

fn place() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.arrow"), folder.path().join("out.arrow"));
    (folder, input, output)
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let (_folder, input, output) = place();
    let whole = std::fs::read(sample()).unwrap();
    for cut in [0, 1, 6, 8, 100, whole.len() / 2, whole.len() - 10, whole.len() - 1] {
        std::fs::write(&input, &whole[..cut]).unwrap();
        for via in [&[][..], &["--via", "arrow-c-device"][..]] {
            let arguments = [&["convert", text(&input), text(&output), "--from", "arrow-ipc"], via].concat();
            assert_refused(&crossdock(&arguments), &["in.arrow"], &output);
        }
    }
}

#[test]
fn a_corrupt_body_is_refused_or_read_and_never_more() {
    let (_folder, input, output) = place();
    let whole = std::fs::read(sample()).unwrap();
    let mut refused = 0;
    for at in (1000..whole.len() - 1000).step_by(whole.len() / 40) {
        let mut bytes = whole.clone();
        bytes[at..at + 512].fill(0xff);
        std::fs::write(&input, &bytes).unwrap();
        let out = crossdock(&["convert", text(&input), text(&output), "--quiet"]);
        // ZSTD frames carry no checksum here: literals of another value are as good as the true ones.
        if out.status.code() == Some(0) {
            std::fs::remove_file(&output).unwrap();
        } else {
            refused += 1;
            assert_refused(&out, &["arrow-ipc", "in.arrow"], &output);
        }
    }
    assert!(refused > 20, "{refused} of 40 were refused");
}

#[test]
fn a_missing_file_is_named() {
    let (_folder, input, output) = place();
    assert_refused(
        &crossdock(&["convert", text(&input), text(&output)]),
        &["in.arrow", "No such file"],
        &output,
    );
}

#[test]
fn a_full_disk_is_an_error() {
    let out = crossdock(&["convert", text(&sample()), "/dev/full", "--to", "arrow-ipc-stream", "--quiet"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("/dev/full") && stderr.contains("No space left"), "{stderr}");
}

#[test]
fn a_file_that_may_not_grow_is_an_error_and_leaves_nothing() {
    let _replay = replay::on_failure();
    let (from, plugin) = (sample(), csv_plugin());
    let forms = [
        ("arrow", &[][..]),
        ("arrow", &["--compression", "zstd"]),
        ("arrows", &[]),
        ("csv", &["--plugins", text(&plugin), "--columns", "year,tailnum,cancelled,speed_mph"]),
    ];
    for (ending, more) in
        faults::part("a_file_that_may_not_grow", forms.len(), 4).into_iter().map(|i| forms[i])
    {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join(format!("out.{ending}"));
        let arguments = [&["convert", text(&from), text(&output), "--quiet"], more].concat();
        let written = crossdock(&arguments);
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let bytes = std::fs::metadata(&output).unwrap().len();
        let pieces = if faults::all() { 200 } else { 4 };
        let inside = (1..pieces).map(|nth| bytes * nth / pieces);
        for limit in inside.chain([0, 1, bytes - 1]) {
            std::fs::remove_file(&output).ok();
            let out = limited(&mut command(&arguments), limit).output().unwrap();
            assert_refused(&out, &[&format!("out.{ending}"), "File too large"], &output);
            std::fs::write(&output, "precious").unwrap();
            let out = limited(&mut command(&arguments), limit).output().unwrap();
            assert_eq!(out.status.code(), Some(1));
            assert_eq!(std::fs::read(&output).unwrap(), b"precious");
        }
        std::fs::remove_file(&output).unwrap();
        assert!(limited(&mut command(&arguments), bytes).status().unwrap().success());
        assert_eq!(std::fs::metadata(&output).unwrap().len(), bytes);
    }
}

/// A process whose files have so many bytes at most.
fn limited(command: &mut Command, bytes: u64) -> &mut Command {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let limit = move || {
        // SAFETY: two system calls, with numbers and a struct that lives as long. The limit's signal is ignored, so that writing fails as
        // it does on a full disk.
        let failed = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_ERR
                || libc::setrlimit(libc::RLIMIT_FSIZE, &limit) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: what runs between fork and exec allocates nothing and takes no lock.
    unsafe { command.pre_exec(limit) }
}

#[test]
fn a_pipe_that_nobody_reads_is_an_error_and_not_a_signal() {
    let mut child = command(&["convert", text(&sample()), "-", "--to", "arrow-ipc-stream", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
}

#[test]
fn ctrl_c_in_the_middle_leaves_no_file() {
    let (_folder, _, output) = place();
    let stream = crossdock(&["convert", text(&sample()), "-", "--to", "arrow-ipc-stream", "--quiet"]).stdout;
    let mut child = command(&["convert", "-", text(&output), "--quiet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&stream[..stream.len() / 2]).unwrap();
    stdin.flush().unwrap();
    // Half of the table has gone into the pipe, of which the command holds at most 64 KiB unread: it is at work.
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let out = child.wait_with_output().unwrap();
    drop(stdin);
    assert_refused(&out, &["cancelled"], &output);
}

#[test]
fn a_budget_that_is_too_small_says_who_wanted_how_much() {
    let (_folder, _, output) = place();
    let out = crossdock(&["convert", text(&sample()), text(&output), "--memory", "100kB"]);
    assert_refused(&out, &["arrow-ipc", "100000"], &output);
}

#[test]
fn what_was_there_before_a_failure_is_still_there_after_it() {
    let (_folder, input, output) = place();
    std::fs::write(&output, "precious").unwrap();
    std::fs::write(&input, &std::fs::read(sample()).unwrap()[..5000]).unwrap();
    let out = crossdock(&["convert", text(&input), text(&output), "--from", "arrow-ipc"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    std::fs::remove_file(&output).unwrap();
    assert_nothing_left(&output);
}
