//! Capsules: foreign objects with the names of their Python capsules.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::abi;
use crate::door;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};
use crate::sized_struct;

/// A struct whose capsules have a fixed name.
///
/// # Safety
/// The specification of the name defines this struct as the object of the capsule.
pub unsafe trait CapsuleObject: Release + Send + 'static {
    /// The capsule's name.
    const NAME: &'static CStr;
}

macro_rules! named { ($($t:ident = $n:literal),* $(,)?) => { $(
    // SAFETY: Arrow's PyCapsule interface defines this name for this struct.
    unsafe impl CapsuleObject for abi::$t { const NAME: &'static CStr = $n; }
)* } }
named! {
    ArrowSchema = c"arrow_schema",
    ArrowArray = c"arrow_array",
    ArrowArrayStream = c"arrow_array_stream",
    ArrowDeviceArray = c"arrow_device_array",
    ArrowDeviceArrayStream = c"arrow_device_array_stream",
}

/// A foreign object. Dropping the capsule releases the object, unless it was taken.
pub struct Capsule(Owned<abi::Capsule>);

impl Capsule {
    /// Wraps an object.
    pub fn new<T: CapsuleObject>(object: Owned<T>) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = T::NAME.as_ptr();
        raw.pointer = Box::into_raw(Box::new(object)).cast();
        raw.release = Some(release::<T>);
        // SAFETY: the capsule was created above with its release function, and this is its only
        // copy.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps an object whose deleter also frees its struct, as those of DLPack and Vortex. `free`
    /// is called on `pointer` unless the object is taken.
    ///
    /// # Safety
    /// `pointer` is an object of the kind that `name` defines, and the capsule takes
    /// ownership. `free` can be called once on it, on any thread.
    pub unsafe fn from_self_freeing<T>(
        name: &'static CStr,
        pointer: NonNull<T>,
        free: unsafe fn(NonNull<T>),
    ) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = name.as_ptr();
        raw.pointer = pointer.as_ptr().cast();
        // SAFETY: `NonNull<T>` and `NonNull<c_void>` have the same layout, and the function is only
        // called with `pointer`.
        let free: unsafe fn(NonNull<c_void>) = unsafe { std::mem::transmute(free) };
        raw.private_data = free as *mut c_void;
        raw.release = Some(free_self_freeing);
        // SAFETY: the capsule was created above with its release function, and this is its only
        // copy.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps a C capsule.
    ///
    /// # Safety
    /// As [`Owned::new`]. If the name is that of a [`CapsuleObject`] struct, the pointer is to
    /// such a struct.
    pub unsafe fn from_raw(raw: Owned<abi::Capsule>) -> Self {
        Self(raw)
    }

    /// The C capsule.
    pub fn into_raw(self) -> Owned<abi::Capsule> {
        self.0
    }

    /// The name, or an empty string.
    pub fn name(&self) -> &CStr {
        if self.0.name.is_null() {
            return c"";
        }
        // SAFETY: not null, so the header guarantees a NUL-terminated string that lives as long as
        // the capsule.
        unsafe { CStr::from_ptr(self.0.name) }
    }

    /// The address of the object, without taking it.
    pub fn pointer(&self) -> *mut c_void {
        self.0.pointer
    }

    /// Takes an object whose deleter also frees its struct. The caller must call that deleter.
    ///
    /// # Errors
    /// The capsule has another name, or the object has been taken already.
    pub fn take_self_freeing(self, name: &CStr) -> Result<NonNull<c_void>> {
        self.take_any_self_freeing(&[name]).map(|(_, object)| object)
    }

    /// Like [`take_self_freeing`](Self::take_self_freeing), for several names. Also returns the
    /// index of the name.
    ///
    /// # Errors
    /// The capsule has another name, or the object has been taken already.
    pub fn take_any_self_freeing(mut self, names: &[&CStr]) -> Result<(usize, NonNull<c_void>)> {
        let name = self.name();
        let Some(index) = names.iter().position(|expected| *expected == name) else {
            let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            return Err(self.misnamed(&names.join("' or '")));
        };
        // SAFETY: `self` owns the capsule, so nothing else accesses the field. NULL marks the
        // object as taken.
        let pointer = unsafe { std::mem::replace(&mut (*self.0.as_mut_ptr()).pointer, std::ptr::null_mut()) };
        let object = NonNull::new(pointer).ok_or_else(|| consumed(self.name()))?;
        Ok((index, object))
    }

    fn misnamed(&self, expected: &str) -> Error {
        Error::invalid_argument(format!(
            "a capsule named '{}', expected '{expected}'",
            self.name().to_string_lossy()
        ))
    }

    /// Moves the object out.
    ///
    /// # Errors
    /// The capsule has another name, or the object has been taken already.
    pub fn take<T: CapsuleObject>(self) -> Result<Owned<T>> {
        if self.name() != T::NAME {
            return Err(self.misnamed(&T::NAME.to_string_lossy()));
        }
        // SAFETY: a capsule with this name points to such a struct (`from_raw`, `CapsuleObject`),
        // and the header lets a consumer move it out.
        let object = unsafe { Owned::take(self.0.pointer.cast::<T>()) };
        if object.is_released() {
            return Err(consumed(T::NAME));
        }
        Ok(object)
    }
}

fn consumed(name: &CStr) -> Error {
    Error::invalid_argument(format!("the capsule '{}' has been consumed already", name.to_string_lossy()))
}

unsafe extern "C" fn free_self_freeing(capsule: *mut abi::Capsule) {
    // SAFETY: only `Capsule::from_self_freeing` sets this function. It stores `free` in
    // `private_data`, for the object at `pointer`, which is NULL if the object was taken. `release`
    // is cleared, so that this runs once.
    unsafe {
        (*capsule).release = None;
        let free: unsafe fn(NonNull<c_void>) = std::mem::transmute((*capsule).private_data);
        if let Some(object) = NonNull::new(std::mem::replace(&mut (*capsule).pointer, std::ptr::null_mut())) {
            door::run_release(|| free(object));
        }
    }
}

unsafe extern "C" fn release<T: CapsuleObject>(capsule: *mut abi::Capsule) {
    // SAFETY: only `Capsule::new::<T>` sets this function, and stores a boxed `Owned<T>` in
    // `pointer`. A consumer that moved the object out left a released struct there, or NULL if it
    // took the box. `release` is cleared, so that this runs once.
    unsafe {
        (*capsule).release = None;
        let object = (*capsule).pointer.cast::<Owned<T>>();
        (*capsule).pointer = std::ptr::null_mut();
        if !object.is_null() {
            door::run_release(|| drop(Box::from_raw(object)));
        }
    }
}

/// Creates a C list.
pub(crate) fn into_list(capsules: Vec<Capsule>) -> Owned<abi::Capsules> {
    if capsules.is_empty() {
        // SAFETY: a released struct owns nothing.
        return unsafe { Owned::new(abi::Capsules::new()) };
    }
    let mut raws: Box<[abi::Capsule]> = capsules.into_iter().map(|c| c.into_raw().into_raw()).collect();
    let mut raw = abi::Capsules::new();
    raw.capsules = raws.as_mut_ptr();
    raw.n_capsules = raws.len();
    raw.private_data = Box::into_raw(raws).cast();
    raw.release = Some(release_list);
    // SAFETY: the list was created above with its release function, and this is its only copy.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: only `into_list` sets this function, with a boxed slice in `capsules`. Capsules that
    // were moved out are released structs. `release` is cleared, so that this runs once.
    unsafe {
        (*list).release = None;
        let mut raws =
            Box::from_raw(std::ptr::slice_from_raw_parts_mut((*list).capsules, (*list).n_capsules));
        raws.iter_mut().for_each(|raw| raw.release());
    }
}

/// A list of capsules. Iterating moves them out; the others are released with the list.
pub struct Capsules {
    list: Owned<abi::Capsules>,
    stride: usize,
    next: usize,
}

impl Capsules {
    /// Wraps a C list.
    ///
    /// # Errors
    /// An invalid `struct_size`, or an implausible length.
    ///
    /// # Safety
    /// `list` has `n_capsules` capsules, each of which meets the requirements of
    /// [`Capsule::from_raw`].
    pub unsafe fn from_raw(list: Owned<abi::Capsules>) -> Result<Self> {
        const MAX_CAPSULES: usize = 1 << 20;
        if list.is_released() || list.n_capsules == 0 {
            return Ok(Self { list, stride: 0, next: usize::MAX });
        }
        let first = list.capsules.cast::<usize>();
        // SAFETY: not null, and `n_capsules` is not 0, so the pointer is to a capsule, which begins
        // with its size.
        let stride = if first.is_null() { 0 } else { unsafe { first.read() } };
        if sized_struct::is_valid_stride::<abi::Capsule>(stride) && list.n_capsules <= MAX_CAPSULES {
            return Ok(Self { list, stride, next: 0 });
        }
        Err(Error::invalid_argument(format!(
            "a list of {} capsules of {stride} bytes each is not plausible",
            list.n_capsules
        )))
    }

    /// The C list.
    pub(crate) fn into_raw(self) -> Owned<abi::Capsules> {
        self.list
    }
}

impl Iterator for Capsules {
    type Item = Capsule;

    fn next(&mut self) -> Option<Capsule> {
        if self.next >= self.list.n_capsules {
            return None;
        }
        let at = self.next * self.stride;
        self.next += 1;
        // SAFETY: the list has `n_capsules` capsules, each `stride` bytes long (`from_raw`), and
        // the header lets the consumer move them out.
        Some(unsafe { Capsule::from_raw(Owned::take(self.list.capsules.byte_add(at))) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.list.n_capsules.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Capsules {}

impl From<Vec<Capsule>> for Capsules {
    fn from(capsules: Vec<Capsule>) -> Self {
        Self { list: into_list(capsules), stride: size_of::<abi::Capsule>(), next: 0 }
    }
}
