//! Arrays and schemas that the suite passes to a plugin, with counted releases.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use crossdock::api::{Capsule, Format, Owned, Result, abi};
use crossdock_arrays::DeviceBatch;
use crossdock_arrays::{ArrayQueue, export_batch, export_schema};
use crossdock_memory::Stream;

use super::buffer_ranges::{BufferRange, buffer_ranges};
use super::host_calls;
use super::leak::leak;

/// The number of releases of one object.
pub struct ReleaseCount {
    pub what: String,
    /// The object's memory, which must not be used after its release.
    ranges: Vec<BufferRange>,
    releases: AtomicUsize,
}

impl ReleaseCount {
    pub fn releases(&self) -> usize {
        self.releases.load(Ordering::SeqCst)
    }

    /// Counts a release, and returns whether it is the first.
    pub fn release(&self) -> bool {
        self.releases.fetch_add(1, Ordering::SeqCst) == 0
    }
}

/// The counts of all objects that were passed to a plugin.
#[derive(Clone, Default)]
pub struct ReleaseCounts(Arc<Mutex<Vec<Arc<ReleaseCount>>>>);

impl ReleaseCounts {
    pub fn add(&self, what: &str) -> Arc<ReleaseCount> {
        self.add_with_ranges(what, Vec::new())
    }

    fn add_with_ranges(&self, what: &str, ranges: Vec<BufferRange>) -> Arc<ReleaseCount> {
        let count = Arc::new(ReleaseCount { what: what.into(), ranges, releases: AtomicUsize::new(0) });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(count.clone());
        count
    }

    /// Describes the first object that was not released exactly once.
    pub fn violation(&self) -> Option<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.iter().find(|count| count.releases() != 1)?;
        Some(match count.releases() {
            0 => format!("{} was never released", count.what),
            n => format!("{} was released {n} times", count.what),
        })
    }

    /// Describes the first object that was released although one of `batches` uses its memory.
    pub fn early_release(&self, batches: &[DeviceBatch]) -> Option<String> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let released_owner = |range: &BufferRange| {
            let owners =
                || counts.iter().filter(|count| count.ranges.iter().any(|owned| owned.overlaps(range)));
            // Several objects may share the memory. It is valid until all these objects are
            // released.
            if owners().any(|count| count.releases() == 0) { None } else { owners().next() }
        };
        let released =
            batches.iter().flat_map(buffer_ranges).find_map(|range| released_owner(&range).cloned())?;
        Some(format!("{} was released while a batch still uses its memory", released.what))
    }
}

/// An Arrow struct and the count of its releases. The value is never freed, so that a second
/// release is counted and has no other effect.
struct Counted<T> {
    inner: T,
    count: Arc<ReleaseCount>,
}

