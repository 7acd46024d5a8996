//! The interface between a Crossdock host and its plugins.
//!
//! `include/crossdock.h` is the specification. [`abi`] declares the same structs in Rust. The other
//! modules contain safe types that own these structs, for plugins and for hosts:
//! - The author of a plugin implements [`Plugin`] with an [`Importer`], an [`Exporter`], an
//!   [`Encoding`] or an [`Opener`], and exports it with [`crossdock_plugin!`].
//! - A host creates an [`Instance`] from the entry of a loaded plugin, and uses the handles that
//!   the instance returns.
//!
//! Every function that another module can call across the boundary runs in the FFI door, see
//! [`door`].
#![cfg_attr(feature = "stable-abi", allow(non_local_definitions))]

#[macro_use]
mod abi_macros;
pub mod abi;
mod abi_str;
mod buffered_sink;
mod call;
mod cancel;
mod cancel_watcher;
mod capsule;
mod child_types;
mod constants;
mod device;
pub mod door;
pub mod encoded;
mod encoder;
mod encoding;
mod error;
mod exporter;
pub mod flags;
mod format;
mod fragment;
mod host;
mod importer;
pub mod layout;
mod lists;
mod meta;
mod opener;
mod options;
mod owned;
mod plan;
mod plugin;
mod predicate;
mod program;
mod read_request;
pub mod record;
mod sink;
pub mod sized_struct;
pub mod sizes;
mod source;
mod stream;
mod tasks;
mod writer;

pub use buffered_sink::BufferedSink;
pub use call::{Call, CallSettings, CallStream, Progress, Validate};
pub use cancel::{Cancel, CancelFlag, Subscription};
pub use capsule::{Capsule, CapsuleObject, Capsules};
pub use child_types::ChildType;
#[doc(hidden)]
pub use child_types::write_children;
pub use device::Device;
pub use encoded::{EncodedArray, EncodedBuffers, EncodedNode, LogicalType, NodeParts};
pub use encoder::{Encoder, EncoderHandle};
pub use encoding::{DecodePlan, Encoding, EncodingHandle};
pub use error::{Code, Error, Result};
pub use exporter::{Exporter, ExporterHandle};
pub use format::{Format, OptionInfo};
pub use fragment::{Fragment, MAX_FRAGMENTS};
pub use host::{Host, SessionSettings};
pub use importer::{Importer, ImporterHandle, Input};
pub use meta::{PluginDescription, read_text};
pub use opener::{Opener, OpenerHandle, is_scheme};
pub use options::Options;
pub use owned::{Owned, Release};
pub use plan::{ColumnPlan, Verdict};
pub use plugin::{Instance, Plugin, entry};
pub use predicate::{Literal, Predicate};
pub use program::Operator;
pub use read_request::{Honoured, ReadRequest, Selection, intersection};
pub use sink::{ByteSink, Sink};
pub use source::{BorrowedSource, ByteSource, Map, Source};
pub use stream::{BatchStream, BatchStreamHandle, export_stream};
pub use tasks::{TaskGroup, Tasks};
pub use writer::{BatchWriter, WriterHandle, export_writer};

/// The text of `include/crossdock.h`.
pub const HEADER: &str = include_str!("../include/crossdock.h");
