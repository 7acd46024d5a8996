//! Reads and writes structs that begin with `struct_size`. A struct of another version may be
//! shorter or longer than in this build. Fields that a shorter struct lacks are read as zero. The
//! additional fields of a longer struct are ignored.

use std::mem::MaybeUninit;

use crate::error::{Error, Result};

/// A struct whose first field is its `struct_size` in bytes.
///
/// # Safety
/// The type is `repr(C)`, and its first field is `struct_size: usize`. In every other field, zero
/// bytes are a valid value and mean "absent".
pub unsafe trait SizedStruct {
    /// The name of the type in C.
    const NAME: &'static str;
    /// The minimum accepted `struct_size`, in bytes.
    const MIN_SIZE_BYTES: usize;
}

/// The maximum accepted `struct_size` of an element of a list, in bytes.
const MAX_ELEMENT_BYTES: usize = (1 << 20) - 1;

/// Copies the fields that both versions have. All other fields of the copy are zero. The copy's
/// `struct_size` is the number of bytes copied.
///
/// # Errors
/// Returns an error if `at` is null, or if its `struct_size` is less than
/// [`SizedStruct::MIN_SIZE_BYTES`].
///
/// # Safety
/// `at` is null or points to `struct_size` readable bytes.
pub unsafe fn read<T: SizedStruct>(at: *const T) -> Result<T> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("a {} is NULL", T::NAME)));
    }
    // SAFETY: `at` is not null, and every version of the struct begins with `struct_size`, as
    // `SizedStruct` requires.
    let struct_size = unsafe { at.cast::<usize>().read() };
    if struct_size < T::MIN_SIZE_BYTES {
        return Err(Error::version(format!(
            "a {} has a struct_size of {struct_size} bytes, expected at least {}",
            T::NAME,
            T::MIN_SIZE_BYTES
        )));
    }
    // SAFETY: the caller guarantees that `at` has `struct_size` readable bytes. `MIN_SIZE_BYTES`
    // includes the field `struct_size`.
    Ok(unsafe { copy(at, struct_size) })
}

/// A struct that [`borrow()`] has borrowed, or a copy as [`read()`] returns it.
pub enum SizedRef<'a, T> {
    /// The struct has all fields that it has in this build.
    Borrowed(&'a T),
    /// A copy in which missing fields are zero, because the struct is shorter than in this build or
    /// is not aligned.
    Copied(Box<T>),
}

/// Borrows the struct at `at`.
///
/// # Errors
/// Returns the errors of [`read()`].
///
/// # Safety
/// The requirements of [`read()`]. Also, the struct does not change during `'a`.
pub unsafe fn borrow<'a, T: SizedStruct>(at: *const T) -> Result<SizedRef<'a, T>> {
    // SAFETY: `at` is not null, and every version of the struct begins with `struct_size`, as
    // `SizedStruct` requires.
    if !at.is_null() && at.is_aligned() && unsafe { at.cast::<usize>().read() } >= size_of::<T>() {
        // SAFETY: `at` is not null and is aligned, and `struct_size` is at least the size of `T`.
        // The caller guarantees that the struct does not change during `'a`.
        return Ok(SizedRef::Borrowed(unsafe { &*at }));
    }
    // SAFETY: the requirements of `borrow` include all requirements of `read`.
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
        // SAFETY: the `bytes` readable bytes include all of `T`, whose first field is
        // `struct_size`, as `SizedStruct` requires.
        return unsafe {
            let mut copy = at.read();
            (&raw mut copy).cast::<usize>().write(size_of::<T>());
            copy
        };
    }
    let mut copy = MaybeUninit::<T>::zeroed();
    // SAFETY: `bytes` is less than the size of `T`, so `at` and the copy both have `bytes` bytes.
    // The rest of the copy is zero, which is a valid value, and the first field is `struct_size`,
    // as `SizedStruct` requires.
    unsafe {
        std::ptr::copy_nonoverlapping(at.cast::<u8>(), copy.as_mut_ptr().cast(), bytes);
        copy.as_mut_ptr().cast::<usize>().write(bytes);
        copy.assume_init()
    }
}

/// Writes the fields of `value` that are within the `struct_size` of the struct at `at`. Does not
/// change this `struct_size`.
///
/// # Errors
/// Returns the errors of [`stride`].
///
/// # Safety
/// `at` is null or points to `struct_size` writable bytes.
pub unsafe fn write<T: SizedStruct>(at: *mut T, value: T) -> Result<()> {
    // SAFETY: the caller guarantees that `at` is null or points to a struct that begins with
    // `struct_size`.
    let bytes = unsafe { stride(at.cast_const()) }?;
    // SAFETY: `stride` rejects null and sizes less than `MIN_SIZE_BYTES`. The caller guarantees
    // that `bytes` bytes are writable.
    unsafe { fill(at, bytes, value) };
    Ok(())
}

/// Reads the `struct_size` of a struct or of the first element of a list. In a list, this is the
/// distance between two elements in bytes.
///
/// # Errors
/// Returns an error if `at` is null, or if the size is not a valid stride (see
/// [`is_valid_stride`]).
///
/// # Safety
/// `at` is null or points to a struct that begins with its `struct_size`.
pub unsafe fn stride<T: SizedStruct>(at: *const T) -> Result<usize> {
    if at.is_null() {
        return Err(Error::invalid_argument(format!("the pointer to a {} is NULL", T::NAME)));
    }
    // SAFETY: `at` is not null, and every version of the struct begins with `struct_size`, as
    // `SizedStruct` requires.
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

/// Writes the first `stride` bytes of `value` to an element of a list, and sets its `struct_size`
/// to `stride`, which is the distance between two elements in bytes.
///
/// # Safety
/// `at` points to `stride` writable bytes, and `stride` is at least the size of a `usize`.
pub unsafe fn fill<T: SizedStruct>(at: *mut T, stride: usize, value: T) {
    let known_bytes = stride.min(size_of::<T>());
    // SAFETY: `known_bytes` is at most `stride` and at most the size of `T`. `value` is not
    // dropped, so only the copy owns the objects that its pointers refer to.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), known_bytes);
        at.cast::<usize>().write(stride);
    }
    std::mem::forget(value);
}

/// Calls `read` for each element of a list. The `struct_size` of the first element is the size of
/// every element and the distance between two elements.
///
/// # Errors
/// Returns an error if there are more than `max_len` elements, if the list is null but not empty,
/// if the `struct_size` is invalid (see [`is_valid_stride`]), or if `read` returns an error.
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
    // SAFETY: `list` is not null and `n` is not 0, so there is a first struct. It begins with
    // `struct_size`, as `SizedStruct` requires.
    let stride = if list.is_null() { 0 } else { unsafe { list.cast::<usize>().read() } };
    if !is_valid_stride::<T>(stride) || n > max_len {
        return Err(Error::invalid_argument(format!(
            "a list of {n} {what} of {stride} bytes each is not plausible"
        )));
    }
    // SAFETY: `i` is less than `n`, and the caller guarantees that the list has `n` structs of
    // `stride` bytes each.
    (0..n).map(|i| read(unsafe { copy(list.byte_add(i * stride), stride) })).collect()
}

/// Whether `bytes` is a possible distance between the elements of a list of `T`.
pub fn is_valid_stride<T: SizedStruct>(bytes: usize) -> bool {
    (T::MIN_SIZE_BYTES..=MAX_ELEMENT_BYTES).contains(&bytes) && bytes.is_multiple_of(align_of::<T>())
}
