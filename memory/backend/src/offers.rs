//! Offers open files to other processes of the same user on this host.
//!
//! A process that knows the address of an offer connects to a Unix socket of the offering process
//! and receives the file. The socket has a random abstract name, so it needs no folder and
//! disappears with the process. Processes in another network namespace cannot connect.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossdock_plugin_api::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::forks;
use crate::in_flight::pause_for_files_in_flight;

/// Number of random bytes in the name of a socket, and in the token of an offer.
const RANDOM_BYTES: usize = 16;
/// The longest time that one process waits for the bytes of the other one.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The first byte of a reply that carries the file. Any other reply is an error message.
const FILE_FOLLOWS: u8 = 1;
const ERROR_FOLLOWS: u8 = 0;
/// The longest error message in bytes.
const MAX_MESSAGE_BYTES: u64 = 4096;

/// The address of an offer. A process of this user that knows it can receive the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferAddress {
    /// The number of the offering process.
    pub process: u32,
    /// The random part of the name of the socket.
    pub socket: [u8; RANDOM_BYTES],
    /// The random token of the offer.
    pub token: [u8; RANDOM_BYTES],
}

/// A file that other processes can receive until this value is dropped.
pub struct Offer {
    server: Arc<Server>,
    token: [u8; RANDOM_BYTES],
    withdraws: bool,
}

/// Called before a file is sent. Blocks until the contents of the file may be read.
pub type Prepare = Box<dyn Fn() -> Result<()> + Send + Sync>;

struct Entry {
    file: OwnedFd,
    prepare: Prepare,
    /// Whether the offer ends after the first process has received the file.
    once: bool,
}

struct Server {
    process: u32,
    socket: [u8; RANDOM_BYTES],
    entries: Mutex<HashMap<[u8; RANDOM_BYTES], Arc<Entry>>>,
}

impl Offer {
    /// Offers a file. `prepare` runs on a thread of the host, for each receiver. If `once` is set,
    /// the offer ends when a process has received the file.
    ///
    /// # Errors
    /// The socket or its thread cannot be created.
    pub fn new(file: OwnedFd, prepare: Prepare, once: bool) -> Result<Self> {
        let server = server()
            .map_err(|error| Error::internal(format!("cannot offer a file to other processes: {error}")))?;
        let token = random()?;
        server.lock().insert(token, Arc::new(Entry { file, prepare, once }));
        Ok(Self { server, token, withdraws: true })
    }

    /// The address by which another process receives the file.
    pub fn address(&self) -> OfferAddress {
        OfferAddress { process: self.server.process, socket: self.server.socket, token: self.token }
    }

    /// Keeps the offer until a process has received the file, or this process ends.
    pub fn keep(mut self) {
        self.withdraws = false;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        if self.withdraws {
            self.server.lock().remove(&self.token);
        }
    }
}

impl OfferAddress {
    /// Receives the file, and waits until its contents may be read. The offering process keeps what
    /// the offer's `prepare` owns until the lease is dropped.
    ///
    /// # Errors
    /// The offering process has ended, cannot be reached or belongs to another user; the offer has
    /// ended; the offering process reports an error.
    pub fn receive(&self) -> Result<(OwnedFd, Lease)> {
        let process = self.process;
        let unreachable = |error: io::Error| {
            Error::device(format!(
                "cannot reach process {process}, which shares the memory: {error}; it must still run, as the same user, on \
                 this host and in the same network namespace"
            ))
        };
        let name = name(&self.socket);
        let address = SocketAddr::from_abstract_name(name.as_bytes()).map_err(unreachable)?;
        let mut stream = UnixStream::connect_addr(&address).map_err(unreachable)?;
        check_user(&stream).map_err(unreachable)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(unreachable)?;
        stream.write_all(&self.token).map_err(unreachable)?;
        let (first, files) = receive_first(&stream).map_err(unreachable)?;
        match (first, files.into_iter().next()) {
            (FILE_FOLLOWS, Some(file)) => Ok((file, Lease(stream))),
            (ERROR_FOLLOWS, _) => {
                let mut message = String::new();
                let read = stream.take(MAX_MESSAGE_BYTES).read_to_string(&mut message);
                read.map_err(unreachable)?;
                Err(Error::device(format!("process {process} does not share the memory: {message}")))
            }
            _ => Err(Error::bad_data(format!("process {process} sent a reply without a file"))),
        }
    }
}

