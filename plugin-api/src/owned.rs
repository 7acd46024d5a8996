//! Owns C objects, and releases them when dropped.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::abi;
use crate::error::{Error, Result};

/// A C struct with a function that releases it.
///
/// # Safety
/// `release` calls the struct's release function if it is set, clears it, and does nothing
/// else. `HAS_STRUCT_SIZE` is true only for a `repr(C)` struct that begins with its `struct_size`,
/// and for which zero bytes in any field that later versions add mean "absent".
pub unsafe trait Release: Default {
    /// Whether the struct begins with its `struct_size`, so that another version's may be shorter
    /// or longer.
    const HAS_STRUCT_SIZE: bool;

    /// Whether the struct is empty or has been released.
    fn is_released(&self) -> bool;

    /// Releases what the struct owns.
    ///
    /// # Safety
    /// The release function, if set, was set by the producer of the struct, and nothing
    /// else uses the struct during the call.
    unsafe fn release(&mut self);
}

macro_rules! release {
    ($has_struct_size:literal: $($t:ident),*) => { $(
        // SAFETY: `release` calls the release function once and clears it. The first list below has
        // structs without a `struct_size`, the second one structs that begin with it.
        unsafe impl Release for abi::$t {
            const HAS_STRUCT_SIZE: bool = $has_struct_size;
            fn is_released(&self) -> bool { self.release.is_none() }
            unsafe fn release(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the caller guarantees that this is the producer's function, and that
                    // nothing else uses the struct.
                    unsafe { release(self) };
                    // Prevents a second release if the producer's function does not clear the
                    // field.
                    self.release = None;
                }
            }
        }
        // SAFETY: the header allows releases on any thread, and all other functions on one thread
        // at a time.
        unsafe impl Send for abi::$t {}
    )* };
}

release!(false: ArrowSchema, ArrowArray, ArrowArrayStream, ArrowDeviceArrayStream);
release!(
    true: Capsule,
    Capsules,
    Source,
    Sink,
    BatchStream,
    Writer,
    Plan,
    EncodedBuffer,
    EncodedArray
);

// SAFETY: the embedded array's `release` releases the whole struct, which has no `struct_size`.
unsafe impl Release for abi::ArrowDeviceArray {
    const HAS_STRUCT_SIZE: bool = false;
    fn is_released(&self) -> bool {
        self.array.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: the caller guarantees the same for `self`, which contains the array.
        unsafe { self.array.release() };
    }
}
// SAFETY: Arrow allows releases on any thread.
unsafe impl Send for abi::ArrowDeviceArray {}

// SAFETY: `release` releases the array and the schema with their own functions. The struct begins
// with its `struct_size`.
unsafe impl Release for abi::Batch {
    const HAS_STRUCT_SIZE: bool = true;
    fn is_released(&self) -> bool {
        self.array.is_released() && self.schema.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: the caller guarantees the same for `self`, which contains both.
        unsafe {
            self.array.release();
            self.schema.release();
        }
        self.buffer_sizes = std::ptr::null();
        self.n_buffer_sizes = 0;
        self.metadata = std::ptr::null();
    }
}
// SAFETY: Arrow allows releases of the array and the schema on any thread, and the other pointers
// are only read.
unsafe impl Send for abi::Batch {}

/// An owned C object. Reading its fields is safe; dereferencing its pointers is not.
#[repr(transparent)]
pub struct Owned<T: Release>(T);

impl<T: Release> Owned<T> {
    /// Takes ownership of `raw`.
    ///
    /// # Safety
    /// `raw` is a valid or released object, and nothing else releases it.
    pub unsafe fn new(raw: T) -> Self {
        Self(raw)
    }

    /// Takes ownership of an out parameter after a call. The `struct_size` is set to this build's:
    /// the struct was zero before the call, so fields that the callee does not know are absent.
    ///
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn from_out(mut out: T) -> Self {
        if T::HAS_STRUCT_SIZE {
            // SAFETY: the struct begins with its `struct_size` (`HAS_STRUCT_SIZE`).
            unsafe { (&raw mut out).cast::<usize>().write(size_of::<T>()) };
        }
        Self(out)
    }

