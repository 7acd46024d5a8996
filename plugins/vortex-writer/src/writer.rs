//! Writes batches to a file.

use arrow_schema::{Schema, SchemaRef};
use crossdock_arrays::{DeviceBatch, Level, call_stream, import_batch, validate};
use crossdock_memory::{BufferMut, Memory, Stream};
use crossdock_plugin_api::{
    BatchWriter, Call, Capsule, Device, Error, Host, Owned, Result, Sink, Tasks, abi,
};
use vortex::array::ArrayRef;
use vortex::buffer::ByteBuffer;

use crate::convert::Table;
use crate::error::guarded;
use crate::pipeline::{Pipeline, Runtime, check_metadata};
use crate::settings::Settings;
use crate::types::plain_fields;

/// The maximum size of a part of a batch, if one zone is smaller.
const PART_BYTES: u64 = 16 << 20;
/// The part of the memory limit that a part of a batch may use.
const LIMIT_PARTS: u64 = 32;
/// The part of the memory limit that the values of a chunk may use.
const CHUNK_PARTS: u64 = 8;
/// The memory that the crate allocates for a part and for a chunk, as a multiple of their sizes:
/// the values in their canonical encoding, as one array, and compressed.
const COPIES: u64 = 3;

/// Writes batches of one schema.
pub struct Writer {
    pipeline: Pipeline,
    table: Table,
    schema: SchemaRef,
    settings: Settings,
    host: Host,
    memory: Memory,
    part_bytes: u64,
    /// The last part. The crate looks at some of its values only when more rows follow.
    last: Option<ArrayRef>,
    /// The estimated size of all rows so far.
    written_bytes: u64,
    /// Memory of the host of the size that the crate allocates. It is not used. It makes the
    /// crate's memory count against the session's budget.
    reserved: Option<BufferMut>,
    has_warned: bool,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// Unsupported if Vortex has no type for a column.
    pub fn begin(
        call: &Call<'_>,
        schema: Schema,
        mut settings: Settings,
        sink: Sink,
        host: &Host,
        memory: &Memory,
        tasks: &Tasks,
    ) -> Result<Self> {
        call.check_cancelled()?;
        let (fields, with_metadata) = plain_fields(schema.fields())?;
        let runtime = Runtime::new();
        let table = guarded(|| Table::new(&fields, &runtime.session))?;
        if !with_metadata.is_empty() {
            let columns = with_metadata.join("', '");
            let text =
                format!("a Vortex file cannot store the metadata of fields; dropped: those of '{columns}'");
            host.log(abi::LOG_WARN, &text);
        }
        let pairs = schema.metadata().iter();
        let mut pairs: Vec<_> =
            pairs.map(|(key, value)| (key.to_string(), ByteBuffer::copy_from(value.as_bytes()))).collect();
        if let Err(why) = check_metadata(&runtime.session, &pairs) {
            host.log(abi::LOG_WARN, &format!("the metadata of the schema are dropped: {why}"));
            pairs.clear();
        }
        let limit = match host.session().map_or(0, |session| session.memory_limit_bytes) {
            0 => u64::MAX,
            limit => limit,
        };
        let part_bytes = PART_BYTES.min(limit / LIMIT_PARTS);
        settings.chunk_bytes = settings.chunk_bytes.min(limit / CHUNK_PARTS);
        Ok(Self {
            pipeline: Pipeline::new(runtime, table.dtype(), settings, pairs, sink, tasks),
            table,
            schema: schema.into(),
            settings,
            host: host.clone(),
            memory: memory.clone(),
            part_bytes,
            last: None,
            written_bytes: 0,
            reserved: None,
            has_warned: false,
        })
    }

    /// Adds the name of a column to an error of the crate, if the column can be found. `current` is
    /// the part that was being written.
    fn explain(&self, current: Option<&ArrayRef>, error: Error) -> Error {
        let parts = self.last.iter().chain(current);
        let column = parts.filter(|_| self.pipeline.has_crate_failed());
        column.fold(error, |error, part| self.table.explain(part, self.pipeline.session()).unwrap_or(error))
    }

