//! Rooms in the process: those that the host sends, and those that it is asked for.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossdock_memory::{Buffer, BufferMut, Stream};
use crossdock_memory_backend::Backend;
use crossdock_plugin_api::{Device, Error, Result};

use crate::outgoing::Outgoing;
use crate::rooms::{Lender, Lent, RoomParts, Streams, fill, open, open_to_read};
use crate::serve_ask::Ask;
use crate::shared::Incoming;
use crate::wire::{Grant, Wish};

/// The host's rooms, for one instance.
pub struct HostRooms {
    ask: Arc<Ask>,
    backend: Backend,
    stream: Stream,
}

/// Rooms are the process's, whichever of its instances asks.
static NEXT: AtomicU64 = AtomicU64::new(1);

impl HostRooms {
    /// Rooms of the device that the streams have.
    pub fn new(ask: Arc<Ask>, backend: Backend, streams: &Streams) -> Option<Self> {
        let stream = streams.on_device()?.clone();
        Some(Self { ask, backend, stream })
    }

    /// What came with a message of the host's.
    pub fn incoming(&self, files: Vec<OwnedFd>, rooms: &[RoomParts]) -> Result<Incoming> {
        let mut files: Vec<Option<OwnedFd>> = files.into_iter().map(Some).collect();
        let mut opened = Vec::new();
        for parts in rooms {
            let file = usize::try_from(parts.number).ok().and_then(|at| files.get_mut(at));
            let file = file.and_then(Option::take).ok_or_else(|| Error::internal("a room without a file"))?;
            opened.push(open_to_read(&self.backend, self.stream.device(), file, parts.bytes)?);
        }
        Incoming::of_the_host_but(files).map(|incoming| incoming.with_rooms(opened))
    }
}

impl Lender for HostRooms {
    fn device(&self) -> Device {
        self.stream.device()
    }

    fn lend(&self, buffers: &[(Buffer, usize)], bytes: usize) -> Result<Lent> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let wish = Wish::Room { number, bytes: bytes as u64 };
        let (grant, _, files) = self.ask.ask_with(&wish, &[], &Outgoing::default())?;
        let (Grant::Room(whole), Some(file)) = (grant, files.into_iter().next()) else {
            return Err(Error::internal("the host gave no room"));
        };
        let filled = self.fill(file, whole, buffers, bytes);
        filled.inspect_err(|_| self.ask.tell(&Wish::EndRoom(number)))?;
        Ok(Lent { number, bytes: whole, file: None, kept: None })
    }
}

impl HostRooms {
    fn fill(&self, file: OwnedFd, whole: u64, buffers: &[(Buffer, usize)], bytes: usize) -> Result<()> {
        let device = self.stream.device();
        let (owner, address) = open(&self.backend, device, file, whole)?;
        // SAFETY: as many bytes are mapped there as were asked for, for this process to write; the host looks at them when it is told
        // of them.
        let mut room = unsafe { BufferMut::foreign(self.stream.memory(), &owner, device, address, bytes) };
        fill(&mut room, buffers, &self.stream)
    }
}
