//! The plugin interface of Crossdock: the words that a host and a plugin share, and nothing else.
//!
//! `include/crossdock.h` is the specification; [`abi`] is its Rust twin, field by field. Above that stand owning, safe
//! types for both sides: an author implements [`Plugin`] with an [`Importer`] or an [`Exporter`] and writes one
//! [`crossdock_plugin!`] line; a caller makes an [`Instance`] of a loaded entry and uses its handles. Every function
//! that crosses is one call into [`door`].
#![cfg_attr(feature = "stable-abi", allow(non_local_definitions))]

pub mod abi;
mod call;
mod capsule;
mod constants;
pub mod door;
pub mod encoded;
mod encoding;
mod error;
mod exporter;
mod format;
mod host;
mod importer;
pub mod layout;
mod meta;
mod owned;
mod plan;
mod plugin;
mod program;
pub mod record;
mod sink;
pub mod sizes;
mod source;
mod stream;
pub mod told;
mod words;
mod writer;

pub use call::{Call, CallSettings, CallStream, CancelFlag, Progress, Validate};
pub use capsule::{Capsule, Capsules, Named};
pub use encoded::{EncodedArray, EncodedBuffers, EncodedNode, LogicalType, NodeParts};
pub use encoding::{DecodePlan, Encoding, EncodingHandle};
pub use error::{Code, Error, Result};
pub use exporter::{Exporter, ExporterHandle};
pub use format::{Format, OptionInfo};
pub use host::{Host, SessionSettings};
pub use importer::{Importer, ImporterHandle, Input};
pub use meta::{About, read_text};
pub use owned::{Owned, Release};
pub use plan::{ColumnPlan, Verdict};
pub use plugin::{Instance, Plugin, entry};
pub use program::Operator;
pub use sink::{ByteSink, Sink};
pub use source::{ByteSource, Map, Source};
pub use stream::{BatchStream, BatchStreamHandle, export_stream};
pub use words::{Device, Options};
pub use writer::{BatchWriter, WriterHandle, export_writer};

/// The text of `include/crossdock.h`, for tools that hand it out.
pub const HEADER: &str = include_str!("../include/crossdock.h");
