//! Lifetimes of instances, batches and arrays. Tests run one at a time, because they count the
//! instances of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::mini::{ALIVE, bytes, host, schema};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::sink::{Output, VecSink};
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Table, WriteOptions};
use crossdock_arrays::{DeviceBatch, import_batch};
use crossdock_plugin_api::{Owned, PluginDescription, abi, entry};

/// Prevents other tests from running at the same time, and waits until their instances are
/// destroyed.
fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(host().settle(), []);
    guard
}

fn alive() -> isize {
    ALIVE.load(Ordering::SeqCst)
}

#[test]
fn instances_are_destroyed_with_their_session() {
    let _guard = exclusive();
    let host = host();
    let session = host.session().open().unwrap();
    assert_eq!(session.plugins().len(), 1);
    assert_eq!(alive(), 1);
    drop(session);
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}

#[test]
fn instance_of_a_finished_task_is_destroyed_at_once_if_nothing_refers_to_it() {
    let _guard = exclusive();
    let session = host().session().open().unwrap();
    assert_eq!(session.plugins().len(), 1);
    let read = || session.read(Input::bytes(bytes(&[1, 2])), &ReadOptions::default()).unwrap();
    let table = Table::from_reader(&session, read()).unwrap();
    assert_eq!(alive(), 1, "after a table was read");
    let options = WriteOptions { to: Some("mini".into()), ..WriteOptions::default() };
    let output = Output::Memory(VecSink::new());
    let mut writer = session.write(output, table.schema(), &options).unwrap();
    table.batches().iter().for_each(|batch| drop(writer.write(batch.clone()).unwrap()));
    assert_eq!(alive(), 2);
    writer.finish().unwrap();
    assert_eq!(alive(), 1, "after a table was written");
}

/// A plugin that, like a plugin in C, retains the host for each object that it exports.
mod exporting {
    use std::ffi::{c_char, c_void};
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use crossdock_plugin_api::abi;

    pub static HOST: AtomicPtr<abi::Host> = AtomicPtr::new(std::ptr::null_mut());
    pub static DESTROYED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn create(
        host: *const abi::Host,
        out: *mut *mut abi::Instance,
        _err: *mut abi::Error,
    ) -> abi::Code {
        HOST.store(host.cast_mut(), Ordering::SeqCst);
        // The instance's own reference, which `destroy` releases.
        retain();
        // SAFETY: the host passes a writable out parameter.
        unsafe { *out = HOST.as_ptr().cast() };
        abi::OK
    }

    unsafe extern "C" fn destroy(_instance: *mut abi::Instance) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
        release();
    }

    unsafe extern "C" fn get_interface(_: *mut abi::Instance, _: *const c_char) -> *const c_void {
        std::ptr::null()
    }

    /// Retains the host, as for an exported object.
    pub fn retain() {
        let host = HOST.load(Ordering::SeqCst);
        // SAFETY: the host object is alive, because the instance or an exported object has a
        // reference.
        unsafe { ((*host).retain.unwrap())(host) };
    }

    /// Releases the host, as for a released object.
    pub fn release() {
        let host = HOST.load(Ordering::SeqCst);
        // SAFETY: releases a reference that `retain` took, which kept the host object alive.
        unsafe { ((*host).release.unwrap())(host) };
    }

    pub static ENTRY: abi::PluginEntry = abi::PluginEntry {
        magic: abi::PLUGIN_MAGIC,
        struct_size: size_of::<abi::PluginEntry>(),
        abi_major: abi::ABI_MAJOR,
        abi_minor: abi::ABI_MINOR,
        flags: 0,
        create: Some(create),
        destroy: Some(destroy),
        get_interface: Some(get_interface),
    };
}

/// A host with only this plugin.
fn host_of(name: &'static str, entry: &'static abi::PluginEntry) -> Host {
    let about = PluginDescription {
        name,
        version: "1.0.0",
        description: "",
        licence: "Apache-2.0",
        interfaces: "",
        formats: "",
        encodings: "",
        requires: "",
        api_range: abi::API_RANGE,
    };
    Host::builder().search(Search::nowhere().linked(LinkedPlugin::new(entry, about.meta()))).build().unwrap()
}

