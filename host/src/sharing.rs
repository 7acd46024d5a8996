//! Shares tables with other processes on the same host.

use crossdock_arrays::DeviceBatch;
use crossdock_kernels::Jobs;
use crossdock_memory::{ALIGNMENT, Buffer, BufferMut, ForeignOwner, Ready, Stream};
use crossdock_memory_backend::{Account, Offer, OfferAddress};
use crossdock_parts::{
    BatchParts, Content, Header, Place, SharedObject, TableParts, buffers, has_other_rows,
};
use crossdock_plugin_api::{Device, Error as ApiError, Result as ApiResult, abi};

use crate::error::{Error, Result};
use crate::parts::{Collected, PartsHeader, Rebuilt, on_host, schema_bytes};
use crate::place::{Route, is_host_memory};
use crate::session::Session;
use crate::table::Table;

/// A table that other processes on this host can open, until this value is dropped.
///
/// The buffers are in one allocation, which is separate from the table: memory of the table's CUDA
/// device, or host memory. The memory exists as long as any process uses it, also after this
/// process has ended.
pub struct SharedTable {
    description: Vec<u8>,
    offer: Offer,
}

/// A table that was taken apart in memory of a CUDA device.
pub struct DeviceParts {
    /// The header, which contains everything but the contents of the buffers.
    pub header: Vec<u8>,
    /// The buffers of the table.
    pub buffer: Buffer,
}

/// How another process receives a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharingWay {
    /// The table is copied once on its device. The other process uses the copy in place if its
    /// session is on the same GPU, or if both are on the host. Otherwise, it copies it to its
    /// device.
    Device,
    /// The table is copied to host memory, and from there to the device of the other process.
    Host {
        /// Why the memory of the table cannot be shared.
        reason: String,
    },
}

impl SharedTable {
    /// The description with which another process opens the table: [`Session::open_shared`]. Keep
    /// it secret from other users of the host, as the table itself.
    pub fn description(&self) -> &[u8] {
        &self.description
    }
}

impl Table {
    /// Shares the table, which is on the host or on a CUDA device, with other processes of the same
    /// user on this host. Copies it once on its device. Returns before a copy on a CUDA device is
    /// complete; a process that opens the table waits for it.
    ///
    /// # Errors
    /// [`Error::Device`] if memory is exhausted, or if [`Table::sharing_way`] is not
    /// [`SharingWay::Device`]; [`Error::Data`] if the contents of a slice are invalid.
    pub fn share(&self) -> Result<SharedTable> {
        self.share_as(Content::Table, false).map_err(failed)
    }

    /// Like [`Table::share`], for one process. The memory is kept until a process has opened the
    /// table, or until this process ends. Returns the description.
    ///
    /// # Errors
    /// The errors of [`Table::share`].
    pub fn share_once(&self) -> Result<Vec<u8>> {
        let shared = self.share_as(Content::Table, true).map_err(failed)?;
        shared.offer.keep();
        Ok(shared.description)
    }

    /// Like [`Table::share_once`], for a table of one column, which is opened as
    /// [`Rebuilt::Column`].
    ///
    /// # Errors
    /// The errors of [`Table::share`].
    pub fn share_column_once(&self) -> Result<Vec<u8>> {
        let shared = self.share_as(Content::Column, true).map_err(failed)?;
        shared.offer.keep();
        Ok(shared.description)
    }

    /// How another process on this host receives the table.
    pub fn sharing_way(&self) -> SharingWay {
        let device = self.device_of_batches();
        let check = || {
            // The driver and the system decide whether memory can be exported.
            let memory = allocate(Account::allocate_shared, self.session(), device, 1)?;
            self.session().host().backend().export_file(memory.address())?;
            self.uuid_of(device).map(drop)
        };
        match check() {
            Ok(()) => SharingWay::Device,
            Err(error) => SharingWay::Host { reason: error.message().to_owned() },
        }
    }

    /// The device on which the table is shared.
    fn device_of_batches(&self) -> Device {
        let device = self.batches().first().map_or(self.session().device(), DeviceBatch::device);
        if is_host_memory(device) { Device::CPU } else { device }
    }

    /// The UUID of a CUDA device's GPU. `None` for the host.
    fn uuid_of(&self, device: Device) -> ApiResult<Option<[u8; 16]>> {
        if device == Device::CPU {
            return Ok(None);
        }
        self.session().host().backend().cuda_uuid(device).map(Some)
    }

    /// Takes the table, which is on a CUDA device, apart in memory of this device. The buffers are
    /// copied into one buffer, for libraries that send device memory. The buffer can be shared by
    /// CUDA IPC, which UCX uses between processes of one host.
    ///
    /// # Errors
    /// The errors of [`Table::share`].
    pub fn to_device_parts(&self) -> Result<DeviceParts> {
        self.device_parts(Content::Table).map_err(failed)
    }

    /// Like [`Table::to_device_parts`], for a table of one column, which is rebuilt as
    /// [`Rebuilt::Column`].
    ///
    /// # Errors
    /// The errors of [`Table::share`].
    pub fn column_to_device_parts(&self) -> Result<DeviceParts> {
        self.device_parts(Content::Column).map_err(failed)
    }

