//! Tests of sources and sinks.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;

use crate::common::{names, temporary};
use crossdock::api::{ByteSink, ByteSource, CancelFlag, Code};
use crossdock::sink::{Output, StreamSink, VecSink};
use crossdock::source::{BytesSource, FileSource, Input, PipeSource};

fn no_cancel() -> CancelFlag {
    CancelFlag::new()
}

/// Writes through an output's sink, as an exporter does.
fn write(output: &Output, bytes: &[u8]) {
    let Output::File(_) = output else { panic!("not a file") };
    output.sink().write(bytes).unwrap();
}

#[test]
fn output_file_does_not_exist_before_the_commit() {
    let directory = temporary();
    let path = directory.path().join("out");
    let output = Output::create(&path, &no_cancel()).unwrap();
    write(&output, b"half");
    assert!(!path.exists());
    output.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"half");
    assert_eq!(names(directory.path()), ["out"]);
}

#[test]
fn dropped_output_leaves_the_old_file_unchanged() {
    let directory = temporary();
    let path = directory.path().join("out");
    std::fs::write(&path, "old").unwrap();
    let output = Output::create(&path, &no_cancel()).unwrap();
    write(&output, &vec![0; 1 << 20]);
    drop(output);
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), ["out"]);
}

#[test]
fn replaced_file_keeps_its_mode_and_symbolic_link_keeps_its_target() {
    let directory = temporary();
    let (path, link) = (directory.path().join("out"), directory.path().join("link"));
    std::fs::write(&path, "old").unwrap();
    crate::common::set_mode(&path, 0o640);
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let output = Output::create(&link, &no_cancel()).unwrap();
    write(&output, b"new");
    output.commit().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn error_names_a_target_that_cannot_be_written() {
    let directory = temporary();
    for path in [directory.path().join("no/where"), directory.path().to_path_buf()] {
        let error = Output::create(&path, &no_cancel()).err().unwrap();
        assert!(error.one_line().contains(&path.display().to_string()), "{}", error.one_line());
    }
}

#[test]
fn output_is_no_uri() {
    for uri in ["s3://me:secret@bucket/a.arrow?secret", "file:///tmp/a", "Other://a"] {
        let error = Output::create(uri, &no_cancel()).err().unwrap().one_line();
        assert!(error.contains("expected a path, because URIs can only be read"), "{error}");
        assert!(error.contains("://") && !error.contains("secret"), "{error}");
    }
    // A text that does not begin with the scheme is a path.
    let directory = temporary();
    std::fs::create_dir(directory.path().join("s3:")).unwrap();
    let path = format!("{}/s3://a", directory.path().display());
    Output::create(&path, &no_cancel()).unwrap().commit().unwrap();
    assert!(directory.path().join("s3:/a").exists());
}

#[test]
fn sink_rejects_writes_after_the_commit() {
    let directory = temporary();
    let path = directory.path().join("out");
    let output = Output::create(&path, &no_cancel()).unwrap();
    let mut sink = output.sink();
    sink.write(b"in time").unwrap();
    output.commit().unwrap();
    assert!(sink.write(b"too late").is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"in time");
}

#[test]
fn write_to_full_device_returns_io_error() {
    let output = Output::create("/dev/full", &no_cancel()).unwrap();
    let Output::Stream(mut sink) = output else { panic!("a device must be written directly") };
    let error = sink.write(&vec![0; 1 << 20]).unwrap_err();
    assert_eq!(error.code(), Code::IO);
    assert!(error.message().contains("/dev/full"), "{error}");
}

#[test]
fn error_says_that_the_reader_closed_the_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let mut sink = StreamSink::new(file, "the pipe".into(), no_cancel());
    let error = sink.write(&vec![0; 1 << 20]).unwrap_err();
    assert!(error.message().contains("'the pipe': the reader closed the output"), "{error}");
}

