//! Capsules contain foreign objects, together with the names of their Python capsules.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::abi;
use crate::door;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};
use crate::sized_struct;

/// A struct whose capsules always have the same name.
///
/// # Safety
/// The specification that defines the name also defines that a capsule of this name contains this
/// struct.
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

/// A foreign object. Dropping the capsule releases the object, unless a consumer has taken it.
pub struct Capsule(Owned<abi::Capsule>);

impl Capsule {
    /// Wraps an object.
    pub fn new<T: CapsuleObject>(object: Owned<T>) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = T::NAME.as_ptr();
        raw.pointer = Box::into_raw(Box::new(object)).cast();
        raw.release = Some(release::<T>);
        // SAFETY: this function created the capsule with its release function, and there is no
        // other copy of it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps an object whose deleter also frees the struct itself, such as an object of DLPack or
    /// Vortex. If no consumer takes the object, `free` is called on `pointer`.
    ///
    /// # Safety
    /// `pointer` is an object of the kind that `name` defines, and the capsule takes ownership.
    /// `free` may be called on it once, from any thread.
    pub unsafe fn from_self_freeing<T>(
        name: &'static CStr,
        pointer: NonNull<T>,
        free: unsafe fn(NonNull<T>),
    ) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = name.as_ptr();
        raw.pointer = pointer.as_ptr().cast();
        // SAFETY: `NonNull<T>` and `NonNull<c_void>` have the same layout, and `free_self_freeing`
        // calls the function only with `pointer`.
        let free: unsafe fn(NonNull<c_void>) = unsafe { std::mem::transmute(free) };
        raw.private_data = free as *mut c_void;
        raw.release = Some(free_self_freeing);
        // SAFETY: this function created the capsule with its release function, and there is no
        // other copy of it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps a C capsule.
    ///
    /// # Safety
    /// The requirements of [`Owned::new`]. If the name is the name of a [`CapsuleObject`],
    /// `pointer` points to that struct.
    pub unsafe fn from_raw(raw: Owned<abi::Capsule>) -> Self {
        Self(raw)
    }

    /// Converts to a C capsule.
    pub fn into_raw(self) -> Owned<abi::Capsule> {
        self.0
    }

    /// The name. If there is none, an empty string.
    pub fn name(&self) -> &CStr {
        if self.0.name.is_null() {
            return c"";
        }
        // SAFETY: the pointer is not null, so the header guarantees a NUL-terminated string that
        // lives as long as the capsule.
        unsafe { CStr::from_ptr(self.0.name) }
    }

    /// The address of the object, without taking it.
    pub fn pointer(&self) -> *mut c_void {
        self.0.pointer
    }

    /// Takes an object whose deleter also frees the struct itself. The caller must call that
    /// deleter.
    ///
    /// # Errors
    /// Returns an error if the capsule has another name, or if the object has been taken already.
    pub fn take_self_freeing(self, name: &CStr) -> Result<NonNull<c_void>> {
        self.take_any_self_freeing(&[name]).map(|(_, object)| object)
    }

    /// Like [`take_self_freeing`](Self::take_self_freeing), but accepts several names. Also returns
    /// the index of the capsule's name in `names`.
    ///
    /// # Errors
    /// Returns an error if the capsule has none of the names, or if the object has been taken
    /// already.
    pub fn take_any_self_freeing(mut self, names: &[&CStr]) -> Result<(usize, NonNull<c_void>)> {
        let name = self.name();
        let Some(index) = names.iter().position(|expected| *expected == name) else {
            let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            return Err(self.misnamed(&names.join("' or '")));
        };
        // SAFETY: `self` owns the capsule, so no other code accesses the field. NULL marks the
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

    /// Moves the object out of the capsule.
    ///
    /// # Errors
    /// Returns an error if the capsule has another name, or if the object has been taken already.
    pub fn take<T: CapsuleObject>(self) -> Result<Owned<T>> {
        if self.name() != T::NAME {
            return Err(self.misnamed(&T::NAME.to_string_lossy()));
        }
        // SAFETY: a capsule with this name points to a struct of type `T`, as `from_raw` and
        // `CapsuleObject` require. The header allows a consumer to move the struct out.
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
    // SAFETY: only `Capsule::from_self_freeing` sets this function, and it stores the deleter of
    // the object in `private_data`. If a consumer took the object, `pointer` is NULL, and the
    // deleter is not called. Clearing `release` ensures that this runs only once.
    unsafe {
        (*capsule).release = None;
        let free: unsafe fn(NonNull<c_void>) = std::mem::transmute((*capsule).private_data);
        if let Some(object) = NonNull::new(std::mem::replace(&mut (*capsule).pointer, std::ptr::null_mut())) {
            door::run_release(|| free(object));
        }
    }
}

unsafe extern "C" fn release<T: CapsuleObject>(capsule: *mut abi::Capsule) {
    // SAFETY: only `Capsule::new::<T>` sets this function, and it stores a boxed `Owned<T>` in
    // `pointer`. If a consumer moved the object out of the box, the box contains a released struct.
    // If a consumer took the box, `pointer` is NULL. Clearing `release` ensures that this runs only
    // once.
    unsafe {
        (*capsule).release = None;
        let object = (*capsule).pointer.cast::<Owned<T>>();
        (*capsule).pointer = std::ptr::null_mut();
        if !object.is_null() {
            door::run_release(|| drop(Box::from_raw(object)));
        }
    }
}

/// Converts to a C list.
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
    // SAFETY: this function created the list with its release function, and there is no other copy
    // of it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: only `into_list` sets this function, with a boxed slice in `capsules`. Capsules that
    // were moved out are released structs. Clearing `release` ensures that this runs only once.
    unsafe {
        (*list).release = None;
        let mut raws =
            Box::from_raw(std::ptr::slice_from_raw_parts_mut((*list).capsules, (*list).n_capsules));
        raws.iter_mut().for_each(|raw| raw.release());
    }
}

/// A list of capsules. Iterating over the list moves the capsules out. Dropping the list releases
/// the capsules that were not moved out.
pub struct Capsules {
    list: Owned<abi::Capsules>,
    stride: usize,
    next: usize,
}

impl Capsules {
    /// Wraps a C list.
    ///
    /// # Errors
    /// Returns an error if a `struct_size` is invalid or the length is implausible.
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
        // SAFETY: the pointer is not null, and `n_capsules` is not 0, so it points to a capsule,
        // which begins with its `struct_size`.
        let stride = if first.is_null() { 0 } else { unsafe { first.read() } };
        if sized_struct::is_valid_stride::<abi::Capsule>(stride) && list.n_capsules <= MAX_CAPSULES {
            return Ok(Self { list, stride, next: 0 });
        }
        Err(Error::invalid_argument(format!(
            "a list of {} capsules of {stride} bytes each is not plausible",
            list.n_capsules
        )))
    }

    /// Converts to a C list.
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
        // SAFETY: the list has `n_capsules` capsules of `stride` bytes each, as `from_raw`
        // requires, and the header allows the consumer to move them out.
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
