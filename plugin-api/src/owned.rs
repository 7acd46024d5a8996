//! Owns C objects, and releases them when dropped.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::abi;
use crate::error::{Error, Result};

/// A C struct with a function that releases it.
///
/// # Safety
/// `release` calls the struct's release function if it is set, clears the pointer to it, and does
/// nothing else. `HAS_STRUCT_SIZE` is true only for a `repr(C)` struct that begins with
/// `struct_size`. In every field that a later version adds to such a struct, zero bytes mean
/// "absent".
pub unsafe trait Release: Default {
    /// Whether the struct begins with `struct_size`. Such a struct may be shorter or longer in
    /// other versions.
    const HAS_STRUCT_SIZE: bool;

    /// Whether the struct is empty or has been released.
    fn is_released(&self) -> bool;

    /// Releases what the struct owns.
    ///
    /// # Safety
    /// If the release function is set, the producer of the struct set it. No other code uses the
    /// struct during the call.
    unsafe fn release(&mut self);
}

macro_rules! release {
    ($has_struct_size:literal: $($t:ident),*) => { $(
        // SAFETY: `release` calls the release function once and clears it. The first list contains
        // structs without a `struct_size`, and the second list contains structs that begin with
        // `struct_size`.
        unsafe impl Release for abi::$t {
            const HAS_STRUCT_SIZE: bool = $has_struct_size;
            fn is_released(&self) -> bool { self.release.is_none() }
            unsafe fn release(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the caller guarantees that the producer set this function, and that
                    // no other code uses the struct.
                    unsafe { release(self) };
                    // If the producer's function does not clear the field itself, this prevents a
                    // second release.
                    self.release = None;
                }
            }
        }
        // SAFETY: the header allows releasing the object on any thread, and calling its other
        // functions from one thread at a time.
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
    Fragments,
    Plan,
    EncodedBuffer,
    EncodedArray
);

// SAFETY: the `release` of the embedded array releases the whole struct, which has no
// `struct_size`.
unsafe impl Release for abi::ArrowDeviceArray {
    const HAS_STRUCT_SIZE: bool = false;
    fn is_released(&self) -> bool {
        self.array.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: the caller guarantees the requirements of `release` for all of `self`, so also
        // for the array.
        unsafe { self.array.release() };
    }
}
// SAFETY: Arrow allows releasing an array on any thread.
unsafe impl Send for abi::ArrowDeviceArray {}

// SAFETY: `release` releases the array and the schema with their own release functions. The struct
// begins with `struct_size`.
unsafe impl Release for abi::Batch {
    const HAS_STRUCT_SIZE: bool = true;
    fn is_released(&self) -> bool {
        self.array.is_released() && self.schema.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: the caller guarantees the requirements of `release` for all of `self`, so also
        // for the array and the schema.
        unsafe {
            self.array.release();
            self.schema.release();
        }
        self.buffer_sizes = std::ptr::null();
        self.n_buffer_sizes = 0;
        self.metadata = std::ptr::null();
    }
}
// SAFETY: Arrow allows releasing the array and the schema on any thread, and the other pointers are
// used only for reading.
unsafe impl Send for abi::Batch {}

/// An owned C object. Reading its fields is safe, but dereferencing its pointers is unsafe.
#[repr(transparent)]
pub struct Owned<T: Release>(T);

impl<T: Release> Owned<T> {
    /// Takes ownership of `raw`.
    ///
    /// # Safety
    /// `raw` is a valid or released object, and no other code releases it.
    pub unsafe fn new(raw: T) -> Self {
        Self(raw)
    }

    /// Takes ownership of an out parameter after a call. Sets its `struct_size` to the size in this
    /// build. The struct was zero before the call, so the fields that the callee's version lacks
    /// are zero.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`].
    pub unsafe fn from_out(mut out: T) -> Self {
        if T::HAS_STRUCT_SIZE {
            // SAFETY: `HAS_STRUCT_SIZE` is true, so the struct begins with `struct_size`.
            unsafe { (&raw mut out).cast::<usize>().write(size_of::<T>()) };
        }
        Self(out)
    }

    /// Moves the object out of `*from`: copies its bytes, and marks the source as released. If
    /// `from` is null, the result is a released object. Accesses at most `struct_size` bytes of the
    /// source.
    ///
    /// # Safety
    /// `from` is null or points to a valid or released object. The caller passes the ownership of
    /// the object.
    pub unsafe fn take(from: *mut T) -> Self {
        let mut object = T::default();
        if !from.is_null() {
            // SAFETY: `known_bytes` returns at most the size of the source and of `T`. The source
            // is set to zero, which means a released object, so only `object` owns the resources.
            unsafe {
                let bytes = known_bytes(from, 0);
                copy(from, &raw mut object, bytes);
                // `object` has all fields of this build. Fields that the source does not have are
                // zero.
                if T::HAS_STRUCT_SIZE && bytes > 0 {
                    (&raw mut object).cast::<usize>().write(size_of::<T>());
                }
                overwrite(from, &T::default(), bytes);
            }
        }
        Self(object)
    }

    /// Moves the object to an out parameter. Writes only the fields within the `struct_size` of the
    /// out parameter.
    ///
    /// # Errors
    /// Returns an error if `out` is null.
    ///
    /// # Safety
    /// `out` is null or points to a struct. All bytes of the struct are zero, except `struct_size`
    /// if it has this field. A `struct_size` of 0 means the size in this build.
    pub unsafe fn put(self, out: *mut T, what: &str) -> Result<()> {
        if out.is_null() {
            return Err(Error::invalid_argument(format!("{what}: the out parameter is NULL")));
        }
        let object = ManuallyDrop::new(self);
        // SAFETY: `known_bytes` returns at most the size of `*out` and of `T`. `object` is not
        // dropped, so only the struct at `out` owns the resources.
        unsafe { overwrite(out, &object.0, known_bytes(out, size_of::<T>())) };
        Ok(())
    }

    /// Passes the ownership to the caller.
    pub fn into_raw(self) -> T {
        // SAFETY: `ManuallyDrop` prevents the drop of `self`, so only the copy owns the object.
        unsafe { std::ptr::read(&ManuallyDrop::new(self).0) }
    }

    /// The address of the object, for calls of its functions.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        &mut self.0
    }

    /// Whether the object is empty or has been released.
    pub fn is_released(&self) -> bool {
        self.0.is_released()
    }
}

