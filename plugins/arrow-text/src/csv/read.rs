//! Opens CSV files.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, FieldRef, Fields, Schema, SchemaRef};
use crossdock_plugin_api::{Error, Result};

use super::columns::{Column, check_type};
use super::ends::CsvEnds;
use super::fields::{self, Field as CsvField, Records, Violation};
use super::infer::Kinds;
use crate::chunks::{Chunk, Chunks};
use crate::options::{CsvOptions, InferRows, MAX_COLUMNS, infer_rows};
use crate::reader::{self, Input, Opened, Parse};
use crate::types::Types;

/// Opens a CSV file.
///
/// # Errors
/// The error of the source. Bad data if the header or a row of the sample is invalid. Unsupported
/// if a type of the expected schema cannot be read.
pub fn open(input: &Input<'_>) -> Result<Opened> {
    let options = CsvOptions::read(input.request.options, input.source.name())?;
    let rows = infer_rows(input.request.options)?;
    let expected = input.expected()?;
    let types = Types::read(input.request.options)?;
    let mut begun = Begun::new(input, &options)?;
    let schema = match expected {
        Some(expected) => {
            begun.check_names(&options, &expected)?;
            expected
        }
        None => {
            let schema = begun.infer(input, &options, rows)?;
            if rows == InferRows::All {
                begun = Begun::new(input, &options)?;
            }
            types.apply(schema, false)?
        }
    };
    let schema = SchemaRef::new(schema);
    let projection = input.projection(&schema);
    let is_needed = |i: usize| projection.as_ref().is_none_or(|projection| projection.get(i).is_some());
    let all = schema.fields().iter().enumerate();
    let mut n_needed = 0;
    let position = |(i, _)| {
        is_needed(i).then(|| {
            n_needed += 1;
            n_needed - 1
        })
    };
    let needed = all.clone().map(position).collect();
    let fields: Fields = all.filter(|(i, _)| is_needed(*i)).map(|(_, field)| field.clone()).collect();
    fields.iter().try_for_each(|field| check_type(field, &options))?;
    let projected = SchemaRef::new(Schema::new(fields).with_metadata(schema.metadata().clone()));
    let parser = Parser { options, all: schema, needed, schema: projected.clone() };
    Ok(Opened {
        kept: begun.kept,
        chunks: begun.chunks,
        parser: Arc::new(parser),
        schema: projected,
        selects_columns: projection.is_some(),
    })
}

/// A file whose header has been read.
struct Begun {
    chunks: Chunks,
    kept: VecDeque<Chunk>,
    /// The names in the header, or the number of fields of the first record; `None` if there is no
    /// record.
    names: Option<Vec<String>>,
}

impl Begun {
    fn new(input: &Input<'_>, options: &CsvOptions) -> Result<Self> {
        let mut chunks = input.chunks(Box::new(CsvEnds::new(options.dialect)))?;
        while let Some(mut chunk) = chunks.next()? {
            input.call.check_cancelled()?;
            let text = chunk.text()?;
            let mut names = Vec::new();
            let mut records = Records::new(text.as_bytes(), 0, &options.dialect, false);
            let record = records.next(|i, field| {
                if i < MAX_COLUMNS {
                    names.push(text_of(text, field, options));
                }
            });
            match record.map_err(|violation| explain(&chunk, violation, 0))? {
                None => continue,
                Some((at, got)) if got > MAX_COLUMNS => {
                    let text = format!("the record has {got} fields, expected at most {MAX_COLUMNS}");
                    return Err(chunk.error_at(at, text));
                }
                Some(_) => {}
            }
            if options.dialect.header {
                chunk.begin = records.position();
            } else {
                let numbered = names.iter().enumerate();
                names = numbered.map(|(i, _)| format!("column_{}", i + 1)).collect();
            }
            return Ok(Self { chunks, kept: [chunk].into(), names: Some(names) });
        }
        Ok(Self { chunks, kept: VecDeque::new(), names: None })
    }

    fn no_record(options: &CsvOptions) -> Error {
        let expected = match options.dialect.header {
            true => "one with the names of the columns",
            false => "one, because its fields are the columns",
        };
        Error::bad_data(format!("the file has no record, expected at least {expected}"))
    }