#[test]
fn instance_is_destroyed_after_the_last_reference_of_its_exported_objects() {
    let _guard = exclusive();
    let host = host_of("exporting", &exporting::ENTRY);
    let instance = host.session().open().unwrap().plugin("exporting").unwrap();
    exporting::retain();
    exporting::retain();
    drop(instance);
    let leaks = || host.settle().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(leaks(), ["'exporting' holds 2 references to its host, and is not destroyed"]);
    assert_eq!(exporting::DESTROYED.load(Ordering::SeqCst), 0);
    exporting::release();
    assert_eq!(leaks(), ["'exporting' holds 1 reference to its host, and is not destroyed"]);
    assert_eq!(exporting::DESTROYED.load(Ordering::SeqCst), 0);
    // A leak check of another host does not report the instance.
    assert_eq!(self::host().settle(), []);
    exporting::release();
    assert_eq!(leaks(), [""; 0]);
    assert_eq!(exporting::DESTROYED.load(Ordering::SeqCst), 1);
}

#[test]
fn batch_outlives_its_reader() {
    let _guard = exclusive();
    let host = host();
    let session = host.session().open().unwrap();
    let mut reader = session.read(Input::bytes(bytes(&[1, 2, 3])), &ReadOptions::default()).unwrap();
    let batch = reader.next().unwrap().unwrap();
    drop(reader);
    host.settle();
    let table = Table::from_batches(&session, schema(), vec![batch]).unwrap();
    let batches = table.to_record_batches().unwrap();
    let column = batches[0].column(0).as_any().downcast_ref::<arrow_array::Int32Array>().unwrap();
    assert_eq!(column.values(), &[1, 2, 3]);
    assert!(!host.settle().is_empty(), "the ledger counts the batch's memory");
    drop((batches, table, session));
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}

#[test]
fn exported_array_outlives_session_table_and_host() {
    let _guard = exclusive();
    let (array, schema_out) = {
        let host = host();
        let session = host.session().open().unwrap();
        let reader = session.read(Input::bytes(bytes(&[7, 8, 9])), &ReadOptions::default()).unwrap();
        let table = Table::from_reader(&session, reader).unwrap();
        table.to_device_record_batches().unwrap().remove(0)
    };
    assert!(!schema_out.is_released());
    let other = host();
    let session = other.session().open().unwrap();
    let table = Table::from_device_record_batch(&session, array, schema_out).unwrap();
    let batch = table.to_record_batches().unwrap().remove(0);
    let column = batch.column(0).as_any().downcast_ref::<arrow_array::Int32Array>().unwrap();
    assert_eq!(column.values(), &[7, 8, 9]);
    drop((table, batch, session));
    assert_eq!(other.settle(), []);
    assert_eq!(alive(), 0);
}

#[test]
fn dropping_batches_on_other_threads_destroys_plugin_instances() {
    let _guard = exclusive();
    let host = host();
    let batches: Vec<DeviceBatch> = (0..16)
        .map(|i| {
            let session = host.session().open().unwrap();
            let mut reader = session.read(Input::bytes(bytes(&[i])), &ReadOptions::default()).unwrap();
            reader.next().unwrap().unwrap()
        })
        .collect();
    let threads: Vec<_> = batches.into_iter().map(|batch| std::thread::spawn(move || drop(batch))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}

#[test]
fn external_array_is_released_once_after_its_last_holder() {
    let _guard = exclusive();
    static RELEASED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        RELEASED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: `release` is called with a pointer to the array that it belongs to.
        unsafe { (*array).release = None };
    }
    static VALUES: [i32; 2] = [4, 5];
    let mut buffers = [std::ptr::null(), VALUES.as_ptr().cast::<std::ffi::c_void>()];
    let mut child =
        abi::ArrowArray { length: 2, n_buffers: 2, buffers: buffers.as_mut_ptr(), ..Default::default() };
    child.release = Some(release);
    let mut children = [std::ptr::from_mut(&mut child)];
    let mut no_buffers = [std::ptr::null()];
    let root = abi::ArrowArray {
        length: 2,
        n_buffers: 1,
        n_children: 1,
        buffers: no_buffers.as_mut_ptr(),
        children: children.as_mut_ptr(),
        release: Some(release),
        ..Default::default()
    };
    let raw = abi::ArrowDeviceArray {
        array: root,
        device_type: abi::DEVICE_CPU,
        device_id: -1,
        ..Default::default()
    };
    let host = host();
    let session = host.session().open().unwrap();
    let schema_raw = crossdock_arrays::export_schema(&schema()).unwrap();
    // SAFETY: the array is valid, its parts outlive it, and it has no other owner.
    let raw = unsafe { Owned::new(raw) };
    let table = Table::from_device_record_batch(&session, raw, schema_raw).unwrap();
    let exported = table.clone().to_device_record_batches().unwrap();
    drop(table);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 0);
    drop(exported);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 1);
}

