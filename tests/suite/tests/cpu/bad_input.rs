//! Runs the command and the shipped plugins with malformed inputs and failing outputs. The command
//! must exit with status 1, print one line, and leave no file.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossdock_test_support::replay;
use crossdock_tests::{assert_nothing_left, assert_rejected, command, crossdock, csv_plugin, faults, sample};

fn test_paths() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in.arrow"), folder.path().join("out.arrow"));
    (folder, input, output)
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn rejects_truncated_files() {
    let (_folder, input, output) = test_paths();
    let whole = std::fs::read(sample()).unwrap();
    for cut in [0, 1, 6, 8, 100, whole.len() / 2, whole.len() - 10, whole.len() - 1] {
        std::fs::write(&input, &whole[..cut]).unwrap();
        for via in [&[][..], &["--via", "arrow-c-device"][..]] {
            let arguments = [&["convert", text(&input), text(&output), "--from", "arrow-ipc"], via].concat();
            assert_rejected(&crossdock(&arguments), &["in.arrow"], &output);
        }
    }
}

#[test]
fn corrupt_bodies_are_read_or_rejected() {
    let (_folder, input, output) = test_paths();
    let whole = std::fs::read(sample()).unwrap();
    let mut rejected = 0;
    for at in (1000..whole.len() - 1000).step_by(whole.len() / 40) {
        let mut bytes = whole.clone();
        bytes[at..at + 512].fill(0xff);
        std::fs::write(&input, &bytes).unwrap();
        let out = crossdock(&["convert", text(&input), text(&output), "--quiet"]);
        // The command may succeed, because the ZSTD frames have no checksum, so that changes of
        // literals are not detected.
        if out.status.code() == Some(0) {
            std::fs::remove_file(&output).unwrap();
        } else {
            rejected += 1;
            assert_rejected(&out, &["arrow-ipc", "in.arrow"], &output);
        }
    }
    assert!(rejected > 20, "{rejected} of 40 were rejected");
}

#[test]
fn error_names_the_missing_file() {
    let (_folder, input, output) = test_paths();
    assert_rejected(
        &crossdock(&["convert", text(&input), text(&output)]),
        &["in.arrow", "No such file"],
        &output,
    );
}

#[test]
fn full_disk_is_an_error() {
    let out = crossdock(&["convert", text(&sample()), "/dev/full", "--to", "arrow-ipc-stream", "--quiet"]);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("/dev/full") && stderr.contains("No space left"), "{stderr}");
}

#[test]
fn writes_above_the_file_size_limit_fail_and_leave_no_file() {
    let _replay = replay::on_failure();
    let (from, plugin) = (sample(), csv_plugin());
    let forms = [
        ("arrow", &[][..]),
        ("arrow", &["--compression", "zstd"]),
        ("arrows", &[]),
        ("csv", &["--plugins", text(&plugin), "--columns", "year,tailnum,cancelled,speed_mph"]),
    ];
    for (extension, more) in
        faults::part("writes_above_the_file_size_limit_fail_and_leave_no_file", forms.len(), 4)
            .into_iter()
            .map(|i| forms[i])
    {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join(format!("out.{extension}"));
        let arguments = [&["convert", text(&from), text(&output), "--quiet"], more].concat();
        let written = crossdock(&arguments);
        assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
        let bytes = std::fs::metadata(&output).unwrap().len();
        let n_limits = if faults::all() { 200 } else { 4 };
        let inside = (1..n_limits).map(|nth| bytes * nth / n_limits);
        for limit in inside.chain([0, 1, bytes - 1]) {
            std::fs::remove_file(&output).ok();
            let out = limited(&mut command(&arguments), limit).output().unwrap();
            assert_rejected(&out, &[&format!("out.{extension}"), "File too large"], &output);
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

/// Limits the size of the files that the command can write.
fn limited(command: &mut Command, bytes: u64) -> &mut Command {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let limit = move || {
        // SAFETY: `signal` and `setrlimit` may be called after a fork, and `limit` is valid until
        // the exec. SIGXFSZ is ignored, so that a write that exceeds the limit fails as on a full
        // disk.
        let failed = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_ERR
                || libc::setrlimit(libc::RLIMIT_FSIZE, &limit) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure runs between fork and exec, where it neither allocates nor locks.
    unsafe { command.pre_exec(limit) }
}

#[test]
fn closed_output_pipe_ends_the_command_without_an_error() {
    let mut child = command(&["convert", text(&sample()), "-", "--to", "arrow-ipc-stream", "--quiet"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!((out.status.code(), &*stderr), (Some(0), ""));
}

#[test]
fn ctrl_c_leaves_no_file() {
    let (_folder, _, output) = test_paths();
    let stream = crossdock(&["convert", text(&sample()), "-", "--to", "arrow-ipc-stream", "--quiet"]).stdout;
    let mut child = command(&["convert", "-", text(&output), "--quiet"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&stream[..stream.len() / 2]).unwrap();
    stdin.flush().unwrap();
    // The command has begun to read: half of the table was written, and the pipe holds at most 64
    // KiB of it.
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let out = child.wait_with_output().unwrap();
    drop(stdin);
    assert_rejected(&out, &["cancelled"], &output);
}

#[test]
fn error_for_exceeded_memory_limit_names_plugin_and_limit() {
    let (_folder, _, output) = test_paths();
    let out = crossdock(&["convert", text(&sample()), text(&output), "--memory", "100kB"]);
    assert_rejected(&out, &["arrow-ipc", "100000"], &output);
}

#[test]
fn existing_output_file_survives_a_failure() {
    let (_folder, input, output) = test_paths();
    std::fs::write(&output, "precious").unwrap();
    std::fs::write(&input, &std::fs::read(sample()).unwrap()[..5000]).unwrap();
    let out = crossdock(&["convert", text(&input), text(&output), "--from", "arrow-ipc"]);
    assert_eq!(out.status.code(), Some(1));
    assert_eq!(std::fs::read(&output).unwrap(), b"precious");
    std::fs::remove_file(&output).unwrap();
    assert_nothing_left(&output);
}
