//! Bytes that count and that others allocate.

use std::sync::Arc;

use crossdock_plugin_api::Result;

use super::Account;

/// The host's memory has number 0 of all devices.
const HOST_INDEX: usize = 0;

/// Bytes of host memory that an account answers for, though it has not allocated them: they count against the limit until this is
/// dropped.
pub struct Reserved {
    account: Arc<Account>,
    bytes: usize,
}

impl Account {
    /// Counts host memory that somebody else allocates, before that happens.
    ///
    /// # Errors
    /// Out of memory: the limit does not leave so many bytes, also once the pools keep nothing. It says who holds what.
    pub fn reserve(&self, bytes: usize) -> Result<Reserved> {
        self.backend
            .charge(bytes)
            .map_err(|refusal| self.backend.explain(refusal, self.name(), bytes, HOST_INDEX))?;
        self.page.took(HOST_INDEX, bytes);
        Ok(Reserved { account: self.shared(), bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Self { account, bytes } = self;
        if account.backend.is_inherited() {
            return;
        }
        account.page.gave_back(HOST_INDEX, *bytes);
        account.backend.uncharge(*bytes);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crossdock_plugin_api::Code;

    use crate::Backend;

    #[test]
    fn what_others_allocate_counts_until_it_is_given_back() {
        let backend = Backend::builder().limit_bytes(1000).build();
        let (one, other) = (backend.account("one"), backend.account("other"));
        let reserved = one.reserve(900).unwrap();
        let refused = other.reserve(200).err().unwrap();
        assert_eq!(refused.code(), Code::OUT_OF_MEMORY);
        let words = refused.message();
        assert!(
            words.contains("'other' asked for 200 bytes") && words.contains("'one' holds 900"),
            "{words}"
        );
        assert!(one.reserve(usize::MAX).is_err());
        assert_eq!(backend.ledger().live_bytes(), 900);
        drop((one, reserved));
        assert_eq!(backend.ledger().live_bytes(), 0);
        assert!(other.reserve(1000).is_ok());
        assert!(Backend::builder().build().account("one").reserve(1 << 40).is_ok(), "nothing limits it");
    }
}
