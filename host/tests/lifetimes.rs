//! How long things live. One test at a time: they count the instances of the process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::mini::{ALIVE, bytes, host, schema};
use crossdock::discovery::Search;
use crossdock::load::LinkedPlugin;
use crossdock::source::Input;
use crossdock::{Host, ReadOptions, Table};
use crossdock_arrays::{DeviceBatch, import_batch};
use crossdock_plugin_api::{About, Owned, abi, entry};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Instances end on a thread of their own: those of the test before may still be at it.
    assert_eq!(host().settle(), []);
    alone
}

fn alive() -> isize {
    ALIVE.load(Ordering::SeqCst)
}

#[test]
fn instances_end_with_their_session() {
    let _alone = alone();
    let host = host();
    let session = host.session().open().unwrap();
    assert_eq!(session.plugins().len(), 1);
    assert_eq!(alive(), 1);
    drop(session);
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}

/// A plugin as a C author writes it, who retains the host for what is lent out.
mod lender {
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
        // The instance's own reference, for as long as it lives.
        retain();
        // SAFETY: the host's out parameter.
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

    /// Something is lent out.
    pub fn retain() {
        let host = HOST.load(Ordering::SeqCst);
        // SAFETY: the host object is alive: the instance or what it lent out holds a reference.
        unsafe { ((*host).retain.unwrap())(host) };
    }

    /// It is released.
    pub fn release() {
        let host = HOST.load(Ordering::SeqCst);
        // SAFETY: gives back a reference that was taken above.
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

/// A host that has this plugin and no other.
fn host_of(name: &'static str, entry: &'static abi::PluginEntry) -> Host {
    let about = About {
        name,
        version: "1.0.0",
        description: "",
        licence: "Apache-2.0",
        interfaces: "",
        formats: "",
        encodings: "",
    };
    Host::builder().search(Search::nowhere().linked(LinkedPlugin::new(entry, about.meta()))).build().unwrap()
}

#[test]
fn an_instance_is_destroyed_when_the_last_reference_of_what_it_lent_out_is_gone_and_not_before() {
    let _alone = alone();
    let host = host_of("lender", &lender::ENTRY);
    let instance = host.session().open().unwrap().plugin("lender").unwrap();
    lender::retain();
    lender::retain();
    drop(instance);
    let said = || host.settle().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said(), ["'lender' holds 2 references to its host, and is not destroyed"]);
    assert_eq!(lender::DESTROYED.load(Ordering::SeqCst), 0);
    lender::release();
    assert_eq!(said(), ["'lender' holds 1 reference to its host, and is not destroyed"]);
    assert_eq!(lender::DESTROYED.load(Ordering::SeqCst), 0);
    // Another host's instances are not this one's.
    assert_eq!(self::host().settle(), []);
    lender::release();
    assert_eq!(said(), [""; 0]);
    assert_eq!(lender::DESTROYED.load(Ordering::SeqCst), 1);
}

#[test]
fn a_batch_outlives_its_reader_and_can_be_read_and_given_back_afterwards() {
    let _alone = alone();
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
    assert!(!host.settle().is_empty(), "the ledger knows the batch's memory");
    drop((batches, table, session));
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}

#[test]
fn an_exported_array_outlives_session_table_and_host_and_can_still_be_read() {
    let _alone = alone();
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
fn releases_on_other_threads_end_instances_too() {
    let _alone = alone();
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
fn a_strangers_array_is_released_exactly_once_when_its_last_holder_is_gone() {
    let _alone = alone();
    static RELEASED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    unsafe extern "C" fn release(array: *mut abi::ArrowArray) {
        RELEASED.fetch_add(1, Ordering::SeqCst);
        // SAFETY: called with the array that it belongs to.
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
    // SAFETY: a valid array whose parts outlive it, and that nobody else releases.
    let raw = unsafe { Owned::new(raw) };
    let table = Table::from_device_record_batch(&session, raw, schema_raw).unwrap();
    let lent = table.clone().to_device_record_batches().unwrap();
    drop(table);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 0);
    drop(lent);
    assert_eq!(RELEASED.load(Ordering::SeqCst), 1);
}

#[test]
fn sessions_of_one_host_do_not_share_instances_or_cancel_flags() {
    let _alone = alone();
    let host = host();
    let (one, two) = (host.session().open().unwrap(), host.session().open().unwrap());
    assert!(!Arc::ptr_eq(&one.plugins()[0], &two.plugins()[0]));
    one.cancel_flag().cancel();
    assert!(one.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).is_err());
    let mut reader = two.read(Input::bytes(bytes(&[1])), &ReadOptions::default()).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().len(), 1);
}

#[test]
fn a_batch_moves_between_sessions_without_a_copy() {
    let _alone = alone();
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

/// A plugin whose instances take longer to end than to be made.
mod slow {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use crossdock_plugin_api::{Host, Plugin, Result};

    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    pub static MOST: AtomicUsize = AtomicUsize::new(0);

    pub struct Slow;

    impl Plugin for Slow {
        fn create(_: Host) -> Result<Self> {
            MOST.fetch_max(ALIVE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
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
fn however_many_sessions_come_and_go_few_instances_are_yet_to_be_destroyed() {
    const SESSIONS: usize = 500;
    const FEW: usize = 65;
    let _alone = alone();
    static ENTRY: abi::PluginEntry = entry::<slow::Slow>();
    let host = host_of("slow", &ENTRY);
    for _ in 0..SESSIONS {
        host.session().open().unwrap().plugin("slow").unwrap();
    }
    let most = slow::MOST.load(Ordering::SeqCst);
    assert!(most <= FEW, "{most} of {SESSIONS} were there at once");
    assert_eq!(host.settle(), []);
}

#[test]
fn a_forked_child_ends_the_instances_that_it_made_and_none_of_its_parent_s() {
    let _alone = alone();
    let host = host();
    // One that its thread has ended by then, and one that is alive.
    drop(host.session().open().unwrap().plugins());
    assert_eq!(host.settle(), []);
    let parents = host.session().open().unwrap().plugins();
    let in_child = || {
        drop(parents);
        assert_eq!(alive(), 1, "its parent's is not its own to destroy");
        let host = self::host();
        drop(host.session().open().unwrap().plugins());
        host.settle();
        alive() == 1
    };
    // SAFETY: the other tests of this program wait, and hold no locks that the child takes; it ends without this program's handlers.
    match unsafe { libc::fork() } {
        0 => {
            let is_well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(in_child)).unwrap_or(false);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's status");
            drop(in_child);
        }
    }
    assert_eq!(host.settle(), []);
    assert_eq!(alive(), 0);
}
