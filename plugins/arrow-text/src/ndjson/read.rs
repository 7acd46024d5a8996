//! Opens NDJSON files.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use crossdock_arrays::Projection;
use crossdock_plugin_api::{Error, Result};

use super::decoders::{Factory, split_error};
use super::ends::NdjsonEnds;
use super::infer::{self, Struct};
use super::lines::{check_depth, records};
use crate::chunks::Chunk;
use crate::options::{InferRows, hex, infer_rows};
use crate::reader::{self, Input, Opened, Parse};
use crate::types::Types;

/// The greatest number of characters of an error of arrow-json.
const MAX_ERROR: usize = 300;

/// Opens an NDJSON file.
///
/// # Errors
/// The error of the source. Bad data if a record of the sample is invalid. Unsupported if a type
/// of the expected schema cannot be read.
pub fn open(input: &Input<'_>) -> Result<Opened> {
    let rows = infer_rows(input.request.options)?;
    let hex = hex(input.request.options)?;
    let expected = input.expected()?;
    let types = Types::read(input.request.options)?;
    let mut chunks = input.chunks(Box::new(NdjsonEnds::default()))?;
    let mut kept = VecDeque::new();
    let schema = match expected {
        Some(expected) => expected,
        None => {
            if rows == InferRows::All {
                input.check_repeatable()?;
            }
            let mut seen = Struct::default();
            kept.extend(chunks.next()?);
            reader::infer(input, &mut chunks, &mut kept, rows, |chunk, wanted| {
                add(chunk, wanted, &mut seen, &types)
            })?;
            if rows == InferRows::All {
                chunks = input.chunks(Box::new(NdjsonEnds::default()))?;
            }
            types.apply(Schema::new(seen.fields()), true)?
        }
    };
    check_types(schema.fields(), hex)?;
    let schema = SchemaRef::new(schema);
    let projection = input.projection(&schema);
    let projected = match &projection {
        None => schema.clone(),
        Some(projection) => projection.schema(&schema)?.into(),
    };
    let selects_columns = projection.is_some();
    let parser = Parser { schema, projection, projected: projected.clone() };
    // The decoder checks the types.
    parser.decoder(0)?;
    Ok(Opened { kept, chunks, parser: Arc::new(parser), schema: projected, selects_columns })
}

/// Adds the types of at most `wanted` records. Returns their number.
fn add(chunk: &Chunk, wanted: u64, seen: &mut Struct, types: &Types) -> Result<u64> {
    let mut rows = 0;
    for (start, line) in records(chunk.text()?) {
        if rows == wanted {
            break;
        }
        check_depth(chunk, start, line)?;
        infer::add(line, seen, types).map_err(|what| chunk.error_at(start, what))?;
        rows += 1;
    }
    Ok(rows)
}

fn check_types(fields: &Fields, hex: bool) -> Result<()> {
    let check = |field: &FieldRef| {
        let problem = problem(field.data_type(), hex);
        problem.map_or(Ok(()), |why| {
            Err(Error::unsupported(format!(
                "column '{}' is {}: {why}",
                field.name(),
                crossdock_arrays::type_name(field.data_type())
            )))
        })
    };
    fields.iter().try_for_each(check)
}

fn problem(data_type: &DataType, hex: bool) -> Option<&'static str> {
    let nested = |field: &FieldRef| problem(field.data_type(), hex);
    match data_type {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_)
            if !hex =>
        {
            Some("JSON has no binary values; pass binary=hex if they are hexadecimal text")
        }
        DataType::Struct(fields) => fields.iter().find_map(nested),
        DataType::List(field) | DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
            nested(field)
        }
        DataType::ListView(field) | DataType::LargeListView(field) | DataType::Map(field, _) => nested(field),
        DataType::Dictionary(..) | DataType::Union(..) | DataType::RunEndEncoded(..) => {
            Some("NDJSON is not read with this type")
        }
        DataType::Duration(_) | DataType::Interval(_) => Some("NDJSON is not read with this type"),
        _ => None,
    }
}

struct Parser {
    /// The columns of the file.
    schema: SchemaRef,
    projection: Option<Projection>,
    /// The needed columns.
    projected: SchemaRef,
}

impl Parser {
    fn decoder(&self, rows: usize) -> Result<Decoder> {
        let factory = Factory { schema: self.schema.clone(), projection: self.projection.clone() };
        let builder = ReaderBuilder::new(self.projected.clone()).with_batch_size(rows + 1);
        let decoder = builder.with_decoder_factory(Arc::new(factory)).build_decoder();
        decoder.map_err(|error| Error::unsupported(format!("NDJSON is not read with this schema: {error}")))
    }

    /// Decodes text with `rows` records. Returns the path of the column, if it is known, and a
    /// description of the first error.
    fn decode(&self, text: &str, rows: usize) -> Result<RecordBatch, (Option<String>, String)> {
        let mut decoder = self.decoder(rows).map_err(|error| (None, error.to_string()))?;
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let used = decoder.decode(rest).map_err(split_error)?;
            rest = rest.get(used..).unwrap_or_default();
            if used == 0 {
                break;
            }
        }
        if decoder.has_partial_record() {
            return Err((None, "the object is not complete".into()));
        }
        if !rest.is_empty() || decoder.len() != rows {
            return Err((None, "expected one object per line".into()));
        }
        let batch = decoder.flush().map_err(split_error)?;
        Ok(batch.unwrap_or_else(|| RecordBatch::new_empty(self.projected.clone())))
    }
}

impl Parse for Parser {
    fn parse(&self, chunk: &Chunk) -> Result<RecordBatch> {
        let text = chunk.text()?;
        let mut rows = 0;
        for (start, line) in records(text) {
            check_depth(chunk, start, line)?;
            rows += 1;
        }
        self.decode(text, rows).map_err(|whole| {
            // The errors of arrow-json do not name the record, so the records are read one by one.
            let fails = |(start, line)| self.decode(line, 1).err().map(|error| (start, error));
            let (start, (path, what)) = records(text).find_map(fails).unwrap_or((0, whole));
            let end = what.char_indices().nth(MAX_ERROR).map_or(what.len(), |(end, _)| end);
            let what = what.get(..end).unwrap_or_default();
            match path {
                Some(path) => chunk.error_at(start, format_args!("column '{path}': {what}")),
                None => chunk.error_at(start, what),
            }
        })
    }
}
