//! What is never freed, so that a plugin may do wrong with it and be told so.

use std::sync::{Mutex, PoisonError};

/// Where they are: what is remembered is no leak to those who look for some.
static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Keeps a value to the process's end.
pub fn keep<T>(value: T) -> &'static mut T {
    let kept = Box::leak(Box::new(value));
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).push(std::ptr::from_mut(kept) as usize);
    kept
}
