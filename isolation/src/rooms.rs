//! Device memory that two processes see: rooms, which the host makes, whichever side writes into them.
//!
//! A room goes to the process as an open file. Memory on a device cannot be sealed, so nobody works in one: who sends copies what it
//! has into a room, once and on the device, and waits until that has run; the host copies what comes out again before it looks at it.
//! So what the host has no process sees, and what the host has looked at no process changes. The host opens nothing that a process
//! made: a room that comes back is a number.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossdock_memory::{Buffer, BufferMut, Copies, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Backend};
use crossdock_plugin_api::{Device, Error, Result};
use serde::{Deserialize, Serialize};

/// No process has a use for more at once: it answers a question with one, or asks with one.
const MOST_ROOMS: usize = 64;

/// A room of a message.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub struct RoomParts {
    /// To a process: which of the message's files it is. To the host: the number that the process asked for it by.
    pub number: u64,
    /// How many there are in the file.
    pub bytes: u64,
}

/// What buffers were put into.
pub struct Lent {
    pub number: u64,
    pub bytes: u64,
    pub file: Option<OwnedFd>,
    /// The room itself.
    pub kept: Option<Buffer>,
}

/// Puts buffers into rooms.
pub trait Lender: Send + Sync {
    /// Whose buffers.
    fn device(&self) -> Device;

    /// Copies each to its offset in a room of `bytes` bytes, which has happened when this returns.
    ///
    /// # Errors
    /// There is no memory, or the device fails.
    fn lend(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Lent>;
}

/// Copies each buffer to its offset, and waits for it.
pub fn fill(room: &mut BufferMut, buffers: &[(Buffer, usize)], stream: &Stream) -> Result<()> {
    let mut copies = Copies::new();
    for (buffer, offset) in buffers {
        copies.push(room, *offset, buffer, 0, buffer.len().unwrap_or(0))?;
    }
    copies.submit(stream)?;
    // An event of a process's own could be one that never comes.
    stream.synchronize()
}

/// Opens a room that the host sent, where it is worked in.
pub fn open(backend: &Backend, device: Device, file: OwnedFd, bytes: u64) -> Result<(ForeignOwner, u64)> {
    let memory = backend.open_file(device, file, bytes)?;
    let address = memory.address();
    Ok((ForeignOwner::new(memory), address))
}

/// The same, to read.
pub fn open_to_read(backend: &Backend, device: Device, file: OwnedFd, bytes: u64) -> Result<Buffer> {
    let (owner, address) = open(backend, device, file, bytes)?;
    // SAFETY: so many bytes are mapped there as long as the owner is; the host has waited for what it wrote.
    Ok(unsafe { Buffer::foreign(&owner, device, address, Some(bytes), Ready::Now) })
}

/// The streams that arrays are worked on with, where a plugin runs.
#[derive(Clone)]
pub struct Streams {
    cpu: Stream,
    device: Option<Stream>,
}

impl Streams {
    pub fn new(cpu: Stream, device: Option<Stream>) -> Self {
        Self { cpu, device }
    }

    /// The one for arrays there.
    pub fn of(&self, device: Device) -> &Stream {
        self.device.as_ref().filter(|stream| stream.device() == device).unwrap_or(&self.cpu)
    }

    /// That of the device.
    pub fn on_device(&self) -> Option<&Stream> {
        self.device.as_ref()
    }
}

/// Makes rooms for one process, on its device.
pub struct Rooms {
    backend: Backend,
    account: Arc<Account>,
    stream: Stream,
    /// Those that the process asked for, by its numbers; `None` once it is gone.
    asked: Mutex<Option<HashMap<u64, BufferMut>>>,
}

impl Rooms {
    /// On the stream's device, counted with the account.
    pub fn new(backend: Backend, account: Arc<Account>, stream: Stream) -> Self {
        Self { backend, account, stream, asked: Mutex::new(Some(HashMap::new())) }
    }

