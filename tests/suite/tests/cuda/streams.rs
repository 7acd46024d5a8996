//! Tests C Device streams. The events of their arrays order the work of two sessions.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crossdock::Table;
use crossdock::api::Options;

use super::array::{address_of, array, schema};
use super::races::{BYTES, ROWS, bytes, event_of, export, import, values, wait_for};
use super::{GPU, setup};

#[test]
fn late_array_passes_through_a_device_stream_without_host_waits() {
    let Some((external, host, session)) =
        setup("late_array_passes_through_a_device_stream_without_host_waits")
    else {
        return;
    };
    let released = Arc::<AtomicUsize>::default();
    let external_stream = external.stream();
    let (source, target) = (external.upload(&bytes(&values(3))), external.upload(&vec![0; BYTES]));
    let second = host.session().device(GPU).open().unwrap();
    external.hold(external_stream, true);
    external.late_copy(external_stream, target, source, BYTES);
    let written = external.record(external_stream);
    let watch = external.watch();

    let table = import(&session, array(target, ROWS, written, &released), true);
    let mut writer = session.write_capsules("arrow-c-device-stream", &schema(), &Options::new()).unwrap();
    let mut capsules = writer.write(table.batches()[0].clone()).unwrap();
    // The second array is a new copy with an event of the host.
    capsules.extend(writer.write(table.batches()[0].compact(session.stream()).unwrap()).unwrap());
    capsules.extend(writer.finish().unwrap().capsules);
    let reader = second.read_capsules("arrow-c-device-stream", capsules, None, &Options::new()).unwrap();
    let imported = Table::from_reader(&second, reader).unwrap();
    let out: Vec<_> = imported.batches().iter().map(|batch| export(&second, batch)).collect();
    watch.assert_host_did_not_wait_for(written);
    external.hold(external_stream, false);

    assert_eq!(out.len(), 2);
    assert_eq!(address_of(&out[0]), target, "the first array was imported in place");
    let reader = external.stream();
    for array in &out {
        external.wait(reader, event_of(array));
        assert_eq!(external.download(reader, address_of(array), BYTES), bytes(&values(3)));
    }
    drop((out, imported, second, table, session));
    wait_for(|| released.load(std::sync::atomic::Ordering::SeqCst) == 1);
    [source, target].into_iter().for_each(|address| external.free(address));
    assert_eq!(host.settle(), []);
}