    fn device_parts(&self, content: impl FnOnce(TableParts) -> Content) -> ApiResult<DeviceParts> {
        let (session, device) = (self.session(), self.device_of_batches());
        if device.r#type != abi::DEVICE_CUDA {
            return Err(ApiError::unsupported(format!(
                "the table is on {device}, expected a CUDA device: move it first, or use to_parts"
            )));
        }
        let (buffer, parts) =
            self.pack(|bytes| allocate(Account::allocate_shareable, session, device, bytes))?;
        let bytes = buffer.len().unwrap_or(0) as u64;
        let header = Header { content: content(parts), device: device.into(), buffers: vec![bytes] };
        Ok(DeviceParts { header: header.write()?, buffer })
    }

    fn share_as(&self, content: impl FnOnce(TableParts) -> Content, once: bool) -> ApiResult<SharedTable> {
        let (session, device) = (self.session(), self.device_of_batches());
        let backend = session.host().backend();
        let (memory, parts) =
            self.pack(|bytes| allocate(Account::allocate_shared, session, device, bytes))?;
        // The export takes as long as the copy of a gigabyte, and runs at the same time.
        let (file, bytes) = backend.export_file(memory.address())?;
        let header = Header { content: content(parts), device: device.into(), buffers: vec![bytes] };
        let (header, gpu) = (header.write()?, self.uuid_of(device)?);
        // `prepare` keeps the memory until the offer ends, and until all receivers have dropped
        // their leases.
        let prepare = Box::new(move || match memory.ready() {
            Ready::After(event) => event.synchronize(),
            _ => Ok(()),
        });
        let offer = Offer::new(file, prepare, once)?;
        let OfferAddress { process, socket, token } = offer.address();
        let description = SharedObject { process, socket, token, gpu, bytes, header }.write()?;
        Ok(SharedTable { description, offer })
    }

    /// Enqueues copies of all buffers into one allocation on their device.
    fn pack(&self, allocate: impl FnOnce(usize) -> ApiResult<BufferMut>) -> ApiResult<(Buffer, TableParts)> {
        let (session, device) = (self.session(), self.device_of_batches());
        let stream = match session.stream() {
            stream if stream.device() == device => stream.clone(),
            _ => session.memory().default_stream(device)?,
        };
        let batches = if device == Device::CPU {
            on_host(self, &stream).map_err(|error| error.to_api_error())?
        } else {
            let batches = self.batches().iter().map(|batch| own_rows(batch.clone(), device, &stream));
            batches.collect::<ApiResult<Vec<_>>>()?
        };
        let all: Vec<&Buffer> = batches.iter().flat_map(|batch| buffers(batch.columns())).collect();
        stream.wait_each(all.iter().map(|buffer| buffer.ready()))?;
        let collected = Collected::on_one_device(all.into_iter().cloned())?;
        let layout = SegmentLayout::new(&collected.buffers)?;
        let mut memory = allocate(layout.bytes)?;
        let ready = layout.copy(&collected.buffers, &mut memory, &stream)?;
        let place = |buffer: &Buffer| Ok(layout.place(collected.place(buffer)?));
        let parts = batches.iter().map(|batch| BatchParts::write(batch, place)).collect::<ApiResult<_>>()?;
        let schema = schema_bytes(self.schema()).map_err(|error| ApiError::internal(error.to_string()))?;
        Ok((memory.freeze_after(ready), TableParts { schema, batches: parts }))
    }
}

impl Session {
    /// The device, as this process numbers it, of a table that another process shares.
    ///
    /// # Errors
    /// [`Error::Data`] if the description is damaged or has another version; [`Error::Device`] if
    /// this process does not see the GPU.
    pub fn device_of_shared(&self, description: &[u8]) -> Result<Device> {
        let object = SharedObject::read(description).map_err(open_error)?;
        self.device_with_uuid(object.gpu).map_err(open_error)
    }

    fn device_with_uuid(&self, gpu: Option<[u8; 16]>) -> ApiResult<Device> {
        gpu.map_or(Ok(Device::CPU), |gpu| self.host().backend().cuda_device_with_uuid(&gpu))
    }

    /// Rebuilds a table from [`Table::to_device_parts`], or from a buffer of a CUDA device with the
    /// same contents. If the session is on this device, the table uses the buffer in place. The
    /// address of the buffer must be a multiple of 64 bytes.
    ///
    /// # Errors
    /// The errors of [`Session::from_parts`].
    pub fn from_device_parts(&self, parts: DeviceParts) -> Result<Rebuilt> {
        let header = PartsHeader::read(&parts.header)?;
        self.rebuild_on(parts.buffer.device(), Route::TargetStream, header, vec![parts.buffer])
    }

