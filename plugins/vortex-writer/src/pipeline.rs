//! Drives the crate's writer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crossdock_plugin_api::{Call, Error, Result, Sink, Tasks};
use futures::FutureExt;
use futures::channel::mpsc::{Sender, channel};
use futures::future::BoxFuture;
use vortex::VortexSessionDefault;
use vortex::array::aggregate_fn::fns::uncompressed_size_in_bytes::{
    UncompressedSizeOpts, uncompressed_size_in_bytes,
};
use vortex::array::stream::ArrayStreamAdapter;
use vortex::array::{ArrayRef, VortexSessionExecute};
use vortex::buffer::ByteBuffer;
use vortex::dtype::DType;
use vortex::error::VortexResult;
use vortex::file::{WriteOptionsSessionExt, WriteSummary};
use vortex::io::runtime::{Executor, Handle};
use vortex::io::session::RuntimeSessionExt;
use vortex::layout::BufferedBytesTracker;
use vortex::session::VortexSession;

use crate::error::{guarded, of_batch, text_of};
use crate::executor::Queue;
use crate::settings::Settings;
use crate::sink::{HostSink, SinkError};
use crate::strategy::strategy;

/// The crate's session, and the queue of its futures and jobs. The session refers to the queue
/// weakly.
pub struct Runtime {
    pub session: VortexSession,
    queue: Arc<Queue>,
}

impl Runtime {
    pub fn new() -> Self {
        let queue = Arc::new(Queue::default());
        let executor: Arc<dyn Executor> = queue.clone();
        let session = VortexSession::default().with_handle(Handle::new(Arc::downgrade(&executor)));
        Self { session, queue }
    }
}

/// What a file consists of, other than its rows.
struct Start {
    dtype: DType,
    metadata: Vec<(String, ByteBuffer)>,
    sink: Sink,
}

/// The writer of one file.
pub struct Pipeline {
    /// Present until the first rows are known. The rows of a chunk depend on their size.
    start: Option<Start>,
    settings: Settings,
    // Fields are dropped in this order. Futures must be dropped before the queue that they use.
    file: Option<BoxFuture<'static, VortexResult<WriteSummary>>>,
    input: Option<Sender<VortexResult<ArrayRef>>>,
    /// Whether `file` can continue.
    woken: Arc<Woken>,
    buffered: BufferedBytesTracker,
    sink_error: SinkError,
    has_crate_failed: bool,
    tasks: Tasks,
    runtime: Runtime,
}

impl Pipeline {
    /// Prepares a file for arrays of the type `dtype`. `metadata` are pairs that the file stores.
    pub fn new(
        runtime: Runtime,
        dtype: DType,
        settings: Settings,
        metadata: Vec<(String, ByteBuffer)>,
        sink: Sink,
        tasks: &Tasks,
    ) -> Self {
        Self {
            start: Some(Start { dtype, metadata, sink }),
            settings,
            file: None,
            input: None,
            woken: Arc::new(Woken(AtomicBool::new(true))),
            buffered: BufferedBytesTracker::default(),
            sink_error: SinkError::default(),
            has_crate_failed: false,
            tasks: tasks.clone(),
            runtime,
        }
    }

    /// Begins the file, if it has not begun. The size of `first`, the first rows, determines how
    /// many rows a chunk has.
    fn begin(&mut self, first: Option<&ArrayRef>) -> VortexResult<()> {
        let Some(Start { dtype, metadata, sink }) = self.start.take() else { return Ok(()) };
        let session = &self.runtime.session;
        let row_bytes = match first {
            Some(array) if !array.is_empty() => {
                let mut context = session.create_execution_ctx();
                let exact = UncompressedSizeOpts::exact();
                uncompressed_size_in_bytes(array, exact, &mut context)?.div_ceil(array.len())
            }
            _ => 0,
        };
        let chunk_rows = self.settings.rows_of_chunk(row_bytes as u64);
        let options = session
            .write_options()
            .with_strategy(strategy(session, &self.settings, chunk_rows))
            .with_metadata_segments(metadata);
        self.buffered = options.buffered_bytes_tracker();
        let (input, arrays) = channel(0);
        let sink = HostSink { sink, error: self.sink_error.clone() };
        self.input = Some(input);
        self.file = Some(options.write(sink, ArrayStreamAdapter::new(dtype, arrays)).boxed());
        Ok(())
    }

