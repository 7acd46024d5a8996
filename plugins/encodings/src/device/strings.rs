//! Decodes text and bytes.
//!
//! If a kernel detects an error or does not support a case, the host decodes the same buffers and
//! reports the error.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::numbers;
use crossdock_kernels::{
    Checks, Codes, Integers, Jobs, Marks, Numbers, Offsets, Source, TOKEN_BYTES, ViewCells, Views,
};
use crossdock_memory::{Buffer, Result as MemoryResult};
use crossdock_plugin_api::{Result, Validate};

use super::{OnDevice, alloc, integers, supports_all};
use crate::cpu::views::MAX_BUFFER_BYTES;
use crate::job::Job;
use crate::kinds::strings::{check_values, decode_fsst, decode_offsets, decode_onpair, is_utf8, take_views};
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: "vortex.varbinview", supports: supports_all, decode: views },
    OnDevice { id: "vortex.varbin", supports: supports_all, decode: offsets },
    OnDevice { id: "vortex.fsst", supports: supports_all, decode: fsst },
    OnDevice { id: "vortex.onpair", supports: supports_all, decode: onpair },
];

fn source(buffer: Option<&Buffer>, width: usize) -> Source<'_> {
    Source { buffer, at: 0, len: buffer_bytes(buffer) / width }
}

fn buffer_bytes(buffer: Option<&Buffer>) -> usize {
    buffer.and_then(Buffer::len).unwrap_or(0)
}

fn views(job: &Job<'_>) -> Result<DeviceArray> {
    let (validity, buffers) = take_views(job)?;
    if let Some((Some(views), data)) = buffers.split_first()
        && job.validate == Validate::Full
    {
        let data: Vec<Option<&Buffer>> = data.iter().map(Option::as_ref).collect();
        let bits = validity.bits.as_ref().map(|bits| (bits, 0));
        let mut checks = Checks::new();
        let cell = checks.views(views, 0, job.node.len, bits, &data, is_utf8(job))?;
        if checks.run(job.stream)?.first_wrong(cell).is_some() {
            check_values(job, &validity, &buffers)?;
        }
    }
    job.array(job.node.data_type(), validity, buffers)
}

fn offsets(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(1)?.then_some(1))?;
    let data = job.take_buffer(0, 1)?;
    let array = match integers(job.child(0)?).filter(|_| job.node.len > 0) {
        Some(at) => {
            viewed(job, data.as_ref(), &validity, |checks, views| checks.views_of_offsets(at, views))?
        }
        None => None,
    };
    array.map_or_else(|| decode_offsets(job, validity, data), Ok)
}

fn fsst(job: &Job<'_>) -> Result<DeviceArray> {
    const MAX_SYMBOLS: usize = 255;
    let validity = job.validity(job.node.has_validity(2)?.then_some(2))?;
    let buffers = [job.take_buffer(0, 1)?, job.take_buffer(1, 1)?, job.take_buffer(2, 1)?];
    let [symbols, lengths, codes] = buffers.each_ref().map(Option::as_ref);
    let n = buffer_bytes(lengths);
    let fits = n <= MAX_SYMBOLS && buffer_bytes(symbols) == n * 8;
    let array = match (integers(job.child(0)?), integers(job.child(1)?)) {
        (Some(value_lengths), Some(offsets)) if fits => {
            let (table, lengths) = (source(symbols, 8), source(lengths, 1));
            let codes =
                Codes { codes: source(codes, 1), width_bytes: 1, offsets, table, lengths, escapes: true };
            decoded(job, codes, value_lengths, &validity)?
        }
        _ => None,
    };
    array.map_or_else(|| decode_fsst(job, validity, &buffers), Ok)
}

fn onpair(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(4)?.then_some(4))?;
    let dictionary = job.take_buffer(0, 1)?;
    let array = by_tokens(job, dictionary.as_ref(), &validity)?;
    array.map_or_else(|| decode_onpair(job, validity, dictionary.as_ref()), Ok)
}

