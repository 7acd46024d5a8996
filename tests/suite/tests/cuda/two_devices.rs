//! What lies on one CUDA device, in a session on another; and whose context is current, which is the caller's affair.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossdock::api::{Capsule, Device, Options};
use crossdock::{Host, Session, Table};
use crossdock_arrays::export_schema;
use crossdock_plugin_api::{Owned, abi};

use super::array::{address_of, array, schema};
use super::races::{BYTES, ROWS, bytes, expected, values, wait_for};
use super::stranger::{Handle, Stranger};
use super::tensor::{CUDA_0, Taken, import, lies_on, load_what_gathers, tensor, told};
use super::{Turn, setting, skip};

pub const OTHER: Device = Device::cuda(1);

/// A session on the first device and a stranger there, and a stranger on the second one.
pub fn two(test: &str) -> Option<(Turn, &'static Stranger, Host, Session)> {
    static THERE: OnceLock<Stranger> = OnceLock::new();
    let (here, host, session) = setting(test)?;
    let n = host.backend().cuda().unwrap().devices.len();
    if n < 2 {
        skip(test, &format!("it needs two CUDA devices, and there is {n}"));
        return None;
    }
    let there = THERE.get_or_init(|| Stranger::on(1));
    here.enter();
    Some((here, there, host, session))
}

/// Does it with each context that a caller may have: the first device's, the second's, none. What is current stays so.
fn in_each_context(here: &Stranger, there: &Stranger, work: impl Fn(&dyn Fn())) {
    let enter: [&dyn Fn(); 3] = [&|| here.enter(), &|| there.enter(), &|| here.make_current(null_mut())];
    for enter in enter {
        enter();
        let before = here.current();
        work(&|| assert_eq!(here.current(), before, "the caller's context is another"));
        assert_eq!(here.current(), before, "after everything was dropped");
    }
    here.enter();
}

fn event_of(array: &abi::ArrowDeviceArray) -> Handle {
    if array.sync_event.is_null() {
        return null_mut();
    }
    // SAFETY: a pointer to an event's handle, alive until the release.
    unsafe { *array.sync_event.cast::<Handle>() }
}

