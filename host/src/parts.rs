//! Takes tables, columns, schemas and encoded arrays apart, and rebuilds them in another process.

use std::sync::Arc;

use arrow_schema::{FieldRef, Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, Level, export_schema, validate};
use crossdock_memory::{Buffer, ForeignOwner, Ready, Stream};
use crossdock_parts::{
    BatchParts, Content, Header, Place, TableParts, TreeParts, buffers, own_rows, read_schema, write_schema,
};
use crossdock_plugin_api::{Device, EncodedArray, Error as ApiError, Result as ApiResult, Validate, abi};

use crate::decode::to_host;
use crate::error::{Error, Result};
use crate::place::{Route, is_host_memory, move_batch, move_batch_by};
use crate::received::Received;
use crate::session::Session;
use crate::table::Table;
use crate::whole_ranges::Run;

/// An object that was taken apart: a small header, and the buffers that it refers to.
///
/// [`Session::from_parts`] rebuilds the object from a header and buffers with the same contents, in
/// this process or in another one. The buffers are in host memory and share the memory of the
/// object, if it was in host memory. An object that is a slice has only the buffers of its own
/// rows. The format of the header has a version, and readers reject other versions.
pub struct Parts {
    /// The header. It contains everything but the contents of the buffers.
    pub header: Vec<u8>,
    /// The buffers, in host memory. Their contents are complete.
    pub buffers: Vec<Buffer>,
}

/// An object that was rebuilt from its parts.
pub enum Rebuilt {
    /// A table.
    Table(Table),
    /// A column, as a table of this column.
    Column(Table),
    /// A schema.
    Schema(SchemaRef),
    /// A field.
    Field(FieldRef),
    /// An encoded array.
    Encoded(EncodedArray),
}

/// A parsed header.
pub struct PartsHeader(Header);

impl PartsHeader {
    /// Parses a header.
    ///
    /// # Errors
    /// [`Error::Data`] if the bytes are no header, or a header of another version.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        Header::read(bytes).map(Self).map_err(rebuild_error)
    }

    /// The device of the object when it was taken apart. `None` for a schema or a field.
    pub fn device(&self) -> Option<Device> {
        let is_data = !matches!(self.0.content, Content::Schema(_) | Content::Field(_));
        is_data.then(|| self.0.device.into())
    }

    /// The lengths of the buffers in bytes.
    pub fn buffers(&self) -> &[u64] {
        &self.0.buffers
    }

    /// Rebuilds a schema or a field. `None` for other objects, which need a session.
    ///
    /// # Errors
    /// [`Error::Data`] if the schema is malformed.
    pub fn schema(&self) -> Result<Option<Rebuilt>> {
        let schema = |bytes| read_schema(bytes).map(|(_, schema)| schema).map_err(rebuild_error);
        Ok(match &self.0.content {
            Content::Schema(bytes) => Some(Rebuilt::Schema(schema(bytes)?)),
            Content::Field(bytes) => match schema(bytes)?.fields().first() {
                Some(field) => Some(Rebuilt::Field(field.clone())),
                None => return Err(rebuild_error(ApiError::bad_data("a field without a schema"))),
            },
            _ => None,
        })
    }
}

impl Parts {
    /// Takes a schema apart. It has no buffers.
    ///
    /// # Errors
    /// [`Error::Data`] if the schema cannot be exported.
    pub fn of_schema(schema: &Schema) -> Result<Self> {
        Collected::default().parts(Content::Schema(schema_bytes(schema)?), Device::CPU)
    }

    /// Takes a field apart. It has no buffers.
    ///
    /// # Errors
    /// [`Error::Data`] if the field cannot be exported.
    pub fn of_field(field: &FieldRef) -> Result<Self> {
        let schema = Schema::new(vec![field.clone()]);
        Collected::default().parts(Content::Field(schema_bytes(&schema)?), Device::CPU)
    }

    /// Takes a table of one column apart, which is rebuilt as [`Rebuilt::Column`].
    ///
    /// # Errors
    /// The errors of [`Table::to_parts`].
    pub fn of_column(table: &Table) -> Result<Self> {
        of_table(table, Content::Column)
    }
}

impl Table {
    /// Takes the table apart. A table on another device than the host is copied to host memory; so
    /// are slices of batches. All other buffers are shared.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use arrow_schema::{DataType, Field, Schema};
    /// # use crossdock::{ColumnSlice, Host, Table};
    /// # let session = Host::builder().build()?.session().open()?;
    /// # let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    /// let table = Table::from_columns(&session, schema, &[ColumnSlice::new(&[1i64, 2, 3][..])])?;
    /// let parts = table.to_parts()?;
    /// let again = Table::from_parts(&session, &parts.header, parts.buffers)?;
    /// assert_eq!(again.rows(), 3);
    /// # Ok::<(), crossdock::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Data`] if the contents of a slice are invalid, [`Error::Device`] if memory is
    /// exhausted or a device fails.
    pub fn to_parts(&self) -> Result<Parts> {
        of_table(self, Content::Table)
    }

