//! Sources and sinks.

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
fn an_output_file_appears_whole_at_the_commit_and_not_before() {
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
fn an_output_that_is_dropped_leaves_nothing_and_what_was_there_stays() {
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
fn a_replaced_file_keeps_its_mode_and_a_symbolic_link_its_target() {
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
fn a_target_that_cannot_be_written_is_named() {
    let directory = temporary();
    for path in [directory.path().join("no/where"), directory.path().to_path_buf()] {
        let error = Output::create(&path, &no_cancel()).err().unwrap();
        assert!(error.one_line().contains(&path.display().to_string()), "{}", error.one_line());
    }
}

#[test]
fn a_sink_that_outlives_the_commit_writes_nowhere() {
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
fn a_device_is_written_directly_and_a_full_one_is_an_error_of_input_and_output() {
    let output = Output::create("/dev/full", &no_cancel()).unwrap();
    let Output::Stream(mut sink) = output else { panic!("a device is no file to be replaced") };
    let error = sink.write(&vec![0; 1 << 20]).unwrap_err();
    assert_eq!(error.code(), Code::IO);
    assert!(error.message().contains("/dev/full"), "{error}");
}

#[test]
fn a_pipe_whose_reader_is_gone_is_an_error_that_says_so() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(writer));
    let mut sink = StreamSink::new(file, "the pipe".into(), no_cancel());
    let error = sink.write(&vec![0; 1 << 20]).unwrap_err();
    assert!(error.message().contains("'the pipe': its reader closed it"), "{error}");
}

#[test]
fn small_and_large_writes_to_a_stream_arrive_in_order() {
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
fn a_pipe_is_read_in_order_after_a_look_at_its_head() {
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
fn waiting_for_a_silent_pipe_ends_when_it_is_cancelled() {
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
fn a_socket_whose_other_end_broke_off_does_not_look_finished_when_it_is_read_again() {
    let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.write_all(b"which nobody reads").unwrap();
    theirs.write_all(b"01").unwrap();
    // The system tells of what was not read there once, and then of an end.
    drop(theirs);
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(ours));
    let source = PipeSource::new(file, "the socket".into(), no_cancel());
    for _ in 0..2 {
        let said = source.read_at(0, &mut [0; 8]).unwrap_err();
        assert!(said.code() == Code::IO && said.message().contains("reset"), "{said}");
    }
    assert_eq!(source.peek(4).unwrap_err().code(), Code::IO);
}

#[test]
fn a_file_reads_the_same_mapped_and_at_an_offset() {
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
fn an_empty_file_is_read_without_a_mapping() {
    let directory = temporary();
    let path = directory.path().join("in");
    std::fs::write(&path, b"").unwrap();
    let source = FileSource::new(std::fs::File::open(&path).unwrap(), "in".into()).unwrap();
    assert!(source.map().is_none());
    assert_eq!(source.read_at(0, &mut [0; 4]).unwrap(), 0);
}

#[test]
fn a_mapped_file_that_is_cut_short_is_noticed_with_both_lengths() {
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
fn an_input_that_is_missing_or_a_directory_is_named() {
    let directory = temporary();
    for path in [directory.path().join("none"), directory.path().to_path_buf()] {
        let line = Input::open(&path, &no_cancel()).err().unwrap().one_line();
        assert!(line.contains(&path.display().to_string()), "{line}");
    }
}

#[test]
fn bytes_in_memory_are_their_own_mapping() {
    let source = BytesSource::new(b"abcdef".to_vec());
    assert_eq!(source.map().unwrap(), b"abcdef");
    let mut bytes = [0; 4];
    assert_eq!(source.read_at(4, &mut bytes).unwrap(), 2);
    assert_eq!(source.read_at(7, &mut bytes).unwrap(), 0);
    assert_eq!(source.read_at(u64::MAX, &mut bytes).unwrap(), 0);
}

#[test]
fn a_vector_takes_what_is_written() {
    let sink = VecSink::new();
    sink.clone().write(b"ab").unwrap();
    sink.clone().write(b"c").unwrap();
    assert_eq!(sink.take(), b"abc");
}

#[test]
fn a_sink_of_the_caller_s_own_keeps_its_name_and_has_its_bytes_counted() {
    struct Counting(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
    impl ByteSink for Counting {
        fn name(&self) -> &str {
            "the caller's"
        }

        fn write(&mut self, bytes: &[u8]) -> crossdock::api::Result<()> {
            self.0.lock().unwrap().extend(bytes);
            Ok(())
        }
    }
    let written = std::sync::Arc::default();
    let output = Output::to(Counting(std::sync::Arc::clone(&written)));
    assert_eq!((output.name(), output.target(), output.bytes_written()), ("the caller's", "the caller's", 0));
    output.sink().write(b"abc").unwrap();
    output.sink().write(b"d").unwrap();
    assert_eq!(output.bytes_written(), 4);
    assert_eq!(output.unfinished(), None);
    output.commit().unwrap();
    assert_eq!(*written.lock().unwrap(), b"abcd");
}

#[test]
fn waiting_for_a_full_pipe_or_socket_ends_when_it_is_cancelled() {
    let (reader, pipe) = std::io::pipe().unwrap();
    let (other, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [std::os::fd::OwnedFd::from(pipe), std::os::fd::OwnedFd::from(socket)] {
        let cancel = CancelFlag::new();
        let mut sink = StreamSink::new(fd.into(), "the pipe".into(), cancel.clone());
        // More than either holds.
        let thread = std::thread::spawn(move || sink.write(&vec![0; 16 << 20]));
        cancel.cancel();
        assert_eq!(thread.join().unwrap().unwrap_err().code(), Code::CANCELLED);
    }
    drop((reader, other));
}

#[test]
fn a_pipe_that_others_share_stays_one_that_waits() {
    use std::os::fd::AsRawFd;
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut sink = StreamSink::new(
        std::os::fd::OwnedFd::from(writer.try_clone().unwrap()).into(),
        "the pipe".into(),
        no_cancel(),
    );
    sink.write(b"something").unwrap();
    // SAFETY: an open pipe.
    let flags = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETFL) };
    assert_eq!(flags & libc::O_NONBLOCK, 0);
}

#[test]
fn a_socket_takes_everything_in_order() {
    let (mut reader, socket) = std::os::unix::net::UnixStream::pair().unwrap();
    let expected: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
    let bytes = expected.clone();
    let thread = std::thread::spawn(move || {
        let file = std::os::fd::OwnedFd::from(socket).into();
        let output = Output::Stream(StreamSink::new(file, "the socket".into(), no_cancel()));
        output.sink().write(&bytes).unwrap();
        output.commit().unwrap();
    });
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    thread.join().unwrap();
    assert!(got == expected);
}