#[test]
fn sessions_of_one_host_do_not_share_instances_or_cancel_flags() {
    let _guard = exclusive();
    let host = host();
    let (one, two) = (host.session().open().unwrap(), host.session().open().unwrap());
    assert!(!Arc::ptr_eq(&one.plugins()[0], &two.plugins()[0]));
    one.cancel_flag().cancel();
    assert!(one.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).is_err());
    let mut reader = two.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().len(), 1);
}

#[test]
fn batch_moves_between_sessions_without_copying() {
    let _guard = exclusive();
    let host = host();
    let (one, two) = (host.session().open().unwrap(), host.session().open().unwrap());
    let batch =
        one.read(Input::bytes(bytes(&[1, 2])), &ReadOptions::default()).unwrap().next().unwrap().unwrap();
    let address = batch.columns()[0].buffers()[1].as_ref().unwrap().address();
    let raw = crossdock_arrays::export_batch(&batch, false, one.stream()).unwrap();
    drop((batch, one));
    let batch = import_batch(raw, &schema(), two.memory()).unwrap();
    assert_eq!(batch.columns()[0].buffers()[1].as_ref().unwrap().address(), address);
}

/// A plugin whose instances take longer to destroy than to create.
mod slow {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crossdock_plugin_api::{Host, Plugin, Result};

    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    pub static MAX_ALIVE: AtomicUsize = AtomicUsize::new(0);

    pub struct Slow;

    impl Plugin for Slow {
        fn create(_: Host) -> Result<Self> {
            MAX_ALIVE.fetch_max(ALIVE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Ok(Self)
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(2));
            ALIVE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn pending_instances_are_bounded() {
    const SESSIONS: usize = 500;
    const MAX_PENDING: usize = 65;
    let _guard = exclusive();
    static ENTRY: abi::PluginEntry = entry::<slow::Slow>();
    let host = host_of("slow", &ENTRY);
    for _ in 0..SESSIONS {
        host.session().open().unwrap().plugin("slow").unwrap();
    }
    let max = slow::MAX_ALIVE.load(Ordering::SeqCst);
    assert!(max <= MAX_PENDING, "{max} of {SESSIONS} instances were alive at once");
    assert_eq!(host.settle(), []);
}

#[test]
fn forked_child_destroys_only_its_own_instances() {
    let _guard = exclusive();
    let host = host();
    // The reclaimer has destroyed one instance, and one is alive.
    drop(host.session().open().unwrap().plugins());
    assert_eq!(host.settle(), []);
    let parent_plugins = host.session().open().unwrap().plugins();
    let in_child = || {
        drop(parent_plugins);
        assert_eq!(alive(), 1, "the child must not destroy the parent's instance");
        let host = self::host();
        drop(host.session().open().unwrap().plugins());
        host.settle();
        alive() == 1
    };
    // SAFETY: the other tests of this program wait and hold no locks that the child takes; the
    // child ends without running exit handlers.
    match unsafe { libc::fork() } {
        0 => {
            let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child)).unwrap_or(false);
            // SAFETY: `_exit` has no requirements.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `child` is a child of this process, and `status` is writable.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's status");
            drop(in_child);
        }
    }
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}
