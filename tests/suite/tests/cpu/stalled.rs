//! Tests the command while its output pipe is full. It must still handle Ctrl-C, and detect that
//! its input is truncated.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::{ColumnSlice, Host, Table};
use crossdock_tests::{assert_nothing_left, assert_rejected, built, command, sample};

/// A running command whose output is a full pipe of one page.
struct Stalled {
    child: Child,
    pipe: PipeReader,
    /// A duplicate of the child's end of the pipe, to query whether the pipe is full.
    writer: PipeWriter,
}

impl Stalled {
    fn start(mut command: Command) -> Self {
        let (pipe, writer) = std::io::pipe().unwrap();
        // SAFETY: F_SETPIPE_SZ takes an integer, and the pipe is open.
        assert!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 1) } > 0);
        let child = command.stdout(writer.try_clone().unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stalled = Self { child, pipe, writer };
        while stalled.has_space() {
            assert!(
                stalled.child.try_wait().unwrap().is_none(),
                "the command ended although the pipe is not full"
            );
            std::thread::yield_now();
        }
        stalled
    }

    fn has_space(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: `poll` is one valid pollfd, and the passed count is 1.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    /// Reads the rest of the output. Returns how the command ends.
    fn drain(self) -> Output {
        let Self { child, mut pipe, writer } = self;
        drop(writer);
        pipe.read_to_end(&mut Vec::new()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn interrupt(child: &Child) {
    // SAFETY: the child has not been waited for, so its process id is not reused.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
}

/// Writes a file with one batch of 6 MiB in columns of `column_bytes` bytes.
fn wide_file(path: &Path, column_bytes: usize) {
    let columns = (6 << 20) / column_bytes;
    let field = |i| Field::new(format!("c{i}"), DataType::Int32, false);
    let schema = Arc::new(Schema::new((0..columns).map(field).collect::<Vec<_>>()));
    let host = Host::builder().plugins(built()).build().unwrap();
    let session = host.session().open().unwrap();
    let values = vec![7i32; column_bytes / 4];
    let columns = vec![ColumnSlice::new(&values[..]); columns];
    Table::from_columns(&session, schema, &columns).unwrap().write(path).unwrap();
}

/// Converts a file that is truncated while the command waits in the middle of its batch.
fn convert_truncated(column_bytes: usize) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.arrow");
    wide_file(&input, column_bytes);
    let stalled = Stalled::start(command(&["convert", text(&input), "-", "--quiet"]));
    File::options().write(true).open(&input).unwrap().set_len(4096).unwrap();
    stalled.drain()
}

#[test]
fn ctrl_c_ends_a_write_to_a_full_pipe() {
    let stalled = Stalled::start(command(&["convert", text(&sample()), "-", "--quiet"]));
    interrupt(&stalled.child);
    let out = stalled.child.wait_with_output().unwrap();
    let line = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), line.as_str()), (Some(1), "error: cancelled\n"));
}

#[test]
fn ctrl_c_ends_a_wait_for_the_other_end_of_a_named_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let output = folder.path().join("out.arrow");
    let sample = sample();
    for arguments in [
        &["convert", text(&pipe), text(&output)][..],
        &["convert", text(&sample), text(&pipe), "--to", "arrow-ipc-stream"],
    ] {
        let child = command(arguments).stderr(Stdio::piped()).spawn().unwrap();
        while !catches_interrupts(&child) {
            std::thread::yield_now();
        }
        interrupt(&child);
        assert_rejected(&child.wait_with_output().unwrap(), &["cancelled"], &output);
    }
}

/// Whether the process handles SIGINT.
fn catches_interrupts(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (libc::SIGINT - 1) & 1 == 1
}

#[test]
fn named_pipe_passes_a_table_between_two_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, output) = (folder.path().join("pipe"), folder.path().join("out.arrow"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let sample = sample();
    let write = ["convert", text(&sample), text(&pipe), "--to", "arrow-ipc-stream", "--quiet"];
    let mut writer = command(&write).spawn().unwrap();
    // The compression of a pipe is not known when the output begins, so it is stated.
    let plain = ["--compression", "none", "--quiet"];
    let read = command(&[&["convert", text(&pipe), text(&output)], &plain[..]].concat()).status().unwrap();
    assert!(writer.wait().unwrap().success() && read.success());
    let direct = folder.path().join("direct.arrow");
    let copy = command(&[&["convert", text(&sample), text(&direct)], &plain[..]].concat()).status().unwrap();
    assert!(copy.success() && std::fs::read(output).unwrap() == std::fs::read(direct).unwrap());
}

/// The writer copies small columns into one buffer. It reads the truncated pages itself, so the
/// kernel sends SIGBUS.
#[test]
fn input_truncated_during_a_read_by_a_plugin_is_an_error() {
    let out = convert_truncated(7_000);
    let line = String::from_utf8(out.stderr).unwrap();
    let expected = "error: an input was truncated while it was being read\n";
    assert_eq!((out.status.code(), line.as_str()), (Some(1), expected));
}

/// Large columns are passed to `write`. The kernel reads the truncated pages, so `write` returns an
/// error.
#[test]
fn input_truncated_during_a_read_by_the_kernel_is_an_error() {
    let out = convert_truncated(1 << 20);
    let line = String::from_utf8(out.stderr.clone()).unwrap();
    assert!(line.contains("'standard output': an input was cut short while it was being read"), "{line}");
    assert_rejected(&out, &["arrow-ipc"], Path::new("/nowhere"));
}

/// On a file system without O_TMPFILE, the unfinished output file has a name and must be removed.
#[test]
fn signals_remove_the_unfinished_output_file() {
    let folder = tempfile::tempdir().unwrap();
    let shim = compile_shim(folder.path());
    let stream = command(&["convert", text(&sample()), "-", "--quiet"]).output().unwrap().stdout;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGBUS] {
        let output = folder.path().join("out.arrow");
        let mut child = command(&["convert", "-", text(&output), "--quiet"])
            .env("LD_PRELOAD", &shim)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // The pipe holds 64 KiB, so the command has read most of these bytes when `write_all`
        // returns.
        stdin.write_all(&stream[..stream.len() / 2]).unwrap();
        let parts = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let part_exists = || parts().any(|name| name.to_string_lossy().ends_with(".part"));
        assert!(part_exists(), "the shim disables O_TMPFILE");
        // SAFETY: the child has not been waited for, so its process id is not reused.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        child.wait_with_output().unwrap();
        drop(stdin);
        assert!(!part_exists(), "left behind after signal {signal}");
        assert_nothing_left(&output);
    }
}

/// Compiles a library that makes O_TMPFILE fail.
fn compile_shim(folder: &Path) -> std::path::PathBuf {
    let source = folder.join("shim.c");
    let to = folder.join("shim.so");
    let code = "
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <fcntl.h>
        #include <stdarg.h>
        int open64(const char* path, int flags, ...) {
            va_list rest;
            va_start(rest, flags);
            mode_t mode = va_arg(rest, mode_t);
            va_end(rest);
            if ((flags & O_TMPFILE) == O_TMPFILE) { errno = EOPNOTSUPP; return -1; }
            return ((int (*)(const char*, int, ...))dlsym(RTLD_NEXT, \"open64\"))(path, flags, mode);
        }";
    std::fs::write(&source, code).unwrap();
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let out = Command::new(compiler).args(["-shared", "-fPIC", "-o"]).args([&to, &source]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    to
}
