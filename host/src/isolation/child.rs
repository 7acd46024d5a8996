//! The process of an isolated plugin, as the host sees it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crossdock_arrays::import_batch;
use crossdock_memory::{Memory, Stream};
use crossdock_plugin_api::{Call, CallSettings, Code, Device, Error, Host, Result, Sink, Source};

use super::freight::BatchParts;
use super::link::{Lane, Lanes, Message, Reply};
use super::remote::column_schema;
use super::shared::{Incoming, Outgoing};
use super::wire::{self, Answer, CallParts, Failure, Grant, Order, Remark, Wish};
use super::{Isolation, Program};
use crate::host_object::heard;

/// A process that was told to end a call, or to end, has so long for it.
const GRACE: Duration = Duration::from_secs(2);
/// A release that takes longer is a hang.
const RELEASE: Duration = Duration::from_secs(10);
/// What is on its way to or from a process does not stop for longer.
const STALL: Duration = Duration::from_secs(60);
/// No process has a use for more questions at once.
const MOST_LANES: usize = 64;
/// Bytes read for a process at once.
const MOST_READ: u64 = 1 << 20;

/// A plugin that is to run in a process of its own: one for all of its instances in a host, and a new one after its end.
pub struct Isolated {
    who: String,
    file: File,
    isolation: Isolation,
    running: Mutex<Weak<Child>>,
}

impl Isolated {
    pub fn new(who: String, file: File, isolation: Isolation) -> Self {
        Self { who, file, isolation, running: Mutex::default() }
    }

    /// Its process: the one that runs, or a new one.
    pub fn child(&self, memory_limit_bytes: u64) -> Result<Arc<Child>> {
        let mut running = lock(&self.running);
        if let Some(child) = running.upgrade().filter(|child| child.end.get().is_none()) {
            return Ok(child);
        }
        let program = self.isolation.program()?;
        let child = Arc::new(Child::start(self.who.clone(), &program, self.isolation.silence)?);
        let (version, who) = (env!("CARGO_PKG_VERSION").to_owned(), self.who.clone());
        let order = Order::Load { version, who, memory_limit_bytes };
        child.answer_to(&order, &[self.file.as_fd()], None)?;
        *running = Arc::downgrade(&child);
        Ok(child)
    }
}

/// A running process.
pub struct Child {
    who: String,
    process: Mutex<std::process::Child>,
    lanes: Lanes,
    pub desk: Arc<Desk>,
    silence: Option<Duration>,
    /// How it ended, if it has.
    end: OnceLock<String>,
    /// The process that started it: one that was forked off has no conversation with it.
    host: u32,
}

/// What the process is served with while it works.
pub struct Desk {
    who: String,
    sources: Mutex<HashMap<u64, Arc<Source>>>,
    sinks: Mutex<HashMap<u64, Arc<Mutex<Sink>>>>,
    /// Whose sessions decode for them.
    instances: Mutex<HashMap<u64, Decoding>>,
    calls: Mutex<HashMap<u64, Arc<Progress>>>,
    next: AtomicU64,
    lanes: AtomicUsize,
    /// Counts what it has asked for, and what of it the host is about to do.
    signs: AtomicU64,
    busy: AtomicUsize,
}

/// What decodes for an instance.
#[derive(Clone)]
pub struct Decoding {
    pub host: Host,
    pub memory: Memory,
    pub stream: Stream,
}

/// How far a call is: told to whoever called by the thread that waits for it.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    total: AtomicU64,
}

