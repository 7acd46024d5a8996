//! Reads and writes structs that begin with their `struct_size`. Another version's struct may be
//! shorter or longer than this build's: fields that it lacks are read as zero, and fields that this
//! build does not know are ignored.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// A struct that begins with its `struct_size`, in bytes.
///
/// # Safety
/// The type is `repr(C)`, and `struct_size: usize` is its first field. Zero bytes are a
/// valid value of every other field, and mean "absent".
pub unsafe trait SizedStruct {
    /// The name of the type in C.
    const NAME: &'static str;
    /// The least `struct_size` that is accepted, in bytes.
    const MIN_SIZE_BYTES: usize;
}

/// The greatest `struct_size` that is accepted for the elements of a list.
const MAX_ELEMENT_BYTES: usize = (1 << 20) - 1;

/// Copies the fields that both versions have; the rest of the copy is zero. The copy's
/// `struct_size` is the number of bytes copied.
///
/// # Errors
/// `at` is null, or its `struct_size` is less than [`SizedStruct::MIN_SIZE_BYTES`].
///
/// # Safety
/// `at` is null or points to `struct_size` readable bytes.
pub unsafe fn read<T: SizedStruct>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("a {} is NULL", T::NAME)));
    }
    // SAFETY: not null, and every version of the struct begins with its size (`SizedStruct`).
    let struct_size = unsafe { at.cast::<usize>().read() };
    if struct_size < T::MIN_SIZE_BYTES {
        return Err(Error::version(format!(
            "a {} of {struct_size} bytes, expected at least {}",
            T::NAME,
            T::MIN_SIZE_BYTES
        )));
    }
    // SAFETY: the caller guarantees `struct_size` bytes at `at`, and the size itself is among them.
    Ok(unsafe { copy(at, struct_size) })
}

/// A struct as [`read()`] returns it, without a copy if it is at least as long as this build's.
pub enum SizedRef<'a, T> {
    /// The struct has all fields that this build knows.
    Borrowed(&'a T),
    /// The struct is shorter; its missing fields are zero.
    Copied(Box<T>),
}

/// Borrows the struct at `at`.
///
/// # Errors
/// As [`read()`].
///
/// # Safety
/// As [`read()`], and the struct is not changed during `'a`.
pub unsafe fn borrow<'a, T: SizedStruct>(at: *const T) -> Result<SizedRef<'a, T>> {
    // SAFETY: not null, and every version of the struct begins with its size (`SizedStruct`).
    if !at.is_null() && at.is_aligned() && unsafe { at.cast::<usize>().read() } >= size_of::<T>() {
        // SAFETY: not null, aligned, and `struct_size` covers all of `T`; the caller guarantees
        // that it stays unchanged during `'a`.
        return Ok(SizedRef::Borrowed(unsafe { &*at }));
    }
    // SAFETY: the caller meets the conditions of `read`.
    unsafe { read(at) }.map(|copy| SizedRef::Copied(Box::new(copy)))
}

impl<T> std::ops::Deref for SizedRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            SizedRef::Borrowed(value) => value,
            SizedRef::Copied(value) => value,
        }
    }
}

/// # Safety
/// `at` points to `bytes` readable bytes, and `bytes` is at least the size of a `usize`.
unsafe fn copy<T: SizedStruct>(at: *const T, bytes: usize) -> T {
    if bytes >= size_of::<T>() {
        // SAFETY: `bytes` readable bytes cover all of `T`, whose first field is its size
        // (`SizedStruct`).
        return unsafe {
            let mut copy = at.read();
            (&raw mut copy).cast::<usize>().write(size_of::<T>());
            copy
        };
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: `bytes` is less than the size of `T`, so both sides have that many. The rest is zero,
    // which is a valid value, and the first field is the size (`SizedStruct`).
    unsafe {
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), copy.as_mut_ptr().cast(), bytes);
        copy.as_mut_ptr().cast::<usize>().write(bytes);
        copy.assume_init()
    }
}

/// Writes `value` to the struct at `at`, as far as its `struct_size` reaches. The `struct_size` is
/// kept.
///
/// # Errors
/// As [`stride`].
///
/// # Safety
/// `at` is null or points to `struct_size` writable bytes.
pub unsafe fn write<T: SizedStruct>(at: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller guarantees that `at` is null or begins with its size.
    let bytes = unsafe { stride(at.cast_const()) }?;
    // SAFETY: `stride` rejects null and sizes below `MIN_SIZE_BYTES`; the caller guarantees `bytes`
    // writable bytes.
    unsafe { fill(at, bytes, value) };
    Ok(())
}

/// Reads the `struct_size` of a struct or of the first element of a list, which is the distance
/// between elements in bytes.
///
/// # Errors
/// `at` is null, or the size is not a valid stride (see [`is_valid_stride`]).
///
/// # Safety
/// `at` is null or points to a struct that begins with its `struct_size`.
pub unsafe fn stride<T: SizedStruct>(at: *const T) -> Result<usize> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("the pointer to a {} is NULL", T::NAME)));
    }
    // SAFETY: not null, and every version of the struct begins with its size (`SizedStruct`).
    let struct_size = unsafe { at.cast::<usize>().read() };
    if is_valid_stride::<T>(struct_size) {
        return Ok(struct_size);
    }
    Err(Error::invalid_argument(format!(
        "a {} has a struct_size of {struct_size}, expected at least {} and a multiple of {}",
        T::NAME,
        T::MIN_SIZE_BYTES,
        align_of::<T>()
    )))
}

/// Writes `value` to an element of a list whose elements lie `stride` bytes apart, as far as
/// `stride` reaches, and sets its `struct_size` to `stride`.
///
/// # Safety
/// `at` points to `stride` writable bytes, and `stride` is at least the size of a `usize`.
pub unsafe fn fill<T: SizedStruct>(at: *mut T, stride: usize, value: T) {
    let known_bytes = stride.min(size_of::<T>());
    // SAFETY: `known_bytes` is at most the size of either side. `value` is forgotten below, so that
    // the copy alone owns what its pointers refer to.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), known_bytes);
        at.cast::<usize>().write(stride);
    }
    std::mem::forget(value);
}

/// Reads each element of a list with `read`. The first element's `struct_size` is the size of every
/// element and the distance between them.
///
/// # Errors
/// More than `max_len` elements, a null list that is not empty, an invalid `struct_size`
/// (see [`is_valid_stride`]), or an error of `read`.
///
/// # Safety
/// `list` points to `n` structs, or `n` is 0.
pub unsafe fn read_list<T: SizedStruct, U>(
    list: *const T,
    n: usize,
    max_len: usize,
    what: &str,
    mut read: impl FnMut(T) -> Result<U>,
) -> Result<Vec<U>> {
    if n == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: not null, and the first of the `n` structs begins with its size (`SizedStruct`).
    let stride = if list.is_null() { 0 } else { unsafe { list.cast::<usize>().read() } };
    if !is_valid_stride::<T>(stride) || n > max_len {
        return Err(Error::invalid_argument(format!(
            "a list of {n} {what} of {stride} bytes each is not plausible"
        )));
    }
    // SAFETY: `i` is less than `n`, and the caller guarantees `n` structs, each `stride` bytes
    // long.
    (0..n).map(|i| read(unsafe { copy(list.byte_add(i * stride), stride) })).collect()
}

/// Whether `bytes` is a possible distance between the elements of a list of `T`.
pub fn is_valid_stride<T: SizedStruct>(bytes: usize) -> bool {
    (T::MIN_SIZE_BYTES..=MAX_ELEMENT_BYTES).contains(&bytes) && bytes.is_multiple_of(align_of::<T>())
}