/// The use of a received file. The offering process learns of its end.
pub struct Lease(#[allow(dead_code)] UnixStream);

fn receive_first(stream: &UnixStream) -> io::Result<(u8, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut first = [0];
    let received = loop {
        match recvmsg(stream, &mut [IoSliceMut::new(&mut first)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights);
        }
    }
    match received.bytes {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
        _ => Ok((first[0], files)),
    }
}

/// The server of this process. A forked child has its own.
fn server() -> io::Result<Arc<Server>> {
    static SERVER: Mutex<Option<(u32, Arc<Server>)>> = Mutex::new(None);
    let mut known = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let forks = forks::count();
    if let Some((_, server)) = known.as_ref().filter(|(of, _)| *of == forks) {
        return Ok(server.clone());
    }
    let socket = random().map_err(io::Error::other)?;
    let address = SocketAddr::from_abstract_name(name(&socket).as_bytes())?;
    let listener = UnixListener::bind_addr(&address)?;
    let server = Arc::new(Server { process: std::process::id(), socket, entries: Mutex::default() });
    let accepting = server.clone();
    std::thread::Builder::new().name("crossdock-offer".into()).spawn(move || accepting.accept(&listener))?;
    *known = Some((forks, server.clone()));
    Ok(server)
}

impl Server {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; RANDOM_BYTES], Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // The process has no file descriptor left. It may close one soon.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            // Each connection has its own thread, so that a slow process delays no other one.
            let server = self.clone();
            let serve = move || drop(server.serve(stream));
            drop(std::thread::Builder::new().name("crossdock-offer".into()).spawn(serve));
        }
    }

    fn serve(&self, mut stream: UnixStream) -> io::Result<()> {
        check_user(&stream)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut token = [0; RANDOM_BYTES];
        stream.read_exact(&mut token)?;
        let entry = self.lock().get(&token).cloned();
        let prepared = match &entry {
            Some(entry) => (entry.prepare)(),
            None => Err(Error::invalid_argument(
                "it has withdrawn it, or another process has received it already",
            )),
        };
        let Some(entry) = entry.filter(|_| prepared.is_ok()) else {
            let message = prepared.map_or_else(|error| error.message().to_owned(), |()| String::new());
            stream.write_all(&[ERROR_FOLLOWS])?;
            return stream.write_all(message.as_bytes());
        };
        if entry.once && self.lock().remove(&token).is_none() {
            stream.write_all(&[ERROR_FOLLOWS])?;
            return stream.write_all(b"another process has received it already");
        }
        if let Err(error) = send_file(&stream, &entry.file) {
            if entry.once {
                self.lock().insert(token, entry);
            }
            stream.write_all(&[ERROR_FOLLOWS])?;
            return stream.write_all(error.to_string().as_bytes());
        }
        // The other process sends nothing, and closes the connection when it no longer uses the
        // file, or when it ends. `entry` owns the contents of the file until then.
        stream.set_read_timeout(None)?;
        stream.read(&mut [0]).map(drop)
    }
}

fn send_file(stream: &UnixStream, file: &OwnedFd) -> io::Result<()> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no space for a file descriptor"));
    }
    let start = Instant::now();
    loop {
        match sendmsg(stream, &[IoSlice::new(&[FILE_FOLLOWS])], &mut ancillary, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            // The receiver waits longer, so that it gets an error.
            Err(rustix::io::Errno::TOOMANYREFS) => pause_for_files_in_flight(start, TIMEOUT / 2)?,
            sent => return sent.map(drop).map_err(io::Error::from),
        }
    }
}

/// Rejects a process of another user.
fn check_user(stream: &UnixStream) -> io::Result<()> {
    let other = rustix::net::sockopt::socket_peercred(stream)?.uid;
    if other == rustix::process::geteuid() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the process belongs to another user"))
}

fn name(socket: &[u8; RANDOM_BYTES]) -> String {
    let name = String::from("crossdock-");
    socket.iter().fold(name, |name, byte| format!("{name}{byte:02x}"))
}

