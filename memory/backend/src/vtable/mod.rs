//! The functions of `crossdock_memory`. Each function calls [`Account`] through the FFI door.

mod blocks;
mod streams;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Error, Result, abi};

use crate::account::Account;

pub(crate) use streams::Call;

/// Returns the function table for the account that `account` will point to.
pub(crate) fn table(account: *const Account) -> abi::Memory {
    abi::Memory {
        struct_size: size_of::<abi::Memory>(),
        private_data: account.cast_mut().cast(),
        devices: Some(blocks::devices),
        alloc: Some(blocks::alloc),
        alloc_pinned: Some(blocks::alloc_pinned),
        free: Some(blocks::free),
        copy: Some(blocks::copy),
        fill: Some(blocks::fill),
        launch: Some(blocks::launch),
        stream_default: Some(streams::stream_default),
        stream_create: Some(streams::stream_create),
        stream_destroy: Some(streams::stream_destroy),
        stream_synchronize: Some(streams::stream_synchronize),
        stream_wait: Some(streams::stream_wait),
        stream_wait_raw: Some(streams::stream_wait_raw),
        stream_raw: Some(streams::stream_raw),
        stream_is_capturing: Some(streams::stream_is_capturing),
        event_record: Some(streams::event_record),
        event_query: Some(streams::event_query),
        event_synchronize: Some(streams::event_synchronize),
        event_destroy: Some(streams::event_destroy),
        event_raw: Some(streams::event_raw),
        pointer: Some(blocks::pointer),
        host_address: Some(blocks::host_address),
        call_after: Some(streams::call_after),
        stream_adopt: Some(streams::stream_adopt),
        call_after_all: Some(streams::call_after_all),
    }
}

/// The FFI door: finds the account, traces the call of the function `what`, stops unwinding, and
/// converts the result to a code and an error struct.
///
/// # Safety
/// `memory` is NULL or a live `crossdock_memory` of this crate; `err` is NULL or a live
/// `crossdock_error`.
#[inline]
unsafe fn enter(
    memory: *const abi::Memory,
    what: &str,
    err: *mut abi::Error,
    body: impl FnOnce(&Account) -> Result<()>,
) -> abi::Code {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: `memory` is NULL or live by this function's contract.
        let account = unsafe { account(memory) }?;
        account.trace_plugin_call(what, || body(account))
    }));
    let error = match caught {
        Ok(Ok(())) => return abi::OK,
        Ok(Err(error)) => error,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text =
                text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            let error = Error::internal(format!("the host's memory panicked: {text}"));
            // Dropping the payload may panic again.
            std::mem::forget(payload);
            error
        }
    };
    // SAFETY: `err` is NULL or live by this function's contract.
    unsafe { error.write_to(err) }
}

/// # Safety
/// `memory` is NULL or a live `crossdock_memory` of this crate, whose account outlives 'a.
unsafe fn account<'a>(memory: *const abi::Memory) -> Result<&'a Account> {
    if memory.is_null() {
        return Err(Error::invalid_argument("the memory object is NULL"));
    }
    // SAFETY: `memory` is live by this function's contract, and `struct_size` is the first field in
    // every version.
    let struct_size = unsafe { *memory.cast::<usize>() };
    if struct_size < size_of::<abi::Memory>() {
        return Err(Error::invalid_argument(format!(
            "the memory object has a struct_size of {struct_size} bytes; expected at least {}",
            size_of::<abi::Memory>()
        )));
    }
    // SAFETY: `table` set `private_data` to the account, which lives as long as its table.
    unsafe { (*memory).private_data.cast::<Account>().as_ref() }
        .ok_or_else(|| Error::invalid_argument("the memory object has no private_data"))
}

/// Calls [`enter`] for a function that returns no code. Discards errors.
///
/// # Safety
/// `memory` is NULL or a live `crossdock_memory` of this crate.
unsafe fn enter_quietly(memory: *const abi::Memory, what: &str, body: impl FnOnce(&Account) -> Result<()>) {
    // SAFETY: `memory` is NULL or live by this function's contract, and `err` is NULL.
    let _code = unsafe { enter(memory, what, std::ptr::null_mut(), body) };
}

/// Returns a reference to an out parameter, or an error if the pointer is NULL.
///
/// # Safety
/// `place` is NULL or valid for a write of `T`.
unsafe fn out<'a, T>(place: *mut T, function: &str) -> Result<&'a mut T> {
    // SAFETY: `place` is NULL or valid by this function's contract. Out parameters have types
    // without destructors for which any bytes are valid.
    unsafe { place.as_mut() }
        .ok_or_else(|| Error::invalid_argument(format!("{function}: the out parameter is NULL")))
}

/// # Safety
/// `first` is NULL or points to `n` readable values.
pub(crate) unsafe fn list<'a, T>(first: *const T, n: usize, function: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || n > isize::MAX as usize / size_of::<T>() {
        return Err(Error::invalid_argument(format!(
            "{function}: expected a list of {n} elements, got {first:p}"
        )));
    }
    // SAFETY: `first` points to `n` readable values by this function's contract; NULL, misaligned
    // and too large lists were rejected above.
    Ok(unsafe { std::slice::from_raw_parts(first, n) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_an_internal_error_with_its_message() {
        let account = crate::Backend::builder().build().account("test");
        let enter_with = |body: fn(&Account) -> Result<()>| {
            // SAFETY: the account is alive, and `check` passes a live error struct.
            Error::check(|err| unsafe { enter(account.memory(), "test", err, body) })
        };
        let error = enter_with(|account| panic!("{} failed", account.name())).unwrap_err();
        assert_eq!(error.code().0, abi::INTERNAL, "the error is not the plugin's");
        assert_eq!(error.message(), "the host's memory panicked: test failed");
        assert!(enter_with(|_| std::panic::panic_any(7)).unwrap_err().message().ends_with("no message"));
        assert_eq!(enter_with(|_| Ok(())), Ok(()), "the account still works");
    }
}
