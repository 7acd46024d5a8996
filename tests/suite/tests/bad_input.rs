//! The command on bad input and in bad places, with the real plugins: exit 1, one line, no file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use crossdock_tests::{assert_nothing_left, assert_refused, command, crossdock, sample};

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
    let (_folder, _, output) = place();
    // The limit's signal is ignored, so that writing fails as it does on a full disk.
    let script = format!(
        "trap '' XFSZ; ulimit -f 100; exec {} convert {} {} --quiet",
        text(&crossdock_tests::built_file("crossdock")),
        text(&sample()),
        text(&output)
    );
    let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_refused(&out, &["out.arrow", "File too large"], &output);
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
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
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