#[test]
fn stream_keeps_the_order_of_small_and_large_writes() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let thread = std::thread::spawn(move || {
        let mut all = Vec::new();
        reader.read_to_end(&mut all).map(|_| all)
    });
    let mut expected = Vec::new();
    {
        let output = Output::Stream(StreamSink::new(file, "the pipe".into(), no_cancel()));
        let Output::Stream(sink) = &output else { unreachable!() };
        for (i, bytes) in [1usize, 10, 100_000, 3, 70_000, 65_536, 1].into_iter().enumerate() {
            let piece = vec![i as u8; bytes];
            sink.clone().write(&piece).unwrap();
            expected.extend(piece);
        }
        assert_eq!(output.bytes_written(), expected.len() as u64);
        output.commit().unwrap();
    }
    assert!(thread.join().unwrap().unwrap() == expected);
}

#[test]
fn pipe_is_read_in_order_after_a_peek() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"0123456789").unwrap();
    drop(writer);
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
    let source = PipeSource::new(file, "the pipe".into(), no_cancel());
    assert_eq!(source.len(), None);
    assert_eq!(source.peek(4).unwrap(), b"0123");
    assert_eq!(source.peek(2).unwrap(), b"01");
    let mut bytes = [0; 6];
    assert_eq!(source.read_at(0, &mut bytes[..2]).unwrap(), 2);
    assert_eq!(source.read_at(2, &mut bytes).unwrap(), 6);
    assert_eq!(&bytes, b"234567");
    let error = source.read_at(0, &mut bytes).unwrap_err();
    assert!(error.message().contains("expected offset 8, got 0"), "{error}");
    assert_eq!(source.read_at(8, &mut bytes).unwrap(), 2);
    assert_eq!(source.read_at(10, &mut bytes).unwrap(), 0);
}

#[test]
fn cancelling_ends_a_read_of_a_silent_pipe() {
    let (reader, writer) = std::io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
    let cancel = CancelFlag::new();
    let source = PipeSource::new(file, "the pipe".into(), cancel.clone());
    let thread = std::thread::spawn(move || source.read_at(0, &mut [0; 8]));
    cancel.cancel();
    assert_eq!(thread.join().unwrap().unwrap_err().code(), Code::CANCELLED);
    drop(writer);
}

#[test]
fn every_read_of_a_reset_socket_returns_an_error() {
    let (mut local, mut remote) = std::os::unix::net::UnixStream::pair().unwrap();
    local.write_all(b"not read").unwrap();
    remote.write_all(b"01").unwrap();
    // The system reports the reset once, and an end of file afterwards.
    drop(remote);
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(local));
    let source = PipeSource::new(file, "the socket".into(), no_cancel());
    for _ in 0..2 {
        let error = source.read_at(0, &mut [0; 8]).unwrap_err();
        assert!(error.code() == Code::IO && error.message().contains("reset"), "{error}");
    }
    assert_eq!(source.peek(4).unwrap_err().code(), Code::IO);
}

#[test]
fn mapped_and_unmapped_files_read_the_same() {
    let directory = temporary();
    let path = directory.path().join("in");
    std::fs::write(&path, b"0123456789").unwrap();
    let open = || std::fs::File::open(&path).unwrap();
    let mapped = FileSource::new(open(), "in".into()).unwrap();
    let unmapped = FileSource::unmapped(open(), "in".into()).unwrap();
    assert_eq!(mapped.map().unwrap(), b"0123456789");
    assert!(unmapped.map().is_none());
    for source in [&mapped, &unmapped] {
        let mut bytes = [0; 4];
        assert_eq!((source.len(), source.read_at(8, &mut bytes).unwrap()), (Some(10), 2));
        assert_eq!(&bytes[..2], b"89");
        assert_eq!(source.read_at(u64::MAX, &mut bytes).unwrap_or(0), 0);
    }
}

#[test]
fn empty_file_is_not_mapped() {
    let directory = temporary();
    let path = directory.path().join("in");
    std::fs::write(&path, b"").unwrap();
    let source = FileSource::new(std::fs::File::open(&path).unwrap(), "in".into()).unwrap();
    assert!(source.map().is_none());
    assert_eq!(source.read_at(0, &mut [0; 4]).unwrap(), 0);
}

