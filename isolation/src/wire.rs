//! What a host and the process of an isolated plugin say to each other, as plain data: the words of crossdock.h, with numbers
//! in the place of objects. Both are of one build, so nothing here is kept for others.

use std::borrow::Cow;
use std::time::Duration;

use crossdock_memory_backend::{Moment, Reserved};
use crossdock_plugin_api::{
    Call, CallSettings, Code, ColumnPlan, DecodePlan, Device, Error, Format, OptionInfo, Result,
    SessionSettings, Validate, Verdict,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::device_parts::DeviceParts;
use crate::freight::{BatchParts, TreeParts};
use crate::mapping::Allowance;
use crate::rooms::RoomParts;
use crate::shared::Place;

/// Without an answer, over the control socket; an empty message comes with a lane.
#[derive(Serialize, Deserialize)]
pub enum Remark {
    /// The host wants this call to end.
    Cancel(u64),
}

/// What goes with arrays on the process's device.
#[derive(Serialize, Deserialize)]
pub struct With<T> {
    pub message: T,
    pub rooms: Vec<RoomParts>,
}

/// What the host asks of the process. Instances, streams and writers have the numbers that its answers gave them.
#[derive(Serialize, Deserialize)]
pub enum Order {
    /// Loads the plugin in the message's one file, which `who` is called in messages. The first of all, by a host of this version.
    Load {
        version: String,
        who: String,
        memory_limit_bytes: u64,
        /// When the host began to record calls, if it does.
        recorded_from: Option<Duration>,
    },
    Create(Settings),
    Destroy(u64),
    Open {
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
    EndStream(u64),
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
        batch: BatchParts,
    },
    Finish {
        writer: u64,
        call: CallParts,
    },
    EndWriter(u64),
    Check {
        instance: u64,
        tree: TreeParts,
    },
    Size {
        instance: u64,
        tree: TreeParts,
    },
    PlanDecoding {
        instance: u64,
        tree: TreeParts,
        wanted: DeviceParts,
    },
    Decode {
        instance: u64,
        call: CallParts,
        tree: TreeParts,
        below: Vec<Option<BatchParts>>,
    },
    Lower {
        instance: u64,
        tree: TreeParts,
    },
}

/// What it answers.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    Done,
    Instance {
        number: u64,
        importer: Option<Vec<FormatParts>>,
        exporter: Option<Vec<FormatParts>>,
        /// Their ids, and whether the plugin decodes them itself.
        encodings: Option<(Vec<String>, bool)>,
    },
    Stream {
        number: u64,
        schema: Vec<u8>,
    },
    Batch(Option<BatchParts>),
    Writer(u64),
    Plan(Vec<PlanParts>),
    Size(Option<u64>),
    DecodePlan {
        device: DeviceParts,
        decoded: Vec<bool>,
    },
    /// The operators; none where there is no program.
    Program(Option<Vec<OperatorParts>>),
}

/// An operator as crossdock.h has it.
pub type OperatorParts = (u32, u32, u64, u64);

/// What the process asks of the host meanwhile.
#[derive(Serialize, Deserialize)]
pub enum Wish {
    Read {
        source: u64,
        offset: u64,
        bytes: u64,
    },
    EndSource(u64),
    /// The bytes follow.
    Write {
        sink: u64,
    },
    EndSink(u64),
    /// By the session that the instance belongs to, for a device.
    Decode {
        instance: u64,
        call: CallParts,
        tree: TreeParts,
        rooms: Vec<RoomParts>,
    },
    /// Device memory of so many bytes to put arrays into, which will be known by this number.
    Room {
        number: u64,
        bytes: u64,
    },
    /// Nothing comes in it.
    EndRoom(u64),
    Progress {
        call: u64,
        done: u64,
        total: u64,
    },
    Log {
        level: i32,
        message: String,
    },
    /// A call that began or ended there, to be recorded.
    Record {
        thread: i32,
        ns: u64,
        moment: MomentParts,
    },
}

#[derive(Serialize, Deserialize)]
pub enum MomentParts {
    Begin { plugin: String, what: String, is_callback: bool },
    End { bytes: Option<u64>, error: Option<String> },
}

impl From<Moment<'_>> for MomentParts {
    fn from(moment: Moment<'_>) -> Self {
        match moment {
            Moment::Begin { plugin, what, is_callback } => {
                Self::Begin { plugin: plugin.into_owned(), what: what.into_owned(), is_callback }
            }
            Moment::End { bytes, error } => Self::End { bytes, error: error.map(Cow::into_owned) },
        }
    }
}

