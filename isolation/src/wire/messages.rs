//! Requests, responses and callbacks. They represent the calls of crossdock.h as plain data, with
//! ids instead of objects.
//!
//! The format of the messages may change between builds, because both processes run the same build
//! (see [`Request::Load`]).

use std::ops::Range;
use std::time::Duration;

use crossdock_memory_backend::Reservation;
use crossdock_parts::{ChildParts, DeviceParts, NodeHead};
use crossdock_plugin_api::{
    Call, CallSettings, Code, ColumnPlan, DecodePlan, Device, Error, Format, Honoured, Literal, OptionInfo,
    Predicate, Result, Selection, SessionSettings, Validate, Verdict,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::mapping::ReceiveBudget;
use crate::wire::array_transfer::{BatchParts, TreeParts};
use crate::wire::incoming::Place;
use crate::wire::segments::SegmentParts;
use crate::wire::sink_parts::{SinkParts, WriteParts};
use crate::wire::trace_parts::PhaseParts;

/// The environment variable that names the device of a plugin's process. The device is not sent in
/// a message, because the process must start the device before it gives up its rights and receives
/// messages.
pub const DEVICE_VARIABLE: &str = "CROSSDOCK_ISOLATED_DEVICE";

/// A message without a response, sent over the control socket. An empty message on this socket
/// passes a new channel.
#[derive(Serialize, Deserialize)]
pub enum Notice {
    /// Asks the process to end this call.
    Cancel(u64),
}

/// A message, with the shared segments that contain its arrays.
#[derive(Serialize, Deserialize)]
pub struct WithSegments<T> {
    pub message: T,
    pub segments: Vec<SegmentParts>,
}

/// The needed columns and rows of an input.
#[derive(Serialize, Deserialize)]
pub struct SelectionParts {
    pub columns: Option<Vec<Vec<String>>>,
    pub rows: Option<Vec<(u64, u64)>>,
    pub predicates: Vec<PredicateParts>,
    pub batch_rows: u64,
    pub batch_bytes: u64,
    pub row_count: bool,
    pub write_options: bool,
}

/// A predicate of a read request.
#[derive(Serialize, Deserialize)]
pub struct PredicateParts {
    column: Vec<String>,
    comparison: u32,
    format: String,
    bytes: Vec<u8>,
}

impl From<Predicate> for PredicateParts {
    fn from(Predicate { column, comparison, literal: Literal { format, bytes } }: Predicate) -> Self {
        Self { column, comparison, format, bytes }
    }
}

impl From<PredicateParts> for Predicate {
    fn from(PredicateParts { column, comparison, format, bytes }: PredicateParts) -> Self {
        Self { column, comparison, literal: Literal { format, bytes } }
    }
}

impl From<&Selection> for SelectionParts {
    fn from(selection: &Selection) -> Self {
        let Selection { columns, rows, predicates, batch_rows, batch_bytes, row_count, write_options } =
            selection.clone();
        let rows = rows.map(|rows| rows.into_iter().map(|rows| (rows.start, rows.end)).collect());
        let predicates = predicates.into_iter().map(Into::into).collect();
        Self { columns, rows, predicates, batch_rows, batch_bytes, row_count, write_options }
    }
}

impl From<SelectionParts> for Selection {
    fn from(parts: SelectionParts) -> Self {
        let SelectionParts { columns, rows, predicates, batch_rows, batch_bytes, row_count, write_options } =
            parts;
        let rows = rows.map(|rows| rows.into_iter().map(|(begin, end)| begin..end).collect());
        let predicates = predicates.into_iter().map(Into::into).collect();
        Self { columns, rows, predicates, batch_rows, batch_bytes, row_count, write_options }
    }
}

/// The parts of a selection that a stream honours.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct HonouredParts {
    pub columns: bool,
    pub rows: bool,
    pub n_rows: Option<u64>,
    pub prunes: bool,
    pub exact: u64,
}

impl From<Honoured> for HonouredParts {
    fn from(Honoured { columns, rows, n_rows, prunes, exact }: Honoured) -> Self {
        Self { columns, rows, n_rows, prunes, exact }
    }
}

impl From<HonouredParts> for Honoured {
    fn from(HonouredParts { columns, rows, n_rows, prunes, exact }: HonouredParts) -> Self {
        Self { columns, rows, n_rows, prunes, exact }
    }
}

