//! Tests tensors with late producers, slow readers and early deletions. DLPack has no events.
//! Instead, a producer makes the session's stream wait for its work, and a consumer waits for the
//! session's stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossdock::Table;
use crossdock::api::Options;
use crossdock_arrays::export_schema;
use crossdock_plugin_api::abi;

use super::array::{array, schema};
use super::races::{BYTES, ROWS, bytes, expected, values, wait_for};
use super::setup;
use super::tensor::{CUDA_0, ConsumedTensor, dl_device, error_chain, import, load_gather_kernel, tensor};

/// Returns a list that is twice as long, with `values` at every second position.
fn spread(values: &[i64]) -> Vec<i64> {
    values.iter().flat_map(|value| [*value, -1]).collect()
}

/// A tensor with any strides is read after the work that the session's stream waits for.
#[test]
fn tensor_of_a_late_producer_is_read_without_host_waits() {
    let Some((external, host, session)) = setup("tensor_of_a_late_producer_is_read_without_host_waits")
    else {
        return;
    };
    let external_stream = external.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let written_values = values(stride as i64);
        let source = external.upload(&bytes(&if stride == 1 {
            written_values.clone()
        } else {
            spread(&written_values)
        }));
        let target = external.upload(&vec![0; BYTES * stride]);
        load_gather_kernel(&session, CUDA_0, source);
        external.hold(external_stream, true);
        external.late_copy(external_stream, target, source, BYTES * stride);
        let written = external.record(external_stream);
        external.wait(session.stream().native(), written);
        let watch = external.watch();
        let table = import(&session, tensor(CUDA_0, target, (ROWS, stride), &deleted)).unwrap();
        // Export the tensor again. If it was imported in place, the export refers to the same
        // memory.
        let mut writer = session.write_capsules("dlpack", table.schema(), &Options::new()).unwrap();
        let again = ConsumedTensor::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        assert_eq!(again.address() == target, stride == 1);
        watch.assert_host_did_not_wait_for(written);
        external.hold(external_stream, false);

        let (reader, ready) = (external.stream(), external.record(session.stream().native()));
        external.wait(reader, ready);
        assert_eq!(external.download(reader, again.address(), BYTES), bytes(&written_values));
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(written_values).column(0));
        drop((again, table, writer));
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        [source, target].into_iter().for_each(|address| external.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

/// The tensor is in pinned host memory, which late work on a device writes.
#[test]
fn late_tensor_in_pinned_memory_is_read_in_the_order_of_the_session_stream() {
    let Some((external, host, session)) =
        setup("late_tensor_in_pinned_memory_is_read_in_the_order_of_the_session_stream")
    else {
        return;
    };
    let external_stream = external.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let written_values = values(7);
        let source = external.upload(&bytes(&if stride == 1 {
            written_values.clone()
        } else {
            spread(&written_values)
        }));
        let target = external.alloc_pinned(BYTES * stride);
        external.late_copy(external_stream, target, source, BYTES * stride);
        let written = external.record(external_stream);
        external.wait(session.stream().native(), written);
        let watch = external.watch();
        let pinned = dl_device(abi::DEVICE_CUDA_HOST, 0);
        let table = import(&session, tensor(pinned, target, (ROWS, stride), &deleted)).unwrap();
        // With a stride of 2, the host gathers the values on the CPU, so it must wait for the
        // producer.
        if stride == 1 {
            watch.assert_host_did_not_wait_for(written);
        }
        assert_eq!(table.batches()[0].device(), session.device());
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(written_values).column(0));
        drop(table);
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        external.free(source);
        external.free_pinned(target);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn consumer_that_waits_for_the_session_stream_reads_pending_tensors() {
    let Some((external, host, session)) =
        setup("consumer_that_waits_for_the_session_stream_reads_pending_tensors")
    else {
        return;
    };
    let (external_stream, reader) = (external.stream(), external.stream());
    let table = Table::from_record_batches(&session, schema(), &[expected(values(3))]).unwrap();
    session.stream().synchronize().unwrap();
    for copy in ["needed", "always"] {
        let (a, b) = (external.upload(&vec![1; BYTES]), external.alloc(BYTES));
        external.hold(external_stream, true);
        external.late_copy(external_stream, b, a, BYTES);
        let late = external.record(external_stream);
        external.wait(session.stream().native(), late);
        let watch = external.watch();
        // Copies the batch on the session's stream, which waits for the late copy.
        let batch = table.batches()[0].compact(session.stream()).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let exported = ConsumedTensor::take(writer.write(batch).unwrap().remove(0));
        assert_eq!(exported.device(), (2, 0));
        assert_eq!(exported.is_copied(), copy == "always");
        watch.assert_host_did_not_wait_for(late);
        let ready = external.record(session.stream().native());
        external.wait(reader, ready);
        external.hold(external_stream, false);
        assert_eq!(external.download(reader, exported.address(), BYTES), bytes(&values(3)));
        drop((exported, writer));
        [a, b].into_iter().for_each(|address| external.free(address));
    }
    drop((table, session));
    assert_eq!(host.settle(), []);
}

/// The consumer waits only for the session's stream, which waits for the producer of the data.
#[test]
fn session_stream_waits_for_producers_of_exported_tensors() {
    let Some((external, host, session)) = setup("session_stream_waits_for_producers_of_exported_tensors")
    else {
        return;
    };
    let (external_stream, reader) = (external.stream(), external.stream());
    for copy in ["needed", "always"] {
        let released = Arc::<AtomicUsize>::default();
        let (source, target) = (external.upload(&bytes(&values(6))), external.upload(&vec![0; BYTES]));
        external.hold(external_stream, true);
        external.late_copy(external_stream, target, source, BYTES);
        let written = external.record(external_stream);
        let array = array(target, ROWS, written, &released);
        let watch = external.watch();
        let table =
            Table::from_device_record_batch(&session, array, export_schema(&schema()).unwrap()).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let exported = ConsumedTensor::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        assert_eq!(exported.address() == target, copy == "needed");
        watch.assert_host_did_not_wait_for(written);
        let ready = external.record(session.stream().native());
        external.wait(reader, ready);
        external.hold(external_stream, false);
        assert_eq!(external.download(reader, exported.address(), BYTES), bytes(&values(6)));
        drop((exported, writer, table));
        wait_for(|| released.load(Ordering::SeqCst) == 1);
        [source, target].into_iter().for_each(|address| external.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn slow_reader_of_a_deleted_tensor_reads_its_values() {
    let Some((external, host, session)) = setup("slow_reader_of_a_deleted_tensor_reads_its_values") else {
        return;
    };
    let external_stream = external.stream();
    for (round, copy) in ["needed", "always", "needed"].into_iter().enumerate() {
        let table =
            Table::from_record_batches(&session, schema(), &[expected(values(round as i64))]).unwrap();
        let options = Options::new().with("copy", copy);
        let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
        let exported = ConsumedTensor::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
        let ready = external.record(session.stream().native());
        external.wait(external_stream, ready);
        let result = external.alloc(BYTES);
        external.hold(external_stream, true);
        external.late_copy(external_stream, result, exported.address(), BYTES);
        let read = external.record(external_stream);
        // DLPack cannot report that the reader still reads.
        let watch = external.watch();
        drop((exported, table, writer));
        watch.assert_host_did_not_wait_for(read);
        for _ in 0..4 {
            drop(Table::from_record_batches(&session, schema(), &[expected(vec![-1; ROWS])]).unwrap());
        }
        external.hold(external_stream, false);
        assert_eq!(
            external.download(external_stream, result, BYTES),
            bytes(&values(round as i64)),
            "copy={copy}"
        );
        external.free(result);
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn external_tensor_is_deleted_after_its_last_use_without_a_wait_in_drop() {
    let Some((external, host, session)) =
        setup("external_tensor_is_deleted_after_its_last_use_without_a_wait_in_drop")
    else {
        return;
    };
    let external_stream = external.stream();
    // With a stride of 2 the plugin gathers the values; with a stride of 1 the host copies them.
    for stride in [2, 1] {
        let deleted = Arc::<AtomicUsize>::default();
        let written_values = values(5);
        let source = external.upload(&bytes(&if stride == 1 {
            written_values.clone()
        } else {
            spread(&written_values)
        }));
        let (a, b) = (external.upload(&vec![1; BYTES]), external.alloc(BYTES));
        load_gather_kernel(&session, CUDA_0, source);
        external.hold(external_stream, true);
        external.late_copy(external_stream, b, a, BYTES);
        let late = external.record(external_stream);
        external.wait(session.stream().native(), late);
        let watch = external.watch();
        let table = import(&session, tensor(CUDA_0, source, (ROWS, stride), &deleted)).unwrap();
        let copy = table.batches()[0].compact(session.stream()).unwrap();
        let schema = table.schema().clone();
        drop(table);
        // The tensor may be deleted already, because with an older driver the thread that deletes
        // the tensor may wait for the whole device.
        let is_deleted = deleted.load(Ordering::SeqCst) > 0;
        assert!(!is_deleted || !external.is_pending(late), "the tensor was deleted before the copy read it");
        watch.assert_host_did_not_wait_for(late);
        external.hold(external_stream, false);
        let table = Table::from_batches(&session, schema, vec![copy]).unwrap();
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(written_values).column(0));
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        [source, a, b].into_iter().for_each(|address| external.free(address));
    }
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn managed_memory_is_imported_in_place() {
    let Some((external, host, session)) = setup("managed_memory_is_imported_in_place") else { return };
    let (external_stream, deleted) = (external.stream(), Arc::<AtomicUsize>::default());
    let (source, managed) = (external.upload(&bytes(&values(9))), external.alloc_managed(BYTES));
    external.late_copy(external_stream, managed, source, BYTES);
    let written = external.record(external_stream);
    external.wait(session.stream().native(), written);
    let declared = dl_device(abi::DEVICE_CUDA_MANAGED, 0);
    let table = import(&session, tensor(declared, managed, (ROWS, 1), &deleted)).unwrap();
    let (batch, values_at) = (&table.batches()[0], table.batches()[0].columns()[0].buffers()[1].as_ref());
    assert_eq!((batch.device(), values_at.unwrap().address()), (session.device(), managed));
    assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(values(9)).column(0));
    drop(table);
    wait_for(|| deleted.load(Ordering::SeqCst) == 1);
    [source, managed].into_iter().for_each(|address| external.free(address));
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn rejects_device_tensors_in_memory_unknown_to_the_driver() {
    let Some((_external, host, session)) = setup("rejects_device_tensors_in_memory_unknown_to_the_driver")
    else {
        return;
    };
    let (host_values, deleted) = (values(1), Arc::<AtomicUsize>::default());
    let capsule = tensor(CUDA_0, host_values.as_ptr() as u64, (ROWS, 1), &deleted);
    let error = error_chain(&import(&session, capsule).err().unwrap());
    assert!(error.contains("the driver reports no device memory"), "{error}");
    // If the memory is declared as managed memory, it is imported as host memory.
    let managed = dl_device(abi::DEVICE_CUDA_MANAGED, 0);
    let table = import(&session, tensor(managed, host_values.as_ptr() as u64, (ROWS, 1), &deleted)).unwrap();
    assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(host_values.clone()).column(0));
    drop(table);
    wait_for(|| deleted.load(Ordering::SeqCst) == 2);
    // An empty tensor needs no valid address.
    let table = import(&session, tensor(CUDA_0, 0, (0, 1), &deleted)).unwrap();
    assert_eq!(table.rows(), 0);
    drop(table);
    assert_eq!(deleted.load(Ordering::SeqCst), 3);
    drop(session);
    assert_eq!(host.settle(), []);
}
