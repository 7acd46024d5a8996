//! Late producers, slow readers and early deletions of tensors. DLPack has no events: a producer makes the session's stream
//! wait, and a consumer waits for that stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::Table;
use crossdock::api::Options;
use crossdock_arrays::export_schema;
use crossdock_plugin_api::abi;

use super::array::{array, schema};
use super::races::{BYTES, ROWS, bytes, expected, values, wait_for};
use super::setting;
use super::tensor::{CUDA_0, Taken, import, lies_on, load_what_gathers, tensor, told};

/// Every second value of what is spread over twice as many.
fn spread(values: &[i64]) -> Vec<i64> {
    values.iter().flat_map(|value| [*value, -1]).collect()
}

/// Whatever its strides, a tensor's bytes are read after what the session's stream was made to wait for.
#[test]
fn a_late_producers_tensor_is_read_right_and_nothing_waits_on_the_host() {
    let Some((stranger, host, session)) = setting("a_late_producers_tensor_is_read_right") else { return };
    let theirs = stranger.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let wanted = values(stride as i64);
        let source = stranger.upload(&bytes(&if stride == 1 { wanted.clone() } else { spread(&wanted) }));
        let target = stranger.upload(&vec![0; BYTES * stride]);
        load_what_gathers(&session, CUDA_0, source);
        stranger.hold(theirs, true);
        stranger.late_copy(theirs, target, source, BYTES * stride);
        let written = stranger.record(theirs);
        stranger.wait(session.stream().native(), written);
        let watch = stranger.watch();
        let table = import(&session, tensor(CUDA_0, target, (ROWS, stride), &deleted)).unwrap();
        // And out again as a tensor: in place where it could stay there.
        let mut writer = session.write_capsules("dlpack", table.schema(), &Options::new()).unwrap();
        let again = Taken::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        assert_eq!(again.address() == target, stride == 1);
        watch.nobody_waited_for(written);
        stranger.hold(theirs, false);

        let (reader, given) = (stranger.stream(), stranger.record(session.stream().native()));
        stranger.wait(reader, given);
        assert_eq!(stranger.download(reader, again.address(), BYTES), bytes(&wanted));
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(wanted).column(0));
        drop((again, table, writer));
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        [source, target].into_iter().for_each(|address| stranger.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

/// Pinned host memory is the host's, but a device writes it late.
#[test]
fn a_late_tensor_in_pinned_memory_is_read_after_what_the_sessions_stream_waits_for() {
    let Some((stranger, host, session)) = setting("a_late_tensor_in_pinned_memory") else { return };
    let theirs = stranger.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let wanted = values(7);
        let source = stranger.upload(&bytes(&if stride == 1 { wanted.clone() } else { spread(&wanted) }));
        let target = stranger.alloc_pinned(BYTES * stride);
        stranger.late_copy(theirs, target, source, BYTES * stride);
        let written = stranger.record(theirs);
        stranger.wait(session.stream().native(), written);
        let watch = stranger.watch();
        let pinned = lies_on(abi::DEVICE_CUDA_HOST, 0);
        let table = import(&session, tensor(pinned, target, (ROWS, stride), &deleted)).unwrap();
        // Gathered by the host, which has to wait for what it reads.
        if stride == 1 {
            watch.nobody_waited_for(written);
        }
        assert_eq!(table.batches()[0].device(), session.device());
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(wanted).column(0));
        drop(table);
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        stranger.free(source);
        stranger.free_pinned(target);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_tensor_of_work_under_way_is_read_by_a_stranger_that_waits_for_the_sessions_stream() {
    let Some((stranger, host, session)) = setting("a_tensor_of_work_under_way") else { return };
    let (theirs, reader) = (stranger.stream(), stranger.stream());
    let table = Table::from_record_batches(&session, schema(), &[expected(values(3))]).unwrap();
    session.stream().synchronize().unwrap();
    for copy in ["needed", "always"] {
        let (a, b) = (stranger.upload(&vec![1; BYTES]), stranger.alloc(BYTES));
        stranger.hold(theirs, true);
        stranger.late_copy(theirs, b, a, BYTES);
        let late = stranger.record(theirs);
        stranger.wait(session.stream().native(), late);
        let watch = stranger.watch();
        // Made on the stream that is late.
        let batch = table.batches()[0].compact(session.stream()).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let lent = Taken::take(writer.write(batch).unwrap().remove(0));
        assert_eq!(lent.device(), (2, 0));
        assert_eq!(lent.is_copied(), copy == "always");
        watch.nobody_waited_for(late);
        let given = stranger.record(session.stream().native());
        stranger.wait(reader, given);
        stranger.hold(theirs, false);
        assert_eq!(stranger.download(reader, lent.address(), BYTES), bytes(&values(3)));
        drop((lent, writer));
        [a, b].into_iter().for_each(|address| stranger.free(address));
    }
    drop((table, session));
    assert_eq!(host.settle(), []);
}

/// The consumer waits for the session's stream and for nothing else: that stream waits for whoever makes the data.
#[test]
fn a_tensor_of_what_another_stream_makes_is_ready_when_the_sessions_stream_is() {
    let Some((stranger, host, session)) = setting("a_tensor_of_what_another_stream_makes") else { return };
    let (theirs, reader) = (stranger.stream(), stranger.stream());
    for copy in ["needed", "always"] {
        let released = Arc::<AtomicUsize>::default();
        let (source, target) = (stranger.upload(&bytes(&values(6))), stranger.upload(&vec![0; BYTES]));
        stranger.hold(theirs, true);
        stranger.late_copy(theirs, target, source, BYTES);
        let written = stranger.record(theirs);
        let array = array(target, ROWS, written, &released);
        let watch = stranger.watch();
        let table =
            Table::from_device_record_batch(&session, array, export_schema(&schema()).unwrap()).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let lent = Taken::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        assert_eq!(lent.address() == target, copy == "needed");
        watch.nobody_waited_for(written);
        let given = stranger.record(session.stream().native());
        stranger.wait(reader, given);
        stranger.hold(theirs, false);
        assert_eq!(stranger.download(reader, lent.address(), BYTES), bytes(&values(6)));
        drop((lent, writer, table));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target].into_iter().for_each(|address| stranger.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_slow_reader_of_a_tensor_reads_what_was_there_when_it_was_deleted() {
    let Some((stranger, host, session)) = setting("a_slow_reader_of_a_tensor") else { return };
    let theirs = stranger.stream();
    for (round, copy) in ["needed", "always", "needed"].into_iter().enumerate() {
        let table =
            Table::from_record_batches(&session, schema(), &[expected(values(round as i64))]).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let lent = Taken::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        let given = stranger.record(session.stream().native());
        stranger.wait(theirs, given);
        let kept = stranger.alloc(BYTES);
        stranger.hold(theirs, true);
        stranger.late_copy(theirs, kept, lent.address(), BYTES);
        let read = stranger.record(theirs);
        // No protocol tells that the reader is not done.
        let watch = stranger.watch();
        drop((lent, table, writer));
        watch.nobody_waited_for(read);
        for _ in 0..4 {
            drop(Table::from_record_batches(&session, schema(), &[expected(vec![-1; ROWS])]).unwrap());
        }
        stranger.hold(theirs, false);
        assert_eq!(stranger.download(theirs, kept, BYTES), bytes(&values(round as i64)), "copy={copy}");
        stranger.free(kept);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn a_strangers_tensor_is_deleted_after_our_last_use_and_the_drop_does_not_wait() {
    let Some((stranger, host, session)) = setting("a_strangers_tensor_is_deleted") else { return };
    let theirs = stranger.stream();
    // Gathered by the plugin, and copied by the host.
    for stride in [2, 1] {
        let deleted = Arc::<AtomicUsize>::default();
        let wanted = values(5);
        let source = stranger.upload(&bytes(&if stride == 1 { wanted.clone() } else { spread(&wanted) }));
        let (a, b) = (stranger.upload(&vec![1; BYTES]), stranger.alloc(BYTES));
        load_what_gathers(&session, CUDA_0, source);
        stranger.hold(theirs, true);
        stranger.late_copy(theirs, b, a, BYTES);
        let late = stranger.record(theirs);
        stranger.wait(session.stream().native(), late);
        let watch = stranger.watch();
        let table = import(&session, tensor(CUDA_0, source, (ROWS, stride), &deleted)).unwrap();
        let copy = table.batches()[0].compact(session.stream()).unwrap();
        let schema = table.schema().clone();
        drop(table);
        // Under an older driver a thread may have waited for the whole device.
        let is_deleted = deleted.load(Ordering::SeqCst) > 0;
        assert!(!is_deleted || !stranger.is_pending(late), "our work has not read it yet");
        watch.nobody_waited_for(late);
        stranger.hold(theirs, false);
        let table = Table::from_batches(&session, schema, vec![copy]).unwrap();
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(wanted).column(0));
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        [source, a, b].into_iter().for_each(|address| stranger.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn managed_memory_is_a_column_where_it_is() {
    let Some((stranger, host, session)) = setting("managed_memory_is_a_column") else { return };
    let (theirs, deleted) = (stranger.stream(), Arc::<AtomicUsize>::default());
    let (source, managed) = (stranger.upload(&bytes(&values(9))), stranger.alloc_managed(BYTES));
    stranger.late_copy(theirs, managed, source, BYTES);
    let written = stranger.record(theirs);
    stranger.wait(session.stream().native(), written);
    let declared = lies_on(abi::DEVICE_CUDA_MANAGED, 0);
    let table = import(&session, tensor(declared, managed, (ROWS, 1), &deleted)).unwrap();
    let (batch, values_at) = (&table.batches()[0], table.batches()[0].columns()[0].buffers()[1].as_ref());
    assert_eq!((batch.device(), values_at.unwrap().address()), (session.device(), managed));
    assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(values(9)).column(0));
    drop(table);
    wait_for(|| deleted.load(Ordering::SeqCst) == 1);
    [source, managed].into_iter().for_each(|address| stranger.free(address));
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn memory_that_the_driver_does_not_know_is_refused_before_a_kernel_reads_it() {
    let Some((_stranger, host, session)) = setting("memory_that_the_driver_does_not_know") else { return };
    let (ours, deleted) = (values(1), Arc::<AtomicUsize>::default());
    let capsule = tensor(CUDA_0, ours.as_ptr() as u64, (ROWS, 1), &deleted);
    let error = told(&import(&session, capsule).err().unwrap());
    assert!(error.contains("the driver knows of no memory of a device"), "{error}");
    // Called managed, it is the host's.
    let managed = lies_on(abi::DEVICE_CUDA_MANAGED, 0);
    let table = import(&session, tensor(managed, ours.as_ptr() as u64, (ROWS, 1), &deleted)).unwrap();
    assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(ours.clone()).column(0));
    drop(table);
    wait_for(|| deleted.load(Ordering::SeqCst) == 2);
    // Without elements there is nothing to know.
    let table = import(&session, tensor(CUDA_0, 0, (0, 1), &deleted)).unwrap();
    assert_eq!(table.rows(), 0);
    drop(table);
    assert_eq!(deleted.load(Ordering::SeqCst), 3);
    drop(session);
    assert_eq!(host.settle(), []);
}