/// A call from the host to the plugin's process. The ids of instances, streams and writers are
/// those of earlier responses.
#[derive(Serialize, Deserialize)]
pub enum Request {
    /// Loads the plugin in the only file of the message. Always the first request.
    Load {
        /// The host's version. The process must have the same version.
        version: String,
        /// The plugin's name in messages.
        plugin: String,
        memory_limit_bytes: u64,
        /// The time when the host's trace began. `None` if the host records no trace.
        trace_start: Option<Duration>,
    },
    Create(Settings),
    Destroy(u64),
    Open {
        instance: u64,
        call: CallParts,
        format: String,
        inputs: Vec<InputParts>,
        schema: Option<Vec<u8>>,
        options: Vec<(String, String)>,
        selection: SelectionParts,
        fragment: Option<Vec<u8>>,
    },
    Fragments {
        instance: u64,
        call: CallParts,
        format: String,
        input: InputParts,
        schema: Option<Vec<u8>>,
        options: Vec<(String, String)>,
    },
    Next {
        stream: u64,
        call: CallParts,
    },
    CloseStream(u64),
    Plan {
        instance: u64,
        call: CallParts,
        format: String,
        schema: Vec<u8>,
        from: DeviceParts,
        options: Vec<(String, String)>,
    },
    Begin {
        instance: u64,
        call: CallParts,
        format: String,
        schema: Vec<u8>,
        options: Vec<(String, String)>,
        sink: SinkParts,
    },
    Write {
        writer: u64,
        call: CallParts,
        /// The batches, in the order in which they are written.
        batches: Vec<BatchParts>,
    },
    Finish {
        writer: u64,
        call: CallParts,
    },
    CloseWriter(u64),
    Check {
        instance: u64,
        tree: TreeParts,
    },
    Size {
        instance: u64,
        tree: TreeParts,
        rows: Range<u64>,
    },
    PlanDecoding {
        instance: u64,
        tree: TreeParts,
        device: DeviceParts,
        rows: Range<u64>,
    },
    Decode {
        instance: u64,
        call: CallParts,
        tree: TreeParts,
        rows: Range<u64>,
        /// The decoded batches of the root's descendants, in pre-order.
        children: Vec<Option<BatchParts>>,
    },
    Lower {
        instance: u64,
        tree: TreeParts,
    },
    /// Derives the types of a node's children.
    Children {
        instance: u64,
        node: NodeHead,
    },
}

/// The result of a [`Request`].
#[derive(Serialize, Deserialize)]
pub enum Response {
    Done,
    Instance {
        id: u64,
        importer: Option<Vec<FormatParts>>,
        /// Whether the importer lists fragments.
        has_fragments: bool,
        exporter: Option<Vec<FormatParts>>,
        /// The ids of the encodings, and whether the plugin itself decodes arrays with these
        /// encodings.
        encodings: Option<(Vec<String>, bool)>,
    },
    Stream {
        id: u64,
        schema: Vec<u8>,
        honoured: HonouredParts,
        write_options: Vec<(String, String)>,
    },
    Fragments(Vec<FragmentParts>),
    Batch(BatchParts),
    /// The next batches of a stream.
    Batches {
        batches: Vec<BatchParts>,
        /// Whether the stream has no other batches.
        are_last: bool,
        /// The last progress of the reads, whose calls may have ended: the amount done and the
        /// total.
        progress: Option<(u64, u64)>,
    },
    Writer(u64),
    /// The bytes that the host must write to the sink of a writer. Inline bytes follow the message.
    Written(WriteParts),
    Plan(Vec<PlanParts>),
    Size(Option<u64>),
    DecodePlan {
        device: DeviceParts,
        rows: Range<u64>,
        decoded: Vec<bool>,
        rows_below: Vec<Range<u64>>,
    },
    /// The operators of the program. `None` if the encoding has no program for the node.
    Program(Option<Vec<OperatorParts>>),
    Children(Vec<ChildParts>),
}

/// A piece of an input.
#[derive(Serialize, Deserialize)]
pub struct FragmentParts {
    pub token: Vec<u8>,
    pub n_rows: Option<u64>,
    pub bytes: u64,
    /// The schema and the batch.
    pub statistics: Option<(Vec<u8>, BatchParts)>,
}

/// The fields of an operator of crossdock.h: `code`, `index`, `a` and `b`.
pub type OperatorParts = (u32, u32, u64, u64);