#[test]
fn what_is_on_the_second_device_goes_out_while_the_first_or_none_is_current() {
    let Some((here, there, host, first)) = two("what_is_on_the_second_device_goes_out") else { return };
    let session = host.session().device(OTHER).open().unwrap();
    let reader = there.within(|| there.stream());
    in_each_context(&here, there, |check| {
        let table = Table::from_record_batches(&session, schema(), &[expected(values(4))]).unwrap();
        check();
        for copy in ["never", "always"] {
            let options = Options::new().with("copy", copy);
            let mut writer = session.write_capsules("dlpack", &schema(), &options).unwrap();
            let lent = Taken::take(writer.write(table.batches()[0].clone()).unwrap().remove(0));
            check();
            assert_eq!(lent.device(), (2, 1));
            let read = there.within(|| {
                let given = there.record(session.stream().native());
                there.wait(reader, given);
                there.download(reader, lent.address(), BYTES)
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

/// The session's stream waits for a producer on the other device, and everything else follows from that.
#[test]
fn a_late_tensor_on_the_second_device_is_moved_to_the_sessions() {
    let Some((here, there, host, session)) = two("a_late_tensor_on_the_second_device") else { return };
    there.enter();
    let theirs = there.stream();
    for stride in [1, 2] {
        let deleted = Arc::<AtomicUsize>::default();
        let wanted = values(stride as i64);
        let spread: Vec<i64> =
            wanted.iter().flat_map(|value| [vec![*value], vec![-1; stride - 1]].concat()).collect();
        there.enter();
        let (source, target) = (there.upload(&bytes(&spread)), there.upload(&vec![0; BYTES * stride]));
        load_what_gathers(&session, lies_on(abi::DEVICE_CUDA, 1), source);
        there.hold(theirs, true);
        there.late_copy(theirs, target, source, BYTES * stride);
        let written = there.record(theirs);
        there.wait(session.stream().native(), written);
        here.enter();
        let watch = there.watch();
        let capsule = tensor(lies_on(abi::DEVICE_CUDA, 1), target, (ROWS, stride), &deleted);
        let table = import(&session, capsule).unwrap();
        watch.nobody_waited_for(written);
        there.hold(theirs, false);
        assert_eq!(table.batches()[0].device(), session.device());
        assert_eq!(table.to_record_batches().unwrap()[0].column(0), expected(wanted).column(0));
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
fn a_late_array_on_the_second_device_is_moved_to_the_sessions() {
    let Some((here, there, host, session)) = two("a_late_array_on_the_second_device") else { return };
    there.enter();
    let (theirs, released) = (there.stream(), Arc::<AtomicUsize>::default());
    let (source, target) = (there.upload(&bytes(&values(8))), there.upload(&vec![0; BYTES]));
    there.hold(theirs, true);
    there.late_copy(theirs, target, source, BYTES);
    let written = there.record(theirs);
    here.enter();
    let mut raw = array(target, ROWS, written, &released).into_raw();
    raw.device_id = 1;
    // SAFETY: complete, and its release frees it.
    let array = unsafe { Owned::new(raw) };
    let watch = there.watch();
    let capsules = vec![Capsule::new(export_schema(&schema()).unwrap()), Capsule::new(array)];
    let reader = session.read_capsules("arrow-c-device", capsules, None, &Options::new()).unwrap();
    let table = Table::from_reader(&session, reader).unwrap();
    watch.nobody_waited_for(written);
    there.hold(theirs, false);
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
fn a_batch_on_the_second_device_goes_out_of_a_session_on_the_first_as_a_copy_or_not_at_all() {
    let Some((here, there, host, session)) = two("a_batch_on_the_second_device_goes_out") else { return };
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
        let tensor = Taken::take(writer.write(batch.clone()).unwrap().remove(0));
        check();
        assert_eq!((tensor.device(), tensor.is_copied()), ((2, 0), true));
        let never = Options::new().with("copy", "never");
        let mut writer = session.write_capsules("dlpack", &schema(), &never).unwrap();
        let error = told(&writer.write(batch.clone()).err().unwrap());
        check();
        assert!(["cuda:1", "cuda:0", "copy=never"].iter().all(|part| error.contains(part)), "{error}");
        here.within(|| {
            let event = event_of(&moved);
            if !event.is_null() {
                here.wait(reader, event);
            }
            assert_eq!(here.download(reader, address_of(&moved), BYTES), bytes(&values(2)));
            let given = here.record(session.stream().native());
            here.wait(reader, given);
            assert_eq!(here.download(reader, tensor.address(), BYTES), bytes(&values(2)));
        });
    });
    drop((far, session));
    assert_eq!(host.settle(), []);
}

#[test]
fn managed_memory_of_the_second_device_that_is_said_to_be_the_firsts_is_the_seconds() {
    let Some((here, there, host, session)) = two("managed_memory_of_the_second_device") else { return };
    let far = host.session().device(OTHER).open().unwrap();
    there.enter();
    let (theirs, source, managed) =
        (there.stream(), there.upload(&bytes(&values(9))), there.alloc_managed(BYTES));
    there.late_copy(theirs, managed, source, BYTES);
    there.download(theirs, managed, 8);
    here.enter();
    for session in [&far, &session] {
        let deleted = Arc::<AtomicUsize>::default();
        let declared = lies_on(abi::DEVICE_CUDA_MANAGED, 0);
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
    let error = told(&import(&session, tensor(CUDA_0, source, (ROWS, 1), &deleted)).err().unwrap());
    assert!(["said to lie on cuda:0", "memory of cuda:1"].iter().all(|part| error.contains(part)), "{error}");
    [source, managed].into_iter().for_each(|address| there.free(address));
    here.enter();
    drop((far, session));
    assert_eq!(host.settle(), []);
}
