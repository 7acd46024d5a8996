//! What every working call is told.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::abi;
use crate::error::{Error, Result};
use crate::told::{self, Lent};
use crate::words::Device;

/// A caller's cancel flag, to set from anywhere.
#[derive(Clone, Debug, Default)]
pub struct CancelFlag(Flag);

#[derive(Clone, Debug)]
enum Flag {
    Own(Arc<AtomicU32>),
    /// Another caller's, alive as long as its call.
    Lent(*const u32),
}

impl Default for Flag {
    fn default() -> Self {
        Self::Own(Arc::default())
    }
}

// SAFETY: whoever knows the address of a flag accesses it atomically, from any thread.
unsafe impl Send for Flag {}
// SAFETY: as above.
unsafe impl Sync for Flag {}

impl Flag {
    fn as_ptr(&self) -> *const u32 {
        match self {
            Self::Own(flag) => flag.as_ptr(),
            Self::Lent(flag) => *flag,
        }
    }
}

impl CancelFlag {
    /// Not set.
    pub fn new() -> Self {
        Self::default()
    }

    fn get(&self) -> &AtomicU32 {
        match &self.0 {
            Flag::Own(flag) => flag,
            // SAFETY: alive by the word of whoever made it (`CallSettings::within`).
            Flag::Lent(flag) => unsafe { AtomicU32::from_ptr(flag.cast_mut()) },
        }
    }

    /// Asks calls that carry it to stop soon. Another caller's own is for that one to set.
    pub fn cancel(&self) {
        if let Flag::Own(flag) = &self.0 {
            flag.store(1, Ordering::Relaxed);
        }
    }

    /// Whether it is set.
    pub fn is_cancelled(&self) -> bool {
        self.get().load(Ordering::Relaxed) != 0
    }

    /// Whether it is the one that `call` carries.
    pub fn is_of(&self, call: &Call<'_>) -> bool {
        std::ptr::eq(self.0.as_ptr(), call.raw.cancel)
    }
}

/// How closely to look at what comes from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Validate {
    /// What the host can see: counts, lengths, null pointers, alignment, devices.
    #[default]
    Layout,
    /// The contents too: offsets, indices, UTF-8.
    Full,
}

/// Progress in bytes, and the total (0 if unknown); called from any thread.
pub type Progress = dyn Fn(u64, u64) + Send + Sync;

/// One call's circumstances, on the side that was called.
pub struct Call<'a> {
    /// What it points at is the caller's too, for the length of the call.
    raw: Lent<'a, abi::Call>,
}

impl<'a> Call<'a> {
    /// # Safety
    /// `call` is null or points at a `crossdock_call` that lives, with what it points at, for `'a`.
    pub unsafe fn read(call: *const abi::Call) -> Result<Self> {
        // SAFETY: the caller's word.
        unsafe { told::lent(call) }.map(|raw| Self { raw })
    }

    pub(crate) fn as_ptr(&self) -> *const abi::Call {
        &raw const *self.raw
    }

    /// Where results are to be.
    pub fn device(&self) -> Device {
        self.raw.device
    }

    /// The stream to work on; null for the device's default one.
    pub fn stream(&self) -> *mut abi::Stream {
        self.raw.stream
    }

    /// How closely to look at what comes from outside.
    pub fn validate(&self) -> Validate {
        if self.raw.validate == abi::VALIDATE_LAYOUT { Validate::Layout } else { Validate::Full }
    }

    /// How many bytes to keep in flight at most; 0: no wish.
    pub fn byte_budget(&self) -> u64 {
        self.raw.byte_budget
    }

    /// Whether the caller wants it to end.
    pub fn is_cancelled(&self) -> bool {
        if self.raw.cancel.is_null() {
            return false;
        }
        // SAFETY: the flag lives for the call, and everybody accesses it atomically.
        unsafe { AtomicU32::from_ptr(self.raw.cancel.cast_mut()) }.load(Ordering::Relaxed) != 0
    }

