//! Starts the process of an isolated plugin, sends it requests and ends it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossdock_memory_backend::Trace;
use crossdock_plugin_api::{Call, Code, Device, Error, Result};

use crate::files::mapping::ReceiveBudget;
use crate::host::callback_server::{CallState, CallbackServer};
use crate::host::deadlines::Deadlines;
use crate::host::open_sink::Arrival;
use crate::host::output::forward_output;
use crate::host::program::Program;
use crate::host::response_wait::{GRACE, ResponseWait, Timeout, WaitError};
use crate::host::threads::ThreadGroup;
use crate::host::writable_segments::WritableSegments;
use crate::locks::lock;
use crate::sandbox::cgroup::Group;
use crate::wire::channel::{Channel, Message, STALL_TIMEOUT};
use crate::wire::channels::Channels;
use crate::wire::incoming::Incoming;
use crate::wire::message_limits::check_len;
use crate::wire::messages::{
    self, CallParts, DEVICE_VARIABLE, Failure, Notice, Request, Response, WithSegments,
};
use crate::wire::outgoing::Outgoing;
use crate::wire::segments::{SegmentParts, SegmentSender, Streams};

/// The maximum time of a release. The host ends a process that exceeds this time.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time for the start of a CUDA driver. The host ends a process that exceeds this time.
const DRIVER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// A plugin's process.
pub struct Child {
    /// The plugin's name in messages.
    plugin: String,
    process: Mutex<std::process::Child>,
    channels: Channels,
    pub callbacks: Arc<CallbackServer>,
    threads: ThreadGroup,
    deadlines: Deadlines,
    group: Option<Group>,
    /// Whether a thread has begun to end the process.
    is_ending: AtomicBool,
    /// Why the process has ended.
    end_reason: OnceLock<String>,
    /// The id of the process that started the plugin's process. Forked children of the host must
    /// not use the channels.
    host_id: u32,
}

impl Child {
    /// Starts the process, which then waits for [`Request::Load`]. `segments` are the segments on
    /// its device and in host memory, which are the same if it has no device.
    ///
    /// # Errors
    /// The program cannot be started, or its process cannot be moved into the control group.
    pub fn start(
        plugin: String,
        program: &Program,
        group: Option<Group>,
        deadlines: Deadlines,
        segments: (Arc<WritableSegments>, Arc<WritableSegments>),
        trace: Option<Arc<Trace>>,
        budget: ReceiveBudget,
    ) -> Result<Self> {
        let failed = |error: io::Error| {
            let path = program.path.display();
            Error::io(format!("cannot start '{path}' to run '{plugin}' in a process of its own: {error}"))
        };
        let (local, remote) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear().envs(program.environment());
        if segments.0.device() != Device::CPU {
            command.env(DEVICE_VARIABLE, segments.0.device().to_string());
        }
        // The process has its own process group, so that Ctrl-C in a terminal reaches only the
        // host.
        command.process_group(0).stdin(Stdio::from(OwnedFd::from(remote)));
        // The process does not inherit the host's standard output, which may carry the host's
        // result, or its standard error, which may be a terminal.
        let (output, output_writer) = io::pipe().map_err(failed)?;
        command.stdout(output_writer.try_clone().map_err(failed)?).stderr(output_writer);
        let callbacks = Arc::new(CallbackServer::new(plugin.clone(), segments, trace, budget));
        let stall_timeout = deadlines.silence.map_or(STALL_TIMEOUT, |silence| silence.min(STALL_TIMEOUT));
        let control = Channel::from(local.try_clone().map_err(failed)?).with_stall_timeout(stall_timeout);
        let channels = Channels::new(Channel::from(local), usize::MAX, stall_timeout);
        let threads = ThreadGroup::default();
        let (server, server_threads) = (callbacks.clone(), threads.clone());
        let accept = move || server.accept_channels(&control, &server_threads);
        // The threads are started before the process. If the start of the process fails, the remote
        // ends are closed and the threads end.
        threads.spawn(accept).map_err(failed)?;
        let name = plugin.clone();
        threads.spawn(move || forward_output(output, &mut io::stderr(), &name)).map_err(failed)?;
        let process = command.spawn().map_err(failed)?;
        let id = process.id();
        // `set` cannot fail, because only this line sets the id.
        let _ = callbacks.process_id.set(id);
        // Closes this process's copies of the remote ends.
        drop(command);
        let child = Self {
            plugin,
            process: Mutex::new(process),
            channels,
            callbacks,
            threads,
            deadlines,
            group,
            is_ending: AtomicBool::new(false),
            end_reason: OnceLock::new(),
            host_id: std::process::id(),
        };
        // The process joins the group before it loads the plugin.
        child.group.iter().try_for_each(|group| group.add(id))?;
        Ok(child)
    }

