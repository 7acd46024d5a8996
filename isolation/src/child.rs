//! The process of an isolated plugin, as the host sees it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory::Stream;
use crossdock_memory_backend::Trace;
use crossdock_plugin_api::{Call, Code, Device, Error, Result};

use crate::cgroup::Group;
use crate::deadlines::Deadlines;
use crate::desk::{Desk, Progress, Threads};
use crate::lanes::Lanes;
use crate::link::{Lane, Message, STALL, fits};
use crate::locks::lock;
use crate::mapping::Allowance;
use crate::outgoing::Outgoing;
use crate::output::pass_on;
use crate::program::{DEVICE_VARIABLE, Program};
use crate::rooms::{Lender, RoomParts, Rooms};
use crate::shared::Incoming;
use crate::wire::{self, Answer, CallParts, Failure, Order, Remark, With};

/// A process that was told to end a call, or to end, has so long for it.
const GRACE: Duration = Duration::from_secs(2);
/// A release that takes longer is a hang.
const RELEASE: Duration = Duration::from_secs(10);
/// How long a driver takes to start at most, before it counts as a hang.
const START: Duration = Duration::from_secs(60);
/// A running process.
pub struct Child {
    who: String,
    process: Mutex<std::process::Child>,
    lanes: Lanes,
    pub desk: Arc<Desk>,
    threads: Threads,
    deadlines: Deadlines,
    group: Option<Group>,
    /// Somebody is seeing to its end.
    ending: AtomicBool,
    /// How it ended, if it has.
    end: OnceLock<String>,
    /// The process that started it: one that was forked off has no conversation with it.
    host: u32,
}

/// Why an answer does not come.
enum Stop {
    Io(io::Error),
    Cancelled,
    Silent(Duration),
    Long(Duration),
    Late(Duration),
}

