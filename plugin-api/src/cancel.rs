//! Cancellation: flags that can be read, waited for and subscribed to.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi;
use crate::cancel_watcher::{self as watcher, Watched};
use crate::door;
use crate::error::{Error, Result};

/// A flag that cancels calls. It can be set from any thread, and in a signal handler.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Flag);

#[derive(Clone, Debug)]
enum Flag {
    Owned(Arc<CancelState>),
    /// The flag of an outer call ([`crate::CallSettings::from_call`]). It is valid until the outer
    /// call returns.
    Borrowed(*const abi::Cancel),
}

/// The object behind a flag of this module. Its first field is the C struct.
#[repr(C)]
pub(crate) struct CancelState {
    raw: abi::Cancel,
}

impl std::fmt::Debug for CancelState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CancelState({})", self.is_set())
    }
}

// SAFETY: the flag is accessed only atomically, and the other fields never change.
unsafe impl Send for CancelState {}
// SAFETY: as above.
unsafe impl Sync for CancelState {}
// SAFETY: all threads access the flag only atomically, and its functions can be called from any
// thread.
unsafe impl Send for Flag {}
// SAFETY: as above.
unsafe impl Sync for Flag {}

impl CancelState {
    fn new() -> Self {
        let raw = abi::Cancel {
            struct_size: size_of::<abi::Cancel>(),
            wait: Some(wait),
            subscribe: Some(subscribe),
            unsubscribe: Some(unsubscribe),
            ..abi::Cancel::default()
        };
        Self { raw }
    }

    fn flag(&self) -> &AtomicU32 {
        // SAFETY: the field is aligned and lives as long as `self`, and all threads access it only
        // atomically.
        unsafe { AtomicU32::from_ptr((&raw const self.raw.is_set).cast_mut()) }
    }
}

impl Watched for CancelState {
    fn is_set(&self) -> bool {
        self.flag().load(Ordering::SeqCst) != 0
    }
}

impl Default for Flag {
    fn default() -> Self {
        Self::Owned(Arc::new(CancelState::new()))
    }
}

impl CancelFlag {
    /// Creates a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The flag of a call; a new flag if the call has none, so that `flag` is null.
    ///
    /// # Safety
    /// The result and its clones are not used after the call has returned.
    pub(crate) unsafe fn of_call(flag: *const abi::Cancel) -> Self {
        Self(if flag.is_null() { Flag::default() } else { Flag::Borrowed(flag) })
    }

    pub(crate) fn as_ptr(&self) -> *const abi::Cancel {
        match &self.0 {
            Flag::Owned(state) => &raw const state.raw,
            Flag::Borrowed(flag) => *flag,
        }
    }

    /// Cancels all calls that use this flag. Has no effect on a flag from
    /// [`crate::CallSettings::from_call`], which only the outer caller may set. Only reads and
    /// writes atomics and wakes a thread, so that a signal handler may call it.
    pub fn cancel(&self) {
        if let Flag::Owned(state) = &self.0 {
            state.flag().store(1, Ordering::SeqCst);
            watcher::wake();
        }
    }

    /// The flag as a reader sees it.
    pub fn as_cancel(&self) -> Cancel<'_> {
        // SAFETY: the object lives as long as `self`. `of_call` requires that a borrowed flag is
        // not used after the call that owns it has returned.
        unsafe { Cancel::new(self.as_ptr()) }
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.as_cancel().is_set()
    }

    /// Whether `cancel` is the flag of a call that uses this flag.
    pub fn is(&self, cancel: Cancel<'_>) -> bool {
        std::ptr::eq(self.as_ptr(), cancel.raw)
    }
}

/// The flag of a call, for the function that is called.
#[derive(Clone, Copy)]
pub struct Cancel<'a> {
    raw: *const abi::Cancel,
    lifetime: PhantomData<&'a abi::Cancel>,
}

// SAFETY: the flag is accessed only atomically, and its functions can be called from any thread.
unsafe impl Send for Cancel<'_> {}
// SAFETY: as above.
unsafe impl Sync for Cancel<'_> {}

