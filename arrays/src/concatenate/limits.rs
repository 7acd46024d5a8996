//! The error for arrays that would be too long.

use crossdock_memory::Error;

pub(super) fn too_long() -> Error {
    Error::unsupported("the batches have more values in total than an array can have: keep them separate")
}
