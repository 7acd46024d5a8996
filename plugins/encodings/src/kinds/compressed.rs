//! Decodes values that are compressed with Zstandard or Pco. Nulls are not stored.

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::{Buffer, HostView};
use crossdock_plugin_api::Result;
use pco::data_types::Number;

use super::slots::by_width;
use super::{Kind, only_validity, strings};
use crate::cpu::bits::Bits;
use crate::cpu::{codecs, views};
use crate::job::{Job, Plain, values_mut};
use crate::node::{Node, in_node};
use crate::validity::Validity;
use crate::wire::PType;
use crate::wire::metadata::{Pco, Zstd};

pub const KINDS: &[Kind] = &[
    Kind {
        id: "vortex.zstd",
        check: check_zstd,
        children: only_validity,
        size: zstd_size,
        plan: None,
        decode: zstd,
    },
    Kind {
        id: "vortex.pco",
        check: check_pco,
        children: only_validity,
        size: super::fixed_size,
        plan: None,
        decode: pco,
    },
];

fn zstd_metadata(node: &Node<'_>) -> Result<Zstd> {
    in_node(node, Zstd::read(node.metadata(), node.len))
}

fn is_text(node: &Node<'_>) -> bool {
    matches!(node.data_type(), DataType::Utf8View | DataType::BinaryView)
}

fn check_zstd(node: &Node<'_>) -> Result<()> {
    let metadata = zstd_metadata(node)?;
    node.expect_buffers(metadata.n_buffers())?;
    if metadata.dictionary_bytes > 0 && node.buffer_bytes(0)? != metadata.dictionary_bytes as u64 {
        return Err(node.wrong(format_args!(
            "the dictionary has {} bytes, expected {}",
            node.buffer_bytes(0)?,
            metadata.dictionary_bytes
        )));
    }
    if is_text(node) {
        return Ok(());
    }
    let n_values: usize = metadata.frames.iter().map(|frame| frame.n_values).sum();
    let expected = n_values.checked_mul(node.width()?);
    if PType::from_arrow(node.data_type()).is_none() || expected != Some(metadata.bytes()) {
        return Err(node.wrong(format_args!(
            "{n_values} values of {} have {} bytes, expected numbers, text or bytes",
            crossdock_arrays::type_name(node.data_type()),
            metadata.bytes()
        )));
    }
    Ok(())
}

fn zstd_size(node: &Node<'_>) -> Result<Option<usize>> {
    if is_text(node) {
        let views = node.len.saturating_mul(size_of::<views::View>());
        return Ok(Some(views.saturating_add(zstd_metadata(node)?.bytes())));
    }
    super::fixed_size(node)
}

/// Host views of the buffers of the node; `None` for empty buffers.
struct Inputs(Vec<Option<Buffer>>);

impl Inputs {
    fn take(job: &Job<'_>) -> Result<Self> {
        (0..job.node.raw.n_buffers()).map(|i| job.take_buffer(i, 1)).collect::<Result<_>>().map(Self)
    }

    fn views<'a>(&'a self, job: &Job<'_>) -> Result<Vec<Option<HostView<'a>>>> {
        let view = |buffer: &'a Option<Buffer>| {
            buffer.as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()
        };
        self.0.iter().map(view).collect()
    }
}

fn bytes_of<'a>(view: &'a Option<HostView<'_>>) -> &'a [u8] {
    view.as_ref().map_or(&[], |view| view)
}

/// Runs `f` with the validity bits.
fn with_bits<T>(
    job: &Job<'_>,
    validity: &Validity,
    f: impl FnOnce(Option<Bits<'_>>) -> Result<T>,
) -> Result<T> {
    let view = validity.bits.as_ref().map(|bits| bits.host_view(job.stream)).transpose()?;
    let bits = view.as_ref().map(|view| Bits::new(view, 0, job.node.len)).transpose()?;
    in_node(&job.node, f(bits))
}

/// Decompresses all frames to the beginning of `to`.
fn decompress(job: &Job<'_>, metadata: &Zstd, inputs: &[Option<HostView<'_>>], to: &mut [u8]) -> Result<()> {
    let no_memory = || job.node.wrong("the decompressor cannot be created: out of memory");
    let mut context = zstd_safe::DCtx::try_create().ok_or_else(no_memory)?;
    let (dictionary, frames) = inputs.split_at(inputs.len().min(usize::from(metadata.dictionary_bytes > 0)));
    if let Some(dictionary) = dictionary.first() {
        context.load_dictionary(bytes_of(dictionary)).map_err(|code| {
            job.node.wrong(format_args!("the dictionary is invalid: {}", zstd_safe::get_error_name(code)))
        })?;
    }
    let mut rest = to;
    for (frame, input) in metadata.frames.iter().zip(frames) {
        let part;
        (part, rest) = std::mem::take(&mut rest)
            .split_at_mut_checked(frame.bytes)
            .ok_or_else(|| job.node.wrong("the frames have more bytes than the values"))?;
        in_node(&job.node, codecs::zstd_frame(&mut context, bytes_of(input), part))?;
    }
    Ok(())
}