/// How long an answer is waited for.
#[derive(Clone, Copy)]
enum Patience {
    /// Until one of them.
    Until(Deadlines),
    /// So long.
    In(Duration),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Child {
    pub fn start(
        who: String,
        program: &Program,
        group: Option<Group>,
        deadlines: Deadlines,
        rooms: Option<Arc<Rooms>>,
        trace: Option<Arc<Trace>>,
        allowed: Allowance,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            let path = program.path.display();
            Error::io(format!("cannot start '{path}' to run '{who}' in a process of its own: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear().envs(program.environment());
        if let Some(rooms) = &rooms {
            command.env(DEVICE_VARIABLE, rooms.device().to_string());
        }
        // A terminal's Ctrl-C is the host's to pass on.
        command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
        // Standard output may be the host's answer, and a terminal is the host's to write to.
        let (output, written) = io::pipe().map_err(failed)?;
        command.stdout(written.try_clone().map_err(failed)?).stderr(written);
        let desk = Arc::new(Desk::of(who.clone(), rooms, trace, allowed));
        let stall = deadlines.silence.map_or(STALL, |silence| silence.min(STALL));
        let control = Lane::from(ours.try_clone().map_err(failed)?).stall_for(stall);
        let lanes = Lanes::new(Lane::from(ours), usize::MAX, stall);
        let threads = Threads::default();
        let (served, others) = (desk.clone(), threads.clone());
        let accept = move || served.accept(&control, &others);
        // Before there is a process to see to. It ends where none is started: nobody else has the other end of the socket.
        threads.spawn(accept).map_err(failed)?;
        let of = who.clone();
        threads.spawn(move || pass_on(output, &mut io::stderr(), &of)).map_err(failed)?;
        let process = command.spawn().map_err(failed)?;
        let number = process.id();
        // It was not set before.
        let _ = desk.process.set(number);
        // The other end of the socket is the process's alone now.
        drop(command);
        let (process, ending, end) = (Mutex::new(process), AtomicBool::new(false), OnceLock::new());
        let host = std::process::id();
        let child = Self { who, process, lanes, desk, threads, deadlines, group, ending, end, host };
        // It has not been told what to load yet.
        child.group.iter().try_for_each(|group| group.take(number))?;
        Ok(child)
    }

    /// Whether it runs, and it is this process that it speaks with.
    pub fn is_there(&self) -> bool {
        // Who sees to its end takes its time for that, with the process locked.
        if self.ending.load(Ordering::SeqCst) || self.host != std::process::id() {
            return false;
        }
        let runs = matches!(lock(&self.process).try_wait(), Ok(None));
        if !runs {
            self.buried(None, "while nothing was asked of it");
        }
        runs
    }

    /// Has it load the plugin's file, before anything else.
    pub fn load(&self, order: &Order, file: &File) -> Result<()> {
        let has_driver = self.desk.rooms.is_some();
        // No sign comes of a process while its driver starts.
        let wait = |most: Duration| if has_driver { most.max(START) } else { most };
        let Deadlines { silence, call } = self.deadlines;
        let deadlines = Deadlines { silence: silence.map(wait), call: call.map(wait) };
        let message = self.message_for(order, &[], &[file.as_fd()], None, Patience::Until(deadlines))?;
        answer_in(message).map(drop)
    }

    /// Has it let go of something. It has little time for that: others wait behind it.
    pub fn release(&self, order: &Order) {
        let most = self.deadlines.silence.map_or(RELEASE, |silence| silence.min(RELEASE));
        // Where the process is gone, so is what was to be released.
        let _ = self.message_for(order, &[], &[], None, Patience::In(most));
    }

    /// What the process needs to know of a call.
    pub fn call(&self, call: &Call<'_>) -> CallParts {
        CallParts::of(call, self.desk.number(), self.device_near(call.device()))
    }

    /// Where the process works for somebody who works there.
    pub fn device_near(&self, device: Device) -> Device {
        if self.has(device) { device } else { Device::CPU }
    }

    /// Whether the process has this device.
    pub fn has(&self, device: Device) -> bool {
        device == Device::CPU || self.desk.rooms.as_ref().is_some_and(|rooms| rooms.device() == device)
    }

    /// A message in which arrays on the process's device stay there.
    pub fn outgoing(&self) -> Outgoing {
        Outgoing::to_plugin(self.desk.rooms.clone().map(|rooms| rooms as Arc<dyn Lender>))
    }

    /// Asks it, and waits for its answer, or for the end of the call or of the process.
    pub fn ask(
        &self,
        order: Order,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Answer, Incoming)> {
        self.ask_with(order, files, call, None)
    }

    /// The same, where what comes lies on a device in the order of this stream.
    pub fn ask_with(
        &self,
        order: Order,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
        stream: Option<&Stream>,
    ) -> Result<(Answer, Incoming)> {
        let message =
            self.message_for(&order, files.rooms(), &files.seal()?, call, Patience::Until(self.deadlines))?;
        let counted = wire::count(message.bytes.len(), &self.desk.allowed)?;
        let (With { message, rooms }, files) = answer_in(message)?;
        let rooms = self.desk.collect(&rooms, stream)?;
        let incoming = Incoming::of_a_plugin(files, &self.desk.allowed)?;
        Ok((message, incoming.with_rooms(rooms).counted(counted)))
    }

    fn message_for(
        &self,
        order: &Order,
        rooms: &[RoomParts],
        files: &[BorrowedFd<'_>],
        call: Option<(&Call<'_>, CallParts)>,
        patience: Patience,
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
        let progress = Arc::new(Progress::of(call.map(|(call, _)| call)));
        let _listed = call.map(|(_, parts)| Listed::new(&self.desk.calls, parts.number, progress.clone()));
        let mut begun = Instant::now();
        let (mut told, mut sign, mut cancelled) = ((0, 0), (u64::MAX, begun), None);
        let wait = || {
            if let Some((call, parts)) = call {
                let now = (progress.done.load(Ordering::Relaxed), progress.total.load(Ordering::Relaxed));
                if now != told {
                    told = now;
                    call.progress(now.0, now.1);
                }
                if call.is_cancelled() {
                    // For what the host does for the process meanwhile.
                    progress.cancel.cancel();
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
            // The host's own time is none of the process's: there is an end to what it may have ended.
            if self.desk.ending.load(Ordering::Relaxed) > 0 {
                begun = Instant::now();
            }
            match patience {
                Patience::Until(Deadlines { silence: Some(most), .. }) if sign.1.elapsed() > most => {
                    Err(Stop::Silent(most))
                }
                Patience::Until(Deadlines { call: Some(most), .. }) if begun.elapsed() > most => {
                    Err(Stop::Long(most))
                }
                Patience::In(most) if begun.elapsed() > most => Err(Stop::Late(most)),
                _ => Ok(()),
            }
        };
        let bytes = wire::write(&(order, rooms))?;
        fits(bytes.len())?;
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
            Stop::Long(most) => {
                let why = format!("one call of it took longer than {most:?}, and it was ended");
                self.ended(&self.buried(Some(&why), ""))
            }
            Stop::Late(most) => {
                let why = format!("it did not let go of something within {most:?}, and was ended");
                self.ended(&self.buried(Some(&why), ""))
            }
        })
    }

    fn ended(&self, how: &str) -> Error {
        Error::new(Code::PANICKED, format!("the process of '{}' is gone: {how}", self.who))
    }

    /// Sees to the process's end; how it was.
    fn buried(&self, why: Option<&str>, otherwise: &str) -> String {
        self.ending.store(true, Ordering::SeqCst);
        let mut process = lock(&self.process);
        if let Some(end) = self.end.get() {
            return end.clone();
        }
        self.lanes.close();
        let status = if why.is_some() { None } else { exit_within(&mut process, GRACE) };
        let end = match (why, status) {
            (Some(why), _) => why.to_owned(),
            // It goes so when it cannot be spoken with any more, whoever ended that.
            (None, Some(status)) if status.success() => format!("{} ({otherwise})", words(status)),
            (None, Some(status)) => {
                self.group.as_ref().and_then(Group::ended_for_memory).unwrap_or_else(|| words(status))
            }
            (None, None) => format!("it cannot be spoken with ({otherwise}), and was ended"),
        };
        // It fails for one that has ended, which is as well.
        let _ = process.kill();
        let _ = process.wait();
        self.desk.forget_process();
        self.end.get_or_init(|| end).clone()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.host != std::process::id() {
            return;
        }
        if self.end.get().is_none() {
            // Its end of the conversation is its sign to go.
            self.lanes.close();
            let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
            if exit_within(process, GRACE).is_none() {
                let _ = process.kill();
                let _ = process.wait();
            }
            self.desk.forget_process();
        }
        self.threads.end_within(GRACE);
    }
}

pub fn answer_in(message: Message) -> Result<(With<Answer>, Vec<OwnedFd>)> {
    let answer: std::result::Result<With<Answer>, Failure> = wire::read(&message.bytes)?;
    Ok((answer?, message.files))
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
