//! Lists that functions return. Each list is one object with rows and their texts, which the
//! application releases.

use std::ffi::{CString, c_void};

use crossdock_plugin_api::door::Poison;
use crossdock_plugin_api::{Release, abi as api};

/// NUL-terminated texts that rows point to. The addresses of the texts do not change when this
/// struct is moved.
#[derive(Default)]
pub struct Texts(Vec<CString>);

impl Texts {
    /// Adds a text, and removes NULs from it. The result is valid as long as `self` exists.
    pub fn add(&mut self, text: &str) -> api::Str {
        self.add_bytes(text.replace('\0', "").as_bytes())
    }

    /// Adds bytes that contain no NUL, such as a path.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> api::Str {
        let text = CString::new(bytes).unwrap_or_default();
        let str = api::Str { data: text.as_ptr(), bytes: text.count_bytes() };
        self.0.push(text);
        str
    }
}

/// The memory of a list, to which the list's `private_data` points.
pub struct ListStorage<T> {
    rows: Vec<T>,
    extra_texts: Vec<api::Str>,
    _texts: Texts,
}

impl<T> ListStorage<T> {
    pub fn new(rows: Vec<T>, extra_texts: Vec<api::Str>, texts: Texts) -> Box<Self> {
        Box::new(Self { rows, extra_texts, _texts: texts })
    }

    /// The address of the rows, and their number.
    pub fn rows(&self) -> (*const T, usize) {
        (self.rows.as_ptr(), self.rows.len())
    }

    /// The address and the number of the texts that belong to no row, such as warnings.
    pub fn extra_texts(&self) -> (*const api::Str, usize) {
        (self.extra_texts.as_ptr(), self.extra_texts.len())
    }
}

/// A list struct of the header, whose `private_data` is a [`ListStorage`] of its rows.
pub trait ExportedList: Release {
    /// The type of an element.
    type Row;

    /// The field `private_data`.
    fn private_data(&mut self) -> &mut *mut c_void;

    /// Clears `release`. For each list of the struct, also clears the address and the length.
    fn clear(&mut self);
}

/// The `release` of a list.
///
/// # Safety
/// `list` has a [`ListStorage`] of its rows in `private_data`, and is not released.
pub unsafe extern "C" fn release<T: ExportedList>(list: *mut T) {
    // SAFETY: by the requirement of this function, `private_data` is the pointer of a boxed
    // `ListStorage`. `clear` clears `release`, so the box is freed only once.
    unsafe {
        let list = &mut *list;
        let storage = std::mem::replace(list.private_data(), std::ptr::null_mut());
        list.clear();
        let storage = Box::from_raw(storage.cast::<ListStorage<T::Row>>());
        Poison::new().run_release(move || drop(storage));
    }
}

macro_rules! exported_lists {
    ($($name:ident of $row:ident: $($list:ident = $n:ident),*;)*) => { $(
        impl ExportedList for crate::abi::$name {
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

exported_lists! {
    Candidates of Candidate: candidates = n_candidates, warnings = n_warnings;
    Leaks of Leak: leaks = n_leaks;
    Report of Stage: stages = n_stages;
}
