//! The Crossdock plugin `@NAME@`, which reads the format `@NAME@`.
//!
//! Replace this minimal format: a text file with one 64-bit integer per line. An exporter, which
//! writes a format, is added in the same way: see docs/plugins.md of Crossdock.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use crossdock_arrays::{
    DeviceArray, DeviceBatch, call_stream, export_batch, export_schema, import_schema_ref,
};
use crossdock_memory::Memory;
use crossdock_plugin_api::{BatchStream, Call, Error, Format, Host, Importer, Input, Options, Owned, Plugin, Result, Source, abi, crossdock_plugin, ReadRequest};

struct NumberFormat {
    memory: Memory,
    formats: [Format; 1],
}

impl Plugin for NumberFormat {
    fn create(host: Host) -> Result<Self> {
        let format = Format {
            bytes: true,
            extensions: vec![".@NAME@".into()],
            ..Format::new("@NAME@", "one 64-bit integer per line")
        };
        Ok(Self {
            memory: Memory::from_host(&host)?,
            formats: [format],
        })
    }

    fn importer(&self) -> Option<&dyn Importer> {
        Some(self)
    }
}

crossdock_plugin!(
    NumberFormat,
    name: "@NAME@",
    description: "reads @NAME@ files",
    interfaces: "crossdock.importer/1",
    formats: "@NAME@",
    requires: "crossdock.host.memory/1",
);

impl Importer for NumberFormat {
    fn formats(&self) -> &[Format] {
        &self.formats
    }

    fn open(
        &self,
        _call: &Call<'_>,
        input: Input,
        request: &ReadRequest<'_>,
    ) -> Result<Box<dyn BatchStream>> {
        let Input::Source(source) = input else {
            return Err(Error::invalid_argument(
                "@NAME@: expected a source, got capsules",
            ));
        };
        let schema = Arc::new(Schema::new(vec![Field::new(
            "number",
            DataType::Int64,
            false,
        )]));
        // SAFETY: the caller passes a valid schema, which lives until this function returns.
        let expected = request.schema.map(|expected| unsafe { import_schema_ref(expected) });
        if let Some(expected) = expected.transpose()?
            && expected != *schema
        {
            return Err(Error::invalid_argument(format!(
                "@NAME@: expected {expected}, got {schema}"
            )));
        }
        Ok(Box::new(Reader {
            source,
            memory: self.memory.clone(),
            schema,
            offset: 0,
            rest: Vec::new(),
            line: 0,
        }))
    }
}

/// The number of bytes of one read, and the maximum length of a line.
const CHUNK_BYTES: usize = 1 << 20;

struct Reader {
    source: Source,
    memory: Memory,
    schema: SchemaRef,
    offset: u64,
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
    /// The number of lines that were read so far, for messages.
    line: u64,
}

impl Reader {
    /// Returns the bytes of the numbers in the next chunk; `None` at the end of the source.
    fn numbers(&mut self) -> Result<Option<Vec<u8>>> {
        let mut text = std::mem::take(&mut self.rest);
        let start = text.len();
        text.resize(start + CHUNK_BYTES, 0);
        let n_read = self.source.read_at(self.offset, &mut text[start..])?;
        text.truncate(start + n_read);
        self.offset += n_read as u64;
        if n_read > 0 {
            let end = text
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            self.rest = text.split_off(end);
            if self.rest.len() >= CHUNK_BYTES {
                return Err(self.wrong("a line of more than 1 MiB: is this a text file?"));
            }
        } else if text.is_empty() {
            return Ok(None);
        }
        let mut numbers = Vec::new();
        for line in String::from_utf8_lossy(&text).lines() {
            self.line += 1;
            let number: Result<i64, _> = line.trim().parse();
            let number = number
                .map_err(|_| self.wrong(&format!("expected a 64-bit integer, got {line:?}")))?;
            numbers.extend(number.to_ne_bytes());
        }
        Ok(Some(numbers))
    }

    fn wrong(&self, what: &str) -> Error {
        Error::bad_data(format!(
            "{}, line {}: {what}",
            self.source.name(),
            self.line
        ))
    }
}

impl BatchStream for Reader {
    fn schema(&mut self) -> Result<Owned<abi::ArrowSchema>> {
        export_schema(&self.schema)
    }

    fn next(&mut self, call: &Call<'_>) -> Result<Option<Owned<abi::Batch>>> {
        call.check_cancelled()?;
        let Some(numbers) = self.numbers()? else {
            return Ok(None);
        };
        call.progress(self.offset, self.source.len().unwrap_or(0));
        // The batch must be on the call's device.
        let stream = call_stream(&self.memory, call, call.device())?;
        let fill = |to: &mut [u8]| {
            to.copy_from_slice(&numbers);
            Ok(())
        };
        let values = self
            .memory
            .alloc_with(&stream, numbers.len(), fill)?
            .freeze(&stream)?;
        let rows = numbers.len() / 8;
        let buffers = vec![None, Some(values)];
        let column =
            DeviceArray::try_new(DataType::Int64, rows, 0, Some(0), buffers, vec![], None)?;
        let batch = DeviceBatch::try_new(self.schema.clone(), rows, vec![column])?;
        export_batch(&batch, false, &stream).map(Some)
    }
}
