//! Implements `crossdock.host.tasks/1`: plugins run functions on the threads of a session.

mod pool;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use crossdock_plugin_api::door::{Poison, put, run_release};
use crossdock_plugin_api::{Error, Result, abi};

use self::pool::Group;
pub use self::pool::{InstanceTasks, TaskPool};
use crate::account::Account;
use crate::vtable::Call;

/// The interface of one instance. `table` is the first field, so that a pointer to this struct is a
/// pointer to a `crossdock_host_tasks`.
#[repr(C)]
pub struct Tasks {
    table: abi::HostTasks,
    tasks: InstanceTasks,
    account: Arc<Account>,
}

// SAFETY: the pointer in `table` is null, its functions may be called on any thread, and the other
// fields are Send and Sync.
unsafe impl Send for Tasks {}
// SAFETY: as for `Send`; nothing is written after construction.
unsafe impl Sync for Tasks {}

impl Tasks {
    /// Creates the interface of an instance that uses `account`.
    pub fn new(tasks: InstanceTasks, account: Arc<Account>) -> Self {
        let table = abi::HostTasks {
            group_create: Some(group_create),
            run: Some(run),
            wait: Some(wait),
            group_release: Some(group_release),
            ..abi::HostTasks::new()
        };
        Self { table, tasks, account }
    }

    /// The C object. It is valid as long as `self` stays at its address.
    pub fn as_ptr(&self) -> *const abi::HostTasks {
        std::ptr::from_ref(self).cast()
    }
}

/// # Safety
/// `this` is null or the address of a live [`Tasks`].
unsafe fn tasks<'a>(this: *const abi::HostTasks) -> Result<&'a Tasks> {
    // SAFETY: `this` is null or points to a live `Tasks` by this function's contract.
    unsafe { this.cast::<Tasks>().as_ref() }
        .ok_or_else(|| Error::invalid_argument("the tasks' object is NULL"))
}

/// # Safety
/// `group` is null or a live group that `group_create` returned.
unsafe fn group<'a>(group: *mut abi::TaskGroup) -> Result<&'a Arc<Group>> {
    // SAFETY: `group` is null or live by this function's contract. The handle of a group is the
    // address of a boxed `Arc`.
    unsafe { group.cast::<Arc<Group>>().as_ref() }.ok_or_else(|| Error::invalid_argument("the group is NULL"))
}

unsafe extern "C" fn group_create(
    this: *const abi::HostTasks,
    out: *mut *mut abi::TaskGroup,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: the contract of `group_create`: `this` is the object that contains the function.
        let tasks = unsafe { tasks(this) }?;
        tasks.account.trace_plugin_call("tasks.group_create", || {
            let new = || Box::into_raw(Box::<Arc<Group>>::default()).cast();
            // SAFETY: the contract of `group_create`: `out` is null or writable.
            unsafe { put(out, "group_create", new) }
        })
    };
    // SAFETY: the contract of `group_create`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

unsafe extern "C" fn run(
    this: *const abi::HostTasks,
    to: *mut abi::TaskGroup,
    f: abi::Callback,
    data: *mut c_void,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: the contract of `run`: the object and the group are live.
        let (tasks, group) = unsafe { (tasks(this)?, group(to)?) };
        let f = f.0.ok_or_else(|| Error::invalid_argument("run: the function is NULL"))?;
        let call = Call { f, data };
        tasks
            .account
            .trace_plugin_call("tasks.run", || tasks.tasks.start(group, Box::new(move || call.run())))
    };
    // SAFETY: the contract of `run`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

unsafe extern "C" fn wait(
    this: *const abi::HostTasks,
    on: *mut abi::TaskGroup,
    milliseconds: u32,
    out_done: *mut u32,
    err: *mut abi::Error,
) -> abi::Code {
    let body = || {
        // SAFETY: the contract of `wait`: the object and the group are live.
        let (tasks, group) = unsafe { (tasks(this)?, group(on)?) };
        let time = Duration::from_millis(milliseconds.into());
        let wait = || tasks.tasks.wait(group, time);
        let is_done = tasks.account.trace_plugin_call("tasks.wait", wait)?;
        // SAFETY: the contract of `wait`: `out_done` is null or writable.
        unsafe { put(out_done, "wait", || is_done.into()) }
    };
    // SAFETY: the contract of `wait`: `err` is null or a valid error struct.
    unsafe { Poison::for_host().enter(err, body) }
}

unsafe extern "C" fn group_release(_this: *const abi::HostTasks, group: *mut abi::TaskGroup) {
    if !group.is_null() {
        // SAFETY: `group_create` boxed the group, and by the contract of `group_release` this is
        // its only release. Its tasks hold their own references.
        run_release(|| drop(unsafe { Box::from_raw(group.cast::<Arc<Group>>()) }));
    }
}
