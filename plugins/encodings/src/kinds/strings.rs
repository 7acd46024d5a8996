//! Decodes text and bytes: views, offsets, FSST and OnPair.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Result, Validate};

use super::slots::by_counts;
use super::{Kind, no_bytes, only_validity};
use crate::children::{Child, Children};
use crate::cpu::bits::Bits;
use crate::cpu::texts::Texts;
use crate::cpu::words::Index;
use crate::cpu::{coded, fsst, onpair, utf8, views};
use crate::job::{Job, Values};
use crate::node::{Node, in_node};
use crate::validity::Validity;
use crate::wire::metadata::{Fsst, OnPair, VarBin};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        id: "vortex.varbinview",
        check: check_views,
        children: only_validity,
        size: no_bytes,
        plan: None,
        decode: views,
    },
    Kind {
        id: "vortex.varbin",
        check: check_offsets,
        children: offsets_children,
        size: views_size,
        plan: None,
        decode: offsets,
    },
    Kind {
        id: "vortex.fsst",
        check: check_fsst,
        children: fsst_children,
        size: views_size,
        plan: None,
        decode: fsst,
    },
    Kind {
        id: "vortex.onpair",
        check: check_onpair,
        children: onpair_children,
        size: views_size,
        plan: None,
        decode: onpair,
    },
];

const VIEW_BYTES: usize = 16;

/// Size in bytes of the views. The size of the data buffers is not included, because it is known
/// only after decoding.
fn views_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.len.saturating_mul(VIEW_BYTES)))
}

fn is_text(node: &Node<'_>) -> Result<()> {
    match node.data_type() {
        DataType::Utf8View | DataType::BinaryView => Ok(()),
        other => Err(node.wrong(format_args!(
            "the type is {other}, expected string_view or binary_view",
            other = crossdock_arrays::type_name(other)
        ))),
    }
}

/// Runs `check` with the validity bits, if the type is text and the call requests full validation.
fn check_text(
    job: &Job<'_>,
    validity: &Validity,
    check: impl FnOnce(Option<Bits<'_>>) -> Result<()>,
) -> Result<()> {
    if job.validate != Validate::Full || !is_utf8(job) {
        return Ok(());
    }
    let view = validity.bits.as_ref().map(|bits| bits.host_view(job.stream)).transpose()?;
    let bits = view.as_ref().map(|view| Bits::new(view, 0, job.node.len)).transpose()?;
    in_node(&job.node, check(bits))
}

fn check_views(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    is_text(node)?;
    let last = node
        .raw
        .n_buffers()
        .checked_sub(1)
        .ok_or_else(|| node.wrong("the node has no buffers, expected views"))?;
    let (expected, actual) = (node.len.saturating_mul(VIEW_BYTES), node.buffer_bytes(last)?);
    if actual == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("the views have {actual} bytes, expected {expected}")))
}

fn views(job: &Job<'_>) -> Result<DeviceArray> {
    let (validity, buffers) = take_views(job)?;
    check_values(job, &validity, &buffers)?;
    job.array(job.node.data_type(), validity, buffers)
}

/// The validity of the node, and a list that contains the views followed by their data buffers.
pub(crate) fn take_views(job: &Job<'_>) -> Result<(Validity, Vec<Option<Buffer>>)> {
    let last = job.node.raw.n_buffers().saturating_sub(1);
    let validity = job.validity(job.node.has_validity(0)?.then_some(0))?;
    let mut buffers = vec![job.take_buffer(last, VIEW_BYTES)?];
    for i in 0..last {
        buffers.push(Some(job.take_buffer(i, 1)?.map_or_else(|| job.copy(&[]), Ok)?));
    }
    Ok((validity, buffers))
}

/// Checks views, if the call requests full validation.
pub(crate) fn check_values(job: &Job<'_>, validity: &Validity, buffers: &[Option<Buffer>]) -> Result<()> {
    if job.validate != Validate::Full {
        return Ok(());
    }
    let mut views = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        views.push(buffer.as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?);
    }
    let mut slices = views.iter().map(|view| -> &[u8] { view.as_ref().map_or(&[], |view| view) });
    let (views, data) = (slices.next().unwrap_or_default(), slices.collect::<Vec<_>>());
    let bits = validity.bits.as_ref().map(|bits| bits.host_view(job.stream)).transpose()?;
    let bits = bits.as_ref().map(|view| Bits::new(view, 0, job.node.len)).transpose()?;
    in_node(&job.node, views::check(crate::job::values(views)?, &data, bits, is_utf8(job)))
}

