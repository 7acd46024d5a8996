//! Reservations, which charge an account for host memory that it does not allocate itself.

use std::sync::Arc;

use crossdock_plugin_api::Result;

use super::Account;

/// Index of `cpu` in the list of all devices.
const HOST_INDEX: usize = 0;

/// Bytes of host memory that are charged to an account although another component allocates them.
/// They count against the budget until the reservation is dropped.
pub struct Reservation {
    account: Arc<Account>,
    bytes: usize,
}

impl Account {
    /// Charges the account for `bytes` bytes of host memory, before another component allocates
    /// them.
    ///
    /// # Errors
    /// Out of memory if fewer than `bytes` bytes are left in the budget, even after trimming the
    /// pools. The error lists the current allocations.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation> {
        self.backend
            .charge(bytes)
            .map_err(|error| self.backend.explain(error, self.name(), bytes, HOST_INDEX))?;
        self.counters.add_block(HOST_INDEX, bytes);
        Ok(Reservation { account: self.shared(), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let Self { account, bytes } = self;
        if account.backend.is_inherited() {
            return;
        }
        account.counters.remove_block(HOST_INDEX, *bytes);
        account.backend.uncharge(*bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_plugin_api::Code;

    use crate::Backend;

    #[test]
    fn reservation_counts_against_the_limit_until_it_is_dropped() {
        let backend = Backend::builder().limit_bytes(1000).build();
        let (one, other) = (backend.account("one"), backend.account("other"));
        let reserved = one.reserve(900).unwrap();
        let error = other.reserve(200).err().unwrap();
        assert_eq!(error.code(), Code::OUT_OF_MEMORY);
        let message = error.message();
        assert!(
            message.contains("'other' asked for 200 bytes") && message.contains("'one' holds 900"),
            "{message}"
        );
        assert!(one.reserve(usize::MAX).is_err());
        assert_eq!(backend.ledger().live_bytes(), 900);
        drop((one, reserved));
        assert_eq!(backend.ledger().live_bytes(), 0);
        assert!(other.reserve(1000).is_ok());
        assert!(Backend::builder().build().account("one").reserve(1 << 40).is_ok(), "there is no limit");
    }
}