    /// Rebuilds a table, as [`Session::from_parts`] does. A column becomes a table of one column.
    ///
    /// # Errors
    /// The errors of [`Session::from_parts`]; [`Error::Data`] if the header belongs to an object of
    /// another kind.
    pub fn from_parts(session: &Session, header: &[u8], buffers: Vec<Buffer>) -> Result<Self> {
        let header = PartsHeader::read(header)?;
        let kind = header.0.content.kind();
        match session.rebuild(header, buffers)? {
            Rebuilt::Table(table) | Rebuilt::Column(table) => Ok(table),
            _ => Err(rebuild_error(ApiError::bad_data(format!("expected a table, got {kind}")))),
        }
    }
}

impl Session {
    /// Takes an encoded array apart. Buffers on devices are copied to host memory; the others are
    /// shared.
    ///
    /// # Errors
    /// [`Error::Data`] if buffers of the array were taken, [`Error::Device`] if memory is exhausted
    /// or a device fails.
    pub fn encoded_to_parts(&self, mut array: EncodedArray) -> Result<Parts> {
        let mut take_apart = || -> ApiResult<(TreeParts<Place>, Device, Collected)> {
            let mut tree = TreeParts::write(array.root()?, |_| Ok(None))?;
            to_host(&mut array, self.memory())?;
            let root = array.root()?;
            let mut taken = Vec::with_capacity(tree.buffers.len());
            for index in root.index()..root.end() {
                let node = root.at(index)?;
                for i in 0..node.n_buffers() {
                    // SAFETY: this function owns the array, and does not read its buffers in
                    // another way.
                    let raw = unsafe { node.take_buffer(i) }?;
                    // SAFETY: `EncodedArray` guarantees a readable range, and that its event lives
                    // as long as the buffer.
                    taken.push(unsafe { Buffer::from_encoded(raw) });
                }
            }
            let cpu = self.memory().default_stream(Device::CPU)?;
            let collected = Collected::new(taken.iter().flatten().cloned(), &cpu)?;
            for (record, buffer) in tree.buffers.iter_mut().zip(&taken) {
                record.place = buffer.as_ref().map(|buffer| collected.place(buffer)).transpose()?;
            }
            let devices = tree.buffers.iter().map(|record| Device::from(record.device));
            let device = devices.into_iter().find(|device| *device != Device::CPU).unwrap_or(Device::CPU);
            Ok((tree, device, collected))
        };
        let failed = |error| Error::data("cannot take an encoded array apart", error);
        let (tree, device, collected) = take_apart().map_err(failed)?;
        collected.parts(Content::Encoded(tree), device)
    }

    /// Rebuilds an object. A table is on the session's device; its buffers are used in place if
    /// this device is the host and their addresses are aligned as their types require. An encoded
    /// array uses the buffers in place too.
    ///
    /// The contents of the buffers are validated if the session validates fully. Without that, the
    /// caller trusts the sender of the buffers as it trusts a library that exports Arrow arrays.
    ///
    /// # Errors
    /// [`Error::Data`] if the header is damaged or has another version, or if buffers are missing
    /// or have other lengths; [`Error::Device`] if memory is exhausted or a device fails.
    pub fn from_parts(&self, header: &[u8], buffers: Vec<Buffer>) -> Result<Rebuilt> {
        self.rebuild(PartsHeader::read(header)?, buffers)
    }

    /// Rebuilds an object whose header is parsed already, as [`Session::from_parts`] does.
    ///
    /// # Errors
    /// The errors of [`Session::from_parts`].
    pub fn rebuild(&self, header: PartsHeader, buffers: Vec<Buffer>) -> Result<Rebuilt> {
        self.rebuild_on(Device::CPU, Route::TargetStream, header, buffers)
    }

