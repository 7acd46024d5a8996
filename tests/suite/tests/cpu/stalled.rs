//! The command while nobody reads what it writes: it still hears Ctrl-C, and notices that its input is cut short.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock::{ColumnSlice, Host, Table};
use crossdock_tests::{assert_nothing_left, assert_refused, built, command, sample};

/// The command, whose output goes into a pipe that holds one page and that has been filled.
struct Stalled {
    child: Child,
    pipe: PipeReader,
    /// The child's end, by which to ask whether there is room.
    writer: PipeWriter,
}

impl Stalled {
    fn start(mut command: Command) -> Self {
        let (pipe, writer) = std::io::pipe().unwrap();
        // SAFETY: an open pipe, and a size.
        assert!(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, 1) } > 0);
        let child = command.stdout(writer.try_clone().unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stalled = Self { child, pipe, writer };
        while stalled.has_room() {
            assert!(stalled.child.try_wait().unwrap().is_none(), "it ended with room in the pipe");
            std::thread::yield_now();
        }
        stalled
    }

    fn has_room(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.writer.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one pollfd, ours, for an open pipe.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 }
    }

    /// How it ends when somebody reads on.
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
    // SAFETY: our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) }, 0);
}

/// A file with one batch of columns of this many bytes each, several MB in all.
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

/// Converts a file that is cut short as soon as the command waits in the middle of its batch.
fn cut_in_the_middle(column_bytes: usize) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("in.arrow");
    wide_file(&input, column_bytes);
    let stalled = Stalled::start(command(&["convert", text(&input), "-", "--quiet"]));
    File::options().write(true).open(&input).unwrap().set_len(4096).unwrap();
    stalled.drain()
}

#[test]
fn one_ctrl_c_ends_a_write_that_nobody_reads() {
    let stalled = Stalled::start(command(&["convert", text(&sample()), "-", "--quiet"]));
    interrupt(&stalled.child);
    let out = stalled.child.wait_with_output().unwrap();
    let line = String::from_utf8(out.stderr).unwrap();
    assert_eq!((out.status.code(), line.as_str()), (Some(1), "crossdock: error: cancelled\n"));
}

#[test]
fn one_ctrl_c_ends_a_wait_for_a_named_pipe_s_other_end() {
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
        assert_refused(&child.wait_with_output().unwrap(), &["cancelled"], &output);
    }
}

/// Whether SIGINT is among the signals that it handles.
fn catches_interrupts(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (libc::SIGINT - 1) & 1 == 1
}

#[test]
fn a_named_pipe_carries_a_table_between_two_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, output) = (folder.path().join("pipe"), folder.path().join("out.arrow"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let sample = sample();
    let write = ["convert", text(&sample), text(&pipe), "--to", "arrow-ipc-stream", "--quiet"];
    let mut writer = command(&write).spawn().unwrap();
    let read = command(&["convert", text(&pipe), text(&output), "--quiet"]).status().unwrap();
    assert!(writer.wait().unwrap().success() && read.success());
    let direct = folder.path().join("direct.arrow");
    let copy = command(&["convert", text(&sample), text(&direct), "--quiet"]).status().unwrap();
    assert!(copy.success() && std::fs::read(output).unwrap() == std::fs::read(direct).unwrap());
}

/// Small columns are put together by the writer, which looks at the bytes itself: the system sends SIGBUS.
#[test]
fn an_input_cut_short_under_the_eyes_of_a_plugin_is_one_line_and_status_1() {
    let out = cut_in_the_middle(20_000);
    let line = String::from_utf8(out.stderr).unwrap();
    let expected = "crossdock: error: an input was cut short while it was being read\n";
    assert_eq!((out.status.code(), line.as_str()), (Some(1), expected));
}

/// Large columns go to the system as they are: it is the system that finds nothing there.
#[test]
fn an_input_cut_short_under_the_eyes_of_the_system_is_one_line_and_status_1() {
    let out = cut_in_the_middle(1 << 20);
    let line = String::from_utf8(out.stderr.clone()).unwrap();
    assert!(line.contains("'standard output': an input was cut short while it was being read"), "{line}");
    assert_refused(&out, &["arrow-ipc"], Path::new("/nowhere"));
}

/// Where the file system has no nameless files, the unfinished output has a name, which must not stay.
#[test]
fn an_unfinished_file_with_a_name_goes_with_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let shim = without_nameless_files(folder.path());
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
        // Most of this has been read when it is written, for a pipe holds 64 KiB.
        stdin.write_all(&stream[..stream.len() / 2]).unwrap();
        let parts = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let part = || parts().any(|name| name.to_string_lossy().ends_with(".part"));
        assert!(part(), "the shim hides nameless files");
        // SAFETY: our own child, which has not been waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        child.wait_with_output().unwrap();
        drop(stdin);
        assert!(!part(), "left behind after signal {signal}");
        assert_nothing_left(&output);
    }
}

/// A library that makes a file system look like one without O_TMPFILE.
fn without_nameless_files(folder: &Path) -> std::path::PathBuf {
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