pub(crate) fn is_utf8(job: &Job<'_>) -> bool {
    *job.node.data_type() == DataType::Utf8View
}

fn check_offsets(node: &Node<'_>) -> Result<()> {
    is_text(node)?;
    node.expect_buffers(1)
}

fn offsets_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, VarBin::read(node.metadata()))?;
    let offsets = metadata.offsets_ptype.arrow();
    Ok(Children::with_validity([Child::all_valid("offsets", offsets, node.len.saturating_add(1))]))
}

/// Writes views of the bytes in a block of memory, and returns the parts of the block that the
/// views refer to.
type Write<'a> = dyn Fn(&[u8], &mut [views::View]) -> Result<Vec<Range<usize>>> + 'a;

/// Builds an array of the views that `write` writes. Its data buffers are parts of the block.
fn view_array(
    job: &Job<'_>,
    data: Option<Buffer>,
    validity: Validity,
    write: &Write<'_>,
) -> Result<DeviceArray> {
    let mut parts = Vec::new();
    let view = data.as_ref().map(|data| data.host_view(job.stream)).transpose()?;
    let bytes: &[u8] = view.as_ref().map_or(&[], |view| view);
    let views = job.make_values(job.node.len, &mut |to: &mut [views::View]| {
        parts = in_node(&job.node, write(bytes, to))?;
        Ok(())
    })?;
    let part =
        |range: &Range<usize>| data.as_ref().map(|data| data.slice(range.start, range.len())).transpose();
    let data = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
    job.array(job.node.data_type(), validity, std::iter::once(Some(views)).chain(data).collect())
}

fn offsets(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(1)?.then_some(1))?;
    decode_offsets(job, validity, job.take_buffer(0, 1)?)
}

/// Decodes like [`offsets`], but gets the validity and the data buffer from the caller.
pub(crate) fn decode_offsets(job: &Job<'_>, validity: Validity, data: Option<Buffer>) -> Result<DeviceArray> {
    let offsets = job.child(0)?;
    by_counts!(job, offsets, offsets: Int32 i32, Int64 i64, UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64 => {
        check_text(job, &validity, |bits| {
            let view = data.as_ref().map(|data| data.host_view(job.stream)).transpose()?;
            utf8::by_offsets(offsets, view.as_ref().map_or(&[], |view| view), bits)
        })?;
        view_array(job, data, validity, &|bytes, to| views::from_offsets(offsets, bytes, to))
    })
}

fn check_fsst(node: &Node<'_>) -> Result<()> {
    is_text(node)?;
    node.expect_buffers(3)
}

fn fsst_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, Fsst::read(node.metadata()))?;
    let (lengths, offsets) = (metadata.lengths_ptype.arrow(), metadata.codes_offsets_ptype.arrow());
    Ok(Children::with_validity([
        Child::all_valid("decoded lengths", lengths, node.len),
        Child::all_valid("offsets into codes", offsets, node.len.saturating_add(1)),
    ]))
}

/// Builds an array of the contiguous values that `decode` writes. The values have the given
/// lengths, and together at most `max_bytes` bytes.
fn decoded<L: Index>(
    job: &Job<'_>,
    lengths: &[L],
    max_bytes: usize,
    validity: Validity,
    decode: &dyn Fn(&mut [u8], &mut coded::Progress<'_>) -> Result<()>,
) -> Result<DeviceArray> {
    let bytes = in_node(&job.node, coded::decoded_bytes(lengths, max_bytes))?;
    let check = |bytes: &[u8]| check_text(job, &validity, |bits| utf8::by_lengths(lengths, bytes, bits));
    if bytes > views::MAX_BUFFER_BYTES {
        let data = job.make(bytes, &mut |to| {
            in_node(&job.node, decode(to, &mut |_, _| Ok(())))?;
            check(to)
        })?;
        return view_array(job, Some(data), validity, &|bytes, to| views::from_lengths(lengths, bytes, to));
    }
    let (mut views, mut needs_buffer) = (None, false);
    let data = job.make(bytes, &mut |to| {
        views = Some(job.make_values(lengths.len(), &mut |views| {
            let mut texts = Texts::new(lengths, views);
            in_node(&job.node, decode(to, &mut |bytes, values| texts.add(bytes, values)))?;
            needs_buffer = texts.needs_buffer();
            if texts.is_ascii() { Ok(()) } else { check(to) }
        })?);
        Ok(())
    })?;
    let data = needs_buffer.then_some(Some(data));
    job.array(job.node.data_type(), validity, std::iter::once(views).chain(data).collect())
}

fn fsst(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(2)?.then_some(2))?;
    decode_fsst(job, validity, &[job.take_buffer(0, 1)?, job.take_buffer(1, 1)?, job.take_buffer(2, 1)?])
}