fn zstd(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let metadata = zstd_metadata(node)?;
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    let inputs = Inputs::take(job)?;
    let inputs = inputs.views(job)?;
    if is_text(node) {
        let data = job.make(metadata.bytes(), &mut |to| decompress(job, &metadata, &inputs, to))?;
        return zstd_text(job, validity, data);
    }
    let n_values: usize = metadata.frames.iter().map(|frame| frame.n_values).sum();
    let stored = metadata.bytes();
    let values = with_bits(job, &validity, |bits| {
        by_width!(job, node.width()?, V => {
            job.make(node.values_bytes()?, &mut |to| {
                let place = to.get_mut(..stored);
                let place = place.ok_or_else(|| node.wrong("the frames have more bytes than the values"))?;
                decompress(job, &metadata, &inputs, place)?;
                codecs::spread(values_mut::<V>(to)?, n_values, bits)
            })
        })
    })?;
    job.array(node.data_type(), validity, vec![Some(values)])
}

/// Builds an array of values, each of which follows its length (4 bytes).
fn zstd_text(job: &Job<'_>, validity: Validity, data: Buffer) -> Result<DeviceArray> {
    let mut parts = Vec::new();
    let views = {
        let bytes = data.host_view(job.stream)?;
        with_bits(job, &validity, |bits| {
            job.make_values(job.node.len, &mut |to: &mut [views::View]| {
                parts = views::from_prefixed(&bytes, bits, to)?;
                Ok(())
            })
        })?
    };
    let part = |range: &std::ops::Range<usize>| data.slice(range.start, range.len()).map(Some);
    let mut buffers = vec![Some(views)];
    buffers.extend(parts.iter().map(part).collect::<Result<Vec<_>>>()?);
    strings::check_values(job, &validity, &buffers)?;
    job.array(job.node.data_type(), validity, buffers)
}

fn pco_metadata<'a>(node: &Node<'a>) -> Result<Pco<'a>> {
    in_node(node, Pco::read(node.metadata(), node.len))
}

fn check_pco(node: &Node<'_>) -> Result<()> {
    let metadata = pco_metadata(node)?;
    node.expect_buffers(metadata.n_buffers())?;
    match PType::from_arrow(node.data_type()) {
        Some(ptype) if ptype.bytes() >= 2 => Ok(()),
        _ => Err(node.wrong(format_args!(
            "the type is {}, expected a number of at least 2 bytes",
            crossdock_arrays::type_name(node.data_type())
        ))),
    }
}

fn pco(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    let inputs = Inputs::take(job)?;
    let inputs = inputs.views(job)?;
    let values = match PType::from_arrow(node.data_type()) {
        Some(PType::U16) => pco_values::<u16, u16>(job, &inputs, &validity),
        Some(PType::U32) => pco_values::<u32, u32>(job, &inputs, &validity),
        Some(PType::U64) => pco_values::<u64, u64>(job, &inputs, &validity),
        Some(PType::I16) => pco_values::<i16, i16>(job, &inputs, &validity),
        Some(PType::I32) => pco_values::<i32, i32>(job, &inputs, &validity),
        Some(PType::I64) => pco_values::<i64, i64>(job, &inputs, &validity),
        Some(PType::F16) => pco_values::<half::f16, u16>(job, &inputs, &validity),
        Some(PType::F32) => pco_values::<f32, u32>(job, &inputs, &validity),
        Some(PType::F64) => pco_values::<f64, u64>(job, &inputs, &validity),
        _ => Err(node.wrong("the type is no number of at least 2 bytes")),
    }?;
    job.array(node.data_type(), validity, vec![Some(values)])
}

/// A number that is stored as `Word`.
trait Bitwise<Word>: Number + Default {
    fn word(self) -> Word;
}

macro_rules! bitwise {
    ($($number:ty, $word:ty, $convert:expr;)*) => { $(
        impl Bitwise<$word> for $number {
            fn word(self) -> $word {
                #[allow(clippy::redundant_closure_call)]
                ($convert)(self)
            }
        }
    )* };
}
bitwise! {
    u16, u16, |n| n; u32, u32, |n| n; u64, u64, |n| n; i16, i16, |n| n; i32, i32, |n| n; i64, i64, |n| n;
    half::f16, u16, half::f16::to_bits; f32, u32, f32::to_bits; f64, u64, f64::to_bits;
}

/// Decompresses the chunks, each of which has a buffer of metadata. The buffers of all pages follow
/// those of all chunks.
fn pco_values<T: Bitwise<W>, W: Plain + Default>(
    job: &Job<'_>,
    inputs: &[Option<HostView<'_>>],
    validity: &Validity,
) -> Result<Buffer> {
    let node = &job.node;
    let Pco { header, chunks } = pco_metadata(node)?;
    let n_values: usize = chunks.iter().flatten().sum();
    job.check_available(chunks.iter().map(|pages| pages.iter().sum()).max().unwrap_or(0) * size_of::<T>())?;
    let (metadata, pages) =
        inputs.split_at_checked(chunks.len()).ok_or_else(|| node.wrong("a buffer is missing"))?;
    with_bits(job, validity, |bits| {
        job.make_values(node.len, &mut |to: &mut [W]| {
            let (mut pages, mut end) = (pages.iter(), 0);
            for (counts, metadata) in chunks.iter().zip(metadata) {
                let pages: Vec<_> =
                    counts.iter().zip(&mut pages).map(|(n, page)| (bytes_of(page), *n)).collect();
                let mut values = vec![T::default(); counts.iter().sum()];
                codecs::pco_chunk(header, bytes_of(metadata), &pages, &mut values)?;
                let place = to.get_mut(end..end + values.len()).unwrap_or_default();
                place.iter_mut().zip(&values).for_each(|(to, value)| *to = value.word());
                end += values.len();
            }
            codecs::spread(to, n_values, bits)
        })
    })
}
