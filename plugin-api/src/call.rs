//! The settings of a call.

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi;
use crate::cancel::{Cancel, CancelFlag};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::flags::reject_reserved;
use crate::sized_struct::{self, SizedRef};

/// How to validate external data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Validate {
    /// Checks everything except the contents of buffers: counts, lengths, null pointers, alignment,
    /// devices.
    #[default]
    Layout,
    /// Also checks the contents of buffers: offsets, indices, UTF-8.
    Full,
}

/// A function that receives the progress: the number of bytes done and the total number of bytes (0
/// if unknown). Any thread may call it.
pub type Progress = dyn Fn(u64, u64) + Send + Sync;

/// The settings of a call, for the function that is called.
pub struct Call<'a> {
    raw: SizedRef<'a, abi::Call>,
}

impl<'a> Call<'a> {
    /// Borrows a caller's settings.
    ///
    /// # Errors
    /// Returns an error if `call` is null, if its struct is too short, or if a reserved field is
    /// not 0. Unsupported if the value of `validate` is unknown.
    ///
    /// # Safety
    /// `call` is null or points to a `crossdock_call`. The struct and everything that it points to
    /// are valid for `'a`.
    pub unsafe fn read(call: *const abi::Call) -> Result<Self> {
        // SAFETY: `call` is null, or points to a struct of `struct_size` bytes that does not change
        // during the call, as the header requires.
        let raw: SizedRef<'a, abi::Call> = unsafe { sized_struct::borrow(call) }?;
        reject_reserved(raw.reserved, "the call")?;
        if raw.validate > abi::VALIDATE_FULL {
            return Err(Error::unsupported(format!(
                "the call's 'validate' is {}, expected {} or {}",
                raw.validate,
                abi::VALIDATE_LAYOUT,
                abi::VALIDATE_FULL
            )));
        }
        Ok(Self { raw })
    }

    /// The C struct.
    pub fn as_ptr(&self) -> *const abi::Call {
        &raw const *self.raw
    }

    /// The device for results.
    pub fn device(&self) -> Device {
        self.raw.device
    }

    /// The stream for work on the device; null means the default stream of the device.
    pub fn stream(&self) -> *mut abi::Stream {
        self.raw.stream
    }

    /// How to validate external data.
    pub fn validate(&self) -> Validate {
        if self.raw.validate == abi::VALIDATE_LAYOUT { Validate::Layout } else { Validate::Full }
    }

    /// The maximum number of bytes to hold in memory at once; 0 means no preference.
    pub fn byte_budget(&self) -> u64 {
        self.raw.byte_budget
    }

    /// Whether the caller has cancelled the call.
    pub fn is_cancelled(&self) -> bool {
        self.cancel().is_set()
    }

    /// The flag with which the caller cancels the call. A function that blocks waits for it or
    /// subscribes to it.
    pub fn cancel(&self) -> Cancel<'_> {
        // SAFETY: the flag is null or valid for the call, as `read` requires.
        unsafe { Cancel::new(self.raw.cancel) }
    }

    pub(crate) fn raw_cancel(&self) -> *const abi::Cancel {
        self.raw.cancel
    }

    /// Returns an error if the caller has cancelled the call. A plugin should call this at least
    /// once per batch.
    ///
    /// # Errors
    /// Returns `CANCELLED` if the flag is set.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled("cancelled")) } else { Ok(()) }
    }

    /// Reports progress to the caller. `bytes_total` is 0 if unknown.
    pub fn progress(&self, bytes_done: u64, bytes_total: u64) {
        if let Some(progress) = self.raw.progress {
            // SAFETY: the function and its data are valid for the call, as `read` requires, and any
            // thread may call the function.
            unsafe { progress(self.raw.progress_data, bytes_done, bytes_total) };
        }
    }
}

/// The settings of calls, for the caller.
#[derive(Clone)]
pub struct CallSettings {
    /// The device for results.
    pub device: Device,
    /// The stream for work on the device.
    pub stream: CallStream,
    /// The flag that cancels the calls.
    pub cancel: CancelFlag,
    /// The function that receives the progress.
    pub progress: Option<Arc<Progress>>,
    /// The maximum number of bytes to hold in memory at once; 0 means no preference.
    pub byte_budget: u64,
    /// How to validate external data.
    pub validate: Validate,
}

/// The stream of a call.
#[derive(Clone, Copy)]
pub struct CallStream(*mut abi::Stream);

// SAFETY: the header allows the use of a stream handle on any thread.
unsafe impl Send for CallStream {}
// SAFETY: the header allows the use of a stream handle on any thread.
unsafe impl Sync for CallStream {}

impl CallStream {
    /// The default stream of the device.
    pub const DEFAULT: CallStream = CallStream(std::ptr::null_mut());

    /// Uses a stream of the host.
    ///
    /// # Safety
    /// `stream` belongs to the device of the calls, and exists for as long as it is used for calls.
    pub const unsafe fn new(stream: *mut abi::Stream) -> Self {
        Self(stream)
    }
}

impl CallSettings {
    /// Settings with the default stream of `device` and layout validation.
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

    /// Creates settings for calls that the callee of `call` makes. They have the device, stream,
    /// budget, validation and cancel flag of `call`, but no progress function.
    ///
    /// # Safety
    /// The result and its clones are not used after `call` has returned.
    pub unsafe fn from_call(call: &Call<'_>) -> Self {
        Self {
            device: call.device(),
            stream: CallStream(call.stream()),
            // SAFETY: the caller does not use the settings after the call has returned.
            cancel: unsafe { CancelFlag::of_call(call.raw_cancel()) },
            progress: None,
            byte_budget: call.byte_budget(),
            validate: call.validate(),
        }
    }

    /// The settings as a C struct, which borrows from `self`.
    pub fn raw(&self) -> abi::Call {
        abi::Call {
            struct_size: size_of::<abi::Call>(),
            device: self.device,
            stream: self.stream.0,
            cancel: self.cancel.as_ptr(),
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

    /// Calls `f` with these settings. Use this function for calls within a module and for tests.
    pub fn enter<T>(&self, f: impl FnOnce(&Call<'_>) -> T) -> T {
        f(&Call { raw: SizedRef::Borrowed(&self.raw()) })
    }
}

unsafe extern "C" fn report_progress(data: *mut c_void, done: u64, total: u64) {
    // SAFETY: `CallSettings::raw` sets `data` to the address of the `Arc` in the settings, which
    // outlives the call.
    let progress = unsafe { &*data.cast::<Arc<Progress>>() };
    // A panic must not unwind into the plugin that reports progress.
    crate::door::Poison::new().run_release(|| progress(done, total));
}