    /// Whether the process runs and this process started it.
    pub fn is_running(&self) -> bool {
        // Does not wait for the lock of `process`, because a thread that ends the process holds the
        // lock for a while.
        if self.is_ending.load(Ordering::SeqCst) || self.is_in_forked_process() {
            return false;
        }
        let is_running = matches!(lock(&self.process).try_wait(), Ok(None));
        if !is_running {
            self.terminate(None, "while no request was pending");
        }
        is_running
    }

    pub fn is_in_forked_process(&self) -> bool {
        self.host_id != std::process::id()
    }

    /// Loads the plugin's file. Must be the first request.
    pub fn load(&self, request: &Request, file: &File) -> Result<()> {
        let has_driver = self.callbacks.writable_segments.device() != Device::CPU;
        // A process sends no messages while its driver starts, so the timeout is extended.
        let extend = |timeout: Duration| if has_driver { timeout.max(DRIVER_START_TIMEOUT) } else { timeout };
        let Deadlines { silence, call } = self.deadlines;
        let deadlines = Deadlines { silence: silence.map(extend), call: call.map(extend) };
        let message = self.exchange(request, &[], &[file.as_fd()], None, Timeout::Deadlines(deadlines))?;
        parse_response(message, &self.callbacks).map(drop)
    }

    /// Releases an object in the process. The timeout is short because other threads may wait for
    /// the release.
    pub fn release(&self, request: &Request) {
        let timeout = self.deadlines.silence.map_or(RELEASE_TIMEOUT, |silence| silence.min(RELEASE_TIMEOUT));
        // An error means that the process has ended. Then the object no longer exists.
        let response = self.exchange(request, &[], &[], None, Timeout::Release(timeout));
        let _ = response.and_then(|response| parse_response(response, &self.callbacks));
    }

    /// Returns the settings of a call for a request, with a new call id.
    pub fn call_parts(&self, call: &Call<'_>) -> CallParts {
        CallParts::new(call, self.callbacks.next_id(), self.nearest_device(call.device()))
    }

    /// Returns `device` if the process has it, otherwise the CPU.
    pub fn nearest_device(&self, device: Device) -> Device {
        if self.has(device) { device } else { Device::CPU }
    }

    /// Whether the process has `device`.
    pub fn has(&self, device: Device) -> bool {
        device == Device::CPU || self.callbacks.writable_segments.device() == device
    }

    /// Creates an empty message. Arrays on the process's device are sent in segments.
    pub fn outgoing(&self) -> Outgoing {
        self.callbacks.outgoing()
    }

