//! What the suite lends a plugin, and notes what becomes of it: arrays and schemas, sources, sinks.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use crossdock::api::{ByteSink, ByteSource, Capsule, Code, Error, Format, Owned, Result, Sink, Source, abi};
use crossdock_arrays::DeviceBatch;
use crossdock_arrays::{ArrayQueue, export_batch, export_schema};
use crossdock_memory::Stream;

use super::inside;
use super::kept::keep;
use super::places::{Place, places};
use super::watch::AS_ASKED;

/// How often something was released.
pub struct Count {
    pub what: String,
    /// What is its own until then.
    places: Vec<Place>,
    releases: AtomicUsize,
}

impl Count {
    pub fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }

    /// Counts one; whether it is the first.
    pub fn release(&self) -> bool {
        self.releases.fetch_add(1, Ordering::SeqCst) == 0
    }
}

/// What was lent in a case.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<Vec<Arc<Count>>>>);

impl Counts {
    pub fn add(&self, what: &str) -> Arc<Count> {
        self.add_at(what, Vec::new())
    }

    fn add_at(&self, what: &str, places: Vec<Place>) -> Arc<Count> {
        let count = Arc::new(Count { what: what.into(), places, releases: AtomicUsize::new(0) });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(count.clone());
        count
    }

    /// The first that was not released once, in words.
    pub fn wrong(&self) -> Option<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = counts.iter().find(|count| count.releases() != 1)?;
        Some(match wrong.releases() {
            0 => format!("{} was never released", wrong.what),
            n => format!("{} was released {n} times", wrong.what),
        })
    }

    /// The first that was released though some of these batches lie in its memory, and in nobody else's, in words.
    pub fn too_early(&self, batches: &[DeviceBatch]) -> Option<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let too_early = |place: &Place| {
            let below = || counts.iter().filter(|count| count.places.iter().any(|own| own.overlaps(place)));
            // The same memory may be lent several times.
            if below().any(|count| count.releases() == 0) { None } else { below().next() }
        };
        let gone = batches.iter().flat_map(places).find_map(|place| too_early(&place).cloned())?;
        Some(format!("{} was released, and a buffer that was made of it is still there", gone.what))
    }
}

/// A struct of Arrow's and who counts its releases. It is never freed, so that a second release is counted and harms nobody.
struct Held<T> {
    inner: T,
    count: Arc<Count>,
}

macro_rules! counted {
    ($($name:ident $release:ident $t:ident;)*) => { $(
        /// The same struct, whose releases are counted.
        pub fn $name(inner: Owned<abi::$t>, count: Arc<Count>) -> Owned<abi::$t> {
            let mut raw = abi::$t::default();
            let inner = inner.into_raw();
            // SAFETY: plain values; whoever has the copy releases it through the original, which is kept.
            unsafe { std::ptr::copy_nonoverlapping(&raw const inner, &raw mut raw, 1) };
            let held = keep(Held { inner, count });
            raw.private_data = std::ptr::from_mut(held).cast();
            raw.release = Some($release);
            // SAFETY: made above; nobody else has it.
            unsafe { Owned::new(raw) }
        }

        unsafe extern "C" fn $release(raw: *mut abi::$t) {
            inside::called("release of what was lent", false);
            // SAFETY: set above only, whose `Held` lives for ever; the inner struct is released the first time alone.
            unsafe {
                let Held { inner, count } = &mut *(*raw).private_data.cast::<Held<abi::$t>>();
                (*raw).release = None;
                let first = count.release();
                if let (true, Some(release)) = (first, inner.release) {
                    release(inner);
                }
            }
        }
    )* };
}
counted! {
    counted_array release_array ArrowArray;
    counted_schema release_schema ArrowSchema;
}

/// A batch for a writer, whose array's releases are counted.
pub fn batch(batch: &DeviceBatch, stream: &Stream, counts: &Counts) -> Result<Owned<abi::Batch>> {
    let mut raw = export_batch(batch, false, stream)?.into_raw();
    // SAFETY: the array is ours, and moves out of a struct that is ours, and back into it.
    unsafe {
        let array = Owned::<abi::ArrowArray>::take(&mut raw.array.array);
        raw.array.array = counted_array(array, counts.add_at("a batch's array", places(batch))).into_raw();
        Ok(Owned::new(raw))
    }
}

/// Its array alone.
pub fn device_array(
    own: &DeviceBatch,
    stream: &Stream,
    counts: &Counts,
) -> Result<Owned<abi::ArrowDeviceArray>> {
    let mut raw = batch(own, stream, counts)?.into_raw();
    // SAFETY: the array is ours, and moves out.
    Ok(unsafe { Owned::take(&mut raw.array) })
}

/// A schema, whose releases are counted.
pub fn lent_schema(schema: &SchemaRef, counts: &Counts) -> Result<Owned<abi::ArrowSchema>> {
    Ok(counted_schema(export_schema(schema)?, counts.add("a schema")))
}

/// How Arrow arrays travel in capsules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    Device,
    DataStream,
    DeviceStream,
}

impl Kind {
    /// Which a format takes or gives, by the names of its capsules.
    pub fn of(format: &Format) -> Option<Self> {
        const NAMES: [(&str, Kind); 4] = [
            ("arrow_device_array", Kind::Device),
            ("arrow_array", Kind::Data),
            ("arrow_device_array_stream", Kind::DeviceStream),
            ("arrow_array_stream", Kind::DataStream),
        ];
        NAMES.iter().find(|(name, _)| format.capsules.iter().any(|own| own == name)).map(|(_, kind)| *kind)
    }

    /// Whether its structs can say that they are not in host memory.
    pub fn knows_devices(self) -> bool {
        matches!(self, Kind::Device | Kind::DeviceStream)
    }