/// Decodes like [`fsst`], but gets the buffers of symbols, lengths of symbols, and codes from the
/// caller.
pub(crate) fn decode_fsst(
    job: &Job<'_>,
    validity: Validity,
    buffers: &[Option<Buffer>; 3],
) -> Result<DeviceArray> {
    const MAX_CODE_BYTES: usize = 8;
    let node = &job.node;
    let view = |buffer: &Option<Buffer>| match buffer {
        Some(buffer) => buffer.host_view(job.stream).map(|view| view.to_vec()),
        None => Ok(Vec::new()),
    };
    let symbols = in_node(node, fsst::Symbols::read(&view(&buffers[0])?, &view(&buffers[1])?))?;
    let codes = buffers[2].as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let codes: &[u8] = codes.as_ref().map_or(&[], |view| view);
    let max_bytes = codes.len().saturating_mul(MAX_CODE_BYTES);
    by_counts!(job, job.child(0)?, lengths: UInt8 u8, UInt16 u16, UInt32 u32 => {
        by_counts!(job, job.child(1)?, offsets: UInt32 u32 => {
            decoded(job, lengths, max_bytes, validity, &|to, progress| symbols.decode(codes, offsets, lengths, to, progress))
        })
    })
}

fn check_onpair(node: &Node<'_>) -> Result<()> {
    is_text(node)?;
    node.expect_buffers(1)
}

fn onpair_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, OnPair::read(node.metadata()))?;
    let tokens = metadata.dictionary_len.saturating_add(1);
    let offsets = metadata.codes_offsets_ptype.arrow();
    Ok(Children::with_validity([
        Child::all_valid("offsets of tokens", metadata.dictionary_offsets_ptype.arrow(), tokens),
        Child::all_valid("codes", metadata.codes_ptype.arrow(), metadata.codes_len),
        Child::all_valid("offsets into codes", offsets, node.len.saturating_add(1)),
        Child::all_valid("decoded lengths", metadata.lengths_ptype.arrow(), node.len),
    ]))
}

fn onpair(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(4)?.then_some(4))?;
    decode_onpair(job, validity, job.take_buffer(0, 1)?.as_ref())
}

/// Decodes like [`onpair`], but gets the dictionary from the caller.
pub(crate) fn decode_onpair(
    job: &Job<'_>,
    validity: Validity,
    dictionary: Option<&Buffer>,
) -> Result<DeviceArray> {
    const MAX_CODE_BYTES: usize = 16;
    let node = &job.node;
    let dictionary = dictionary.map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let dictionary: &[u8] = dictionary.as_ref().map_or(&[], |view| view);
    let tokens = by_counts!(job, job.child(0)?, token_offsets: UInt16 u16, UInt32 u32 => {
        in_node(node, onpair::Tokens::read(dictionary, token_offsets))
    })?;
    let codes = job.child(1)?;
    let values = Values::new(codes, job.stream)?;
    let max_bytes = codes.len().saturating_mul(MAX_CODE_BYTES);
    by_counts!(job, job.child(3)?, lengths: UInt8 u8, UInt16 u16, UInt32 u32 => {
        by_counts!(job, job.child(2)?, offsets: UInt32 u32 => {
            decoded(job, lengths, max_bytes, validity, &|to, progress| match codes.data_type() {
                DataType::UInt8 => tokens.decode(values.get::<u8>()?, offsets, lengths, to, progress),
                _ => tokens.decode(values.get::<u16>()?, offsets, lengths, to, progress),
            })
        })
    })
}
