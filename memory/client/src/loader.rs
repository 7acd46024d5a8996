//! Loads ranges of sources to devices, through the host's loader.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

use crossdock_plugin_api::{Call, Error, Host, Result, Source, abi};

use crate::memory::check;
use crate::{BufferMut, Stream};

/// The loader of a host. Cheap to clone. It holds a reference to the host.
///
/// ```
/// use std::sync::Arc;
///
/// use crossdock_memory::{Device, LoadRange, Loader, Result};
/// use crossdock_plugin_api::{ByteSource, CallSettings, Source};
///
/// struct Word;
///
/// impl ByteSource for Word {
///     fn name(&self) -> &str {
///         "a word"
///     }
///     fn len(&self) -> Option<u64> {
///         Some(5)
///     }
///     fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<usize> {
///         to.copy_from_slice(&b"apron"[offset as usize..][..to.len()]);
///         Ok(to.len())
///     }
/// }
///
/// # let host = crossdock_test_support::TestHost::new();
/// # let (host, memory) = (host.host(), host.memory());
/// let loader = Loader::from_host(&host)?;
/// let stream = memory.default_stream(Device::UNTOUCHABLE)?;
/// let mut block = memory.alloc(&stream, 3)?;
/// let range = |from, to, bytes| LoadRange { from, to, bytes };
/// let ranges = [range(1, 0, 2), range(4, 2, 1)];
/// let source = Source::new(Arc::new(Word));
/// CallSettings::new(stream.device())
///     .enter(|call| loader.load(call, &source, &mut block, &ranges, &stream))?;
/// assert_eq!(&*block.freeze(&stream)?.host_view(&stream)?, b"prn");
/// # Ok::<(), crossdock_memory::Error>(())
/// ```
#[derive(Clone)]
pub struct Loader(Arc<Inner>);

struct Inner {
    /// The first argument of `load`.
    object: NonNull<abi::HostLoader>,
    load: LoadFunction,
    _host: Host,
}

type LoadFunction = unsafe extern "C" fn(
    *const abi::HostLoader,
    *const abi::Call,
    *mut abi::Source,
    *const abi::Load,
    usize,
    *mut abi::Stream,
    *mut abi::Error,
) -> abi::Code;

// SAFETY: the header allows calls of `load` on any thread, and `_host` keeps the object alive.
unsafe impl Send for Inner {}
// SAFETY: the header allows concurrent calls of `load`.
unsafe impl Sync for Inner {}

/// A range of a source, and the part of a buffer that receives its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadRange {
    /// The first byte in the source.
    pub from: u64,
    /// The first byte in the buffer.
    pub to: usize,
    /// The number of bytes.
    pub bytes: usize,
}

impl Loader {
    /// Returns the loader that `host` offers.
    ///
    /// # Errors
    /// `VERSION` if the host does not offer `crossdock.host.loader/1`.
    pub fn from_host(host: &Host) -> Result<Self> {
        // SAFETY: `HostLoader` is what the header defines for this id.
        let loader = unsafe { host.interface::<abi::HostLoader>(abi::HOST_LOADER_ID) };
        let (object, load) =
            loader.and_then(|(object, table)| Some((object, table.load?))).ok_or_else(|| {
                Error::version("the host does not offer 'crossdock.host.loader/1', which this plugin needs")
            })?;
        Ok(Self(Arc::new(Inner { object, load, _host: host.clone() })))
    }

    /// Reads ranges of `source` into `to`, in the order of `stream`. Returns when all bytes have
    /// been read from the source. Readers of the buffer wait for the event that
    /// [`BufferMut::freeze`] records on `stream`.
    ///
    /// # Errors
    /// If a range lies outside the buffer, if the source ends before the end of a range, if the
    /// call is cancelled, or if reading fails.
    pub fn load(
        &self,
        call: &Call<'_>,
        source: &Source,
        to: &mut BufferMut,
        ranges: &[LoadRange],
        stream: &Stream,
    ) -> Result<()> {
        let loads = ranges.iter().map(|range| {
            if range.to.checked_add(range.bytes).is_none_or(|end| end > to.len()) {
                return Err(Error::internal(format!(
                    "a load to bytes {}..+{} lies outside a buffer of {} bytes",
                    range.to,
                    range.bytes,
                    to.len()
                )));
            }
            let address = (to.address() + range.to as u64) as *mut c_void;
            Ok(abi::Load { offset: range.from, to: address, bytes: range.bytes })
        });
        let loads = loads.collect::<Result<Vec<_>>>()?;
        stream.reject_capture("a load")?;
        let Inner { object, load, .. } = &*self.0;
        let enqueued = source.lend(|source| {
            check(|err| {
                let (call, stream) = (call.as_ptr(), stream.raw());
                // SAFETY: the function belongs to the object. The pointers are to values that live
                // during the call. The ranges are in `to`, which `&mut` makes exclusive.
                unsafe { load(object.as_ptr(), call, source, loads.as_ptr(), loads.len(), stream, err) }
            })
        });
        stream.note_uses(enqueued, || std::iter::once(&**to.owner()))
    }
}
