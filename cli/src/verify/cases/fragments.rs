//! Fragments of inputs, and tokens that were changed.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use crossdock::api::{BatchStreamHandle, Device, Fragment, Input, ReadRequest, Result, Source};
use crossdock_arrays::{DeviceBatch, batch_schema, export_schema, import_batch};

use super::super::case::{Case, Check, failed, not_offered};
use super::super::context::CaseContext;
use super::super::counted_objects::ReleaseCounts;
use super::super::malformed::{drain_and_validate, judge};
use super::super::round_trip::{self, ReadTable, Readable, WriterOutput};
use super::super::subject::{Subject, invalid_array};
use super::super::tables::FORMS;
use super::super::test_io::TestSource;

pub const CASES: &[Case] = &[
    Case {
        name: "importer.fragments",
        rule: "In the order of the list, the fragments of an input contain each row once and have the stated numbers of \
               rows; statistics have Arrow's statistics schema.",
        spec_ref: "crossdock_importer.fragments, crossdock_fragment",
        depends_on: &[
            "importer.batches",
            "importer.null_counts",
            "importer.abandoned",
            "importer.selection",
            "lifetimes.cleared",
            "memory.blocks",
            "memory.streams_and_events",
            "memory.references",
            "memory.handles",
            "memory.bounds",
            "memory.reads",
            "memory.stream",
        ],
        on_devices: true,
        check: fragments,
    },
    Case {
        name: "importer.tokens",
        rule: "A token that was changed or belongs to another input leads to an error or to valid batches.",
        spec_ref: "crossdock_read_request.fragment",
        depends_on: &["importer.fragments"],
        on_devices: true,
        check: tokens,
    },
];

/// An input that the plugin wrote in several batches, and its fragments.
struct Written<'a> {
    subject: &'a Subject,
    readable: &'a Readable,
    schema: SchemaRef,
    batches: Vec<DeviceBatch>,
    bytes: Vec<u8>,
}

impl Written<'_> {
    fn place(&self, what: &str) -> String {
        format!("'{}', {what}", self.readable.format.name)
    }

    fn request<T>(&self, token: Option<&[u8]>, f: impl FnOnce(&ReadRequest<'_>) -> Result<T>) -> Result<T> {
        let schema = round_trip::expected_schema(self.readable, &self.schema);
        let schema = schema.map(|schema| export_schema(&schema)).transpose()?;
        let request = ReadRequest::new(&self.readable.format.name).with_schema(schema.as_deref());
        f(&request.with_fragment(token))
    }

    fn list(&self, source: Arc<TestSource>) -> Result<Vec<Fragment>> {
        let importer = self.subject.importer().map_err(round_trip::to_error)?;
        let input = Input::Source(Source::new(source));
        self.request(None, |request| importer.fragments(&self.subject.call(), input, request))
    }

    fn open(&self, token: &[u8]) -> Result<BatchStreamHandle> {
        let importer = self.subject.importer().map_err(round_trip::to_error)?;
        let input = Input::Source(TestSource::of(&self.bytes).source());
        self.request(Some(token), |request| importer.open(&self.subject.call(), input, request))
    }
}

/// Calls `visit` with inputs of each byte format that the plugin reads and writes.
fn for_each_input(
    context: &CaseContext,
    subject: &Subject,
    mut visit: impl FnMut(&Written<'_>) -> Check,
) -> Check {
    if !subject.importer()?.has_fragments() {
        return Err(not_offered("the plugin lists no fragments"));
    }
    for readable in &round_trip::byte_formats(context, subject)? {
        for table in context.tables(subject, readable, FORMS[0])? {
            let mut batches = Vec::new();
            for batch in context.table_for(&readable.batch_format, &table)? {
                let (len, parts) = (batch.len(), 3.min(batch.len()).max(1));
                for part in 0..parts {
                    let (begin, end) = (part * len / parts, (part + 1) * len / parts);
                    batches
                        .push(batch.slice(begin, end - begin).map_err(invalid_array("the suite's table"))?);
                }
            }
            let (schema, counts) = (table.schema(), ReleaseCounts::default());
            let format = &readable.batch_format;
            let output = round_trip::write(subject, &subject.call(), format, &schema, &batches, &counts);
            let written = output.map_err(|error| failed("writing the input", "bytes", error))?;
            let WriterOutput::Bytes(bytes) = written else { continue };
            visit(&Written { subject, readable, schema, batches, bytes })?;
        }
    }
    Ok(())
}

fn fragments(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    for_each_input(context, &subject, |written| {
        let place = written.place("its fragments");
        let error = |error| failed(&place, "a list of fragments that can be read", error);
        let source = Arc::new(TestSource::of(&written.bytes));
        let list = written.list(source.clone()).map_err(error)?;
        if Arc::strong_count(&source) > 1 {
            return Err(failed(&place, "the source to be released", "it was not released"));
        }
        let memory = context.session(Device::CPU)?.memory().clone();
        let mut all: Option<ReadTable> = None;
        for (i, fragment) in list.into_iter().enumerate() {
            let mut stream = written.open(&fragment.token).map_err(error)?;
            let table = round_trip::drain(&mut stream, &subject.call(), &memory).map_err(error)?;
            let rows: u64 = table.batches.iter().map(|batch| batch.len() as u64).sum();
            if let Some(stated) = fragment.n_rows.filter(|stated| *stated != rows) {
                return Err(failed(
                    &place,
                    format!("{stated} rows in fragment {i}, as the list states"),
                    rows,
                ));
            }
            if let Some(batch) = fragment.statistics {
                let schema = batch_schema(&batch).map_err(error)?.unwrap_or_else(arrow_schema::Schema::empty);
                crossdock::check_statistics_schema(&schema).map_err(error)?;
                import_batch(batch, &Arc::new(schema), &memory).map_err(error)?;
            }
            match &mut all {
                None => all = Some(table),
                Some(all) => all.batches.extend(table.batches),
            }
        }
        let all = all.unwrap_or(ReadTable { schema: written.schema.clone(), batches: Vec::new() });
        let difference = round_trip::difference(&subject, &all, &written.batches).map_err(error)?;
        difference.map_or(Ok(()), |details| Err(failed(&place, "each row of the input once", details)))
    })?;
    super::entry::no_leaks(subject.end(), "after reading fragments")
}

const N_MUTATIONS: usize = 60;

fn tokens(context: &CaseContext) -> Check {
    let subject = context.subject()?;
    let mut of_others: Vec<Vec<u8>> = Vec::new();
    for_each_input(context, &subject, |written| {
        let mut random = context.random();
        let place = written.place("a changed token");
        let list = written.list(Arc::new(TestSource::of(&written.bytes)));
        let list = list.map_err(|error| failed(&place, "a list of fragments", error))?;
        let tokens: Vec<_> = list.into_iter().map(|fragment| fragment.token).collect();
        let mutated = tokens.iter().flat_map(|token| (0..N_MUTATIONS).map(move |_| token));
        let mutated: Vec<_> = mutated.map(|token| random.mutated(token)).collect();
        for token in mutated.iter().chain(&of_others).filter(|token| !token.is_empty()) {
            let call = subject.call();
            let read =
                written.open(token).and_then(|stream| drain_and_validate(context, &subject, &call, stream));
            judge(format!("{place} of {} bytes", token.len()), read, false)?;
        }
        of_others.extend(tokens);
        Ok(())
    })?;
    super::entry::no_leaks(subject.end(), "after changed tokens")
}
