//! Tests errors, panics, cancellation, and calls after a failed call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::batch;
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{
    BatchStream, BatchStreamHandle, BatchWriter, ByteSource, Call, CallSettings, Capsule, Code, Device,
    Error, Owned, Result, Source, WriterHandle, abi, export_stream, export_writer,
};

/// A source that panics when it is read.
struct Panics;

impl ByteSource for Panics {
    fn name(&self) -> &str {
        "panics"
    }
    fn len(&self) -> Option<u64> {
        Some(8)
    }
    fn read_at(&self, _offset: u64, _to: &mut [u8]) -> Result<usize> {
        panic!("the disk is upside down")
    }
}

#[test]
fn panic_of_a_host_object_is_an_internal_error() {
    let source = Source::new(Arc::new(Panics));
    let error = source.read_at(0, &mut [0; 4]).unwrap_err();
    assert_eq!(error.code(), Code::INTERNAL);
    assert!(error.message().contains("the host panicked: the disk is upside down"), "{error}");
    assert_eq!(source.read_at(0, &mut [0; 4]).unwrap_err().code(), Code::INTERNAL, "later calls too");
}

/// A stream and a writer whose first call returns an error.
struct FailsOnce(bool);

impl FailsOnce {
    fn call(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.0, true) { Ok(()) } else { Err(Error::bad_data("not this one")) }
    }
}

impl BatchStream for FailsOnce {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        Err(Error::unsupported("none"))
    }
    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        self.call().map(|()| Some(batch(&Arc::default())))
    }
}

impl BatchWriter for FailsOnce {
    fn write(&mut self, _call: &Call<'_>, _batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        self.call().map(|()| Vec::new())
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}

#[test]
fn streams_and_writers_reject_calls_after_a_failed_call() {
    let call = CallSettings::new(Device::CPU);
    // SAFETY: `export_stream` returns a valid stream.
    let mut stream =
        unsafe { BatchStreamHandle::from_raw(export_stream(Box::new(FailsOnce(false)), Poison::new())) };
    assert_eq!(stream.next(&call).err().unwrap().message(), "not this one");
    for _ in 0..2 {
        assert_eq!(stream.next(&call).err().unwrap().message(), "get_next was called after a failed call");
    }
    // SAFETY: `export_writer` returns a valid writer.
    let mut writer =
        unsafe { WriterHandle::from_raw(export_writer(Box::new(FailsOnce(false)), Poison::new())) };
    let released = Arc::new(AtomicUsize::new(0));
    assert_eq!(writer.write(&call, batch(&released)).err().unwrap().message(), "not this one");
    assert_eq!(
        writer.write(&call, batch(&released)).err().unwrap().message(),
        "write was called after a failed call"
    );
    assert_eq!(released.load(Ordering::SeqCst), 2, "the writer takes ownership also if it fails");
    assert_eq!(writer.finish(&call).err().unwrap().message(), "finish was called after a failed call");
}

#[test]
fn debug_output_of_errors_has_code_and_details() {
    let error = Error::bad_data("a line");
    assert_eq!((error.to_string(), format!("{error:?}")), ("a line".into(), "bad data: a line".into()));
    let error = error.with_details("at byte 7");
    assert_eq!(format!("{error:?}"), "bad data: a line\nat byte 7");
}

#[test]
fn cancel_flag_cancels_only_its_own_calls() {
    let (settings, other) = (CallSettings::new(Device::CPU), CallSettings::new(Device::CPU));
    let check = |settings: &CallSettings| settings.enter(|call| call.check_cancelled());
    assert_eq!((check(&settings), settings.cancel.is_cancelled()), (Ok(()), false));
    settings.cancel.clone().cancel();
    assert_eq!(check(&settings).unwrap_err().code(), Code::CANCELLED);
    assert_eq!((settings.cancel.is_cancelled(), check(&other)), (true, Ok(())));
    settings.enter(|call| assert!(settings.cancel.is(call.cancel()) && !other.cancel.is(call.cancel())));
}
