//! The functions of `crossdock.host.tasks/1`. They count the groups and the tasks that have not
//! returned, and call the same functions of the host's own tasks.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crossdock::api::{Error, abi};

use super::shared::{Shared, Violation};

/// The table, without its `private_data`.
pub(super) fn table() -> abi::HostTasks {
    abi::HostTasks {
        group_create: Some(group_create),
        run: Some(run),
        wait: Some(wait),
        group_release: Some(group_release),
        ..abi::HostTasks::new()
    }
}

/// # Safety
/// `this` is the table of a [`Shared`].
unsafe fn shared<'a>(this: *const abi::HostTasks) -> &'a Shared {
    // SAFETY: `this` is the interface of a `Shared`, whose `private_data` is the `Shared`, which is
    // never freed.
    unsafe { &*(*this).private_data.cast::<Shared>() }
}

/// Calls a function of the host's own tasks. Returns an error after the host has ended.
macro_rules! forward {
    ($shared:expr, $f:ident ( $($arg:expr),* ), $otherwise:expr) => {
        match $shared.backing() {
            None => $otherwise,
            Some(backing) => {
                let tasks = backing.tasks.as_ptr();
                // SAFETY: the tasks are alive. The function is called on its own table, and the
                // plugin passed valid arguments.
                match unsafe { (*tasks).$f } {
                    // SAFETY: as above.
                    Some(f) => unsafe { f(tasks, $($arg),*) },
                    None => $otherwise,
                }
            }
        }
    };
}

unsafe extern "C" fn group_create(
    this: *const abi::HostTasks,
    out: *mut *mut abi::TaskGroup,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the plugin passes the table that it got.
    let shared = unsafe { shared(this) };
    if let Err(error) = shared.may_fail("group_create") {
        // SAFETY: `err` is NULL or the plugin's error struct.
        return unsafe { error.write_to(err) };
    }
    let code = forward!(shared, group_create(out, err), abi::INTERNAL);
    if code == abi::OK {
        shared.groups.fetch_add(1, Ordering::SeqCst);
    }
    code
}

/// A task of the plugin.
struct WatchedTask {
    shared: &'static Shared,
    f: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

unsafe extern "C" fn run_watched(task: *mut c_void) {
    // SAFETY: `run` passed ownership of a boxed task, and the host calls this function once.
    let WatchedTask { shared, f, data } = *unsafe { Box::from_raw(task.cast::<WatchedTask>()) };
    // SAFETY: the plugin passed the function and its argument to `run`.
    unsafe { f(data) };
    shared.tasks_pending.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn run(
    this: *const abi::HostTasks,
    group: *mut abi::TaskGroup,
    f: abi::Callback,
    data: *mut c_void,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the plugin passes the table that it got.
    let shared: &'static Shared = unsafe { shared(this) };
    let function = f.0.ok_or_else(|| Error::invalid_argument("run: the function is NULL"));
    let f = match shared.may_fail("run").and(function) {
        Ok(f) => f,
        // SAFETY: `err` is NULL or the plugin's error struct.
        Err(error) => return unsafe { error.write_to(err) },
    };
    let task = Box::into_raw(Box::new(WatchedTask { shared, f, data }));
    shared.tasks_pending.fetch_add(1, Ordering::SeqCst);
    let watched = abi::Callback(Some(run_watched));
    let code = forward!(shared, run(group, watched, task.cast(), err), abi::INTERNAL);
    if code != abi::OK {
        shared.tasks_pending.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: the host does not call the function if `run` fails, so `task` has no other owner.
        drop(unsafe { Box::from_raw(task) });
    }
    code
}

unsafe extern "C" fn wait(
    this: *const abi::HostTasks,
    group: *mut abi::TaskGroup,
    milliseconds: u32,
    out_done: *mut u32,
    err: *mut abi::Error,
) -> abi::Code {
    // SAFETY: the plugin passes the table that it got.
    let shared = unsafe { shared(this) };
    // No failure is injected, because a plugin could not know whether its tasks have returned.
    shared.note_call("wait");
    forward!(shared, wait(group, milliseconds, out_done, err), abi::INTERNAL)
}

unsafe extern "C" fn group_release(this: *const abi::HostTasks, group: *mut abi::TaskGroup) {
    // SAFETY: the plugin passes the table that it got.
    let shared = unsafe { shared(this) };
    shared.note_call("group_release");
    if !group.is_null() && shared.groups.fetch_sub(1, Ordering::SeqCst) <= 0 {
        shared.note(Violation::Handle, "a group of tasks was released more often than created".into());
        return;
    }
    forward!(shared, group_release(group), ());
}
