//! Cancels the plugin's calls while they wait for bytes of a pipe.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_schema::SchemaRef;
use crossdock::api::{ByteSource, CallSettings, CancelFlag, Code, Error, Input, Result, Source};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::round_trip::{self, Readable, WriterOutput};
use super::super::subject::Subject;
use super::super::tables::FORMS;

pub const CASES: &[Case] = &[Case {
    name: "calls.woken_read",
    rule: "If a read of a source fails with CROSSDOCK_CANCELLED because the call was cancelled, the call returns \
           CROSSDOCK_CANCELLED within 100 ms.",
    spec_ref: "crossdock_call.cancel",
    depends_on: &["calls.cancelled_read", "importer.pipe", "importer.failing_source"],
    on_devices: false,
    check: woken_read,
}];

/// The measured limit is longer than that of the rule, because the machine may be busy.
const MAX_DELAY: Duration = Duration::from_secs(4);
/// The time after which a wait that was not cancelled ends, so that the case itself ends.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// A pipe whose writer stops after `bytes`, without closing it.
struct SilentPipe {
    bytes: Vec<u8>,
    cancel: CancelFlag,
    /// Receives a message when a read waits for further bytes.
    waiting: Mutex<Sender<()>>,
    /// When the first read was woken.
    woken: Arc<Mutex<Option<Instant>>>,
}

impl ByteSource for SilentPipe {
    fn name(&self) -> &str {
        "a silent pipe of crossdock verify"
    }

    fn len(&self) -> Option<u64> {
        None
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..));
        let rest = rest.unwrap_or_default();
        if rest.len() >= to.len() {
            to.copy_from_slice(&rest[..to.len()]);
            return Ok(to.len());
        }
        // The receiver is gone if the case has ended.
        let _ = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).send(());
        if !self.cancel.as_cancel().wait(MAX_WAIT) {
            return Err(Error::io("the call was not cancelled"));
        }
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        Err(Error::cancelled("a read of crossdock verify was cancelled"))
    }
}

/// Reads a pipe that has only the first bytes of a table. Cancels the call when a read waits.
/// Returns the error of the plugin and its delay, or `None` if no read waited.
fn read_cancelled(
    subject: &Subject,
    readable: &Readable,
    schema: Option<&SchemaRef>,
    bytes: &[u8],
) -> Option<(Result<&'static str>, Duration)> {
    let (cancel, woken) = (CancelFlag::new(), Arc::default());
    let (waiting, is_waiting) = channel();
    let pipe = SilentPipe {
        bytes: bytes.to_vec(),
        cancel: cancel.clone(),
        waiting: Mutex::new(waiting),
        woken: Arc::clone(&woken),
    };
    let call = CallSettings { cancel: cancel.clone(), ..subject.call() };
    let result = std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_waiting.recv_timeout(MAX_WAIT).is_ok() {
                cancel.cancel();
            }
        });
        let input = Input::Source(Source::new(Arc::new(pipe)));
        let mut stream = round_trip::open(subject, &call, &readable.format, input, schema)?;
        while stream.next(&call)?.is_some() {}
        Ok("the end")
    });
    let woken = woken.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some((result, woken.elapsed()))
}

fn woken_read(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut has_waited = false;
    for readable in round_trip::byte_formats(context, &subject)? {
        let Some(table) = context.first_table(&subject, &readable, FORMS[0])? else { continue };
        let batches = context.table_for(&readable.batch_format, &table)?;
        let (schema, counts) = (table.schema(), ReleaseCounts::default());
        let format = &readable.batch_format;
        // Another case reports a table that cannot be written.
        let written = round_trip::write(&subject, &subject.call(), format, &schema, &batches, &counts);
        let Ok(WriterOutput::Bytes(bytes)) = written else { continue };
        let expected_schema = round_trip::expected_schema(&readable, &schema);
        for length in [bytes.len() / 8, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            let place = format!("'{}' from a pipe without bytes after {length}", readable.format.name);
            let read = read_cancelled(&subject, &readable, expected_schema.as_ref(), &bytes[..length]);
            // A format that cannot be read from a pipe waits for nothing.
            let Some((result, delay)) = read else { continue };
            has_waited = true;
            match result {
                Err(error) if error.code() == Code::CANCELLED => {}
                Err(error) => {
                    let got = format!("{:?}: {error}", error.code());
                    return Err(failed(place, "CROSSDOCK_CANCELLED", got));
                }
                Ok(what) => return Err(failed(place, "CROSSDOCK_CANCELLED", what)),
            }
            if delay > MAX_DELAY {
                let expected = format!("an end at most {MAX_DELAY:?} after the read was woken");
                return Err(failed(place, expected, format!("{delay:?}")));
            }
        }
    }
    if has_waited { Ok(()) } else { Err(not_offered("no byte format of the plugin can be read from a pipe")) }
}
