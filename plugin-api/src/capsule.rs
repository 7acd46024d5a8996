//! Foreign objects under the names of Python's capsules.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use crate::abi;
use crate::door;
use crate::error::{Error, Result};
use crate::owned::{Owned, Release};
use crate::told;

/// A published struct that travels in a capsule of a given name.
///
/// # Safety
/// Whoever makes a capsule of this name puts such a struct behind its pointer.
pub unsafe trait Named: Release + Send + 'static {
    /// The capsule's name.
    const NAME: &'static CStr;
}

macro_rules! named { ($($t:ident = $n:literal),* $(,)?) => { $(
    // SAFETY: the name that Arrow's PyCapsule interface gives this struct.
    unsafe impl Named for abi::$t { const NAME: &'static CStr = $n; }
)* } }
named! {
    ArrowSchema = c"arrow_schema",
    ArrowArray = c"arrow_array",
    ArrowArrayStream = c"arrow_array_stream",
    ArrowDeviceArray = c"arrow_device_array",
    ArrowDeviceArrayStream = c"arrow_device_array_stream",
}

/// One foreign object, released with its capsule unless somebody takes it.
pub struct Capsule(Owned<abi::Capsule>);

impl Capsule {
    /// Wraps `object`.
    pub fn new<T: Named>(object: Owned<T>) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = T::NAME.as_ptr();
        raw.pointer = Box::into_raw(Box::new(object)).cast();
        raw.release = Some(release::<T>);
        // SAFETY: made above; nobody else has it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Wraps an object that a function of its own frees, itself included, as DLPack's and Vortex's do: `free` is called
    /// on `pointer` unless somebody takes it.
    ///
    /// # Safety
    /// `pointer` is an object of the kind that `name` says, and the capsule's from now on; `free` may be called once on
    /// it, on any thread.
    pub unsafe fn of_self_freeing<T>(
        name: &'static CStr,
        pointer: NonNull<T>,
        free: unsafe fn(NonNull<T>),
    ) -> Self {
        let mut raw = abi::Capsule::new();
        raw.name = name.as_ptr();
        raw.pointer = pointer.as_ptr().cast();
        // SAFETY: the same function; what `T` it is for is all that is forgotten, and `pointer` is to that.
        let free: unsafe fn(NonNull<c_void>) = unsafe { std::mem::transmute(free) };
        raw.private_data = free as *mut c_void;
        raw.release = Some(free_self_freeing);
        // SAFETY: made above; nobody else has it.
        Self(unsafe { Owned::new(raw) })
    }

    /// Takes a capsule that crossed the boundary.
    ///
    /// # Safety
    /// As [`Owned::new`]; under one of Arrow's names, its pointer is to that struct.
    pub unsafe fn from_raw(raw: Owned<abi::Capsule>) -> Self {
        Self(raw)
    }

    /// The bare object, to hand across.
    pub fn into_raw(self) -> Owned<abi::Capsule> {
        self.0
    }

    /// Its name; empty for a capsule without one.
    pub fn name(&self) -> &CStr {
        if self.0.name.is_null() {
            return c"";
        }
        // SAFETY: a maker's name is NUL-terminated and lives as long as the capsule.
        unsafe { CStr::from_ptr(self.0.name) }
    }

    /// The object itself, for consumers of structs that are not Arrow's.
    pub fn pointer(&self) -> *mut c_void {
        self.0.pointer
    }

    /// Takes an object that a function of its own frees, if the capsule is of this name and still holds it. From now on
    /// that function is the caller's to call.
    pub fn take_self_freeing(self, name: &CStr) -> Result<NonNull<c_void>> {
        self.take_any_self_freeing(&[name]).map(|(_, object)| object)
    }

    /// The same for a capsule of one of several names; answers which.
    pub fn take_any_self_freeing(mut self, names: &[&CStr]) -> Result<(usize, NonNull<c_void>)> {
        let own = self.name();
        let Some(which) = names.iter().position(|name| *name == own) else {
            let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            return Err(self.misnamed(&names.join("' or '")));
        };
        // SAFETY: the capsule is ours, and NULL in the pointer's place says that the object has been taken.
        let pointer = unsafe { std::mem::replace(&mut (*self.0.as_mut_ptr()).pointer, std::ptr::null_mut()) };
        let object = NonNull::new(pointer).ok_or_else(|| consumed(self.name()))?;
        Ok((which, object))
    }

    fn misnamed(&self, expected: &str) -> Error {
        Error::invalid_argument(format!(
            "a capsule named '{}', expected '{expected}'",
            self.name().to_string_lossy()
        ))
    }

    /// Moves the object out, if the capsule holds one of this kind that nobody took yet.
    pub fn take<T: Named>(self) -> Result<Owned<T>> {
        if self.name() != T::NAME {
            return Err(self.misnamed(&T::NAME.to_string_lossy()));
        }
        // SAFETY: under this name the pointer is to this struct (`from_raw`'s condition), which the consumer moves out.
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
    // SAFETY: set by `Capsule::of_self_freeing` only, which put `free` there for what `pointer` points at; released once
    // because `release` is cleared. Whoever took the object left NULL behind.
    unsafe {
        (*capsule).release = None;
        let free: unsafe fn(NonNull<c_void>) = std::mem::transmute((*capsule).private_data);
        if let Some(object) = NonNull::new(std::mem::replace(&mut (*capsule).pointer, std::ptr::null_mut())) {
            door::leave(|| free(object));
        }
    }
}

unsafe extern "C" fn release<T: Named>(capsule: *mut abi::Capsule) {
    // SAFETY: set by `Capsule::new::<T>` only; released once because `release` is cleared. `Owned<T>` is laid out as a
    // T, and whoever moved the object out left a released one behind; who left NULL has the whole of it.
    unsafe {
        (*capsule).release = None;
        let object = (*capsule).pointer.cast::<Owned<T>>();
        (*capsule).pointer = std::ptr::null_mut();
        if !object.is_null() {
            door::leave(|| drop(Box::from_raw(object)));
        }
    }
}

/// A list of capsules as one object, to hand across.
pub(crate) fn list(capsules: Vec<Capsule>) -> Owned<abi::Capsules> {
    if capsules.is_empty() {
        // SAFETY: a released object.
        return unsafe { Owned::new(abi::Capsules::new()) };
    }
    let mut raws: Box<[abi::Capsule]> = capsules.into_iter().map(|c| c.into_raw().into_raw()).collect();
    let mut raw = abi::Capsules::new();
    raw.capsules = raws.as_mut_ptr();
    raw.n_capsules = raws.len();
    raw.private_data = Box::into_raw(raws).cast();
    raw.release = Some(release_list);
    // SAFETY: made above; nobody else has it.
    unsafe { Owned::new(raw) }
}

unsafe extern "C" fn release_list(list: *mut abi::Capsules) {
    // SAFETY: set by `list` only; released once because `release` is cleared. Capsules that were taken out are
    // released structs by now.
    unsafe {
        (*list).release = None;
        let mut raws =
            Box::from_raw(std::ptr::slice_from_raw_parts_mut((*list).capsules, (*list).n_capsules));
        raws.iter_mut().for_each(|raw| raw.release());
    }
}

/// The capsules of one list, in order. What nobody has taken is released with it.
pub struct Capsules {
    list: Owned<abi::Capsules>,
    stride: usize,
    next: usize,
}

impl Capsules {
    /// Takes a list that crossed the boundary.
    ///
    /// # Safety
    /// `list` has the capsules that it says; each is as [`Capsule::from_raw`] wants it.
    pub unsafe fn from_raw(list: Owned<abi::Capsules>) -> Result<Self> {
        const MOST: usize = 1 << 20;
        if list.is_released() || list.n_capsules == 0 {
            return Ok(Self { list, stride: 0, next: usize::MAX });
        }
        let first = list.capsules.cast::<usize>();
        // SAFETY: a list that is not empty has a first one, whose size, which it begins with, is that of all.
        let stride = if first.is_null() { 0 } else { unsafe { first.read() } };
        if told::is_stride::<abi::Capsule>(stride) && list.n_capsules <= MOST {
            return Ok(Self { list, stride, next: 0 });
        }
        Err(Error::invalid_argument(format!(
            "a list of {} capsules of {stride} bytes each is not plausible",
            list.n_capsules
        )))
    }

    /// The bare list, to hand across, as long as none has been taken.
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
        // SAFETY: the list's maker vouches for that many capsules, each ours to take; a shell with its `release` cleared
        // stays behind for the list to free.
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
        Self { list: list(capsules), stride: size_of::<abi::Capsule>(), next: 0 }
    }
}
