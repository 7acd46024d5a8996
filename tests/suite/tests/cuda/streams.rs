//! The C Device stream: its arrays carry their events from one session to the next.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossdock::Table;
use crossdock::api::Options;

use super::array::{address_of, array, schema};
use super::races::{BYTES, ROWS, bytes, event_of, export, import, values, wait_for};
use super::{GPU, setting};

#[test]
fn a_late_array_goes_through_a_stream_to_another_session_and_nothing_waits_on_the_host() {
    let Some((stranger, host, session)) = setting("a_late_array_goes_through_a_stream") else { return };
    let released = Arc::<AtomicUsize>::default();
    let theirs = stranger.stream();
    let (source, target) = (stranger.upload(&bytes(&values(3))), stranger.upload(&vec![0; BYTES]));
    let second = host.session().device(GPU).open().unwrap();
    stranger.hold(theirs, true);
    stranger.late_copy(theirs, target, source, BYTES);
    let written = stranger.record(theirs);
    let watch = stranger.watch();

    let table = import(&session, array(target, ROWS, written, &released), true);
    let mut writer = session.write_capsules("arrow-c-device-stream", &schema(), &Options::new()).unwrap();
    let mut capsules = writer.write(table.batches()[0].clone()).unwrap();
    // A fresh copy behind it, ready by an event of ours.
    capsules.extend(writer.write(table.batches()[0].compact(session.stream()).unwrap()).unwrap());
    capsules.extend(writer.finish().unwrap().capsules);
    let reader = second.read_capsules("arrow-c-device-stream", capsules, None, &Options::new()).unwrap();
    let there = Table::from_reader(&second, reader).unwrap();
    let out: Vec<_> = there.batches().iter().map(|batch| export(&second, batch)).collect();
    watch.nobody_waited_for(written);
    stranger.hold(theirs, false);

    assert_eq!(out.len(), 2);
    assert_eq!(address_of(&out[0]), target, "the first came in place");
    let reader = stranger.stream();
    for array in &out {
        stranger.wait(reader, event_of(array));
        assert_eq!(stranger.download(reader, address_of(array), BYTES), bytes(&values(3)));
    }
    drop((out, there, second, table, session));
    wait_for(|| released.load(std::sync::atomic::Ordering::SeqCst) == 1);
    [source, target].into_iter().for_each(|address| stranger.free(address));
    assert_eq!(host.settle(), []);
}