/// Why an answer does not come.
enum Stop {
    Io(io::Error),
    Cancelled,
    Silent(Duration),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Child {
    fn start(who: String, program: &Program, silence: Option<Duration>) -> Result<Self> {
        let failed = |error: io::Error| {
            let path = program.path.display();
            Error::io(format!("cannot start '{path}' to run '{who}' in a process of its own: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear().envs(program.environment());
        // A terminal's Ctrl-C is the host's to pass on.
        command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
        // Standard output may be the host's answer.
        command.stdout(io::stderr().as_fd().try_clone_to_owned().map_err(failed)?);
        let desk = Arc::new(Desk::of(who.clone()));
        let control = Lane::from(ours.try_clone().map_err(failed)?);
        let stall = silence.map_or(STALL, |silence| silence.min(STALL));
        let lanes = Lanes::new(Lane::from(ours), stall).map_err(failed)?;
        let served = desk.clone();
        let accept = move || served.accept(&control);
        // Before there is a process to see to. It ends where none is started: nobody else has the other end of the socket.
        std::thread::Builder::new().name("crossdock-isolated".into()).spawn(accept).map_err(failed)?;
        let process = command.spawn().map_err(failed)?;
        // The other end of the socket is the process's alone now.
        drop(command);
        let (process, end, host) = (Mutex::new(process), OnceLock::new(), std::process::id());
        Ok(Self { who, process, lanes, desk, silence, end, host })
    }

    /// Has it let go of something. It has little time for that: others wait behind it.
    pub fn release(&self, order: &Order) {
        let most = self.silence.map_or(RELEASE, |silence| silence.min(RELEASE));
        // Where the process is gone, so is what was to be released.
        let _ = self.message_for(order, &[], None, Some(most));
    }

    /// What the process needs to know of a call.
    pub fn call(&self, call: &Call<'_>) -> CallParts {
        let validate_full = call.validate() == crossdock_plugin_api::Validate::Full;
        CallParts { number: self.desk.number(), byte_budget: call.byte_budget(), validate_full }
    }

    /// Asks it, and waits for its answer, or for the end of the call or of the process.
    pub fn ask(
        &self,
        order: &Order,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Answer, Incoming)> {
        self.answer_to(order, &files.seal()?, call)
    }

    fn answer_to(
        &self,
        order: &Order,
        files: &[BorrowedFd<'_>],
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Answer, Incoming)> {
        let message = self.message_for(order, files, call, self.silence)?;
        let answer: std::result::Result<Answer, Failure> = wire::read(&message.bytes)?;
        Ok((answer?, Incoming::of_a_plugin(message.files)?))
    }

    fn message_for(
        &self,
        order: &Order,
        files: &[BorrowedFd<'_>],
        call: Option<(&Call<'_>, CallParts)>,
        silence: Option<Duration>,
    ) -> Result<Message> {
        if let Some(end) = self.end.get() {
            return Err(self.ended(end));
        }
        if self.host != std::process::id() {
            return Err(Error::unsupported(format!(
                "the process of '{}' belongs to the one that this one was forked off",
                self.who
            )));
        }
        let progress = Arc::new(Progress::default());
        let _listed = call.map(|(_, parts)| Listed::new(&self.desk.calls, parts.number, progress.clone()));
        let (mut told, mut sign, mut cancelled) = ((0, 0), (u64::MAX, Instant::now()), None);
        let wait = || {
            if let Some((call, parts)) = call {
                let now = (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
                if now != told {
                    told = now;
                    call.progress(now.0, now.1);
                }
                if call.is_cancelled() {
                    let since = match cancelled {
                        Some(since) => since,
                        None => {
                            let remark = wire::write(&Remark::Cancel(parts.number));
                            self.lanes.tell(&remark.unwrap_or_default())?;
                            Instant::now()
                        }
                    };
                    cancelled = Some(since);
                    if since.elapsed() > GRACE {
                        return Err(Stop::Cancelled);
                    }
                }
            }
            let signs = self.desk.signs.load(Ordering::Relaxed);
            // While it waits for the host, the host has no business to wait for it.
            if signs != sign.0 || self.desk.busy.load(Ordering::Relaxed) > 0 {
                sign = (signs, Instant::now());
            }
            match silence {
                Some(most) if sign.1.elapsed() > most => Err(Stop::Silent(most)),
                _ => Ok(()),
            }
        };
        let bytes = wire::write(order)?;
        let answer = self.lanes.ask(&bytes, &[], files, wait);
        if let Some((call, _)) = call {
            let (done, total) =
                (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
            if (done, total) != (0, 0) {
                call.progress(done, total);
            }
        }
        answer.map_err(|stop| match stop {
            Stop::Io(error) => self.ended(&self.buried(None, &error.to_string())),
            Stop::Cancelled => {
                self.buried(Some("it did not end a cancelled call, and was ended"), "");
                Error::cancelled("cancelled")
            }
            Stop::Silent(most) => {
                let why = format!("it gave no sign of life for {most:?}, and was ended");
                self.ended(&self.buried(Some(&why), ""))
            }
        })
    }

    fn ended(&self, how: &str) -> Error {
        Error::new(Code::PANICKED, format!("the process of '{}' is gone: {how}", self.who))
    }

    /// Sees to the process's end; how it was.
    fn buried(&self, why: Option<&str>, otherwise: &str) -> String {
        let mut process = lock(&self.process);
        if let Some(end) = self.end.get() {
            return end.clone();
        }
        self.lanes.close();
        let status = if why.is_some() { None } else { exit_within(&mut process, GRACE) };
        let end = match (why, status) {
            (Some(why), _) => why.to_owned(),
            (None, Some(status)) => words(status),
            (None, None) => format!("it cannot be spoken with ({otherwise}), and was ended"),
        };
        // It fails for one that has ended, which is as well.
        let _ = process.kill();
        let _ = process.wait();
        self.end.get_or_init(|| end).clone()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.end.get().is_some() || self.host != std::process::id() {
            return;
        }
        // Its end of the conversation is its sign to go.
        self.lanes.close();
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        if exit_within(process, GRACE).is_none() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn exit_within(process: &mut std::process::Child, time: Duration) -> Option<std::process::ExitStatus> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(100);
    loop {
        match process.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if start.elapsed() < time => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(Duration::from_millis(20));
            }
            _ => return None,
        }
    }
}

fn words(status: std::process::ExitStatus) -> String {
    let name = |signal| match signal {
        libc::SIGSEGV => " (SIGSEGV: it touched memory that is not its own)",
        libc::SIGBUS => " (SIGBUS: a file that it reads was cut short, or memory is not there)",
        libc::SIGABRT => " (SIGABRT: it gave up)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL: somebody ended it, perhaps the system for want of memory)",
        _ => "",
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}{}", name(signal)),
        (None, code) => format!("it exited with status {}", code.unwrap_or_default()),
    }
}

/// An entry of a list for as long as this lives.
struct Listed<'a, T> {
    list: &'a Mutex<HashMap<u64, T>>,
    number: u64,
}

impl<'a, T> Listed<'a, T> {
    fn new(list: &'a Mutex<HashMap<u64, T>>, number: u64, entry: T) -> Self {
        lock(list).insert(number, entry);
        Self { list, number }
    }
}

impl<T> Drop for Listed<'_, T> {
    fn drop(&mut self) {
        let gone = lock(self.list).remove(&self.number);
        drop(gone);
    }
}

impl Desk {
    fn of(who: String) -> Self {
        let (sources, sinks, calls) = (Mutex::default(), Mutex::default(), Mutex::default());
        let instances = Mutex::default();
        let (next, signs) = (AtomicU64::new(1), AtomicU64::new(0));
        let (lanes, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { who, sources, sinks, instances, calls, next, lanes, signs, busy }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the process read; the number to read by.
    pub fn add_source(&self, source: Arc<Source>) -> u64 {
        let number = self.number();
        lock(&self.sources).insert(number, source);
        number
    }

    /// Lets the process write; the number to write by.
    pub fn add_sink(&self, sink: Sink) -> u64 {
        let number = self.number();
        lock(&self.sinks).insert(number, Arc::new(Mutex::new(sink)));
        number
    }

    /// Lets an instance have arrays decoded.
    pub fn add_instance(&self, number: u64, decoding: Decoding) {
        lock(&self.instances).insert(number, decoding);
    }

    /// It has none decoded any more.
    pub fn remove_instance(&self, number: u64) {
        let gone = lock(&self.instances).remove(&number);
        drop(gone);
    }

    /// It reads there no more.
    pub fn remove_source(&self, number: u64) {
        let gone = lock(&self.sources).remove(&number);
        drop(gone);
    }

    /// It writes there no more.
    pub fn remove_sink(&self, number: u64) {
        let gone = lock(&self.sinks).remove(&number);
        drop(gone);
    }

    /// Takes new lanes, and answers on each of them, until the process ends.
    fn accept(self: Arc<Self>, control: &Lane) {
        while let Ok(Some(message)) = control.receive() {
            for file in message.files {
                if self.lanes.fetch_add(1, Ordering::Relaxed) >= MOST_LANES {
                    return control.close();
                }
                let (desk, lane) = (self.clone(), Lane::from(file));
                let serve = move || lane.serve(|message| desk.answer(message));
                if std::thread::Builder::new().name("crossdock-isolated".into()).spawn(serve).is_err() {
                    return control.close();
                }
            }
        }
        // Nobody reads or writes for it any more.
        let gone = (std::mem::take(&mut *lock(&self.sources)), std::mem::take(&mut *lock(&self.sinks)));
        drop(gone);
    }

    fn answer(&self, question: Message) -> Reply {
        self.signs.fetch_add(1, Ordering::Relaxed);
        self.busy.fetch_add(1, Ordering::Relaxed);
        let mut answer: std::result::Result<Grant, Failure> = Err(Error::internal("the host failed").into());
        let mut reply = Reply::default();
        crossdock_plugin_api::door::leave(|| {
            let wish = wire::read_head(&question.bytes);
            let grant = |(wish, rest): (Wish, &[u8])| self.grant(wish, rest, question.files, &mut reply);
            answer = wish.and_then(grant).map_err(Failure::from);
        });
        self.busy.fetch_sub(1, Ordering::Relaxed);
        Reply { bytes: wire::write(&answer).unwrap_or_default(), ..reply }
    }

    fn grant(&self, wish: Wish, rest: &[u8], files: Vec<OwnedFd>, reply: &mut Reply) -> Result<Grant> {
        match wish {
            Wish::Read { source, offset, bytes } => {
                let source = lock(&self.sources).get(&source).cloned();
                let source = source.ok_or_else(|| Error::invalid_argument("a source that was released"))?;
                reply.after.resize(bytes.min(MOST_READ) as usize, 0);
                let n = source.read_at(offset, &mut reply.after)?;
                reply.after.truncate(n);
                return Ok(Grant::Bytes);
            }
            Wish::Write { sink } => {
                let sink = lock(&self.sinks).get(&sink).cloned();
                let sink = sink.ok_or_else(|| Error::invalid_argument("a sink that was released"))?;
                lock(&sink).write(rest)?;
            }
            Wish::EndSource(source) => self.remove_source(source),
            Wish::EndSink(sink) => self.remove_sink(sink),
            Wish::Decode { instance, tree } => {
                let by = lock(&self.instances).get(&instance).cloned();
                let by = by.ok_or_else(|| Error::invalid_argument("an instance that was destroyed"))?;
                let tree = tree.read(&Incoming::of_a_plugin(files)?)?;
                let schema = column_schema(tree.root()?)?;
                let batch = CallSettings::new(Device::CPU).enter(|call| by.host.decode(call, tree))?;
                let mut files = Outgoing::default();
                let batch =
                    BatchParts::write(import_batch(batch, &schema, &by.memory)?, &by.stream, &mut files)?;
                reply.files = files.into_files()?;
                return Ok(Grant::Batch(batch));
            }
            Wish::Progress { call, done, total } => {
                if let Some(progress) = lock(&self.calls).get(&call) {
                    progress.done.store(done, Ordering::Relaxed);
                    progress.total.store(total, Ordering::Relaxed);
                }
            }
            Wish::Log { level, message } => heard(&self.who, level, &message),
        }
        Ok(Grant::Done)
    }
}
