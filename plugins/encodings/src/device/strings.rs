//! Text and bytes.
//!
//! What kernels find wrong, and the little that they do not do, is the host's to decode, from the same buffers: it knows to
//! say what is wrong with them.

use crossdock_arrays::DeviceArray;
use crossdock_arrays::take::numbers;
use crossdock_kernels::{
    Checks, Codes, Integers, Jobs, Marks, Numbers, Offsets, Source, TOKEN_BYTES, Viewed, Views,
};
use crossdock_memory::{Buffer, Result as MemoryResult};
use crossdock_plugin_api::{Result, Validate};

use super::{OnDevice, always, integers, room};
use crate::cpu::views::MOST_BYTES;
use crate::job::Job;
use crate::kinds::strings::{check_values, fsst_of, is_utf8, offsets_of, onpair_of, views_of};
use crate::validity::Validity;

pub(super) const KINDS: &[OnDevice] = &[
    OnDevice { id: "vortex.varbinview", suits: always, decode: views },
    OnDevice { id: "vortex.varbin", suits: always, decode: offsets },
    OnDevice { id: "vortex.fsst", suits: always, decode: fsst },
    OnDevice { id: "vortex.onpair", suits: always, decode: onpair },
];

fn source(buffer: Option<&Buffer>, width: usize) -> Source<'_> {
    Source { buffer, at: 0, len: bytes_of(buffer) / width }
}

fn bytes_of(buffer: Option<&Buffer>) -> usize {
    buffer.and_then(Buffer::len).unwrap_or(0)
}

fn views(job: &Job<'_>) -> Result<DeviceArray> {
    let (validity, buffers) = views_of(job)?;
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
    let validity = job.validity(job.node.expect_children_and_validity(1)?.then_some(1))?;
    let data = job.take_buffer(0, 1)?;
    let made = match integers(job.child(0)?).filter(|_| job.node.len > 0) {
        Some(at) => {
            viewed(job, data.as_ref(), &validity, |checks, views| checks.views_of_offsets(at, views))?
        }
        None => None,
    };
    made.map_or_else(|| offsets_of(job, validity, data), Ok)
}

fn fsst(job: &Job<'_>) -> Result<DeviceArray> {
    const MOST_SYMBOLS: usize = 255;
    let validity = job.validity(job.node.expect_children_and_validity(2)?.then_some(2))?;
    let buffers = [job.take_buffer(0, 1)?, job.take_buffer(1, 1)?, job.take_buffer(2, 1)?];
    let [symbols, lengths, codes] = buffers.each_ref().map(Option::as_ref);
    let n = bytes_of(lengths);
    let fits = n <= MOST_SYMBOLS && bytes_of(symbols) == n * 8;
    let made = match (integers(job.child(0)?), integers(job.child(1)?)) {
        (Some(told), Some(offsets)) if fits => {
            let (table, lengths) = (source(symbols, 8), source(lengths, 1));
            let codes =
                Codes { codes: source(codes, 1), width_bytes: 1, offsets, table, lengths, escapes: true };
            decoded(job, codes, told, &validity)?
        }
        _ => None,
    };
    made.map_or_else(|| fsst_of(job, validity, &buffers), Ok)
}

fn onpair(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.expect_children_and_validity(4)?.then_some(4))?;
    let dictionary = job.take_buffer(0, 1)?;
    let made = by_tokens(job, dictionary.as_ref(), &validity)?;
    made.map_or_else(|| onpair_of(job, validity, dictionary.as_ref()), Ok)
}

fn by_tokens(job: &Job<'_>, dictionary: Option<&Buffer>, validity: &Validity) -> Result<Option<DeviceArray>> {
    let codes = job.child(1)?;
    let ends = [job.child(0)?, job.child(2)?, job.child(3)?].map(integers);
    let ([Some(tokens_at), Some(offsets), Some(told)], Some(width_bytes)) =
        (ends, codes.data_type().primitive_width())
    else {
        return Ok(None);
    };
    let n = tokens_at.len.saturating_sub(1);
    let (mut table, mut lengths) = (room(job, n.saturating_mul(TOKEN_BYTES))?, room(job, n)?);
    let mut checks = Checks::new();
    let cell = checks.make_tokens(source(dictionary, 1), tokens_at, &mut table, &mut lengths)?;
    if checks.run(job.stream)?.first_wrong(cell).is_some() {
        return Ok(None);
    }
    let (table, lengths) = (table.freeze(job.stream)?, lengths.freeze(job.stream)?);
    let codes = match numbers(codes) {
        Some(Numbers { buffer, at, len, .. }) => Source { buffer: Some(buffer), at, len },
        None => source(None, 1),
    };
    let (table, lengths) = (source(Some(&table), TOKEN_BYTES), source(Some(&lengths), 1));
    decoded(job, Codes { codes, width_bytes, offsets, table, lengths, escapes: false }, told, validity)
}

