//! Ownership of the boundary's objects: released once, when dropped, unless handed on.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use crate::abi;
use crate::error::{Error, Result};

/// A struct with a `release` of its own.
///
/// # Safety
/// `release` calls the struct's release function if it is set, which must leave it cleared, and does nothing else.
/// `TELLS_SIZE` is true only of a `repr(C)` struct whose first field is its `struct_size`; of such, zero bytes in the
/// place of any field that is added later mean that there is none.
pub unsafe trait Release: Default {
    /// Whether it begins with its `struct_size`, so that the other side's may be shorter or longer than ours.
    const TELLS_SIZE: bool;

    /// Whether there is nothing (left) to release.
    fn is_released(&self) -> bool;

    /// Releases what the struct owns.
    ///
    /// # Safety
    /// The struct's release function, if set, is its maker's, and `self` is not used by anybody else.
    unsafe fn release(&mut self);
}

macro_rules! release {
    ($tells_size:literal: $($t:ident),*) => { $(
        // SAFETY: exactly what the trait asks for; `struct_size` is the first field where the header has one.
        unsafe impl Release for abi::$t {
            const TELLS_SIZE: bool = $tells_size;
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

// SAFETY: the embedded array's release is the whole struct's.
unsafe impl Release for abi::ArrowDeviceArray {
    const TELLS_SIZE: bool = false;
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
    const TELLS_SIZE: bool = true;
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

    /// Takes ownership of what a call put into an out parameter of ours. Of a struct that tells its size all of it counts,
    /// whatever was written there: it was zero before, which is what a maker who knows less of it leaves.
    ///
    /// # Safety
    /// As [`Owned::new`].
    pub unsafe fn given(mut out: T) -> Self {
        if T::TELLS_SIZE {
            // SAFETY: the first field, by `TELLS_SIZE`.
            unsafe { (&raw mut out).cast::<usize>().write(size_of::<T>()) };
        }
        Self(out)
    }

    /// Moves the object out of `*from`, as the specifications say: a bitwise copy, after which the source is marked
    /// released without calling anything. Null gives a released object. Of a struct that tells its size no more is
    /// touched than it says.
    ///
    /// # Safety
    /// `from` is null or points at a valid object of its kind that the caller may take.
    pub unsafe fn take(from: *mut T) -> Self {
        let mut taken = T::default();
        if !from.is_null() {
            // SAFETY: valid for `covered` bytes by the caller's word; what stays behind is zero, which is released.
            unsafe {
                let bytes = covered(from, 0);
                copy(from, &raw mut taken, bytes);
                // What was taken is as long as ours now, and may lie in a list of such.
                if T::TELLS_SIZE && bytes > 0 {
                    (&raw mut taken).cast::<usize>().write(size_of::<T>());
                }
                overwrite(from, &T::default(), bytes);
            }
        }
        Self(taken)
    }

    /// Hands the object over in an out parameter, as far as that says to reach. A null one is the caller's mistake.
    ///
    /// # Safety
    /// `out` is null, or points at a struct of its kind that holds nothing: zero but for its `struct_size`, where it has
    /// one. (Where that is zero too, the struct is as long as ours.)
    pub unsafe fn put(self, out: *mut T, what: &str) -> Result<()> {
        if out.is_null() {
            return Err(Error::invalid_argument(format!("{what}: the out parameter is NULL")));
        }
        let handed_over = ManuallyDrop::new(self);
        // SAFETY: by the caller's word; ownership moves along.
        unsafe { overwrite(out, &handed_over.0, covered(out, size_of::<T>())) };
        Ok(())
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

/// How many bytes of `*at` there are, of those that ours has; `untold` where it says 0.
///
/// # Safety
/// `at` points at a struct of its kind.
unsafe fn covered<T: Release>(at: *const T, untold: usize) -> usize {
    if !T::TELLS_SIZE {
        return size_of::<T>();
    }
    // SAFETY: the first field, by `TELLS_SIZE`.
    match unsafe { at.cast::<usize>().read() } {
        0 => untold,
        told => told.min(size_of::<T>()),
    }
}

/// Copies the first `bytes` bytes; all of them, as nearly always, at a length that the compiler knows.
///
/// # Safety
/// Both are valid for as many, and `bytes` is at most `T`'s.
#[inline]
unsafe fn copy<T>(from: *const T, to: *mut T, bytes: usize) {
    // SAFETY: the caller's word.
    unsafe {
        if bytes == size_of::<T>() {
            std::ptr::copy_nonoverlapping(from, to, 1);
        } else {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes);
        }
    }
}

/// Writes `value` over the first `bytes` bytes of `*at`, which keeps a `struct_size` that it tells.
///
/// # Safety
/// `at` is valid for `bytes` bytes.
unsafe fn overwrite<T: Release>(at: *mut T, value: &T, bytes: usize) {
    // SAFETY: `bytes` is no more than both have (`covered`); the first field is the size, by `TELLS_SIZE`.
    unsafe {
        let told = if T::TELLS_SIZE && bytes > 0 { at.cast::<usize>().read() } else { 0 };
        copy(value, at, bytes);
        if told > 0 {
            at.cast::<usize>().write(told);
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
        // SAFETY: `new` and `take` vouch for the object, and `self` is its one owner.
        unsafe { self.0.release() };
    }
}
