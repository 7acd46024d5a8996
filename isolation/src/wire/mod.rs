//! Messages between the two processes, the channels that carry them, and array transfer.

pub(crate) mod array_transfer;
pub(crate) mod channel;
pub(crate) mod channel_pool;
pub(crate) mod channels;
pub(crate) mod host_copies;
pub(crate) mod incoming;
pub(crate) mod message_limits;
pub(crate) mod messages;
pub(crate) mod outgoing;
pub(crate) mod segments;
pub(crate) mod sink_parts;
mod sync;
pub(crate) mod trace_parts;