    /// Sends a request and waits for the response. Arrays in the response must not be in segments.
    pub fn request(
        &self,
        request: Request,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<(Response, Incoming)> {
        self.request_on(request, files, call, None)
    }

    /// Sends a request and waits for the response. Arrays of the response that are in segments are
    /// ready in the order of the stream in `streams` for their device.
    ///
    /// # Errors
    /// The plugin returned an error, the process has ended or exceeded a deadline, or the call was
    /// cancelled.
    pub fn request_on(
        &self,
        request: Request,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
        streams: Option<&Streams>,
    ) -> Result<(Response, Incoming)> {
        let message = self.exchange_with(&request, files, call)?;
        let reservation = messages::charge(message.bytes.len(), &self.callbacks.budget)?;
        let (WithSegments { message, segments }, files) = parse_response(message, &self.callbacks)?;
        let segments = self.callbacks.receive_segments(&segments, streams)?;
        let incoming = Incoming::from_plugin(files, &self.callbacks.budget)?;
        Ok((message, incoming.with_segments(segments).with_reservation(reservation)))
    }

    /// Sends a request of a writer, and writes the bytes of the response to the sink.
    ///
    /// # Errors
    /// Those of [`Self::request_on`], and the errors of the sink.
    pub fn request_to_write(
        &self,
        request: Request,
        files: &Outgoing,
        call: (&Call<'_>, CallParts),
        sink: u64,
    ) -> Result<()> {
        let fail = |_: &Error| self.callbacks.fail_sink(sink);
        let message = self.exchange_with(&request, files, Some(call)).inspect_err(fail)?;
        // The bytes to write follow the response and are not parsed. A longer response is an error.
        let head = &message.bytes[..message.bytes.len().min(messages::MAX_UNCHARGED_BYTES)];
        let Ok(((returned, response), rest)) = messages::from_prefix::<Parsed>(head) else {
            self.callbacks.fail_sink(sink);
            let _reservation = messages::charge(message.bytes.len(), &self.callbacks.budget)?;
            parse_response(message, &self.callbacks)?;
            return Err(unexpected_response());
        };
        let inline = &message.bytes[head.len() - rest.len()..];
        let write = |response: WithSegments<Response>| match response.message {
            Response::Written(write) if write.pieces.is_empty() => Ok(()),
            Response::Written(write) => self.callbacks.write(sink, write, inline, Arrival::Response),
            _ => Err(unexpected_response()),
        };
        let result = response.map_err(Error::from).and_then(write);
        returned.into_iter().for_each(|number| self.callbacks.return_segment(number));
        result
    }

    fn exchange_with(
        &self,
        request: &Request,
        files: &Outgoing,
        call: Option<(&Call<'_>, CallParts)>,
    ) -> Result<Message> {
        let timeout = Timeout::Deadlines(self.deadlines);
        let exchange = || self.exchange(request, files.segments(), &files.seal()?, call, timeout);
        // After an error, the process has ended or did not receive the segments.
        exchange().inspect_err(|_| self.take_back(files))
    }

    /// Takes the segments of a message back that the process does not receive.
    pub fn take_back(&self, files: &Outgoing) {
        files.segments().iter().for_each(|parts| self.callbacks.return_segment(parts.number));
    }

    fn exchange(
        &self,
        request: &Request,
        segments: &[SegmentParts],
        files: &[BorrowedFd<'_>],
        call: Option<(&Call<'_>, CallParts)>,
        timeout: Timeout,
    ) -> Result<Message> {
        if let Some(reason) = self.end_reason.get() {
            return Err(self.ended_error(reason));
        }
        if self.is_in_forked_process() {
            return Err(Error::unsupported(format!(
                "the process of '{}' was started by another process, of which this one is a fork",
                self.plugin
            )));
        }
        let state = Arc::new(CallState::new(call.map(|(call, _)| call)));
        let _entry = call.map(|(_, parts)| self.callbacks.add_call(parts.id, state.clone()));
        let bytes = messages::to_bytes(&(request, segments))?;
        check_len(bytes.len())?;
        let mut wait = ResponseWait::new(&self.callbacks, call.map(|(call, _)| call), &state, timeout);
        let cancel = || -> io::Result<()> {
            let notice = call.map(|(_, parts)| messages::to_bytes(&Notice::Cancel(parts.id)));
            self.channels.notify(&notice.transpose().unwrap_or_default().unwrap_or_default())
        };
        let response = self
            .channels
            .request(&bytes, &[], files, call.map(|(call, _)| call.cancel()), || wait.check(cancel));
        wait.report_final_progress();
        response.map_err(|error| self.terminate_after(error))
    }

    /// Ends the process after an exchange failed, and returns the error of the call.
    fn terminate_after(&self, error: WaitError) -> Error {
        let reason = match error {
            WaitError::Io(error) => return self.ended_error(&self.terminate(None, &error.to_string())),
            WaitError::Cancelled => {
                self.terminate(Some("the process did not end a cancelled call, and was killed"), "");
                return Error::cancelled("cancelled");
            }
            WaitError::Silence(max) => format!("the process sent no message for {max:?}, and was killed"),
            WaitError::CallTooLong(max) => {
                format!("a call took longer than {max:?}, and the process was killed")
            }
            WaitError::ReleaseTooLong(max) => {
                format!("the process did not release an object within {max:?}, and was killed")
            }
        };
        self.ended_error(&self.terminate(Some(&reason), ""))
    }

    fn ended_error(&self, reason: &str) -> Error {
        Error::new(Code::PANICKED, format!("the process of '{}' has ended: {reason}", self.plugin))
    }

    /// Ends the process: kills it for `kill_reason`, or waits for its exit after the connection
    /// failed with `io_error`. Returns the reason for its end.
    fn terminate(&self, kill_reason: Option<&str>, io_error: &str) -> String {
        self.is_ending.store(true, Ordering::SeqCst);
        let mut process = lock(&self.process);
        if let Some(reason) = self.end_reason.get() {
            return reason.clone();
        }
        self.channels.close();
        let status = if kill_reason.is_some() { None } else { exit_within(&mut process, GRACE) };
        let reason = match (kill_reason, status) {
            (Some(reason), _) => reason.to_owned(),
            // A process exits successfully when its connection is closed, so the I/O error is the
            // reason for its end.
            (None, Some(status)) if status.success() => format!("{} ({io_error})", describe(status)),
            (None, Some(status)) => {
                self.group.as_ref().and_then(Group::out_of_memory_kill).unwrap_or_else(|| describe(status))
            }
            (None, None) => format!("the connection failed ({io_error}), and the process was killed"),
        };
        // Fails if the process has exited already.
        let _ = process.kill();
        let _ = process.wait();
        self.callbacks.process_ended();
        self.end_reason.get_or_init(|| reason).clone()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.is_in_forked_process() {
            return;
        }
        if self.end_reason.get().is_none() {
            // The process exits when the connection is closed.
            self.channels.close();
            let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
            if exit_within(process, GRACE).is_none() {
                let _ = process.kill();
                let _ = process.wait();
            }
            self.callbacks.process_ended();
        }
        self.threads.wait_within(GRACE);
    }
}

/// The segments that the process returns, and its response.
type Parsed = (Vec<u64>, std::result::Result<WithSegments<Response>, Failure>);

/// The error for a response of the wrong kind.
pub fn unexpected_response() -> Error {
    Error::bad_data("the process of an isolated plugin sent the response to another request")
}

/// Parses a response, and takes the segments back that the process returns with it.
pub fn parse_response(
    message: Message,
    callbacks: &CallbackServer,
) -> Result<(WithSegments<Response>, Vec<OwnedFd>)> {
    let (returned, response): Parsed = messages::from_bytes(&message.bytes)?;
    returned.into_iter().for_each(|number| callbacks.return_segment(number));
    Ok((response?, message.files))
}

fn exit_within(process: &mut std::process::Child, time: Duration) -> Option<ExitStatus> {
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

fn describe(status: ExitStatus) -> String {
    let name = |signal| match signal {
        libc::SIGSEGV => " (SIGSEGV: it accessed an invalid address)",
        libc::SIGBUS => " (SIGBUS: a mapped file was truncated, or memory is not available)",
        libc::SIGABRT => " (SIGABRT: it aborted)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL: it was killed, perhaps by the system for lack of memory)",
        _ => "",
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("signal {signal}{}", name(signal)),
        (None, code) => format!("exit status {}", code.unwrap_or_default()),
    }
}
