//! Tests results that a plugin returns without an event. They are ordered after the work on the
//! stream of the call.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::import_result;
use crossdock_plugin_api::{Owned, abi};

use super::array::{address_of, array, schema};
use super::races::{BYTES, ROWS, bytes, event_of, export, values, wait_for};
use super::setup;

#[test]
fn result_without_an_event_is_ordered_after_the_stream_of_the_call() {
    let Some((external, host, session)) =
        setup("result_without_an_event_is_ordered_after_the_stream_of_the_call")
    else {
        return;
    };
    let call_stream = session.stream().native();
    let (source, target) = (external.upload(&bytes(&values(5))), external.upload(&vec![0; BYTES]));
    // A batch with an offset has a separate import path.
    for first in [0, 1] {
        let released = Arc::<AtomicUsize>::default();
        external.hold(call_stream, true);
        external.late_copy(call_stream, target, source, BYTES);
        let mut raw = array(target, ROWS, null_mut(), &released).into_raw();
        (raw.array.offset, raw.array.length) = (first, raw.array.length - first);
        // SAFETY: `into_raw` gave up ownership of the array.
        let raw_batch = unsafe { Owned::new(abi::Batch { array: raw, ..abi::Batch::new() }) };
        let batch = import_result(raw_batch, &schema(), session.stream()).unwrap();
        let out = export(&session, &batch);
        assert_eq!((address_of(&out), batch.len() as i64), (target, ROWS as i64 - first));
        let written = event_of(&out);
        external.hold(call_stream, false);
        let reader = external.stream();
        external.wait(reader, written);
        assert_eq!(external.download(reader, target, BYTES), bytes(&values(5)));
        drop((out, batch));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
    }
    [source, target].into_iter().for_each(|address| external.free(address));
    drop(session);
    assert_eq!(host.settle(), []);
}
