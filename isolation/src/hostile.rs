//! A host before the process of an isolated plugin that says what it likes: what it sends is read as the host reads it, and there is
//! no process. For tests, and for the fuzzer.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::DeviceBatch;
use crossdock_memory::{Buffer, Memory};
use crossdock_memory_backend::Trace;
use crossdock_plugin_api::{
    BatchStream, ByteSink, ByteSource, Call, ColumnPlan, Device, Error, Format, Host, Importer, Input,
    Instance, Options, Plugin, Result, Sink, Source, abi,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use crate::child::answer_in;
use crate::desk::{Decoding, Desk, Progress};
use crate::freight::read_schema;
use crate::link::{InFlight, Lane, Message};
use crate::locks::lock;
use crate::mapping::Allowance;
use crate::remote::{interned, program};
use crate::remote_place::looked_at;
use crate::rooms::{RoomParts, Streams};
use crate::shared::{Incoming, SEALS};
use crate::wire::{Answer, With};

/// Who is before the host.
const WHO: &str = "a stranger";
/// What it may read, by the number that is given first, and how many bytes it has of rooms.
const BYTES: [u8; 192] = [7; 192];
/// The call on whose behalf it works.
const CALL: u64 = 1;
/// The host answers into a socket from which nobody reads meanwhile: so many bytes of questions are answered.
const MOST_RAW: usize = 1024;

/// What the host has for a process, whatever that says.
pub struct Listener {
    decoding: Decoding,
    room: Buffer,
}

/// What one process says, from its first message on.
pub struct Conversation<'a> {
    of: &'a Listener,
    desk: Desk,
    /// Of the stream that it opened last.
    schema: SchemaRef,
}

impl Listener {
    /// A host, for a process that has the device `untouchable`.
    ///
    /// # Errors
    /// The host has no such device.
    pub fn new(host: Host) -> Result<Self> {
        let memory = Memory::from_host(&host)?;
        let there = memory.default_stream(Device::UNTOUCHABLE)?;
        let mut room = memory.alloc(&there, BYTES.len())?;
        there.fill(&mut room, 0, BYTES.len(), 1)?;
        let room = room.freeze(&there)?;
        let streams = Streams::new(memory.default_stream(Device::CPU)?, Some(there));
        Ok(Self { decoding: Decoding { host, memory, streams }, room })
    }

    /// With a process that was just started: an instance, a source, a sink and a call are its.
    pub fn conversation(&self) -> Conversation<'_> {
        let trace = Trace::of_another(Duration::ZERO, |_| ());
        let desk = Desk::of(WHO.into(), None, Some(Arc::new(trace)), Allowance::default());
        // It was not set before.
        let _ = desk.process.set(1);
        desk.add_instance(CALL, self.decoding.clone());
        desk.add_source(Arc::new(Source::new(Arc::new(Given))));
        desk.add_sink(Sink::new(Box::new(Given)));
        lock(&desk.calls).insert(CALL, Arc::new(Progress::of(None)));
        Conversation { of: self, desk, schema: Arc::new(Schema::empty()) }
    }
}

