//! Ownership of the boundary's objects: released once, when dropped, unless handed on.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::abi;

/// A struct with a `release` of its own.
///
/// # Safety
/// `release` calls the struct's release function if it is set, which must leave it cleared, and does nothing else.
pub unsafe trait Release: Default {
    /// Whether there is nothing (left) to release.
    fn is_released(&self) -> bool;

    /// Releases what the struct owns.
    ///
    /// # Safety
    /// The struct's release function, if set, is its maker's, and `self` is not used by anybody else.
    unsafe fn release(&mut self);
}

macro_rules! release {
    ($($t:ident),*) => { $(
        // SAFETY: exactly what the trait asks for.
        unsafe impl Release for abi::$t {
            fn is_released(&self) -> bool { self.release.is_none() }
            unsafe fn release(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: the struct's own function on itself, by the caller's word.
                    unsafe { release(self) };
                    // A producer that forgets to clear it must not make us release twice.
                    self.release = None;
                }
            }
        }
        // SAFETY: releases may run on any thread by contract, and an owned object has one user at a time.
        unsafe impl Send for abi::$t {}
    )* };
}

release!(
    ArrowSchema,
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArrayStream,
    Capsule,
    Capsules,
    Source,
    Sink,
    BatchStream,
    Writer,
    Plan,
    EncodedBuffer,
    EncodedArray
);

// SAFETY: the embedded array's release is the whole struct's.
unsafe impl Release for abi::ArrowDeviceArray {
    fn is_released(&self) -> bool {
        self.array.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: passed on from the caller.
        unsafe { self.array.release() };
    }
}
// SAFETY: as for the structs above.
unsafe impl Send for abi::ArrowDeviceArray {}

// SAFETY: releases both halves, each with its own function.
unsafe impl Release for abi::Batch {
    fn is_released(&self) -> bool {
        self.array.is_released() && self.schema.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: passed on from the caller.
        unsafe {
            self.array.release();
            self.schema.release();
        }
        self.buffer_sizes = std::ptr::null();
        self.n_buffer_sizes = 0;
        self.metadata = std::ptr::null();
    }
}
// SAFETY: as for the structs above; the sizes belong to the array.
unsafe impl Send for abi::Batch {}

// SAFETY: releases both halves, each with its own function.
unsafe impl Release for abi::Input {
    fn is_released(&self) -> bool {
        self.source.is_released() && self.capsules.is_released()
    }
    unsafe fn release(&mut self) {
        // SAFETY: passed on from the caller.
        unsafe {
            self.source.release();
            self.capsules.release();
        }
    }
}
// SAFETY: as for the structs above.
unsafe impl Send for abi::Input {}

/// An object of the boundary that is ours to release. Reading its fields is safe, for they are plain values; what its
/// pointers point at is another matter.
#[repr(transparent)]
pub struct Owned<T: Release>(T);

impl<T: Release> Owned<T> {
    /// Takes ownership.
    ///
    /// # Safety
    /// `raw` is a valid object of its kind (or a released one), and nobody else releases it.
    pub unsafe fn new(raw: T) -> Self {
        Self(raw)
    }

    /// Moves the object out of `*from`, as the specifications say: a bitwise copy, after which the source is marked
    /// released without calling anything. Null gives a released object.
    ///
    /// # Safety
    /// `from` is null or points at a valid object of its kind that the caller may take.
    pub unsafe fn take(from: *mut T) -> Self {
        if from.is_null() {
            return Self(T::default());
        }
        // SAFETY: valid by the caller's word; what stays behind is zero, which is released.
        Self(unsafe { std::ptr::replace(from, T::default()) })
    }

    /// The bare struct; whoever gets it releases it.
    pub fn into_raw(self) -> T {
        // SAFETY: `self` is not dropped, so the one copy that remains owns the object.
        unsafe { std::ptr::read(&ManuallyDrop::new(self).0) }
    }

    /// For calls that take the object's address.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        &mut self.0
    }

    /// Whether there is nothing (left) to release.
    pub fn is_released(&self) -> bool {
        self.0.is_released()
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
        // SAFETY: `new` and `take` vouch for the object, and `self` is its one owner.
        unsafe { self.0.release() };
    }
}