fn by_tokens(job: &Job<'_>, dictionary: Option<&Buffer>, validity: &Validity) -> Result<Option<DeviceArray>> {
    let codes = job.child(1)?;
    let ends = [job.child(0)?, job.child(2)?, job.child(3)?].map(integers);
    let ([Some(token_offsets), Some(offsets), Some(value_lengths)], Some(width_bytes)) =
        (ends, codes.data_type().primitive_width())
    else {
        return Ok(None);
    };
    let n = token_offsets.len.saturating_sub(1);
    let (mut table, mut lengths) = (alloc(job, n.saturating_mul(TOKEN_BYTES))?, alloc(job, n)?);
    let mut checks = Checks::new();
    let cell = checks.make_tokens(source(dictionary, 1), token_offsets, &mut table, &mut lengths)?;
    if checks.run(job.stream)?.first_wrong(cell).is_some() {
        return Ok(None);
    }
    let (table, lengths) = (table.freeze(job.stream)?, lengths.freeze(job.stream)?);
    let codes = match numbers(codes) {
        Some(Numbers { buffer, at, len, .. }) => Source { buffer: Some(buffer), at, len },
        None => source(None, 1),
    };
    let (table, lengths) = (source(Some(&table), TOKEN_BYTES), source(Some(&lengths), 1));
    decoded(
        job,
        Codes { codes, width_bytes, offsets, table, lengths, escapes: false },
        value_lengths,
        validity,
    )
}

/// Decodes codes to an array. The length of each value is an input. Returns `None` on an error.
fn decoded(
    job: &Job<'_>,
    codes: Codes<'_>,
    value_lengths: Integers<'_>,
    validity: &Validity,
) -> Result<Option<DeviceArray>> {
    let mut marks = Marks::alloc(job.stream, &codes)?;
    let mut checks = Checks::new();
    let cells = checks.measure_codes(codes, &mut marks)?;
    let results = checks.run(job.stream)?;
    let is_invalid = results.first_wrong(cells.table).or(results.first_wrong(cells.code)).is_some();
    let Some(bytes) = usize::try_from(results.number(cells.bytes)).ok().filter(|_| !is_invalid) else {
        return Ok(None);
    };
    let marks = marks.freeze(job.stream)?;
    let mut data = alloc(job, bytes)?;
    let mut jobs = Jobs::new();
    jobs.decode_codes(codes, &marks, &mut data, 0, bytes)?;
    jobs.launch(job.stream)?;
    let data = data.freeze(job.stream)?;
    viewed(job, Some(&data), validity, |checks, views| {
        checks.views_of_codes(codes, &marks, value_lengths, views)
    })
}

/// Adds a kernel with `make` and builds the array of the kernel's views into `data`. Returns `None`
/// on an error.
fn viewed<'a>(
    job: &Job<'_>,
    data: Option<&'a Buffer>,
    validity: &Validity,
    make: impl FnOnce(&mut Checks<'a>, Views<'a, '_>) -> MemoryResult<ViewCells>,
) -> Result<Option<DeviceArray>> {
    let (len, bytes) = (job.node.len, buffer_bytes(data));
    let is_text = job.validate == Validate::Full && is_utf8(job);
    let mut views = alloc(job, len.saturating_mul(16))?;
    let mut ends = if is_text { Some(alloc(job, len.saturating_add(1).saturating_mul(8))?) } else { None };
    // Offsets have 31 bits. Larger data is split into parts whose size is half of the bytes that an
    // offset can address, because the last value of a part may end in the next part.
    let part: u32 = if bytes <= MAX_BUFFER_BYTES { 31 } else { 30 };
    let to =
        Views { data: source(data, 1), part_shift: part, len, views: &mut views, offsets: ends.as_mut() };
    let parts = to.parts();
    let mut checks = Checks::new();
    let cells = make(&mut checks, to)?;
    let results = checks.run(job.stream)?;
    if results.first_wrong(cells.wrong).is_some() {
        return Ok(None);
    }
    if let (Some(ends), Some(data)) = (ends, data) {
        let ends = ends.freeze(job.stream)?;
        let offsets = Offsets { buffer: &ends, width_bytes: 8, first: 0, len };
        let bits = validity.bits.as_ref().map(|bits| (bits, 0));
        let mut checks = Checks::new();
        let rising = checks.offsets(offsets, bytes as u64)?;
        let text = checks.utf8(offsets, rising, data, bits)?;
        let results = checks.run(job.stream)?;
        if results.first_wrong(rising).or(results.first_wrong(text)).is_some() {
            return Ok(None);
        }
    }
    let mut buffers = vec![Some(views.freeze(job.stream)?)];
    for (number, data) in (0..parts).zip(std::iter::repeat(data.filter(|_| bytes > 0))) {
        let Some(data) = data else { break };
        let begin = number << part;
        let over = results.first_wrong(cells.over + number).and_then(|end| usize::try_from(end).ok());
        let end = over.unwrap_or_else(|| (begin + (1 << part)).min(bytes));
        buffers.push(Some(data.slice(begin, end - begin)?));
    }
    job.array(job.node.data_type(), validity.clone(), buffers).map(Some)
}
