//! Values that are never freed, so that a plugin's misuse of them is reported instead of corrupting
//! memory.

use std::sync::{Mutex, PoisonError};

/// The addresses of all leaked values. Leak checkers do not report memory that is reachable from
/// here.
static LEAKED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Leaks a value for the rest of the process.
pub fn leak<T>(value: T) -> &'static mut T {
    let leaked = Box::leak(Box::new(value));
    LEAKED.lock().unwrap_or_else(PoisonError::into_inner).push(std::ptr::from_mut(leaked) as usize);
    leaked
}