    /// Counts the memory of the crate during the next part against the session's budget.
    fn reserve(&mut self, part_bytes: u64, stream: &Stream) -> Result<()> {
        let chunk_bytes = self.written_bytes.min(self.settings.chunk_bytes);
        let bytes = bytes_of_crate(self.pipeline.buffered_bytes(), chunk_bytes, part_bytes);
        if self.reserved.as_ref().is_some_and(|reserved| reserved.len() as u64 >= bytes) {
            return Ok(());
        }
        self.reserved = None;
        let reserved = self.memory.alloc(stream, usize::try_from(bytes).unwrap_or(usize::MAX));
        let what =
            "memory for the writer of the crate vortex: write smaller batches, or raise the memory limit";
        self.reserved = Some(reserved.map_err(|error| error.context(what))?);
        Ok(())
    }
}

impl BatchWriter for Writer {
    fn write(&mut self, call: &Call<'_>, batch: Owned<abi::Batch>) -> Result<Vec<Capsule>> {
        call.check_cancelled()?;
        let mut batch = import_batch(batch, &self.schema, &self.memory)?;
        if !batch.metadata().is_empty() && !std::mem::replace(&mut self.has_warned, true) {
            self.host
                .log(abi::LOG_WARN, "a Vortex file cannot store the metadata of batches, which are dropped");
        }
        let stream = call_stream(&self.memory, call, Device::CPU)?;
        batch.resolve_sizes(&stream)?;
        // The crates arrow and vortex rely on the contents of buffers without checks.
        validate(&batch, Level::Full, &stream)?;
        let zone_rows = self.settings.zone_rows.get();
        let (part_rows, part_bytes) =
            part_size(batch.len(), batch.buffer_bytes(), zone_rows, self.part_bytes);
        for begin in (0..batch.len()).step_by(part_rows) {
            let part: DeviceBatch = batch.slice(begin, part_rows.min(batch.len() - begin))?;
            self.reserve(part_bytes, &stream)?;
            let array = guarded(|| self.table.array(&part, self.pipeline.session(), &stream))?;
            let pushed = self.pipeline.push(call, array.clone());
            pushed.map_err(|error| self.explain(Some(&array), error))?;
            self.last = Some(array);
            self.written_bytes = self.written_bytes.saturating_add(part_bytes);
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, call: &Call<'_>) -> Result<Vec<Capsule>> {
        let finished = self.pipeline.finish(call);
        finished.map_err(|error| self.explain(None, error))?;
        self.reserved = None;
        Ok(Vec::new())
    }
}

/// The memory that the crate has allocated at most after the next part. `chunk_bytes` are the
/// values of the chunk that it collects, which it compresses as soon as it is full. `compressed`
/// are the bytes of earlier chunks that are not in the file yet.
fn bytes_of_crate(compressed: u64, chunk_bytes: u64, part_bytes: u64) -> u64 {
    compressed.saturating_add(chunk_bytes.saturating_add(part_bytes).saturating_mul(COPIES))
}

/// The number of rows of a part of a batch, which is a multiple of `zone_rows`, and its estimated
/// size in bytes.
fn part_size(rows: usize, bytes: u64, zone_rows: usize, max_bytes: u64) -> (usize, u64) {
    let row_bytes = bytes / (rows as u64).max(1) + 1;
    let zones = usize::try_from(max_bytes / row_bytes).unwrap_or(usize::MAX) / zone_rows.max(1);
    let part_rows = zones.max(1).saturating_mul(zone_rows.max(1));
    (part_rows, row_bytes.saturating_mul(part_rows.min(rows) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_chunk_and_a_part_are_counted_with_their_copies() {
        assert_eq!(bytes_of_crate(5, 100, 10), 5 + 3 * 110);
        assert_eq!(bytes_of_crate(0, u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn parts_are_multiples_of_a_zone() {
        assert_eq!(part_size(100, 800, 8192, 1 << 20), (14 * 8192, 900));
        assert_eq!(part_size(1 << 20, 8 << 20, 8192, 1 << 20), (14 * 8192, 9 * 14 * 8192));
        assert_eq!(part_size(1 << 20, 8 << 20, 1 << 18, 1 << 20), (1 << 18, 9 << 18));
        assert_eq!(part_size(10, 1 << 30, 8192, 1 << 20).0, 8192, "rows larger than the limit");
        assert_eq!(part_size(0, 0, 8192, 1 << 20).1, 0);
    }
}