    /// Like [`Session::rebuild`], for buffers on `device`.
    pub(crate) fn rebuild_on(
        &self,
        device: Device,
        route: Route,
        header: PartsHeader,
        buffers: Vec<Buffer>,
    ) -> Result<Rebuilt> {
        check_buffers(&header.0.buffers, &buffers, device).map_err(rebuild_error)?;
        if let Some(schema) = header.schema()? {
            return Ok(schema);
        }
        let stream = self.memory().default_stream(device).map_err(rebuild_error)?;
        let mut from = Received::new(buffers, device, stream);
        match header.0.content {
            Content::Table(parts) => self.rebuild_table(parts, &mut from, route).map(Rebuilt::Table),
            Content::Column(parts) => {
                let table = self.rebuild_table(parts, &mut from, route)?;
                match table.schema().fields().len() {
                    1 => Ok(Rebuilt::Column(table)),
                    n => Err(rebuild_error(ApiError::bad_data(format!("a column of {n} columns")))),
                }
            }
            Content::Encoded(tree) => {
                let tree = tree.read(|record| from.encoded(&record));
                tree.map(Rebuilt::Encoded).map_err(rebuild_error)
            }
            Content::Schema(_) | Content::Field(_) => {
                Err(rebuild_error(ApiError::internal("a schema was not rebuilt")))
            }
        }
    }

    fn rebuild_table(&self, parts: TableParts, from: &mut Received, route: Route) -> Result<Table> {
        let (_, schema) = read_schema(&parts.schema).map_err(rebuild_error)?;
        let mut batches = Vec::with_capacity(parts.batches.len().min(1 << 16));
        for batch in parts.batches {
            let batch = batch.read(&schema, from).map_err(rebuild_error)?;
            if self.validate_structs() == Validate::Full {
                validate(&batch, Level::Full, from.stream()).map_err(rebuild_error)?;
            }
            batches.push(move_batch_by(self, batch, route, from.stream())?);
        }
        Table::from_batches(self, schema, batches)
    }
}

fn rebuild_error(error: ApiError) -> Error {
    Error::data("cannot rebuild an object from its parts", error)
}

pub(crate) fn schema_bytes(schema: &Schema) -> Result<Vec<u8>> {
    let bytes = export_schema(schema).and_then(|schema| write_schema(&schema));
    bytes.map_err(|error| Error::data("cannot take a schema apart", error))
}

fn of_table(table: &Table, content: impl FnOnce(TableParts) -> Content) -> Result<Parts> {
    let session = table.session();
    let failed = |error| Error::data("cannot take a table apart", error);
    let cpu = session.memory().default_stream(Device::CPU).map_err(failed)?;
    let batches = on_host(table, &cpu)?;
    let all = batches.iter().flat_map(|batch| buffers(batch.columns()));
    let collected = Collected::new(all.cloned(), &cpu).map_err(failed)?;
    let parts = batches.iter().map(|batch| BatchParts::write(batch, |buffer| collected.place(buffer)));
    let batches = parts.collect::<ApiResult<_>>().map_err(failed)?;
    let device = table.batches().first().map_or(session.device(), DeviceBatch::device);
    let schema = schema_bytes(table.schema())?;
    collected.parts(content(TableParts { schema, batches }), device)
}

/// The batches of a table in host memory, without the rows of other slices. The lengths of their
/// buffers are known.
pub(crate) fn on_host(table: &Table, cpu: &Stream) -> Result<Vec<DeviceBatch>> {
    let on_host = table.batches().iter().map(|batch| move_to_host(table.session(), batch, cpu));
    own_rows(on_host.collect::<Result<_>>()?, cpu)
        .map_err(|error| Error::data("cannot take a table apart", error))
}

/// Moves a batch to host memory, with the ranges that it uses. The lengths of the result's buffers
/// are known.
fn move_to_host(session: &Session, batch: &DeviceBatch, cpu: &Stream) -> Result<DeviceBatch> {
    if !is_host_memory(batch.device()) {
        return move_batch(session, batch.clone(), Device::CPU);
    }
    let mut batch = batch.clone();
    batch.resolve_sizes(cpu).map_err(|error| Error::data("cannot take a table apart", error))?;
    Ok(batch)
}

/// The buffers of an object. Buffers that several arrays share, such as the dictionary of several
/// batches, are collected once.
#[derive(Default)]
pub(crate) struct Collected {
    /// In the order of their first use, so that equal objects have equal headers. No buffer
    /// contains another one. Neighbours in the memory of one source are one buffer, because each
    /// buffer has a cost in Ray and Dask.
    pub(crate) buffers: Vec<Buffer>,
    /// The address of each buffer and its index, ordered by address.
    by_address: Vec<(u64, u32)>,
}

impl Collected {
    /// Collects buffers in host memory. Waits until they are complete, because their bytes leave
    /// the host's control.
    fn new(all: impl Iterator<Item = Buffer>, cpu: &Stream) -> ApiResult<Self> {
        let all: Vec<Buffer> = all.filter(|buffer| !buffer.is_empty()).collect();
        for buffer in &all {
            if !matches!(buffer.ready(), Ready::Now) {
                drop(buffer.host_view(cpu)?);
            }
        }
        Self::in_runs(all.into_iter(), Run::extend)
    }

