//! The host's process: starts plugin processes, sends them requests and handles their callbacks.

pub(crate) mod callback_server;
pub(crate) mod child;
pub(crate) mod connection;
pub(crate) mod deadlines;
pub(crate) mod isolated_plugin;
pub(crate) mod log;
pub(crate) mod open_sink;
pub(crate) mod output;
pub(crate) mod program;
pub(crate) mod read_only_segments;
pub(crate) mod remote_instance;
pub(crate) mod remote_stream;
pub(crate) mod remote_writer;
pub(crate) mod response_wait;
pub(crate) mod segment_pool;
pub(crate) mod threads;
pub(crate) mod writable_segments;
pub(crate) mod write_queue;