/// The array of what codes decode to, `told` of it how long each value is; `None` where something is wrong.
fn decoded(
    job: &Job<'_>,
    codes: Codes<'_>,
    told: Integers<'_>,
    validity: &Validity,
) -> Result<Option<DeviceArray>> {
    let mut marks = Marks::room(job.stream, &codes)?;
    let mut checks = Checks::new();
    let cells = checks.measure_codes(codes, &mut marks)?;
    let found = checks.run(job.stream)?;
    let is_wrong = found.first_wrong(cells.table).or(found.first_wrong(cells.code)).is_some();
    let Some(bytes) = usize::try_from(found.number(cells.bytes)).ok().filter(|_| !is_wrong) else {
        return Ok(None);
    };
    let marks = marks.freeze(job.stream)?;
    let mut data = room(job, bytes)?;
    let mut jobs = Jobs::new();
    jobs.decode_codes(codes, &marks, &mut data, 0, bytes)?;
    jobs.launch(job.stream)?;
    let data = data.freeze(job.stream)?;
    viewed(job, Some(&data), validity, |checks, views| checks.views_of_codes(codes, &marks, told, views))
}

/// The array of the views of data that `make` asks for; `None` where something is wrong.
fn viewed<'a>(
    job: &Job<'_>,
    data: Option<&'a Buffer>,
    validity: &Validity,
    make: impl FnOnce(&mut Checks<'a>, Views<'a, '_>) -> MemoryResult<Viewed>,
) -> Result<Option<DeviceArray>> {
    let (len, bytes) = (job.node.len, bytes_of(data));
    let is_text = job.validate == Validate::Full && is_utf8(job);
    let mut views = room(job, len.saturating_mul(16))?;
    let mut ends = if is_text { Some(room(job, len.saturating_add(1).saturating_mul(8))?) } else { None };
    // Of more bytes than offsets reach, each part is half as long: its last value may end in the next one's.
    let part: u32 = if bytes <= MOST_BYTES { 31 } else { 30 };
    let to = Views { data: source(data, 1), part, len, views: &mut views, offsets: ends.as_mut() };
    let parts = to.parts();
    let mut checks = Checks::new();
    let cells = make(&mut checks, to)?;
    let found = checks.run(job.stream)?;
    if found.first_wrong(cells.wrong).is_some() {
        return Ok(None);
    }
    if let (Some(ends), Some(data)) = (ends, data) {
        let ends = ends.freeze(job.stream)?;
        let offsets = Offsets { buffer: &ends, width_bytes: 8, first: 0, len };
        let bits = validity.bits.as_ref().map(|bits| (bits, 0));
        let mut checks = Checks::new();
        let rising = checks.offsets(offsets, bytes as u64)?;
        let text = checks.utf8(offsets, rising, data, bits)?;
        let found = checks.run(job.stream)?;
        if found.first_wrong(rising).or(found.first_wrong(text)).is_some() {
            return Ok(None);
        }
    }
    let mut buffers = vec![Some(views.freeze(job.stream)?)];
    for (number, data) in (0..parts).zip(std::iter::repeat(data.filter(|_| bytes > 0))) {
        let Some(data) = data else { break };
        let begin = number << part;
        let over = found.first_wrong(cells.over + number).and_then(|end| usize::try_from(end).ok());
        let end = over.unwrap_or_else(|| (begin + (1 << part)).min(bytes));
        buffers.push(Some(data.slice(begin, end - begin)?));
    }
    job.array(job.node.data_type(), validity.clone(), buffers).map(Some)
}
