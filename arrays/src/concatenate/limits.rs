//! Creates the error for a concatenated array that would have too many values.

use crossdock_memory::Error;

pub(super) fn too_long() -> Error {
    Error::unsupported("the batches have more values in total than an array can have: keep them separate")
}