    /// Opens a table that another process on this host shares. If the session is on the device of
    /// the memory, the table uses it in place. Otherwise it is copied to the session's device.
    ///
    /// The process that shares the table can still write the memory. It is trusted as a library
    /// that exports Arrow arrays.
    ///
    /// # Errors
    /// [`Error::Data`] if the description is damaged or has another version; [`Error::Device`] if
    /// the other process has ended or has withdrawn the table, if this process does not see the
    /// GPU, or if memory is exhausted.
    pub fn open_shared(&self, description: &[u8]) -> Result<Rebuilt> {
        let object = SharedObject::read(description).map_err(open_error)?;
        let header = PartsHeader::read(&object.header)?;
        let backend = self.host().backend();
        let device = self.device_with_uuid(object.gpu).map_err(open_error)?;
        let SharedObject { process, socket, token, bytes, .. } = object;
        let (file, lease) = OfferAddress { process, socket, token }.receive().map_err(open_error)?;
        let (address, owner) = if device == Device::CPU {
            let memory = backend.open_host_file(&file, bytes).map_err(open_error)?;
            (memory.address(), ForeignOwner::new(memory))
        } else {
            let memory = backend.open_file(device, file, bytes).map_err(open_error)?.with_lease(lease);
            (memory.address(), ForeignOwner::new(memory))
        };
        // SAFETY: `bytes` bytes were mapped at the address, and the owner keeps the mapping. The
        // other process has waited for its copies before it sent the file.
        let buffer = unsafe { Buffer::foreign(&owner, device, address, Some(bytes), Ready::Now) };
        let route = match self.device() {
            to if to == device || device == Device::CPU => Route::TargetStream,
            to if to.r#type != abi::DEVICE_CUDA => Route::TargetStream,
            // The mapping can be accessed only from its own device, because access from another one
            // takes three times as long as the copy of the memory.
            to if backend.cuda_can_access(device, to).map_err(open_error)? => Route::SourceStream,
            _ => Route::Host,
        };
        self.rebuild_on(device, route, header, vec![buffer])
    }
}

fn open_error(error: ApiError) -> Error {
    Error::data("cannot open a shared table", error)
}

fn failed(error: ApiError) -> Error {
    Error::data("cannot share a table with other processes", error)
}

/// The batch on `device`, without the rows of other slices, and with known sizes.
fn own_rows(mut batch: DeviceBatch, device: Device, stream: &Stream) -> ApiResult<DeviceBatch> {
    if batch.device() != device && !batch.columns().iter().all(|column| column.buffers().is_empty()) {
        return Err(ApiError::unsupported(format!(
            "the batches are on {device} and {}, expected one device",
            batch.device()
        )));
    }
    batch.resolve_sizes(stream)?;
    if batch.columns().iter().any(has_other_rows) { batch.compact(stream) } else { Ok(batch) }
}

/// Allocates memory that other processes can open, with a method of the session's account.
fn allocate(
    method: impl FnOnce(&Account, Device, usize) -> ApiResult<abi::Allocation>,
    session: &Session,
    device: Device,
    bytes: usize,
) -> ApiResult<BufferMut> {
    let block = method(session.account(), device, bytes)?;
    // SAFETY: the line above allocated `block` on `device` in the host that the memory belongs to,
    // and `block` is moved into the buffer.
    Ok(unsafe { BufferMut::from_block(session.memory(), device, block) })
}

/// The positions of buffers in a segment.
struct SegmentLayout {
    offsets: Vec<usize>,
    bytes: usize,
}

impl SegmentLayout {
    fn new(buffers: &[Buffer]) -> ApiResult<Self> {
        let (mut offsets, mut end) = (Vec::with_capacity(buffers.len()), 0usize);
        for buffer in buffers {
            // Each byte keeps the alignment of its address, up to `ALIGNMENT`.
            let rest = (buffer.address() % ALIGNMENT as u64) as usize;
            let at = end.checked_next_multiple_of(ALIGNMENT).and_then(|at| at.checked_add(rest));
            let next = at.and_then(|at| at.checked_add(buffer.len().unwrap_or(0)));
            let too_long = || ApiError::out_of_memory("the buffers exceed the address space");
            offsets.push(at.ok_or_else(too_long)?);
            end = next.ok_or_else(too_long)?;
        }
        Ok(Self { offsets, bytes: end.max(1) })
    }

    /// Enqueues the copies. Returns an event after them.
    fn copy(&self, buffers: &[Buffer], to: &mut BufferMut, stream: &Stream) -> ApiResult<Ready> {
        if let Some(to) = to.host_slice_mut() {
            for (buffer, at) in buffers.iter().zip(&self.offsets) {
                let from = buffer.host_view(stream)?;
                let to = to.get_mut(*at..).and_then(|to| to.get_mut(..from.len()));
                to.ok_or_else(|| ApiError::internal("the segment is too short"))?.copy_from_slice(&from);
            }
            return Ok(Ready::Now);
        }
        let mut jobs = Jobs::new();
        for (buffer, at) in buffers.iter().zip(&self.offsets) {
            jobs.copy_range(buffer, 0, buffer.len().unwrap_or(0), to, *at)?;
        }
        jobs.launch(stream)?;
        stream.record()
    }

    /// The place in the segment of a place in the buffers.
    fn place(&self, place: Place) -> Place {
        let offset = self.offsets.get(place.index as usize).copied().unwrap_or(0) as u64;
        Place { index: 0, offset: offset + place.offset, ..place }
    }
}
