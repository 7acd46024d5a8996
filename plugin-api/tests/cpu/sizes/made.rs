//! Structs as other releases have them.

use std::ffi::c_void;
use std::sync::Mutex;

use crossdock_plugin_api::told::Told;

const GARBAGE: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// A later release's struct: three words longer.
#[repr(C)]
pub struct Longer<T> {
    pub ours: T,
    later: [u64; 3],
}

impl<T: Told> Longer<T> {
    pub fn new(ours: T) -> Self {
        let mut longer = Self { ours, later: [GARBAGE; 3] };
        // SAFETY: a struct that is `Told` begins with its size.
        unsafe { (&raw mut longer.ours).cast::<usize>().write(size_of::<Self>()) };
        longer
    }

    pub fn at(&mut self) -> *mut T {
        (&raw mut *self).cast()
    }

    pub fn into_words(self) -> Vec<u64> {
        let mut words = vec![0; size_of::<Self>() / 8];
        // SAFETY: as many bytes as it has; its size is one of whole words.
        unsafe { words.as_mut_ptr().cast::<Self>().write(self) };
        words
    }

    #[track_caller]
    pub fn assert_its_end_is_untouched(&self) {
        assert_eq!(self.later, [GARBAGE; 3], "the end of a longer {} was written over", T::NAME);
        // SAFETY: as in `new`.
        let told = unsafe { (&raw const self.ours).cast::<usize>().read() };
        assert_eq!(told, size_of::<Self>(), "a longer {} was told another size", T::NAME);
    }
}

/// Structs of an earlier release, `bytes` bytes each, one after the other, and garbage behind the last.
pub fn shorter<T: Told>(values: Vec<T>, bytes: usize) -> Vec<u64> {
    let words = bytes / 8;
    let mut memory = vec![GARBAGE; words * values.len() + 64];
    for (i, value) in values.into_iter().enumerate() {
        // SAFETY: `bytes` is at most the struct's size, and there is room for as many.
        unsafe {
            let at = memory.as_mut_ptr().add(i * words);
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), at.cast(), bytes);
            at.cast::<usize>().write(bytes);
        }
        std::mem::forget(value);
    }
    memory
}

/// For ever, where the other side borrows it; and within reach, so that nobody takes it for a leak.
pub fn kept(words: Vec<u64>) -> *const c_void {
    static KEPT: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
    let at = words.as_ptr();
    KEPT.lock().unwrap().push(words);
    at.cast()
}