/// How often a flag without a function `wait` is read while a thread waits for it.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl<'a> Cancel<'a> {
    /// # Safety
    /// `raw` is null, or points to a `crossdock_cancel` that is valid during `'a`.
    pub(crate) unsafe fn new(raw: *const abi::Cancel) -> Self {
        Self { raw, lifetime: PhantomData }
    }

    /// The functions of the flag, if there is a flag and it has all of them.
    fn functions(&self) -> Option<&'a abi::Cancel> {
        if self.raw.is_null() {
            return None;
        }
        // SAFETY: the pointer is not null, so the flag is valid during 'a. `struct_size` is among
        // its first fields, which every version has.
        let bytes = unsafe { (&raw const (*self.raw).struct_size).read() };
        // SAFETY: the struct has all fields of this build. `is_set` is not read through the
        // reference.
        (bytes >= size_of::<abi::Cancel>()).then(|| unsafe { &*self.raw })
    }

    /// Whether the caller has cancelled the call.
    pub fn is_set(&self) -> bool {
        if self.raw.is_null() {
            return false;
        }
        // SAFETY: the pointer is not null, so the flag is valid during 'a.
        let flag = unsafe { AtomicU32::from_ptr((&raw const (*self.raw).is_set).cast_mut()) };
        flag.load(Ordering::Relaxed) != 0
    }

    /// Waits until the flag is set, but not longer than `timeout`. Returns whether it is set.
    pub fn wait(&self, timeout: Duration) -> bool {
        let begin = Instant::now();
        while !self.is_set() {
            let rest = timeout.saturating_sub(begin.elapsed());
            if rest.is_zero() {
                return false;
            }
            match self.functions().and_then(|functions| functions.wait) {
                // SAFETY: the function belongs to the flag, which is valid during 'a.
                Some(wait) => unsafe {
                    wait(self.raw, u32::try_from(rest.as_millis()).unwrap_or(u32::MAX).max(1));
                },
                None => std::thread::sleep(rest.min(POLL_INTERVAL)),
            }
        }
        true
    }

    /// Calls `function` once on another thread when the flag is set, also if it is set already.
    /// `function` must return soon and must not wait for other threads. It does not run after the
    /// subscription has been dropped: the drop waits until a running `function` has returned.
    ///
    /// # Errors
    /// Unsupported if the flag has no function for this. Any error of the caller.
    pub fn subscribe(&self, function: impl Fn() + Send + Sync + 'static) -> Result<Subscription<'a>> {
        let unsupported = || Error::unsupported("the call's cancel flag has no function to subscribe to it");
        let functions = self.functions().ok_or_else(unsupported)?;
        let (subscribe, unsubscribe) =
            functions.subscribe.zip(functions.unsubscribe).ok_or_else(unsupported)?;
        let boxed: Box<Function> = Box::new(Box::new(function));
        let data = Box::into_raw(boxed);
        let mut id = 0;
        let result = Error::check(|err| {
            // SAFETY: the function belongs to the flag, which is valid during 'a. `data` lives
            // until the subscription has ended.
            unsafe { subscribe(self.raw, abi::Callback(Some(call_function)), data.cast(), &mut id, err) }
        });
        if let Err(error) = result {
            // SAFETY: the box was created above, and the failed call does not use it.
            drop(unsafe { Box::from_raw(data) });
            return Err(error);
        }
        Ok(Subscription { raw: self.raw, unsubscribe, id, data, lifetime: PhantomData })
    }
}

type Function = Box<dyn Fn() + Send + Sync>;

unsafe extern "C" fn call_function(data: *mut c_void) {
    // SAFETY: `Cancel::subscribe` passes a `Function` that lives until the subscription has ended.
    let function = unsafe { &*data.cast::<Function>() };
    door::run_release(function);
}