    fn make(&self, bytes: usize) -> Result<(BufferMut, OwnedFd, u64)> {
        let device = self.stream.device();
        let block = self.account.allocate_exportable(device, bytes)?;
        // SAFETY: a block of this backend and this device, which is here alone.
        let room = unsafe { BufferMut::from_block(self.stream.memory(), device, block) };
        let (file, whole) = self.backend.export_file(room.address())?;
        Ok((room, file, whole))
    }

    fn asked(&self) -> MutexGuard<'_, Option<HashMap<u64, BufferMut>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A room that the process asks for, to answer in: its file, and how many bytes that opens.
    pub fn ask(&self, number: u64, bytes: u64) -> Result<(OwnedFd, u64)> {
        let too_many = |_| Error::out_of_memory(format!("a room of {bytes} bytes"));
        let (room, file, whole) = self.make(usize::try_from(bytes).map_err(too_many)?)?;
        let mut asked = self.asked();
        let gone = || Error::invalid_argument("a process that is gone asks for no room");
        let asked = asked.as_mut().ok_or_else(gone)?;
        if asked.len() >= MOST_ROOMS || asked.contains_key(&number) {
            let left = asked.len();
            return Err(Error::invalid_argument(format!(
                "room {number} was asked for, with {left} that nothing came in; expected another number, and no more than {MOST_ROOMS}"
            )));
        }
        asked.insert(number, room);
        Ok((file, whole))
    }

    /// What a process put into rooms that it had asked for, copied to where it cannot reach it any more, for `stream` and after it.
    pub fn collect(&self, rooms: &[RoomParts], stream: &Stream) -> Result<Vec<Buffer>> {
        let take = |parts: &RoomParts| {
            let room = self.asked().as_mut().and_then(|asked| asked.remove(&parts.number));
            let none = || Error::bad_data(format!("arrays in room {}, which it has not", parts.number));
            let room = room.ok_or_else(none)?.freeze_now();
            let bytes = room.len().unwrap_or(0);
            let mut own = stream.memory().alloc(stream, bytes)?;
            stream.copy(&mut own, 0, &room, 0, bytes)?;
            own.freeze(stream)
        };
        rooms.iter().map(take).collect()
    }

    /// Nothing comes in a room that was asked for.
    pub fn end(&self, number: u64) {
        let gone = self.asked().as_mut().and_then(|asked| asked.remove(&number));
        drop(gone);
    }

