//! Who is told to have failed, and what may be asked afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::batch;
use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{
    BatchStream, BatchStreamHandle, BatchWriter, ByteSource, Call, CallSettings, Capsule, Code, Device,
    Error, Owned, Result, Source, WriterHandle, abi, export_stream, export_writer,
};

/// A source whose reads panic.
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
fn a_panic_of_the_host_s_is_told_as_its_own_fault_and_not_as_the_plugin_s() {
    let source = Source::new(Arc::new(Panics));
    let said = source.read_at(0, &mut [0; 4]).unwrap_err();
    assert_eq!(said.code(), Code::INTERNAL);
    assert!(said.message().contains("the host panicked: the disk is upside down"), "{said}");
    assert_eq!(source.read_at(0, &mut [0; 4]).unwrap_err().code(), Code::INTERNAL, "later ones too");
}

/// Fails once, and would go on.
struct Once(bool);

impl Once {
    fn fails(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.0, true) { Ok(()) } else { Err(Error::bad_data("not this one")) }
    }
}

impl BatchStream for Once {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        Err(Error::unsupported("none"))
    }
    fn next(&mut self, _call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        self.fails().map(|()| Some(batch(&Arc::default())))
    }
}

impl BatchWriter for Once {
    fn write(&mut self, _call: &Call<'_>, _batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        self.fails().map(|()| Vec::new())
    }
    fn finish(&mut self, _call: &Call<'_>) -> Result<Vec<Capsule>> {
        Ok(Vec::new())
    }
}

#[test]
fn of_a_stream_or_a_writer_that_has_failed_nothing_more_is_had() {
    let call = CallSettings::new(Device::CPU);
    // SAFETY: made here, and nobody else has it.
    let mut stream =
        unsafe { BatchStreamHandle::from_raw(export_stream(Box::new(Once(false)), Poison::new())) };
    assert_eq!(stream.next(&call).err().unwrap().message(), "not this one");
    for _ in 0..2 {
        assert_eq!(stream.next(&call).err().unwrap().message(), "get_next after a call that failed");
    }
    // SAFETY: as above.
    let mut writer = unsafe { WriterHandle::from_raw(export_writer(Box::new(Once(false)), Poison::new())) };
    let released = Arc::new(AtomicUsize::new(0));
    assert_eq!(writer.write(&call, batch(&released)).err().unwrap().message(), "not this one");
    assert_eq!(
        writer.write(&call, batch(&released)).err().unwrap().message(),
        "write after a call that failed"
    );
    assert_eq!(released.load(Ordering::SeqCst), 2, "batches are taken all the same");
    assert_eq!(writer.finish(&call).err().unwrap().message(), "finish after a call that failed");
}

#[test]
fn an_error_that_a_test_shows_has_its_code_and_its_details() {
    let error = Error::bad_data("a line");
    assert_eq!((error.to_string(), format!("{error:?}")), ("a line".into(), "bad data: a line".into()));
    let error = error.with_details("at byte 7");
    assert_eq!(format!("{error:?}"), "bad data: a line\nat byte 7");
}

#[test]
fn a_call_is_cancelled_once_its_flag_is_set_and_no_other_call_is() {
    let (settings, other) = (CallSettings::new(Device::CPU), CallSettings::new(Device::CPU));
    let check = |settings: &CallSettings| settings.enter(|call| call.check_cancelled());
    assert_eq!((check(&settings), settings.cancel.is_cancelled()), (Ok(()), false));
    settings.cancel.clone().cancel();
    assert_eq!(check(&settings).unwrap_err().code(), Code::CANCELLED);
    assert_eq!((settings.cancel.is_cancelled(), check(&other)), (true, Ok(())));
    settings.enter(|call| assert!(settings.cancel.is_of(call) && !other.cancel.is_of(call)));
}