/// A subscription to a flag. Dropping it ends the subscription.
pub struct Subscription<'a> {
    raw: *const abi::Cancel,
    unsubscribe: unsafe extern "C" fn(*const abi::Cancel, u64),
    id: u64,
    data: *mut Function,
    lifetime: PhantomData<&'a abi::Cancel>,
}

// SAFETY: a subscription may be ended on any thread, and the function is `Send` and `Sync`.
unsafe impl Send for Subscription<'_> {}
// SAFETY: a shared subscription has no functions.
unsafe impl Sync for Subscription<'_> {}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        // SAFETY: the flag is valid during the subscription's lifetime, and the subscription ends
        // only here. After that, the function does not run any more, so its box can be freed.
        unsafe {
            (self.unsubscribe)(self.raw, self.id);
            drop(Box::from_raw(self.data));
        }
    }
}

/// Returns a new reference to the state of a flag of this module.
///
/// # Safety
/// `raw` is the C struct of a live [`CancelState`] in an `Arc`.
unsafe fn retain(raw: *const abi::Cancel) -> Arc<CancelState> {
    let state = raw.cast::<CancelState>();
    // SAFETY: the struct is the first field of a state that an `Arc` owns.
    unsafe {
        Arc::increment_strong_count(state);
        Arc::from_raw(state)
    }
}

unsafe extern "C" fn wait(raw: *const abi::Cancel, milliseconds: u32) -> u32 {
    let mut is_set = false;
    door::run_release(|| {
        // SAFETY: only `CancelState::new` sets this function, and the caller's flag is alive.
        let state = unsafe { retain(raw) };
        is_set = wait_for(&state, Duration::from_millis(milliseconds.into()));
    });
    u32::from(is_set)
}

fn wait_for(state: &Arc<CancelState>, timeout: Duration) -> bool {
    let end = Instant::now() + timeout;
    let woken = Arc::new((Mutex::new(false), Condvar::new()));
    let id = {
        let woken = woken.clone();
        watcher::subscribe(
            state.clone(),
            Box::new(move || {
                *woken.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                woken.1.notify_all();
            }),
        )
    };
    let step = if id.is_ok() { timeout } else { POLL_INTERVAL };
    while !state.is_set() {
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        let lock = woken.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(woken.1.wait_timeout_while(lock, rest.min(step), |is_woken| !*is_woken));
    }
    if let Ok(id) = id {
        watcher::unsubscribe(id);
    }
    state.is_set()
}

unsafe extern "C" fn subscribe(
    raw: *const abi::Cancel,
    function: abi::Callback,
    data: *mut c_void,
    out_id: *mut u64,
    err: *mut abi::Error,
) -> abi::Code {
    /// The data of a C function, which may be used on any thread.
    struct Data(*mut c_void);
    // SAFETY: the header requires that the function can be called on any thread with its data.
    unsafe impl Send for Data {}
    let body = || {
        let function =
            function.0.ok_or_else(|| Error::invalid_argument("subscribe: the function is NULL"))?;
        let data = Data(data);
        // SAFETY: only `CancelState::new` sets this function, and the caller's flag is alive.
        let state = unsafe { retain(raw) };
        // SAFETY: the header requires that the out parameter is valid for writes.
        let out = unsafe { out_id.as_mut() };
        let out = out.ok_or_else(|| Error::invalid_argument("subscribe: the out parameter is NULL"))?;
        *out = watcher::subscribe(
            state,
            Box::new(move || {
                let data = &data;
                // SAFETY: the header requires that the data is valid until the subscription ends.
                unsafe { function(data.0) };
            }),
        )?;
        Ok(())
    };
    // SAFETY: the header requires that `err` is null or points to `struct_size` bytes.
    unsafe { door::Poison::for_host().enter(err, body) }
}