impl Conversation<'_> {
    /// Hears bytes as they come over a lane, messages or not, and answers what is a question.
    pub fn hears(&self, bytes: &[u8]) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let bytes = bytes.get(..MOST_RAW).unwrap_or(bytes);
        (&theirs).write_all(bytes)?;
        theirs.shutdown(std::net::Shutdown::Write)?;
        Lane::from(ours).serve(&InFlight::default(), |message| self.desk.answer(message));
        Ok(())
    }

    /// Answers a question.
    pub fn is_asked(&self, bytes: Vec<u8>, files: Vec<OwnedFd>) {
        self.desk.answer(Message { bytes, files });
    }

    /// Takes an answer, whatever was asked; a batch that it has is one that the host would go on with.
    ///
    /// # Errors
    /// It is none, or what came with it is not sound.
    pub fn is_told(&mut self, bytes: Vec<u8>, files: Vec<OwnedFd>) -> Result<Option<DeviceBatch>> {
        let (With { message, rooms }, files) = answer_in(Message { bytes, files })?;
        let files = Incoming::of_a_plugin(files, &self.desk.allowed)?.with_rooms(self.rooms(&rooms));
        match message {
            Answer::Instance { importer, exporter, encodings, .. } => {
                let formats = importer.into_iter().chain(exporter).flatten().map(Format::from);
                Told(formats.collect()).asked()?;
                interned(WHO, encodings.unwrap_or_default().0)?;
            }
            Answer::Stream { schema, .. } => self.schema = read_schema(&schema)?.1,
            Answer::Batch(Some(batch)) => {
                return looked_at(batch, &self.schema, &files, &self.of.decoding.streams).map(Some);
            }
            Answer::Plan(plan) => {
                plan.into_iter().map(ColumnPlan::try_from).collect::<Result<Vec<_>>>()?;
            }
            Answer::DecodePlan { device, .. } => drop(Device::from(device).to_string()),
            Answer::Program(operators) => drop(program(operators)),
            Answer::Batch(None) | Answer::Done | Answer::Writer(_) | Answer::Size(_) => {}
        }
        Ok(None)
    }

    /// Rooms in which something came, which are made elsewhere for real devices (`rooms.rs`).
    fn rooms(&self, parts: &[RoomParts]) -> Vec<Buffer> {
        parts.iter().take(4).map(|_| self.of.room.clone()).collect()
    }
}