macro_rules! counted {
    ($($name:ident $release:ident $t:ident;)*) => { $(
        /// Replaces the release function of the struct with a function that counts releases.
        pub fn $name(inner: Owned<abi::$t>, count: Arc<ReleaseCount>) -> Owned<abi::$t> {
            let mut raw = abi::$t::default();
            let inner = inner.into_raw();
            // SAFETY: `inner` and `raw` are initialised structs of plain values. `raw` gets its own
            // release function below, so that only `inner` is released with the original function.
            unsafe { std::ptr::copy_nonoverlapping(&raw const inner, &raw mut raw, 1) };
            let counted = leak(Counted { inner, count });
            raw.private_data = std::ptr::from_mut(counted).cast();
            raw.release = Some($release);
            // SAFETY: `raw` is valid until its release function runs, and this is its only copy.
            unsafe { Owned::new(raw) }
        }

        unsafe extern "C" fn $release(raw: *mut abi::$t) {
            host_calls::on_call("release of an array or schema", false);
            // SAFETY: only the function above sets this function, with a leaked `Counted` as
            // private data. `inner` is released only by the first release.
            unsafe {
                let Counted { inner, count } = &mut *(*raw).private_data.cast::<Counted<abi::$t>>();
                (*raw).release = None;
                let is_first = count.release();
                if let (true, Some(release)) = (is_first, inner.release) {
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

/// Exports a batch for a writer; the releases of its array are counted.
pub fn batch(batch: &DeviceBatch, stream: &Stream, counts: &ReleaseCounts) -> Result<Owned<abi::Batch>> {
    let mut raw = export_batch(batch, false, stream)?.into_raw();
    // SAFETY: `raw` owns a valid array. `take` moves it out and leaves an empty struct, which the
    // counted array replaces.
    unsafe {
        let array = Owned::<abi::ArrowArray>::take(&mut raw.array.array);
        let count = counts.add_with_ranges("a batch's array", buffer_ranges(batch));
        raw.array.array = counted_array(array, count).into_raw();
        Ok(Owned::new(raw))
    }
}

/// Exports the array of a batch, with counted releases.
pub fn device_array(
    device_batch: &DeviceBatch,
    stream: &Stream,
    counts: &ReleaseCounts,
) -> Result<Owned<abi::ArrowDeviceArray>> {
    let mut raw = batch(device_batch, stream, counts)?.into_raw();
    // SAFETY: `raw` owns a valid array, which `take` moves out.
    Ok(unsafe { Owned::take(&mut raw.array) })
}

/// Exports a schema, with counted releases.
pub fn schema(schema: &SchemaRef, counts: &ReleaseCounts) -> Result<Owned<abi::ArrowSchema>> {
    Ok(counted_schema(export_schema(schema)?, counts.add("a schema")))
}

/// The Arrow structs in which a table is passed in capsules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapsuleKind {
    Data,
    Device,
    DataStream,
    DeviceStream,
}

impl CapsuleKind {
    /// Returns the kind of capsules that a format reads or writes. The names of the format's
    /// capsules determine the kind.
    pub fn of(format: &Format) -> Option<Self> {
        const NAMES: [(&str, CapsuleKind); 4] = [
            ("arrow_device_array", CapsuleKind::Device),
            ("arrow_array", CapsuleKind::Data),
            ("arrow_device_array_stream", CapsuleKind::DeviceStream),
            ("arrow_array_stream", CapsuleKind::DataStream),
        ];
        let has = |name: &str| format.capsules.iter().any(|capsule| capsule == name);
        NAMES.iter().find(|(name, _)| has(name)).map(|(_, kind)| *kind)
    }

    /// Whether the structs have a device type.
    pub fn has_device(self) -> bool {
        matches!(self, CapsuleKind::Device | CapsuleKind::DeviceStream)
    }

    /// The capsules of a table, as a producer in Python makes them.
    pub fn capsules(
        self,
        table_schema: &SchemaRef,
        batches: &[DeviceBatch],
        stream: &Stream,
        counts: &ReleaseCounts,
    ) -> Result<Vec<Capsule>> {
        let arrays =
            batches.iter().map(|batch| device_array(batch, stream, counts)).collect::<Result<_>>()?;
        self.capsules_of(table_schema, arrays, stream, || schema(table_schema, counts))
    }

    /// Makes the capsules for `arrays`. If the kind has separate schema capsules, `schema_capsule`
    /// returns their schemas.
    pub fn capsules_of(
        self,
        schema: &SchemaRef,
        arrays: Vec<Owned<abi::ArrowDeviceArray>>,
        stream: &Stream,
        mut schema_capsule: impl FnMut() -> Result<Owned<abi::ArrowSchema>>,
    ) -> Result<Vec<Capsule>> {
        let queue = |arrays: Vec<Owned<abi::ArrowDeviceArray>>| -> Result<ArrayQueue> {
            let mut queue = ArrayQueue::default();
            arrays.into_iter().try_for_each(|array| queue.push(array))?;
            Ok(queue)
        };
        let mut capsules = Vec::new();
        match self {
            CapsuleKind::DataStream => {
                capsules.push(Capsule::new(queue(arrays)?.into_data_stream(schema.clone())));
            }
            CapsuleKind::DeviceStream => {
                let stream = queue(arrays)?.into_device_stream(schema.clone(), stream.device());
                capsules.push(Capsule::new(stream));
            }
            CapsuleKind::Data | CapsuleKind::Device => {
                // A table without batches still has a schema capsule.
                let none = arrays.is_empty().then_some(None);
                for array in arrays.into_iter().map(Some).chain(none) {
                    capsules.push(Capsule::new(schema_capsule()?));
                    capsules.extend(array.map(|array| match self {
                        CapsuleKind::Device => Capsule::new(array),
                        _ => Capsule::new(without_device(array)),
                    }));
                }
            }
        }
        Ok(capsules)
    }
}

fn without_device(array: Owned<abi::ArrowDeviceArray>) -> Owned<abi::ArrowArray> {
    let mut raw = array.into_raw();
    // SAFETY: `raw` owns a valid array, which `take` moves out.
    unsafe { Owned::take(&mut raw.array) }
}