    /// The capsules that a table becomes, as a producer in Python would make them.
    pub fn capsules(
        self,
        schema: &SchemaRef,
        batches: &[DeviceBatch],
        stream: &Stream,
        counts: &Counts,
    ) -> Result<Vec<Capsule>> {
        let arrays = batches.iter().map(|own| device_array(own, stream, counts)).collect::<Result<_>>()?;
        self.capsules_of(schema, arrays, stream, || lent_schema(schema, counts))
    }

    /// The capsules of such arrays, with such schemas where schemas lie beside them.
    pub fn capsules_of(
        self,
        schema: &SchemaRef,
        arrays: Vec<Owned<abi::ArrowDeviceArray>>,
        stream: &Stream,
        mut beside: impl FnMut() -> Result<Owned<abi::ArrowSchema>>,
    ) -> Result<Vec<Capsule>> {
        let queue = |arrays: Vec<Owned<abi::ArrowDeviceArray>>| -> Result<ArrayQueue> {
            let mut queue = ArrayQueue::default();
            arrays.into_iter().try_for_each(|array| queue.push(array))?;
            Ok(queue)
        };
        let mut capsules = Vec::new();
        match self {
            Kind::DataStream => {
                capsules.push(Capsule::new(queue(arrays)?.into_data_stream(schema.clone())));
            }
            Kind::DeviceStream => {
                let stream = queue(arrays)?.into_device_stream(schema.clone(), stream.device());
                capsules.push(Capsule::new(stream));
            }
            Kind::Data | Kind::Device => {
                // A table without batches has a schema.
                let none = arrays.is_empty().then_some(None);
                for array in arrays.into_iter().map(Some).chain(none) {
                    capsules.push(Capsule::new(beside()?));
                    capsules.extend(array.map(|array| match self {
                        Kind::Device => Capsule::new(array),
                        _ => Capsule::new(plain(array)),
                    }));
                }
            }
        }
        Ok(capsules)
    }
}

fn plain(array: Owned<abi::ArrowDeviceArray>) -> Owned<abi::ArrowArray> {
    let mut raw = array.into_raw();
    // SAFETY: the array is ours, and moves out.
    unsafe { Owned::take(&mut raw.array) }
}

/// Bytes to read, and how reading them goes wrong.
#[derive(Clone, Default)]
pub struct Bytes {
    pub bytes: Vec<u8>,
    /// As a pipe: of unknown length, in order.
    pub pipe: bool,
    /// The whole content is in memory too.
    pub map: bool,
    /// How many of `bytes` lie before the content, so that it begins wherever that is.
    pub lead: usize,
    /// Says that there are so many more bytes than there are.
    pub missing: u64,
    /// The read that fails; 0 for none.
    pub failing: u64,
    /// As many bytes at a time; 0 for all that are asked for. Of a source whose length is known that is a breach, and ours
    /// gives them all.
    pub state: Arc<Reading>,
}

/// How a source was read.
#[derive(Default)]
pub struct Reading {
    reads: AtomicU64,
    /// Where the last read of a pipe ended.
    next: AtomicU64,
    /// A pipe was read elsewhere than where the last read ended.
    jumped: AtomicU64,
}

impl Reading {
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    pub fn jumps(&self) -> u64 {
        self.jumped.load(Ordering::SeqCst)
    }
}

impl ByteSource for Bytes {
    fn name(&self) -> &str {
        "a source of crossdock verify"
    }

    fn len(&self) -> Option<u64> {
        (!self.pipe).then_some(self.content().len() as u64 + self.missing)
    }

    fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
        inside::called("read_at", true);
        if self.state.reads.fetch_add(1, Ordering::SeqCst) + 1 == self.failing {
            return Err(Error::io(format!("{AS_ASKED}: read_at")));
        }
        if self.pipe && self.state.next.load(Ordering::SeqCst) != offset {
            self.state.jumped.fetch_add(1, Ordering::SeqCst);
            return Err(Error::invalid_argument("a pipe is read in order"));
        }
        let rest =
            usize::try_from(offset).ok().and_then(|offset| self.content().get(offset..)).unwrap_or_default();
        let n = rest.len().min(to.len());
        to[..n].copy_from_slice(&rest[..n]);
        self.state.next.store(offset + n as u64, Ordering::SeqCst);
        Ok(n)
    }

    fn map(&self) -> Option<&[u8]> {
        (self.map && !self.pipe).then(|| self.content())
    }
}

impl Bytes {
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(self.lead..).unwrap_or_default()
    }

    pub fn source(self) -> Source {
        Source::new(Arc::new(self))
    }
}

/// Where bytes went.
#[derive(Default)]
pub struct Written {
    bytes: Mutex<Vec<u8>>,
    writes: AtomicU64,
    /// The write that fails, and all after it; 0 for none.
    failing: AtomicU64,
}

struct Writing(Arc<Written>);

impl Written {
    pub fn failing(nth: u64) -> Arc<Self> {
        Arc::new(Self { failing: AtomicU64::new(nth), ..Self::default() })
    }

    /// A sink for it. Until that is released there is somebody else who shares this.
    pub fn sink(self: &Arc<Self>) -> Sink {
        Sink::new(Box::new(Writing(self.clone())))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }
}

impl ByteSink for Writing {
    fn name(&self) -> &str {
        "a sink of crossdock verify"
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        inside::called("write", true);
        let (nth, failing) =
            (self.0.writes.fetch_add(1, Ordering::SeqCst) + 1, self.0.failing.load(Ordering::SeqCst));
        if failing != 0 && nth >= failing {
            return Err(Error::new(Code::IO, format!("{AS_ASKED}: write")));
        }
        self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(())
    }
}