/// The size of the part of `*at` that this build supports, in bytes. The result is `default` if the
/// `struct_size` is 0.
///
/// # Safety
/// `at` points to a struct. If `HAS_STRUCT_SIZE` is true, the struct begins with `struct_size`.
unsafe fn known_bytes<T: Release>(at: *const T, default: usize) -> usize {
    if !T::HAS_STRUCT_SIZE {
        return size_of::<T>();
    }
    // SAFETY: `HAS_STRUCT_SIZE` is true, so the struct begins with `struct_size`.
    match unsafe { at.cast::<usize>().read() } {
        0 => default,
        struct_size => struct_size.min(size_of::<T>()),
    }
}

/// Copies the first `bytes` bytes. Usually `bytes` is the size of `T`. This case has its own
/// branch, so that the compiler can use the constant size.
///
/// # Safety
/// `from` is readable and `to` is writable for `bytes` bytes, and `bytes` is at most the size of
/// `T`.
#[inline]
unsafe fn copy<T>(from: *const T, to: *mut T, bytes: usize) {
    // SAFETY: both branches copy `bytes` bytes, and the caller guarantees that both pointers are
    // valid for them.
    unsafe {
        if bytes == size_of::<T>() {
            std::ptr::copy_nonoverlapping(from, to, 1);
        } else {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes);
        }
    }
}

/// Writes the first `bytes` bytes of `value` to `*at`. If the `struct_size` of `*at` is not 0, it
/// is kept.
///
/// # Safety
/// `at` is writable for `bytes` bytes, and `bytes` is at most the size of `T`.
unsafe fn overwrite<T: Release>(at: *mut T, value: &T, bytes: usize) {
    // SAFETY: the caller guarantees that `at` has `bytes` bytes, and `value` has at least as many.
    // If `HAS_STRUCT_SIZE` is true, the struct begins with `struct_size`.
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
        // SAFETY: `self` owns the object, as `new`, `from_out` and `take` require, so no other code
        // uses or releases it.
        unsafe { self.0.release() };
    }
}