/// An open file as a process may send one: as it should be for most of the `kind`s.
pub fn file(kind: u8, bytes: &[u8]) -> io::Result<OwnedFd> {
    let memory = |bytes: &[u8]| -> io::Result<File> {
        let mut memory =
            File::from(memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        memory.write_all(bytes)?;
        Ok(memory)
    };
    let sealed = |memory: File, seals| -> io::Result<OwnedFd> {
        fcntl_add_seals(&memory, seals)?;
        Ok(memory.into())
    };
    match kind {
        250 => Ok(memory(bytes)?.into()),
        251 => sealed(memory(bytes)?, SealFlags::WRITE),
        252 => {
            let sparse = memory(bytes)?;
            sparse.set_len(1 << 40)?;
            sealed(sparse, SEALS)
        }
        253 => Ok(File::open("/dev/null")?.into()),
        254 => Ok(UnixStream::pair()?.0.into()),
        255 => Ok(File::open("/")?.into()),
        _ => sealed(memory(bytes)?, SEALS),
    }
}

/// What the host gives the process to read and to write.
struct Given;

impl ByteSource for Given {
    fn name(&self) -> &str {
        "given"
    }

    fn len(&self) -> Option<u64> {
        Some(BYTES.len() as u64)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let from = usize::try_from(offset).ok().and_then(|offset| BYTES.get(offset..)).unwrap_or_default();
        let n = from.len().min(to.len());
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        Ok(n)
    }
}

impl ByteSink for Given {
    fn name(&self) -> &str {
        "given"
    }

    fn write(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A plugin with the formats that a process says it has.
struct Told(Vec<Format>);

impl Told {
    /// Asks for them as a session asks any plugin.
    fn asked(self) -> Result<Vec<Format>> {
        Instance::of(self).importer().map_or(Ok(Vec::new()), |importer| importer.formats())
    }
}

impl Plugin for Told {
    fn create(_: Host) -> Result<Self> {
        Err(Error::internal("it is made of what a process says"))
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

impl Importer for Told {
    fn formats(&self) -> &[Format] {
        &self.0
    }

    fn open(
        &self,
        _: &Call<'_>,
        _: &str,
        _: Input,
        _: Option<&abi::ArrowSchema>,
        _: &Options,
    ) -> Result<Box<dyn BatchStream>> {
        Err(Error::unsupported("there is no process"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use arrow_schema::{DataType, Field};
    use crossdock_arrays::{DeviceArray, export_schema};
    use crossdock_memory_backend::Backend;
    use crossdock_plugin_api::CallSettings;
    use crossdock_test_support::TestHost;

    use super::*;
    use crate::freight::tests::one_node;
    use crate::freight::{BatchParts, TreeParts, write_schema};
    use crate::outgoing::Outgoing;
    use crate::wire::{self, CallParts, Failure, Wish};

    fn listener() -> Listener {
        let host = TestHost::over(Backend::builder().untouchable(true).limit_bytes(1 << 20).build());
        Listener::new(host.host()).unwrap()
    }

    /// An answer as an honest process writes it.
    fn told(message: Answer) -> Vec<u8> {
        let answer: std::result::Result<With<Answer>, Failure> = Ok(With { message, rooms: Vec::new() });
        wire::write(&answer).unwrap()
    }

    /// Numbers and words, and where they lie.
    fn batch(listener: &Listener) -> (DeviceBatch, BatchParts, Vec<OwnedFd>) {
        let stream = listener.decoding.streams.of(Device::CPU);
        let bytes = |bytes: &[u8]| {
            let filled = |to: &mut [u8]| {
                to.copy_from_slice(bytes);
                Ok(())
            };
            Some(stream.memory().alloc_with(stream, bytes.len(), filled).unwrap().freeze_now())
        };
        let offsets: Vec<u8> = [0i32, 2, 3, 6].iter().flat_map(|n| n.to_le_bytes()).collect();
        let array = |data_type, buffers| {
            DeviceArray::try_new(data_type, 3, 0, None, buffers, Vec::new(), None).unwrap()
        };
        let columns = vec![
            array(DataType::UInt16, vec![bytes(&[5]), bytes(&[1, 0, 2, 0, 3, 0])]),
            array(DataType::Utf8, vec![None, bytes(&offsets), bytes(b"abcdef")]),
        ];
        let fields =
            vec![Field::new("number", DataType::UInt16, true), Field::new("word", DataType::Utf8, false)];
        let batch = DeviceBatch::try_new(Arc::new(Schema::new(fields)), 3, columns).unwrap();
        let mut to = Outgoing::default();
        let parts = BatchParts::write(batch.clone(), &listener.decoding.streams, &mut to).unwrap();
        (batch, parts, to.into_files().unwrap())
    }

    #[test]
    fn what_an_honest_process_says_is_taken() {
        let listener = listener();
        let mut process = listener.conversation();
        let (sent, parts, files) = batch(&listener);
        let schema = write_schema(&export_schema(sent.schema()).unwrap()).unwrap();
        let opened = told(Answer::Stream { number: 1, schema });
        assert!(process.is_told(opened, Vec::new()).unwrap().is_none());
        let came = process.is_told(told(Answer::Batch(Some(parts))), files).unwrap().unwrap();
        let stream = listener.decoding.streams.of(Device::CPU);
        assert_eq!(crossdock_arrays::first_difference(&sent, &came, stream).unwrap(), None);
        let instance =
            Answer::Instance { number: 1, importer: Some(Vec::new()), exporter: None, encodings: None };
        assert!(process.is_told(told(instance), Vec::new()).unwrap().is_none());
    }

    #[test]
    fn what_is_no_answer_or_comes_in_memory_that_can_change_is_refused() {
        let listener = listener();
        let mut process = listener.conversation();
        let mut refused = |bytes: Vec<u8>, files| process.is_told(bytes, files).unwrap_err().to_string();
        assert!(refused(vec![9; 9], Vec::new()).contains("is none"));
        for (kind, why) in [(250, "can still change"), (252, "are there"), (253, "no sealed memory")] {
            let said = refused(told(Answer::Done), vec![file(kind, &[1; 100]).unwrap()]);
            assert!(said.contains(why), "{kind}: {said}");
        }
    }

    #[test]
    fn questions_are_answered_in_whatever_pieces_they_come() {
        let listener = listener();
        let process = listener.conversation();
        let read = wire::write(&Wish::Read { source: 1, offset: 8, bytes: 1 << 40 }).unwrap();
        process.is_asked(read.clone(), Vec::new());
        let tree = one_node(0, Vec::new());
        let tree = TreeParts::write(tree.root().unwrap(), &mut Outgoing::default()).unwrap();
        let call = CallSettings::new(Device::CPU).enter(|call| CallParts::of(call, CALL, Device::CPU));
        let decode = Wish::Decode { instance: CALL, call, tree, rooms: Vec::new() };
        process.is_asked(wire::write(&decode).unwrap(), Vec::new());
        let head = [(read.len() as u32).to_le_bytes(), [0; 4]].concat();
        process.hears(&[head, read].concat()).unwrap();
        process.hears(&[255; 2000]).unwrap();
        assert_eq!(process.desk.signs.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}
