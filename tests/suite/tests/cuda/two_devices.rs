//! Tests sessions on one CUDA device with data on another device. Each test runs several times,
//! with each context that can be current on the caller's thread.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossdock::api::{Capsule, Device, Options};
use crossdock::{Host, Session, Table};
use crossdock_arrays::export_schema;
use crossdock_plugin_api::{Owned, abi};

use super::array::{address_of, array, schema};
use super::external::{External, Handle};
use super::races::{BYTES, ROWS, bytes, expected, values, wait_for};
use super::tensor::{CUDA_0, ConsumedTensor, dl_device, error_chain, import, load_gather_kernel, tensor};
use super::{LockedExternal, setup, skip};

pub const OTHER: Device = Device::cuda(1);

/// A session on the first device, and external libraries on the first and second device.
pub fn setup_two_devices(test: &str) -> Option<(LockedExternal, &'static External, Host, Session)> {
    static SECOND: OnceLock<External> = OnceLock::new();
    let (here, host, session) = setup(test)?;
    let n = host.backend().cuda().unwrap().devices.len();
    if n < 2 {
        skip(test, &format!("it needs two CUDA devices, and there are {n}"));
        return None;
    }
    let there = SECOND.get_or_init(|| External::on(1));
    here.enter();
    Some((here, there, host, session))
}

/// Runs `work` three times: with the context of the first device, with the context of the second
/// device, and without a context. The current context must not change.
fn in_each_context(here: &External, there: &External, work: impl Fn(&dyn Fn())) {
    let enter: [&dyn Fn(); 3] = [&|| here.enter(), &|| there.enter(), &|| here.make_current(null_mut())];
    for enter in enter {
        enter();
        let before = here.current();
        work(&|| assert_eq!(here.current(), before, "the caller's context changed"));
        assert_eq!(here.current(), before, "after everything was dropped");
    }
    here.enter();
}

fn event_of(array: &abi::ArrowDeviceArray) -> Handle {
    if array.sync_event.is_null() {
        return null_mut();
    }
    // SAFETY: for CUDA, `sync_event` points to an event's handle until the release.
    unsafe { *array.sync_event.cast::<Handle>() }
}

#[test]
fn exports_from_the_second_device_work_in_any_current_context() {
    let Some((here, there, host, first)) =
        setup_two_devices("exports_from_the_second_device_work_in_any_current_context")
    else {
        return;
    };
    let session = host.session().device(OTHER).open().unwrap();
    let reader = there.within(|| there.stream());
    in_each_context(&here, there, |check| {
        let table = Table::from_record_batches(&session, schema(), &[expected(values(4))]).unwrap();
        check();
        for copy in ["never", "always"] {
            let options = Options::new().with("copy", copy);
            let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
            let exported = ConsumedTensor::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
            check();
            assert_eq!(exported.device(), (2, 1));
            let read = there.within(|| {
                let ready = there.record(session.stream().native());
                there.wait(reader, ready);
                there.download(reader, exported.address(), BYTES)
            });
            assert_eq!(read, bytes(&values(4)));
        }
    });
    in_each_context(&here, there, |check| {
        let table = Table::from_record_batches(&session, schema(), &[expected(values(6))]).unwrap();
        let (array, _schema) = table.to_device_record_batches().unwrap().remove(0);
        check();
        assert_eq!((array.device_type, array.device_id), (abi::DEVICE_CUDA, 1));
        assert_eq!(table.to_record_batches().unwrap(), [expected(values(6))]);
        check();
        let tensor = {
            let mut writer = session.write_capsules("dlpack", &schema(), &Options::new()).unwrap();
            writer.write(table.batches()[0].clone()).unwrap().remove(0)
        };
        check();
        drop((table, array));
        check();
        drop(tensor);
        check();
    });
    drop((session, first));
    assert_eq!(host.settle(), []);
}