    /// Checks that the file has the columns of the expected schema.
    fn check_names(&self, options: &CsvOptions, expected: &Schema) -> Result<()> {
        let wanted: Vec<&str> = expected.fields().iter().map(|field| field.name().as_str()).collect();
        let names = match &self.names {
            None if options.dialect.header => return Err(Self::no_record(options)),
            None => return Ok(()),
            Some(names) => names,
        };
        if names.len() != wanted.len() {
            return Err(Error::invalid_argument(format!(
                "the file has {} columns ({}), but the schema has {} ({})",
                names.len(),
                names.join(", "),
                wanted.len(),
                wanted.join(", ")
            )));
        }
        let differs = names.iter().zip(&wanted).enumerate().find(|(_, (got, wanted))| got != *wanted);
        match differs {
            Some((i, (got, wanted))) if options.dialect.header => Err(Error::invalid_argument(format!(
                "column {} of the file is '{got}', but '{wanted}' in the schema",
                i + 1
            ))),
            _ => Ok(()),
        }
    }

    fn infer(&mut self, input: &Input<'_>, options: &CsvOptions, rows: InferRows) -> Result<Schema> {
        let names = self.names.clone().ok_or_else(|| Self::no_record(options))?;
        if rows == InferRows::All {
            input.check_repeatable()?;
        }
        let mut kinds = vec![Kinds::default(); names.len()];
        reader::infer(input, &mut self.chunks, &mut self.kept, rows, |chunk, wanted| {
            let text = chunk.text()?;
            walk(chunk, text, options, names.len(), wanted, |i, field| {
                let text = text.get(field.range()).unwrap_or_default();
                if let Some(kinds) = kinds.get_mut(i).filter(|_| !options.nulls.contains(text.as_bytes())) {
                    kinds.add(&text_of_escaped(text, field, options));
                }
            })
        })?;
        let fields =
            names.into_iter().zip(kinds).map(|(name, kinds)| Field::new(name, kinds.data_type(), true));
        Ok(Schema::new(fields.collect::<Vec<_>>()))
    }
}

fn text_of(text: &str, field: CsvField, options: &CsvOptions) -> String {
    text_of_escaped(text.get(field.range()).unwrap_or_default(), field, options)
}

fn text_of_escaped(text: &str, field: CsvField, options: &CsvOptions) -> String {
    if !field.is_escaped() {
        return text.to_string();
    }
    let mut bytes = Vec::new();
    fields::unescape(text.as_bytes(), &options.dialect, &mut bytes);
    // Only ASCII is removed from the text, so it is still UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Calls `each` with the fields of at most `max_rows` records. Returns the number of records.
#[inline]
fn walk(
    chunk: &Chunk,
    text: &str,
    options: &CsvOptions,
    n_columns: usize,
    max_rows: u64,
    mut each: impl FnMut(usize, CsvField),
) -> Result<u64> {
    let mut records = Records::new(text.as_bytes(), chunk.begin, &options.dialect, n_columns == 1);
    let mut rows = 0;
    while rows < max_rows {
        let record = records.next(&mut each).map_err(|violation| explain(chunk, violation, n_columns))?;
        let Some((at, got)) = record else { break };
        if got != n_columns {
            return Err(explain(chunk, Violation::Fields { at, got }, n_columns));
        }
        rows += 1;
    }
    Ok(rows)
}

fn explain(chunk: &Chunk, violation: Violation, n_columns: usize) -> Error {
    match violation {
        Violation::Fields { at, got } => {
            chunk.error_at(at, format_args!("the record has {got} fields, expected {n_columns}"))
        }
        Violation::OpenQuote { at } => chunk.error_at(at, "a quote is not closed"),
        Violation::AfterQuote { at } => {
            chunk.error_at(at, "a field goes on after its closing quote, expected a delimiter or a line end")
        }
    }
}

struct Parser {
    options: CsvOptions,
    /// The columns of the file.
    all: SchemaRef,
    /// For each column of the file its position among the needed columns.
    needed: Vec<Option<usize>>,
    /// The needed columns.
    schema: SchemaRef,
}

impl Parse for Parser {
    fn parse(&self, chunk: &Chunk) -> Result<RecordBatch> {
        let text = chunk.text()?;
        let columns = self.schema.fields();
        let n_columns = self.all.fields().len();
        let mut fields: Vec<Vec<CsvField>> = vec![Vec::new(); columns.len()];
        let rows = walk(chunk, text, &self.options, n_columns, u64::MAX, |i, field| {
            // Fields beyond the last column are an error, which `walk` returns.
            if let Some(Some(column)) = self.needed.get(i)
                && let Some(fields) = fields.get_mut(*column)
            {
                fields.push(field);
            }
        })?;
        let build = |(field, fields): (&FieldRef, &Vec<CsvField>)| {
            Column { chunk, text, fields, field, options: &self.options }.build()
        };
        let arrays = columns.iter().zip(&fields).map(build).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options);
        batch.map_err(|error| Error::internal(format!("cannot build a batch: {error}")))
    }
}