    /// An error if the caller wants it to end: to be asked at least once a batch.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("cancelled")) } else { Ok(()) }
    }

    /// Tells the caller how far it is. `total` is 0 if unknown.
    pub fn progress(&self, bytes_done: u64, bytes_total: u64) {
        if let Some(progress) = self.raw.progress {
            // SAFETY: the caller's function with the caller's data, both alive for the call.
            unsafe { progress(self.raw.progress_data, bytes_done, bytes_total) };
        }
    }
}

/// One call's circumstances, on the calling side: filled in once, lent to many calls.
#[derive(Clone)]
pub struct CallSettings {
    /// Where results are to be.
    pub device: Device,
    /// The stream to work on.
    pub stream: CallStream,
    /// Stops calls.
    pub cancel: CancelFlag,
    /// Hears of progress.
    pub progress: Option<Arc<Progress>>,
    /// Bytes in flight at most; 0: no wish.
    pub byte_budget: u64,
    /// How closely to look at what comes from outside.
    pub validate: Validate,
}

/// A stream to call with.
#[derive(Clone, Copy)]
pub struct CallStream(*mut abi::Stream);

// SAFETY: the stream handle may be used from any thread by contract.
unsafe impl Send for CallStream {}
// SAFETY: as above.
unsafe impl Sync for CallStream {}

impl CallStream {
    /// The device's default one.
    pub const DEFAULT: CallStream = CallStream(std::ptr::null_mut());

    /// One of the caller's.
    ///
    /// # Safety
    /// `stream` is one of the device that it is called with, made by the host, and alive as long as anybody calls with it.
    pub const unsafe fn new(stream: *mut abi::Stream) -> Self {
        Self(stream)
    }
}

impl CallSettings {
    /// On the default stream of `device`, layout validation, nothing else asked for.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            stream: CallStream::DEFAULT,
            cancel: CancelFlag::new(),
            progress: None,
            byte_budget: 0,
            validate: Validate::Layout,
        }
    }

    /// For what is called on behalf of `call`: where and how that says, until it is cancelled. How far it is, is its own to say.
    ///
    /// # Safety
    /// Not used, nor any clone of it, once `call` has returned.
    pub unsafe fn within(call: &Call<'_>) -> Self {
        let flag = call.raw.cancel;
        let cancel = if flag.is_null() { Flag::default() } else { Flag::Lent(flag) };
        Self {
            device: call.device(),
            stream: CallStream(call.stream()),
            cancel: CancelFlag(cancel),
            progress: None,
            byte_budget: call.byte_budget(),
            validate: call.validate(),
        }
    }

    /// The struct to hand across. It borrows from `self`.
    pub fn raw(&self) -> abi::Call {
        abi::Call {
            struct_size: size_of::<abi::Call>(),
            device: self.device,
            stream: self.stream.0,
            cancel: self.cancel.0.as_ptr(),
            progress: self.progress.as_ref().map(|_| report_progress as unsafe extern "C" fn(_, _, _)),
            progress_data: self
                .progress
                .as_ref()
                .map_or(std::ptr::null_mut(), |p| std::ptr::from_ref(p) as *mut c_void),
            byte_budget: self.byte_budget,
            validate: match self.validate {
                Validate::Layout => abi::VALIDATE_LAYOUT,
                Validate::Full => abi::VALIDATE_FULL,
            },
            reserved: 0,
        }
    }

    /// Runs `f` as a callee would be: for calls within one module, and tests.
    pub fn enter<T>(&self, f: impl FnOnce(&Call<'_>) -> T) -> T {
        f(&Call { raw: Lent::Whole(&self.raw()) })
    }
}

unsafe extern "C" fn report_progress(data: *mut c_void, done: u64, total: u64) {
    // SAFETY: `raw` put a reference to the settings' Arc there, which is borrowed for the call.
    let progress = unsafe { &*data.cast::<Arc<Progress>>() };
    // A panicking progress bar must not unwind through the plugin that reports to it.
    crate::door::Poison::new().leave(|| progress(done, total));
}
