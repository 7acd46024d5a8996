//! Creates structs that are longer or shorter than in this version, as other versions have them.

use std::ffi::c_void;
use std::sync::Mutex;

use crossdock_plugin_api::sized_struct::SizedStruct;

const GARBAGE: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// A struct of a later version. It is three words longer than in this version.
#[repr(C)]
pub struct Longer<T> {
    pub base: T,
    tail: [u64; 3],
}

impl<T: SizedStruct> Longer<T> {
    pub fn new(base: T) -> Self {
        let mut longer = Self { base, tail: [GARBAGE; 3] };
        // SAFETY: a `SizedStruct` begins with its `struct_size`.
        unsafe { (&raw mut longer.base).cast::<usize>().write(size_of::<Self>()) };
        longer
    }

    pub fn at(&mut self) -> *mut T {
        (&raw mut *self).cast()
    }

    pub fn into_words(self) -> Vec<u64> {
        let mut words = vec![0; size_of::<Self>() / 8];
        // SAFETY: `words` has the same number of bytes as `Self`, whose size is a multiple of 8.
        unsafe { words.as_mut_ptr().cast::<Self>().write(self) };
        words
    }

    #[track_caller]
    pub fn assert_tail_unchanged(&self) {
        assert_eq!(self.tail, [GARBAGE; 3], "the tail of a longer {} was changed", T::NAME);
        // SAFETY: a `SizedStruct` begins with its `struct_size`.
        let struct_size = unsafe { (&raw const self.base).cast::<usize>().read() };
        assert_eq!(struct_size, size_of::<Self>(), "the struct_size of a longer {} was changed", T::NAME);
    }
}

/// Creates a list of structs of an earlier version. Each struct has `bytes` bytes. Garbage follows
/// the list in memory.
pub fn shorter<T: SizedStruct>(values: Vec<T>, bytes: usize) -> Vec<u64> {
    let words = bytes / 8;
    let mut memory = vec![GARBAGE; words * values.len() + 64];
    for (i, value) in values.into_iter().enumerate() {
        // SAFETY: `value` has at least `bytes` bytes, and `memory` has room for the whole list.
        unsafe {
            let at = memory.as_mut_ptr().add(i * words);
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), bytes);
            at.cast::<usize>().write(bytes);
        }
        std::mem::forget(value);
    }
    memory
}

/// Keeps memory until the process ends, so that it can be borrowed for any lifetime. The memory
/// stays reachable, so leak checkers do not report it.
pub fn keep(words: Vec<u64>) -> *const c_void {
    static MEMORY: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
    let at = words.as_ptr();
    MEMORY.lock().unwrap().push(words);
    at.cast()
}