/// The session's stream waits for a producer on the other device.
#[test]
fn late_tensor_on_the_second_device_is_copied_to_the_device_of_the_session() {
    let Some((here, there, host, session)) =
        setup_two_devices("late_tensor_on_the_second_device_is_copied_to_the_device_of_the_session")
    else {
        return;
    };
    there.enter();
    let external_stream = there.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let written_values = values(stride as i64);
        let spread: Vec<i64> =
            written_values.iter().flat_map(|value| [vec![*value], vec![-1; stride - 1]].concat()).collect();
        there.enter();
        let (source, target) = (there.upload(&bytes(&spread)), there.upload(&vec![0; BYTES * stride]));
        load_gather_kernel(&session, dl_device(abi::DEVICE_CUDA, 1), source);
        there.hold(external_stream, true);
        there.late_copy(external_stream, target, source, BYTES * stride);
        let written = there.record(external_stream);
        there.wait(session.stream().native(), written);
        here.enter();
        let watch = there.watch();
        let capsule = tensor(dl_device(abi::DEVICE_CUDA, 1), target, (ROWS, stride), &deleted);
        let table = import(&session, capsule).unwrap();
        watch.assert_host_did_not_wait_for(written);
        there.hold(external_stream, false);
        assert_eq!(table.batches()[0].device(), session.device());
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(written_values).column(0));
        drop(table);
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
        there.enter();
        [source, target].into_iter().for_each(|address| there.free(address));
    }
    here.enter();
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn late_array_on_the_second_device_is_copied_to_the_device_of_the_session() {
    let Some((here, there, host, session)) =
        setup_two_devices("late_array_on_the_second_device_is_copied_to_the_device_of_the_session")
    else {
        return;
    };
    there.enter();
    let (external_stream, released) = (there.stream(), Arc::<AtomicUsize>::default());
    let (source, target) = (there.upload(&bytes(&values(8))), there.upload(&vec![0; BYTES]));
    there.hold(external_stream, true);
    there.late_copy(external_stream, target, source, BYTES);
    let written = there.record(external_stream);
    here.enter();
    let mut raw = array(target, ROWS, written, &released).into_raw();
    raw.device_id = 1;
    // SAFETY: the array is complete, and its `release` frees its owner.
    let array = unsafe { Owned::new(raw) };
    let watch = there.watch();
    let capsules = vec![Capsule::new(export_schema(&schema()).unwrap()), Capsule::new(array)];
    let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
    let table = Table::from_reader(&session, reader).unwrap();
    watch.assert_host_did_not_wait_for(written);
    there.hold(external_stream, false);
    assert_eq!(table.batches()[0].device(), session.device());
    assert_eq!(table.to_record_batches().unwrap(), [expected(values(8))]);
    drop(table);
    wait_for(|| released.load(Ordering::SeqCst) == 1);
    there.enter();
    [source, target].into_iter().for_each(|address| there.free(address));
    here.enter();
    drop(session);
    assert_eq!(host.settle(), []);
}

#[test]
fn batch_on_another_device_is_copied_or_rejected_at_export() {
    let Some((here, there, host, session)) =
        setup_two_devices("batch_on_another_device_is_copied_or_rejected_at_export")
    else {
        return;
    };
    let far = host.session().device(OTHER).open().unwrap();
    let reader = here.stream();
    in_each_context(&here, there, |check| {
        let table = Table::from_record_batches(&far, schema(), &[expected(values(2))]).unwrap();
        let batch = &table.batches()[0];
        assert_eq!(batch.device(), OTHER);
        let mut writer = session.write_capsules("arrow-c-device", &schema(), &Options::new()).unwrap();
        let mut written = writer.write(batch.clone()).unwrap();
        check();
        let moved = written.pop().unwrap().take::<abi::ArrowDeviceArray>().unwrap();
        assert_eq!((moved.device_type, moved.device_id), (abi::DEVICE_CUDA, 0));
        let mut writer = session.write_capsules("dlpack", &schema(), &Options::new()).unwrap();
        let tensor = ConsumedTensor::take(writer.write(batch.clone()).unwrap().remove(0));
        check();
        assert_eq!((tensor.device(), tensor.is_copied()), ((2, 0), true));
        let never = Options::new().with("copy", "never");
        let mut writer = session.write_capsules("dlpack", &schema(), &never).unwrap();
        let error = error_chain(&writer.write(batch.clone()).err().unwrap());
        check();
        assert!(["cuda:1", "cuda:0", "copy=never"].iter().all(|part| error.contains(part)), "{error}");
        here.within(|| {
            let event = event_of(&moved);
            if !event.is_null() {
                here.wait(reader, event);
            }
            assert_eq!(here.download(reader, address_of(&moved), BYTES), bytes(&values(2)));
            let ready = here.record(session.stream().native());
            here.wait(reader, ready);
            assert_eq!(here.download(reader, tensor.address(), BYTES), bytes(&values(2)));
        });
    });
    drop((far, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn managed_memory_belongs_to_the_device_that_the_driver_reports() {
    let Some((here, there, host, session)) =
        setup_two_devices("managed_memory_belongs_to_the_device_that_the_driver_reports")
    else {
        return;
    };
    let far = host.session().device(OTHER).open().unwrap();
    there.enter();
    let (external_stream, source, managed) =
        (there.stream(), there.upload(&bytes(&values(9))), there.alloc_managed(BYTES));
    there.late_copy(external_stream, managed, source, BYTES);
    there.download(external_stream, managed, 8);
    here.enter();
    for session in [&far, &session] {
        let deleted = Arc::<AtomicUsize>::default();
        let declared = dl_device(abi::DEVICE_CUDA_MANAGED, 0);
        let table = import(session, tensor(declared, managed, (ROWS, 1), &deleted)).unwrap();
        let at = table.batches()[0].columns()[0].buffers()[1].as_ref().unwrap().address();
        assert_eq!(
            (table.batches()[0].device(), at == managed),
            (session.device(), session.device() == OTHER)
        );
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(values(9)).column(0));
        drop(table);
        wait_for(|| deleted.load(Ordering::SeqCst) == 1);
    }
    there.enter();
    let deleted = Arc::<AtomicUsize>::default();
    let error = error_chain(&import(&session, tensor(CUDA_0, source, (ROWS, 1), &deleted)).err().unwrap());
    assert!(
        ["declared device is cuda:0", "memory of cuda:1"].iter().all(|part| error.contains(part)),
        "{error}"
    );
    [source, managed].into_iter().for_each(|address| there.free(address));
    here.enter();
    drop((far, session));
    assert_eq!(host.settle(), []);
}
