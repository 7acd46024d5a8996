//! Structs that tell their size. Another version's may be shorter or longer than ours: of a shorter one, what it lacks
//! is zero, and of a longer one, what we do not know is left alone.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// A struct that begins with its `struct_size`, in bytes.
///
/// # Safety
/// `repr(C)`, with `struct_size: usize` first; zero bytes are a value of every other field, and mean that there is none.
pub unsafe trait Told {
    /// As C spells it.
    const NAME: &'static str;
    /// Bytes of the shortest one that is of use.
    const LEAST: usize;
}

/// More than any element of a list has.
const LONGEST_BYTES: usize = 1 << 20;

/// A copy of as much of `*at` as there is, and as we know. Its `struct_size` says how much that is.
///
/// # Safety
/// `at` is null or points at as many bytes as its `struct_size` says.
pub unsafe fn read<T: Told>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("a {} is NULL", T::NAME)));
    }
    // SAFETY: the first field of every version.
    let told = unsafe { at.cast::<usize>().read() };
    if told < T::LEAST {
        return Err(Error::version(format!("a {} of {told} bytes, expected at least {}", T::NAME, T::LEAST)));
    }
    // SAFETY: as many as it tells of.
    Ok(unsafe { copy(at, told) })
}

/// A caller's struct, as [`read()`] gives it, without a copy where it is as long as ours.
pub enum Lent<'a, T> {
    /// All of ours is there.
    Whole(&'a T),
    /// What there is of it.
    Shorter(Box<T>),
}

/// The same struct for as long as the caller lends it.
///
/// # Safety
/// As [`read()`], and what is there stays as it is for `'a`.
pub unsafe fn lent<'a, T: Told>(at: *const T) -> Result<Lent<'a, T>> {
    // SAFETY: the caller's word; the size is the first field of every version.
    if !at.is_null() && at.is_aligned() && unsafe { at.cast::<usize>().read() } >= size_of::<T>() {
        // SAFETY: as above, and as long as ours.
        return Ok(Lent::Whole(unsafe { &*at }));
    }
    // SAFETY: as above.
    unsafe { read(at) }.map(|ours| Lent::Shorter(Box::new(ours)))
}

impl<T> std::ops::Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Lent::Whole(theirs) => theirs,
            Lent::Shorter(ours) => ours,
        }
    }
}

/// # Safety
/// `at` points at `bytes` bytes, more than a `usize` has.
unsafe fn copy<T: Told>(at: *const T, bytes: usize) -> T {
    if bytes >= size_of::<T>() {
        // SAFETY: as long as ours, so all of ours is there; the size comes first.
        return unsafe {
            let mut ours = at.read();
            (&raw mut ours).cast::<usize>().write(size_of::<T>());
            ours
        };
    }
    let known = bytes.min(size_of::<T>());
    let mut ours = MaybeUninit::<T>::zeroed();
    // SAFETY: both have that many bytes; any rest is zero, which is a value (`Told`), and the size comes first.
    unsafe {
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), ours.as_mut_ptr().cast(), known);
        ours.as_mut_ptr().cast::<usize>().write(known);
        ours.assume_init()
    }
}

/// Fills in a caller's struct, as far as that says to reach; it keeps its `struct_size`.
///
/// # Safety
/// `at` is null or points at as many bytes as its `struct_size` says.
pub unsafe fn write<T: Told>(at: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller's word.
    let told = unsafe { stride(at.cast_const()) }?;
    // SAFETY: as above.
    unsafe { fill(at, told, value) };
    Ok(())
}

/// The `struct_size` of the first of a caller's list, or of its only one.
///
/// # Safety
/// As [`write()`].
pub unsafe fn stride<T: Told>(at: *const T) -> Result<usize> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("the {}'s place is NULL", T::NAME)));
    }
    // SAFETY: the first field of every version.
    let told = unsafe { at.cast::<usize>().read() };
    if is_stride::<T>(told) {
        return Ok(told);
    }
    Err(Error::invalid_argument(format!(
        "a {} has a struct_size of {told}, expected at least {} and whole words",
        T::NAME,
        T::LEAST
    )))
}

/// Fills in one of a list of structs that lie `stride` bytes apart.
///
/// # Safety
/// `at` points at `stride` bytes, more than a `usize` has.
pub unsafe fn fill<T: Told>(at: *mut T, stride: usize, value: T) {
    let known = stride.min(size_of::<T>());
    // SAFETY: both have that many bytes. The value's own pointers move along: it is forgotten here.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), known);
        at.cast::<usize>().write(stride);
    }
    std::mem::forget(value);
}

/// Reads each of a list: they lie the first one's size apart, and have as much.
///
/// # Safety
/// `list` points at `n` structs, or `n` is 0.
pub unsafe fn list<T: Told, U>(
    list: *const T,
    n: usize,
    most: usize,
    what: &str,
    mut read: impl FnMut(T) -> Result<U>,
) -> Result<Vec<U>> {
    if n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: a list that is not empty has a first one.
    let stride = if list.is_null() { 0 } else { unsafe { list.cast::<usize>().read() } };
    if !is_stride::<T>(stride) || n > most {
        return Err(Error::invalid_argument(format!(
            "a list of {n} {what} of {stride} bytes each is not plausible"
        )));
    }
    // SAFETY: the list's maker vouches for `n` of them.
    (0..n).map(|i| read(unsafe { copy(list.byte_add(i * stride), stride) })).collect()
}

/// Whether the elements of a list may lie this many bytes apart.
pub fn is_stride<T: Told>(bytes: usize) -> bool {
    (T::LEAST..LONGEST_BYTES).contains(&bytes) && bytes.is_multiple_of(align_of::<T>())
}