    /// Collects buffers on one device, whose addresses are in one address space. The events of
    /// buffers that are part of other buffers are not kept.
    pub(crate) fn on_one_device(all: impl Iterator<Item = Buffer>) -> ApiResult<Self> {
        Self::in_runs(all, |_, buffer| Some(buffer))
    }

    /// `extend` adds a buffer to the run before it, or returns it.
    fn in_runs(
        all: impl Iterator<Item = Buffer>,
        extend: impl Fn(&mut Run, Buffer) -> Option<Buffer>,
    ) -> ApiResult<Self> {
        let all = all.filter(|buffer| !buffer.is_empty()).enumerate();
        let mut all: Vec<(usize, Buffer)> = all.collect();
        let end = |buffer: &Buffer| buffer.address() + buffer.len().unwrap_or(0) as u64;
        all.sort_by_key(|(_, buffer)| (buffer.address(), std::cmp::Reverse(end(buffer))));
        let mut runs: Vec<(usize, Run)> = Vec::with_capacity(all.len());
        for (first_use, buffer) in all {
            let rest = match runs.last_mut() {
                Some((_, run)) if !run.contains(&buffer) => extend(run, buffer),
                Some(_) => None,
                None => Some(buffer),
            };
            match (rest, runs.last_mut()) {
                (Some(buffer), _) => runs.push((first_use, Run::new(buffer))),
                (None, Some((use_of_run, _))) => *use_of_run = first_use.min(*use_of_run),
                (None, None) => {}
            }
        }
        runs.sort_by_key(|(first_use, _)| *first_use);
        let too_many = |_| ApiError::unsupported(format!("an object of {} buffers", runs.len()));
        u32::try_from(runs.len()).map_err(too_many)?;
        let buffers: Vec<Buffer> = runs.into_iter().map(|(_, run)| run.into_buffer()).collect();
        let mut by_address: Vec<_> = buffers.iter().map(Buffer::address).zip(0..).collect();
        by_address.sort_unstable();
        Ok(Self { buffers, by_address })
    }

    pub(crate) fn place(&self, buffer: &Buffer) -> ApiResult<Place> {
        let bytes = buffer.len().ok_or_else(|| ApiError::internal("a buffer of unknown length"))? as u64;
        if bytes == 0 {
            return Ok(Place::EMPTY);
        }
        // The last buffer that begins at the address or before it contains the address.
        let after = self.by_address.partition_point(|(address, _)| *address <= buffer.address());
        let found = after.checked_sub(1).and_then(|i| self.by_address.get(i));
        let (address, index) = *found.ok_or_else(|| ApiError::internal("a buffer was not collected"))?;
        Ok(Place { index, offset: buffer.address() - address, bytes })
    }

    fn parts(self, content: Content, device: Device) -> Result<Parts> {
        let device = match device.r#type {
            abi::DEVICE_CUDA_MANAGED => Device::from_arrow(abi::DEVICE_CUDA, device.id),
            abi::DEVICE_CUDA_HOST => Device::CPU,
            _ => device,
        };
        let lengths = self.buffers.iter().map(|buffer| buffer.len().unwrap_or(0) as u64).collect();
        let header = Header { content, device: device.into(), buffers: lengths }.write();
        let header = header.map_err(|error| Error::data("cannot take an object apart", error))?;
        Ok(Parts { header, buffers: self.buffers })
    }
}

fn check_buffers(expected: &[u64], got: &[Buffer], on: Device) -> ApiResult<()> {
    if expected.len() != got.len() {
        return Err(ApiError::bad_data(format!("expected {} buffers, got {}", expected.len(), got.len())));
    }
    for (i, (expected, buffer)) in expected.iter().zip(got).enumerate() {
        let device = buffer.device();
        if device != on && !(on == Device::CPU && is_host_memory(device)) {
            let on = if on == Device::CPU { "host memory".to_owned() } else { on.to_string() };
            return Err(ApiError::bad_data(format!("buffer {i} is on {device}, expected {on}")));
        }
        let got = buffer.len().map(|len| len as u64);
        if got != Some(*expected) {
            let got = got.map_or_else(|| "an unknown number of".into(), |n| n.to_string());
            return Err(ApiError::bad_data(format!(
                "buffer {i}: expected {expected} bytes, got {got} bytes"
            )));
        }
    }
    Ok(())
}

/// Wraps bytes that were received, for [`Session::from_parts`]. The bytes are not copied.
pub fn received_bytes(bytes: Arc<[u8]>) -> Buffer {
    let (address, len) = (bytes.as_ptr() as u64, bytes.len() as u64);
    let owner = ForeignOwner::new(bytes);
    // SAFETY: the bytes do not move or change while `owner` holds a reference to them.
    unsafe { Buffer::foreign(&owner, Device::CPU, address, Some(len), Ready::Now) }
}
