//! The functions that cross the boundary: each is one call through the door into [`Account`].

mod blocks;
mod streams;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossdock_plugin_api::{Error, Result, abi};

use crate::account::Account;

pub(crate) use streams::Call;

/// The interface over the account that `account` will point at.
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

/// The one door: finds the account, records the call of the function `what`, catches what unwinds, and turns the result into a
/// code and a filled-in error.
///
/// # Safety
/// `memory` is null or a live `crossdock_memory` of this crate; `err` is null or a live `crossdock_error`.
#[inline]
unsafe fn enter(
    memory: *const abi::Memory,
    what: &str,
    err: *mut abi::Error,
    body: impl FnOnce(&Account) -> Result<()>,
) -> abi::Code {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: by this function's own contract.
        let account = unsafe { account(memory) }?;
        account.called(what, || body(account))
    }));
    let error = match caught {
        Ok(Ok(())) => return abi::OK,
        Ok(Err(error)) => error,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text =
                text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
            let error = Error::internal(format!("the host's memory panicked: {text}"));
            // A payload may panic again when it is dropped.
            std::mem::forget(payload);
            error
        }
    };
    // SAFETY: by this function's own contract.
    unsafe { error.write_to(err) }
}

/// # Safety
/// As [`enter`]; the account is alive during the call.
unsafe fn account<'a>(memory: *const abi::Memory) -> Result<&'a Account> {
    if memory.is_null() {
        return Err(Error::invalid_argument("the memory object is NULL"));
    }
    // SAFETY: live by the caller's word, and `struct_size` is the first field of every version.
    let struct_size = unsafe { *memory.cast::<usize>() };
    if struct_size < size_of::<abi::Memory>() {
        return Err(Error::invalid_argument(format!(
            "the memory object says that it is {struct_size} bytes; this host's is {}",
            size_of::<abi::Memory>()
        )));
    }
    // SAFETY: `table` wrote the account's address there, and an account lives as long as its table.
    unsafe { (*memory).private_data.cast::<Account>().as_ref() }
        .ok_or_else(|| Error::invalid_argument("the memory object has no owner"))
}

/// For functions that have nothing to report to.
///
/// # Safety
/// As [`enter`].
unsafe fn enter_quietly(memory: *const abi::Memory, what: &str, body: impl FnOnce(&Account) -> Result<()>) {
    // SAFETY: as the caller's.
    let _code = unsafe { enter(memory, what, std::ptr::null_mut(), body) };
}

/// A place for a result, or whose was forgotten.
///
/// # Safety
/// Null, or valid for a write of `T`.
unsafe fn out<'a, T>(place: *mut T, function: &str) -> Result<&'a mut T> {
    // SAFETY: by this function's own contract; the callers' places hold values without drop, so that any bytes do.
    unsafe { place.as_mut() }
        .ok_or_else(|| Error::invalid_argument(format!("{function}: the result's place is NULL")))
}

/// # Safety
/// `first` points at `n` readable values, or is null.
unsafe fn list<'a, T>(first: *const T, n: usize, function: &str) -> Result<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || n > isize::MAX as usize / size_of::<T>() {
        return Err(Error::invalid_argument(format!(
            "{function}: expected a list of {n} elements, got {first:p}"
        )));
    }
    // SAFETY: by this function's own contract; null, misaligned and absurd lists were refused.
    Ok(unsafe { std::slice::from_raw_parts(first, n) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code_and_keeps_its_message() {
        let account = crate::Backend::builder().build().account("test");
        let outcome = |body: fn(&Account) -> Result<()>| {
            // SAFETY: the account is alive, and `check` gives a live error struct.
            Error::check(|err| unsafe { enter(account.memory(), "test", err, body) })
        };
        let error = outcome(|account| panic!("{} slipped", account.name())).unwrap_err();
        assert_eq!(error.code().0, abi::INTERNAL, "no plugin is blamed");
        assert_eq!(error.message(), "the host's memory panicked: test slipped");
        assert!(outcome(|_| std::panic::panic_any(7)).unwrap_err().message().ends_with("no message"));
        assert_eq!(outcome(|_| Ok(())), Ok(()), "the account works on");
    }
}