unsafe extern "C" fn unsubscribe(_raw: *const abi::Cancel, id: u64) {
    door::run_release(|| watcher::unsubscribe(id));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::{CallSettings, Device};

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn wait_returns_soon_after_the_flag_is_set() {
        let flag = CancelFlag::new();
        assert!(!flag.as_cancel().wait(Duration::from_millis(20)));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(30));
                flag.cancel();
            });
            assert!(flag.as_cancel().wait(LONG));
        });
        assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
        assert!(flag.as_cancel().wait(Duration::ZERO), "a set flag ends every wait");
    }

    #[test]
    fn subscribed_function_runs_once_also_if_the_flag_is_set_already() {
        let (flag, other) = (CancelFlag::new(), CancelFlag::new());
        let (send, received) = channel();
        let function = |name: &'static str| {
            let send = send.clone();
            move || send.send(name).unwrap()
        };
        let first = flag.as_cancel().subscribe(function("first")).unwrap();
        let second = flag.as_cancel().subscribe(function("second")).unwrap();
        let _other = other.as_cancel().subscribe(function("other")).unwrap();
        flag.cancel();
        assert_eq!(received.recv_timeout(LONG), Ok("first"));
        assert_eq!(received.recv_timeout(LONG), Ok("second"));
        flag.cancel();
        let late = flag.as_cancel().subscribe(function("late")).unwrap();
        assert_eq!(received.recv_timeout(LONG), Ok("late"));
        assert!(received.recv_timeout(Duration::from_millis(50)).is_err(), "each function runs once");
        drop((first, second, late));
    }

    #[test]
    fn dropping_a_subscription_waits_for_its_running_function() {
        let flag = CancelFlag::new();
        let (entered, has_entered) = channel();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let function = move || {
            entered.send(()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let subscription = flag.as_cancel().subscribe(function).unwrap();
        flag.cancel();
        has_entered.recv_timeout(LONG).unwrap();
        drop(subscription);
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn function_of_a_dropped_subscription_does_not_run() {
        let flag = CancelFlag::new();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let function = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        drop(flag.as_cancel().subscribe(function).unwrap());
        flag.cancel();
        assert!(flag.as_cancel().wait(LONG));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!((count.load(Ordering::SeqCst), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn panic_of_a_subscribed_function_stops_no_other() {
        let flag = CancelFlag::new();
        let (send, received) = channel();
        let _first = flag.as_cancel().subscribe(|| panic!("the first function")).unwrap();
        let _second = flag.as_cancel().subscribe(move || send.send(()).unwrap()).unwrap();
        flag.cancel();
        received.recv_timeout(LONG).unwrap();
    }

    #[test]
    fn flags_without_functions_are_polled_and_reject_subscriptions() {
        let mut raw = abi::Cancel { is_set: 1, struct_size: 16, ..abi::Cancel::default() };
        // SAFETY: the struct outlives the reader.
        let cancel = unsafe { Cancel::new(&raw const raw) };
        assert!(cancel.wait(LONG));
        assert_eq!(cancel.subscribe(|| ()).err().unwrap().code(), crate::Code::UNSUPPORTED);
        raw.is_set = 0;
        // SAFETY: the struct outlives the reader.
        let cancel = unsafe { Cancel::new(&raw const raw) };
        assert!(!cancel.wait(Duration::from_millis(15)));
        // SAFETY: a null pointer is a call without a flag.
        assert!(!unsafe { Cancel::new(std::ptr::null()) }.wait(Duration::from_millis(1)));
    }

    #[test]
    fn called_functions_see_the_flag_of_their_caller() {
        let settings = CallSettings::new(Device::CPU);
        settings.enter(|call| {
            // SAFETY: the inner settings do not outlive the call.
            let inner = unsafe { CallSettings::from_call(call) };
            inner.enter(|call| {
                assert!(settings.cancel.is(call.cancel()));
                let (send, received) = channel();
                let subscription = call.cancel().subscribe(move || send.send(()).unwrap()).unwrap();
                inner.cancel.cancel();
                assert!(!call.is_cancelled(), "only the outer caller sets the flag");
                settings.cancel.cancel();
                received.recv_timeout(LONG).unwrap();
                assert!(call.is_cancelled() && inner.cancel.is_cancelled());
                drop(subscription);
            });
        });
    }
}