    /// The process is gone.
    pub fn forget(&self) {
        let gone = self.asked().take();
        drop(gone);
    }
}

impl Lender for Rooms {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn lend(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Lent> {
        let (mut room, file, whole) = self.make(bytes)?;
        fill(&mut room, buffers, &self.stream)?;
        Ok(Lent { number: 0, bytes: whole, file: Some(file), kept: Some(room.freeze_now()) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use crossdock_plugin_api::{Code, abi};
    use crossdock_test_support::TestHost;

    use super::*;

    const GPU: Device = Device::cuda(0);
    const BYTES: usize = 3 << 20;

    /// Rooms for a process, and a stream of the host's; `None` says why `test` is skipped.
    fn rooms(test: &str) -> Option<(TestHost, Rooms, Stream)> {
        let backend = Backend::builder().limit_bytes(1 << 30).build();
        if let Err(missing) = backend.cuda() {
            // Past what the test runner captures.
            std::io::stderr().write_all(format!("skipped: {test}: {missing}\n").as_bytes()).unwrap();
            return None;
        }
        let host = TestHost::over(backend.clone());
        let stream = host.stream(GPU);
        let account = backend.account("a process");
        Some((host, Rooms::new(backend, account, stream.clone()), stream))
    }

    fn parts(number: u64) -> RoomParts {
        RoomParts { number, bytes: 0 }
    }

    fn seen(buffer: &Buffer, stream: &Stream) -> Vec<u8> {
        buffer.host_view(stream).unwrap().to_vec()
    }

    #[test]
    fn what_came_in_a_room_is_out_of_the_process_s_reach() {
        let Some((host, rooms, stream)) = rooms("what_came_in_a_room_is_out_of_the_process_s_reach") else {
            return;
        };
        // As a process has it, with a host of its own.
        let process = TestHost::over(Backend::builder().build());
        let theirs = process.stream(GPU);
        let (file, whole) = rooms.ask(7, BYTES as u64).unwrap();
        let (owner, address) = open(process.backend(), GPU, file, whole).unwrap();
        let write = |value| {
            // SAFETY: mapped by `open`, as long as the owner is there.
            let mut there = unsafe { BufferMut::foreign(theirs.memory(), &owner, GPU, address, BYTES) };
            theirs.fill(&mut there, 0, BYTES, value).unwrap();
            theirs.synchronize().unwrap();
        };
        write(1);
        let came = rooms.collect(&[parts(7)], &stream).unwrap();
        stream.synchronize().unwrap();
        write(2);
        assert!(seen(&came[0], &stream) == vec![1; BYTES], "it is changed afterwards");
        drop((came, owner, theirs));
        process.backend().settle();
        host.assert_nothing_leaked();
    }

    #[test]
    fn what_the_host_lends_is_a_copy() {
        let Some((host, rooms, stream)) = rooms("what_the_host_lends_is_a_copy") else { return };
        let own = stream.memory().alloc_with(&stream, BYTES, |to| {
            to.fill(3);
            Ok(())
        });
        let own = own.unwrap().freeze(&stream).unwrap();
        let lent = rooms.lend(&[(own.clone(), 0)], BYTES).unwrap();
        let there = open_to_read(host.backend(), GPU, lent.file.unwrap(), lent.bytes).unwrap();
        assert!(seen(&there.slice(0, BYTES).unwrap(), &stream) == vec![3; BYTES]);
        // SAFETY: mapped as long as `there` is.
        let mut written = unsafe {
            BufferMut::foreign(
                stream.memory(),
                &ForeignOwner::new(there.clone()),
                GPU,
                there.address(),
                BYTES,
            )
        };
        stream.fill(&mut written, 0, BYTES, 4).unwrap();
        assert!(seen(&own, &stream) == vec![3; BYTES], "the process writes into what the host has");
        drop((own, lent.kept, there, written, rooms));
        host.assert_nothing_leaked();
    }

    #[test]
    fn rooms_that_a_process_has_not_are_refused_and_it_has_few() {
        let Some((host, rooms, stream)) = rooms("rooms_that_a_process_has_not_are_refused_and_it_has_few")
        else {
            return;
        };
        let refused = |number| rooms.collect(&[parts(number)], &stream).map(drop).unwrap_err();
        assert!(refused(1).message().contains("room 1, which it has not"));
        rooms.ask(1, 64).unwrap();
        assert!(rooms.ask(1, 64).is_err(), "a number is used again");
        assert_eq!(rooms.collect(&[parts(1)], &stream).unwrap()[0].len(), Some(64));
        assert!(refused(1).message().contains("room 1, which it has not"), "it came before");
        rooms.ask(1, 64).unwrap();
        rooms.end(1);
        assert!(refused(1).message().contains("room 1, which it has not"), "it was given back");
        for bytes in [2 << 30, u64::MAX] {
            assert_eq!(
                rooms.ask(1, bytes).map(drop).unwrap_err().code(),
                Code(abi::OUT_OF_MEMORY),
                "{bytes}"
            );
        }
        for number in 0..MOST_ROOMS as u64 {
            rooms.ask(number, 64).unwrap();
        }
        let many = rooms.ask(1000, 64).map(drop).unwrap_err();
        assert!(many.message().contains("no more than 64"), "{many}");
        rooms.forget();
        assert!(rooms.ask(1000, 64).map(drop).unwrap_err().message().contains("is gone"));
        assert!(refused(0).message().contains("which it has not"));
        // What it asked for and never used is given back.
        host.assert_nothing_leaked();
    }
}