fn random() -> Result<[u8; RANDOM_BYTES]> {
    let mut bytes = [0; RANDOM_BYTES];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| Error::internal(format!("cannot read /dev/urandom: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::Seek;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossdock_test_support::FilesInFlight;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::*;

    const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };

    fn file_with(text: &str) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        file.write_all(text.as_bytes()).unwrap();
        file.into()
    }

    fn contents(file: OwnedFd) -> String {
        let (mut file, mut text) = (File::from(file), String::new());
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    fn ready() -> Prepare {
        Box::new(|| Ok(()))
    }

    #[test]
    fn file_is_received_until_the_offer_is_dropped() {
        let offer = Offer::new(file_with("shared"), ready(), false).unwrap();
        let address = offer.address();
        for _ in 0..2 {
            assert_eq!(contents(address.receive().unwrap().0), "shared");
        }
        drop(offer);
        let error = address.receive().err().unwrap();
        assert!(error.message().contains("has withdrawn it"), "{error}");
    }

    #[test]
    fn one_process_receives_an_offer_that_is_made_once() {
        let offer = Offer::new(file_with("once"), ready(), true).unwrap();
        let address = offer.address();
        offer.keep();
        let received: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(move || Some(address.receive().ok()?.0))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(received.into_iter().map(contents).collect::<Vec<_>>(), ["once"]);
    }

    #[test]
    fn receiver_waits_for_prepare_and_gets_its_error() {
        let n = Arc::new(AtomicUsize::new(0));
        let counted = n.clone();
        let prepare = move || match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Err(Error::device("the copy failed")),
            _ => Ok(()),
        };
        let offer = Offer::new(file_with("later"), Box::new(prepare), true).unwrap();
        let error = offer.address().receive().err().unwrap();
        assert!(error.message().contains("the copy failed"), "{error}");
        assert_eq!(contents(offer.address().receive().unwrap().0), "later");
    }

    #[test]
    fn lease_keeps_what_prepare_owns() {
        let owned = Arc::new(());
        let kept = owned.clone();
        let prepare = move || {
            drop(kept.clone());
            Ok(())
        };
        let offer = Offer::new(file_with(""), Box::new(prepare), true).unwrap();
        let address = offer.address();
        offer.keep();
        let (_file, lease) = address.receive().unwrap();
        assert_eq!(Arc::strong_count(&owned), 2);
        drop(lease);
        let until = std::time::Instant::now() + TIMEOUT;
        while Arc::strong_count(&owned) > 1 {
            assert!(std::time::Instant::now() < until, "the offer was not released");
            std::thread::yield_now();
        }
    }

    #[test]
    fn sender_waits_while_too_many_files_are_in_flight() {
        let (start, limit) = (Instant::now(), getrlimit(Resource::Nofile));
        let lower = Rlimit { current: limit.current.map(|files| files.min(500)), ..limit };
        let in_flight = FilesInFlight::new(3).unwrap();
        let (from, to) = UnixStream::pair().unwrap();
        let sent = file_with("sent");
        setrlimit(Resource::Nofile, lower).unwrap();
        let sender = std::thread::spawn(move || {
            // The limit does not apply to a thread with capabilities.
            set_capabilities(None, NO_CAPABILITIES).unwrap();
            send_file(&from, &sent)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!sender.is_finished());
        drop(in_flight);
        sender.join().unwrap().unwrap();
        setrlimit(Resource::Nofile, limit).unwrap();
        let (first, mut files) = receive_first(&to).unwrap();
        assert_eq!((first, contents(files.remove(0)).as_str()), (FILE_FOLLOWS, "sent"));
        let too_late = pause_for_files_in_flight(start, Duration::from_millis(10)).unwrap_err();
        assert!(too_late.to_string().contains("ulimit -n"), "{too_late}");
    }

    #[test]
    fn unknown_sockets_and_tokens_are_errors() {
        let offer = Offer::new(file_with(""), ready(), false).unwrap();
        let address = offer.address();
        let error = OfferAddress { token: [0; RANDOM_BYTES], ..address }.receive().err().unwrap();
        assert!(error.message().contains("does not share the memory"), "{error}");
        let error = OfferAddress { socket: [0; RANDOM_BYTES], ..address }.receive().err().unwrap();
        assert!(error.message().contains("must still run"), "{error}");
    }

    #[test]
    fn connection_without_a_token_does_not_delay_others() {
        let offer = Offer::new(file_with("x"), ready(), false).unwrap();
        let OfferAddress { socket, .. } = offer.address();
        let silent = SocketAddr::from_abstract_name(name(&socket).as_bytes()).unwrap();
        let silent = UnixStream::connect_addr(&silent).unwrap();
        assert_eq!(contents(offer.address().receive().unwrap().0), "x");
        drop(silent);
    }
}