/// A call from the plugin's process to the host, sent during a request or from a thread of the
/// plugin.
#[derive(Serialize, Deserialize)]
pub enum Callback {
    Read {
        source: u64,
        offset: u64,
        bytes: u64,
    },
    CloseSource(u64),
    /// Writes pieces to a sink, one after the other. The bytes of the inline pieces follow the
    /// message.
    Write {
        sink: u64,
        write: WriteParts,
    },
    CloseSink(u64),
    /// Decodes an array in the session to which the instance belongs.
    Decode {
        instance: u64,
        call: CallParts,
        tree: TreeParts,
        /// `None` for all rows.
        rows: Option<Range<u64>>,
        segments: Vec<SegmentParts>,
    },
    /// Derives the types of a node's children in the session to which the instance belongs.
    Children {
        instance: u64,
        node: NodeHead,
    },
    /// Requests a writable segment of at least `bytes` bytes for the message `id`: on the process's
    /// device, or in host memory.
    RequestSegment {
        id: u64,
        bytes: u64,
        in_host_memory: bool,
    },
    /// Releases a requested segment that no message will use.
    ReleaseSegment(u64),
    /// Returns the segment of a message from the host, by its number.
    ReturnSegment(u64),
    Progress {
        call: u64,
        done: u64,
        total: u64,
    },
    Log {
        level: i32,
        message: String,
    },
    /// The beginning or end of a call in the process, for the host's trace.
    Record {
        thread: i32,
        ns: u64,
        phase: PhaseParts,
    },
}

/// The result of a [`Callback`].
#[derive(Serialize, Deserialize)]
pub enum CallbackReply {
    Done,
    /// The bytes that were read. They follow the message.
    Bytes,
    Batch(WithSegments<BatchParts>),
    Children(Vec<ChildParts>),
    /// A segment. The message contains the segment's file.
    Segment {
        number: u64,
        /// The length of the segment's file in bytes.
        bytes: u64,
        /// The numbers of all segments that later messages may use.
        existing: Vec<u64>,
    },
}

/// The error of a request or a callback.
#[derive(Serialize, Deserialize)]
pub struct Failure {
    code: i32,
    message: String,
    details: Option<String>,
    may_retry: bool,
    offset: Option<u64>,
    row: Option<u64>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Settings {
    pub memory_limit_bytes: u64,
    pub threads: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct CallParts {
    pub id: u64,
    pub device: DeviceParts,
    pub byte_budget: u64,
    pub validate_full: bool,
}

#[derive(Serialize, Deserialize)]
pub struct InputParts {
    pub id: u64,
    pub name: String,
    pub bytes: Option<u64>,
    pub version: String,
    /// All bytes of the input. `None` if the process cannot map them.
    pub whole: Option<Place>,
}

#[derive(Serialize, Deserialize)]
pub struct FormatParts {
    name: String,
    description: String,
    bytes: bool,
    filters: bool,
    capsules: Vec<String>,
    several: bool,
    magics: Vec<(i64, Vec<u8>)>,
    extensions: Vec<String>,
    device_types: Vec<i32>,
    options: Vec<(String, String)>,
}

#[derive(Serialize, Deserialize)]
pub struct PlanParts {
    name: String,
    verdict: u8,
    to: DeviceParts,
    reason: String,
}

/// An upper bound of the memory that the host uses for each byte of a message. Includes the parsed
/// message and all objects derived from it.
const MEMORY_PER_MESSAGE_BYTE: usize = 128;
/// The maximum length of a message that is not charged. Most messages are shorter. They need no
/// charge, because few messages are pending at the same time.
pub const MAX_UNCHARGED_BYTES: usize = 16 << 10;

/// Charges the memory that a message of a plugin's process will use. Called before the message is
/// parsed.
///
/// # Errors
/// Memory is exhausted, because the message exceeds the host's memory limit.
pub fn charge(message_bytes: usize, budget: &ReceiveBudget) -> Result<Option<Reservation>> {
    if message_bytes <= MAX_UNCHARGED_BYTES {
        return Ok(None);
    }
    let context =
        |error: Error| error.context(format_args!("a message of {message_bytes} bytes from its process"));
    budget.reserve(message_bytes.saturating_mul(MEMORY_PER_MESSAGE_BYTE)).map_err(context)
}

/// Serializes a message.
pub fn to_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value)
        .map_err(|error| Error::internal(format!("cannot serialize a message: {error}")))
}

/// Parses a message that consists of all `bytes`.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match from_prefix(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(Error::bad_data(format!("{} bytes follow the end of a message", rest.len()))),
    }
}