    /// Moves the object out of `*from`: copies its bytes, and marks the source as released. If
    /// `from` is null, the result is a released object. At most `struct_size` bytes of the source
    /// are accessed.
    ///
    /// # Safety
    /// `from` is null or points to a valid or released object, whose ownership the caller passes.
    pub unsafe fn take(from: *mut T) -> Self {
        let mut object = T::default();
        if !from.is_null() {
            // SAFETY: `known_bytes` returns at most the number of bytes of either side. The source
            // is set to zero, which is a released object, so that only `object` owns.
            unsafe {
                let bytes = known_bytes(from, 0);
                copy(from, &raw mut object, bytes);
                // `object` has all fields of this build; those that the source lacks are zero.
                if T::HAS_STRUCT_SIZE && bytes > 0 {
                    (&raw mut object).cast::<usize>().write(size_of::<T>());
                }
                overwrite(from, &T::default(), bytes);
            }
        }
        Self(object)
    }

    /// Moves the object to an out parameter, as far as its `struct_size` reaches.
    ///
    /// # Errors
    /// `out` is null.
    ///
    /// # Safety
    /// `out` is null or points to a struct that is zero except for its `struct_size`, if
    /// it has one. A `struct_size` of zero stands for this build's size.
    pub unsafe fn put(self, out: *mut T, what: &str) -> Result<()> {
        if out.is_null() {
            return Err(Error::invalid_argument(format!("{what}: the out parameter is NULL")));
        }
        let object = ManuallyDrop::new(self);
        // SAFETY: `known_bytes` returns at most the number of bytes of either side. `object` is not
        // dropped, so that only the struct at `out` owns.
        unsafe { overwrite(out, &object.0, known_bytes(out, size_of::<T>())) };
        Ok(())
    }

    /// Passes the ownership to the caller.
    pub fn into_raw(self) -> T {
        // SAFETY: `ManuallyDrop` prevents the drop of `self`, so that only the copy owns.
        unsafe { std::ptr::read(&ManuallyDrop::new(self).0) }
    }

    /// The address of the object, for its functions.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        &mut self.0
    }

    /// Whether the object is empty or has been released.
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }
}

/// The number of bytes of `*at` that this build knows, or `default` if its `struct_size` is 0.
///
/// # Safety
/// `at` points to a struct, which begins with its `struct_size` if `HAS_STRUCT_SIZE`.
unsafe fn known_bytes<T: Release>(at: *const T, default: usize) -> usize {
    if !T::HAS_STRUCT_SIZE {
        return size_of::<T>();
    }
    // SAFETY: the struct begins with its `struct_size` (`HAS_STRUCT_SIZE`).
    match unsafe { at.cast::<usize>().read() } {
        0 => default,
        struct_size => struct_size.min(size_of::<T>()),
    }
}

/// Copies the first `bytes` bytes. The usual case is a separate branch, whose length the compiler
/// knows.
///
/// # Safety
/// `from` is readable and `to` writable for `bytes` bytes, which are at most the size of `T`.
#[inline]
unsafe fn copy<T>(from: *const T, to: *mut T, bytes: usize) {
    // SAFETY: both branches copy `bytes` bytes, for which the caller guarantees both pointers.
    unsafe {
        if bytes == size_of::<T>() {
            std::ptr::copy_nonoverlapping(from, to, 1);
        } else {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes);
        }
    }
}

/// Writes the first `bytes` bytes of `value` to `*at`, but keeps a `struct_size` that is not 0.
///
/// # Safety
/// `at` is writable for `bytes` bytes, which are at most the size of `T`.
unsafe fn overwrite<T: Release>(at: *mut T, value: &T, bytes: usize) {
    // SAFETY: the caller guarantees `bytes` bytes at `at`, and `value` has as many. The struct
    // begins with its `struct_size` if `HAS_STRUCT_SIZE`.
    unsafe {
        let struct_size = if T::HAS_STRUCT_SIZE && bytes > 0 { at.cast::<usize>().read() } else { 0 };
        copy(value, at, bytes);
        if struct_size > 0 {
            at.cast::<usize>().write(struct_size);
        }
    }
}

impl<T: Release> Deref for Owned<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Release> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the object (`new`, `from_out`, `take`), so that nothing else uses or
        // releases it.
        unsafe { self.0.release() };
    }
}
