//! What a call gives without an event: ready when the call's stream has run.

use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock_arrays::import_result;
use crossdock_plugin_api::{Owned, abi};

use super::array::{address_of, array, schema};
use super::races::{BYTES, ROWS, bytes, event_of, export, values, wait_for};
use super::setting;

#[test]
fn a_result_without_an_event_is_ready_when_the_call_s_stream_has_run() {
    let Some((stranger, host, session)) = setting("a_result_without_an_event") else { return };
    let calls = session.stream().native();
    let (source, target) = (stranger.upload(&bytes(&values(5))), stranger.upload(&vec![0; BYTES]));
    // A batch that begins with its second row is read another way than one of whole columns.
    for first in [0, 1] {
        let released = Arc::<AtomicUsize>::default();
        stranger.hold(calls, true);
        stranger.late_copy(calls, target, source, BYTES);
        let mut raw = array(target, ROWS, null_mut(), &released).into_raw();
        (raw.array.offset, raw.array.length) = (first, raw.array.length - first);
        // SAFETY: the array's one owner from here on.
        let given = unsafe { Owned::new(abi::Batch { array: raw, ..abi::Batch::new() }) };
        let batch = import_result(given, &schema(), session.stream()).unwrap();
        let out = export(&session, &batch);
        assert_eq!((address_of(&out), batch.len() as i64), (target, ROWS as i64 - first));
        let written = event_of(&out);
        stranger.hold(calls, false);
        let reader = stranger.stream();
        stranger.wait(reader, written);
        assert_eq!(stranger.download(reader, target, BYTES), bytes(&values(5)));
        drop((out, batch));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
    }
    [source, target].into_iter().for_each(|address| stranger.free(address));
    drop(session);
    assert_eq!(host.settle(), []);
}
