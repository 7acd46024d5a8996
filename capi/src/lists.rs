//! Answers that are lists: rows and the texts that they point at, in one object that the application releases.

use std::ffi::{CString, c_void};

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Release, abi as api};

/// Texts that rows point at, each with a NUL behind it. Moving it leaves them where they are.
#[derive(Default)]
pub struct Texts(Vec<CString>);

impl Texts {
    /// Keeps a text; what points at it lives as long as `self`.
    pub fn keep(&mut self, text: &str) -> api::Str {
        self.keep_bytes(text.replace('\0', "").as_bytes())
    }

    /// Keeps bytes without a NUL, such as a path's.
    pub fn keep_bytes(&mut self, bytes: &[u8]) -> api::Str {
        let text = CString::new(bytes).unwrap_or_default();
        let str = api::Str { data: text.as_ptr(), bytes: text.count_bytes() };
        self.0.push(text);
        str
    }
}

/// What a list's `private_data` is.
pub struct Holder<T> {
    rows: Vec<T>,
    more: Vec<api::Str>,
    _texts: Texts,
}

impl<T> Holder<T> {
    /// Takes rows, and texts beside them.
    pub fn new(rows: Vec<T>, more: Vec<api::Str>, texts: Texts) -> Box<Self> {
        Box::new(Self { rows, more, _texts: texts })
    }

    /// Where the rows are, and how many.
    pub fn rows(&self) -> (*const T, usize) {
        (self.rows.as_ptr(), self.rows.len())
    }

    /// Where the other texts are, and how many.
    pub fn more(&self) -> (*const api::Str, usize) {
        (self.more.as_ptr(), self.more.len())
    }
}

/// A list as the header declares it, which holds a [`Holder`] of its rows.
pub trait Lent: Release {
    /// One element.
    type Row;

    /// Its `private_data`.
    fn private_data(&mut self) -> &mut *mut c_void;

    /// Forgets where the rows were.
    fn clear(&mut self);
}

/// The `release` of a list.
///
/// # Safety
/// `list` is one that was made with a [`Holder`] of its rows in `private_data`, released once.
pub unsafe extern "C" fn release<T: Lent>(list: *mut T) {
    // SAFETY: the caller's word.
    unsafe {
        let list = &mut *list;
        let holder = std::mem::replace(list.private_data(), std::ptr::null_mut());
        list.clear();
        let holder = Box::from_raw(holder.cast::<Holder<T::Row>>());
        Poison::new().leave(move || drop(holder));
    }
}

macro_rules! lent {
    ($($answer:ident of $row:ident: $($list:ident = $n:ident),*;)*) => { $(
        impl Lent for crate::abi::$answer {
            type Row = crate::abi::$row;
            fn private_data(&mut self) -> &mut *mut c_void {
                &mut self.private_data
            }
            fn clear(&mut self) {
                self.release = None;
                $(
                    self.$list = std::ptr::null();
                    self.$n = 0;
                )*
            }
        }
    )* };
}

lent! {
    Candidates of Candidate: candidates = n_candidates, warnings = n_warnings;
    Leaks of Leak: leaks = n_leaks;
    Report of Stage: stages = n_stages;
}