#[test]
fn truncation_of_a_mapped_file_is_reported_with_both_lengths() {
    let directory = temporary();
    let path = directory.path().join("in");
    std::fs::write(&path, vec![0; 100]).unwrap();
    let source = FileSource::new(std::fs::File::open(&path).unwrap(), "in".into()).unwrap();
    source.check_length().unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(40).unwrap();
    let line = source.check_length().unwrap_err().one_line();
    assert!(line.contains("expected 100 bytes, got 40"), "{line}");
}

#[test]
fn error_names_a_missing_input_or_a_directory() {
    let directory = temporary();
    for path in [directory.path().join("none"), directory.path().to_path_buf()] {
        let line = Input::open(&path, &no_cancel()).err().unwrap().one_line();
        assert!(line.contains(&path.display().to_string()), "{line}");
    }
}

#[test]
fn bytes_in_memory_can_be_mapped() {
    let source = BytesSource::new(b"abcdef".to_vec());
    assert_eq!(source.map().unwrap(), b"abcdef");
    let mut bytes = [0; 4];
    assert_eq!(source.read_at(4, &mut bytes).unwrap(), 2);
    assert_eq!(source.read_at(7, &mut bytes).unwrap(), 0);
    assert_eq!(source.read_at(u64::MAX, &mut bytes).unwrap(), 0);
}

#[test]
fn vec_sink_collects_writes_of_its_clones() {
    let sink = VecSink::new();
    sink.clone().write(b"ab").unwrap();
    sink.clone().write(b"c").unwrap();
    assert_eq!(sink.take(), b"abc");
}

#[test]
fn custom_sink_keeps_its_name_and_its_bytes_are_counted() {
    struct Custom(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl ByteSink for Custom {
        fn name(&self) -> &str {
            "custom"
        }

        fn write(&mut self, bytes: &[u8]) -> crossdock::api::Result<()> {
            self.0.lock().unwrap().extend(bytes);
            Ok(())
        }
    }
    let written = std::sync::Arc::default();
    let output = Output::to(Custom(std::sync::Arc::clone(&written)));
    assert_eq!((output.name(), output.target(), output.bytes_written()), ("custom", "custom", 0));
    output.sink().write(b"abc").unwrap();
    output.sink().write(b"d").unwrap();
    assert_eq!(output.bytes_written(), 4);
    assert_eq!(output.temporary_path(), None);
    output.commit().unwrap();
    assert_eq!(*written.lock().unwrap(), b"abcd");
}

#[test]
fn cancelling_ends_a_write_to_a_full_pipe_or_socket() {
    let (reader, pipe) = std::io::pipe().unwrap();
    let (peer, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [std::os::fd::OwnedFd::from(pipe), std::os::fd::OwnedFd::from(socket)] {
        let cancel = CancelFlag::new();
        let mut sink = StreamSink::new(fd.into(), "the pipe".into(), cancel.clone());
        // The write exceeds the capacity of a pipe and of a socket.
        let thread = std::thread::spawn(move || sink.write(&vec![0; 16 << 20]));
        cancel.cancel();
        assert_eq!(thread.join().unwrap().unwrap_err().code(), Code::CANCELLED);
    }
    drop((reader, peer));
}

#[test]
fn sink_leaves_the_pipe_in_blocking_mode() {
    use std::os::fd::AsRawFd;
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut sink = StreamSink::new(
        std::os::fd::OwnedFd::from(writer.try_clone().unwrap()).into(),
        "the pipe".into(),
        no_cancel(),
    );
    sink.write(b"something").unwrap();
    // SAFETY: the descriptor is open, and F_GETFL takes no argument.
    let flags = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETFL) };
    assert_eq!(flags & libc::O_NONBLOCK, 0);
}

#[test]
fn socket_receives_all_bytes_in_order() {
    let (mut reader, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let expected: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
    let bytes = expected.clone();
    let thread = std::thread::spawn(move || {
        let file = std::os::fd::OwnedFd::from(socket).into();
        let output = Output::Stream(StreamSink::new(file, "the socket".into(), no_cancel()));
        output.sink().write(&bytes).unwrap();
        output.commit().unwrap();
    });
    let mut received = Vec::new();
    reader.read_to_end(&mut received).unwrap();
    thread.join().unwrap();
    assert!(received == expected);
}