/// Parses a message at the beginning of `bytes`. Returns the message and the bytes that follow it.
pub fn from_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8])> {
    postcard::take_from_bytes(bytes)
        .map_err(|error| Error::bad_data(format!("a malformed message of {} bytes: {error}", bytes.len())))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let details = error.details().map(str::to_owned);
        let (code, message) = (error.code().0, error.message().to_owned());
        let (may_retry, offset, row) = (error.may_retry(), error.offset(), error.row());
        Self { code, message, details, may_retry, offset, row }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let mut error = Self::new(Code(failure.code), failure.message);
        if failure.may_retry {
            error = error.with_retry();
        }
        error = failure.offset.into_iter().fold(error, Self::with_offset);
        error = failure.row.into_iter().fold(error, Self::with_row);
        failure.details.into_iter().fold(error, Self::with_details)
    }
}

impl From<SessionSettings> for Settings {
    fn from(settings: SessionSettings) -> Self {
        let threads = u32::try_from(settings.threads).unwrap_or(u32::MAX);
        Self { memory_limit_bytes: settings.memory_limit_bytes, threads }
    }
}

impl CallParts {
    pub fn new(call: &Call<'_>, id: u64, device: Device) -> Self {
        let validate_full = call.validate() == Validate::Full;
        Self { id, device: device.into(), byte_budget: call.byte_budget(), validate_full }
    }

    /// The settings of the call, without the stream, the progress function and the cancel flag.
    pub fn settings(self) -> CallSettings {
        let validate = if self.validate_full { Validate::Full } else { Validate::Layout };
        CallSettings { byte_budget: self.byte_budget, validate, ..CallSettings::new(self.device.into()) }
    }
}

impl FormatParts {
    /// The format for the host. If the process has no device, the format's arrays are in host
    /// memory.
    pub fn new(format: &Format, has_device: bool) -> Self {
        let device_types = if has_device { format.device_types.clone() } else { vec![Device::CPU.r#type] };
        let options = format.options.iter().map(|o| (o.key.clone(), o.description.clone()));
        Self {
            name: format.name.clone(),
            description: format.description.clone(),
            bytes: format.bytes,
            filters: format.filters,
            capsules: format.capsules.clone(),
            several: format.several,
            magics: format.magics.clone(),
            extensions: format.extensions.clone(),
            device_types,
            options: options.collect(),
        }
    }
}

impl From<FormatParts> for Format {
    fn from(parts: FormatParts) -> Self {
        let option = |(key, description)| OptionInfo { key, description };
        Self {
            name: parts.name,
            description: parts.description,
            bytes: parts.bytes,
            filters: parts.filters,
            capsules: parts.capsules,
            several: parts.several,
            magics: parts.magics,
            extensions: parts.extensions,
            device_types: parts.device_types,
            // Messages have no counters: the host reads the number of rows first.
            device_rows: false,
            options: parts.options.into_iter().map(option).collect(),
        }
    }
}

const VERDICTS: [Verdict; 4] = [Verdict::ZeroCopy, Verdict::Converted, Verdict::Copied, Verdict::Unsupported];

impl From<ColumnPlan> for PlanParts {
    fn from(plan: ColumnPlan) -> Self {
        let verdict = VERDICTS.iter().position(|verdict| *verdict == plan.verdict).unwrap_or_default() as u8;
        Self { name: plan.name, verdict, to: plan.to.into(), reason: plan.reason }
    }
}

impl TryFrom<PlanParts> for ColumnPlan {
    type Error = Error;

    fn try_from(parts: PlanParts) -> Result<Self> {
        let verdict = VERDICTS.get(usize::from(parts.verdict)).copied();
        let verdict = verdict.ok_or_else(|| Error::bad_data(format!("unknown verdict {}", parts.verdict)))?;
        Ok(Self { name: parts.name, verdict, to: parts.to.into(), reason: parts.reason })
    }
}

impl From<DecodePlan> for Response {
    fn from(plan: DecodePlan) -> Self {
        let DecodePlan { device, rows, decoded, rows_below } = plan;
        Self::DecodePlan { device: device.into(), rows, decoded, rows_below }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_everything_that_an_error_states() {
        let bare = Error::bad_data("m");
        let full = Error::io("m").with_details("d").with_retry().with_offset(u64::MAX).with_row(0);
        for error in [bare.clone().with_row(3), bare.clone().with_offset(0), bare.with_retry(), full] {
            let bytes = postcard::to_allocvec(&Failure::from(error.clone())).unwrap();
            let failure: Failure = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(Error::from(failure), error);
        }
    }
}