    /// Runs `f`, which uses the crate, and notes whether it fails.
    fn guarded<T>(&mut self, f: impl FnOnce(&mut Self) -> VortexResult<T>) -> Result<T> {
        let result = guarded(|| f(self).map_err(|error| of_batch(&error)));
        result.inspect_err(|_| self.has_crate_failed = true)
    }

    /// The crate's session.
    pub fn session(&self) -> &VortexSession {
        &self.runtime.session
    }

    /// The number of bytes that the writer keeps until it receives more rows.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered.buffered_bytes()
    }

    /// Whether the last error is an error of the crate, for example because of a value.
    pub fn has_crate_failed(&self) -> bool {
        self.has_crate_failed
    }

    /// Writes the rows of an array, except for those that the writer keeps to fill a chunk.
    ///
    /// # Errors
    /// Cancelled, the error of the sink, or unsupported if the crate rejects a value.
    pub fn push(&mut self, call: &Call<'_>, array: ArrayRef) -> Result<()> {
        self.guarded(|pipeline| pipeline.begin(Some(&array)))?;
        let input = self.input.as_mut().ok_or_else(|| Error::internal("the input has ended"))?;
        input.try_send(Ok(array)).map_err(|error| {
            let why = if error.is_full() { "has not read the last batch" } else { "reads no batch any more" };
            Error::internal(format!("the writer of the crate vortex {why}"))
        })?;
        match self.run(call)? {
            None => Ok(()),
            Some(_) => Err(Error::internal("the writer of the crate vortex ended before its input")),
        }
    }

    /// Writes the rest of the file.
    ///
    /// # Errors
    /// The errors of [`Self::push`].
    pub fn finish(&mut self, call: &Call<'_>) -> Result<()> {
        self.guarded(|pipeline| pipeline.begin(None))?;
        self.input = None;
        match self.run(call)? {
            Some(_) => Ok(()),
            None => Err(Error::internal("the writer of the crate vortex waits, but its input has ended")),
        }
    }

    /// Runs everything that can run. So the memory in use between two calls does not depend on the
    /// number of batches. Returns the summary when the file is complete.
    fn run(&mut self, call: &Call<'_>) -> Result<Option<WriteSummary>> {
        loop {
            call.check_cancelled()?;
            if self.woken.0.swap(false, Ordering::AcqRel) {
                if let Some(summary) = self.poll_file()? {
                    return Ok(Some(summary));
                }
            } else if !self.runtime.queue.run_future() {
                let jobs = self.runtime.queue.take_jobs();
                if jobs.is_empty() {
                    return Ok(None);
                }
                let run = |job: crate::executor::Job| {
                    move || {
                        job();
                        Ok(())
                    }
                };
                self.tasks.start(jobs.into_iter().map(run))?.wait(|| call.check_cancelled())?;
            }
        }
    }

    fn poll_file(&mut self) -> Result<Option<WriteSummary>> {
        let waker = Waker::from(self.woken.clone());
        let file = self.file.as_mut().ok_or_else(|| Error::internal("the file has not begun"))?;
        let file = Pin::new(file);
        // Panics in futures and jobs continue here, because the crate passes them on.
        let polled = guarded(|| match file.poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Ok(None),
            Poll::Ready(result) => result.map(Some).map_err(|error| of_batch(&error)),
        });
        polled.map_err(|error| {
            let of_sink = self.sink_error.take();
            self.has_crate_failed = of_sink.is_none();
            of_sink.unwrap_or(error)
        })
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// Whether a file can store these pairs, and otherwise why it cannot.
pub fn check_metadata(
    session: &VortexSession,
    pairs: &[(String, ByteBuffer)],
) -> std::result::Result<(), String> {
    let options = session.write_options().with_metadata_segments(pairs.iter().cloned());
    options.validate_metadata().map_err(|error| text_of(&error))
}