impl From<MomentParts> for Moment<'static> {
    /// No name is as long as a process could make it.
    fn from(parts: MomentParts) -> Self {
        const MOST: usize = 1000;
        let cut = |text: String| text.chars().take(MOST).collect();
        match parts {
            MomentParts::Begin { plugin, what, is_callback } => {
                Self::Begin { plugin: cut(plugin), what: cut(what), is_callback }
            }
            MomentParts::End { bytes, error } => Self::End { bytes, error: error.map(cut) },
        }
    }
}

/// What the host answers.
#[derive(Serialize, Deserialize)]
pub enum Grant {
    Done,
    /// They follow.
    Bytes,
    Batch(With<BatchParts>),
    /// Its file came along, and opens so many bytes.
    Room(u64),
}

/// Either's answer, if it is none.
#[derive(Serialize, Deserialize)]
pub struct Failure {
    code: i32,
    message: String,
    details: Option<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct Settings {
    pub memory_limit_bytes: u64,
    pub threads: u32,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct CallParts {
    pub number: u64,
    pub device: DeviceParts,
    pub byte_budget: u64,
    pub validate_full: bool,
}

#[derive(Serialize, Deserialize)]
pub struct InputParts {
    pub number: u64,
    pub name: String,
    pub bytes: Option<u64>,
    /// The whole of it, where the process can look at it itself.
    pub whole: Option<Place>,
}

#[derive(Serialize, Deserialize)]
pub struct SinkParts {
    pub number: u64,
    pub name: String,
}

#[derive(Serialize, Deserialize)]
pub struct FormatParts {
    name: String,
    description: String,
    bytes: bool,
    capsules: Vec<String>,
    magics: Vec<(u64, Vec<u8>)>,
    endings: Vec<String>,
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

/// What is read of a byte of a message takes no more, all that is made of it on the way to the rest of the host included.
const BYTES_PER_BYTE: usize = 128;
/// Messages are hardly ever longer; a process has a small number of these on their way, which are not counted.
pub const SMALL_BYTES: usize = 16 << 10;

/// Counts what a message of a plugin's process will take, before it is read.
///
/// # Errors
/// Out of memory: a plugin that says much makes its host hold much.
pub fn count(message_bytes: usize, allowed: &Allowance) -> Result<Option<Reserved>> {
    if message_bytes <= SMALL_BYTES {
        return Ok(None);
    }
    let told =
        |error: Error| error.context(format_args!("a message of {message_bytes} bytes of its process"));
    allowed.reserve(message_bytes.saturating_mul(BYTES_PER_BYTE)).map_err(told)
}

/// As bytes.
pub fn write<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| Error::internal(format!("cannot write a message: {error}")))
}

/// From bytes, of which none may be left.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match read_head(bytes)? {
        (value, []) => Ok(value),
        (_, rest) => Err(Error::bad_data(format!("{} bytes follow a message", rest.len()))),
    }
}

/// From the first bytes; the others as they are.
pub fn read_head<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, &[u8])> {
    postcard::take_from_bytes(bytes)
        .map_err(|error| Error::bad_data(format!("a message of {} bytes is none: {error}", bytes.len())))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let details = error.details().map(str::to_owned);
        Self { code: error.code().0, message: error.message().to_owned(), details }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let error = Self::new(Code(failure.code), failure.message);
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
    /// What another process needs to know of a call that works there.
    pub fn of(call: &Call<'_>, number: u64, device: Device) -> Self {
        let validate_full = call.validate() == Validate::Full;
        Self { number, device: device.into(), byte_budget: call.byte_budget(), validate_full }
    }

    /// What the call is told.
    pub fn settings(self) -> CallSettings {
        let validate = if self.validate_full { Validate::Full } else { Validate::Layout };
        CallSettings { byte_budget: self.byte_budget, validate, ..CallSettings::new(self.device.into()) }
    }
}

impl FormatParts {
    /// Its arrays are in host memory, wherever the plugin could have them, but where it has a device too.
    pub fn of(format: &Format, has_device: bool) -> Self {
        let on_host = vec![Device::CPU.r#type];
        let device_types = if has_device { format.device_types.clone() } else { on_host };
        let options = format.options.iter().map(|o| (o.key.clone(), o.description.clone()));
        Self {
            name: format.name.clone(),
            description: format.description.clone(),
            bytes: format.bytes,
            capsules: format.capsules.clone(),
            magics: format.magics.clone(),
            endings: format.endings.clone(),
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
            capsules: parts.capsules,
            magics: parts.magics,
            endings: parts.endings,
            device_types: parts.device_types,
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
        let verdict = verdict.ok_or_else(|| Error::bad_data(format!("verdict {}", parts.verdict)))?;
        Ok(Self { name: parts.name, verdict, to: parts.to.into(), reason: parts.reason })
    }
}

impl From<DecodePlan> for Answer {
    fn from(plan: DecodePlan) -> Self {
        Self::DecodePlan { device: plan.device.into(), decoded: plan.decoded }
    }
}
