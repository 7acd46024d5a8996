//! Text and bytes: views, offsets, and what FSST and OnPair make of them.

use std::ops::Range;

use arrow_schema::DataType;
use crossdock_arrays::DeviceArray;
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Result, Validate};

use super::slots::by_counts;
use super::{Kind, no_bytes};
use crate::cpu::bits::Bits;
use crate::cpu::texts::Texts;
use crate::cpu::words::Index;
use crate::cpu::{coded, fsst, onpair, utf8, views};
use crate::job::{Job, Values};
use crate::node::{Node, in_node};
use crate::validity::Validity;
use crate::wire::metadata::{Fsst, OnPair, VarBin};

pub(super) const KINDS: &[Kind] = &[
    Kind { id: "vortex.varbinview", check: check_views, size: no_bytes, plan: None, decode: views },
    Kind { id: "vortex.varbin", check: check_offsets, size: views_size, plan: None, decode: offsets },
    Kind { id: "vortex.fsst", check: check_fsst, size: views_size, plan: None, decode: fsst },
    Kind { id: "vortex.onpair", check: check_onpair, size: views_size, plan: None, decode: onpair },
];

const VIEW_BYTES: usize = 16;

/// The views alone: what they point into is known when it is decoded.
fn views_size(node: &Node<'_>) -> Result<Option<usize>> {
    Ok(Some(node.len.saturating_mul(VIEW_BYTES)))
}

fn is_text(node: &Node<'_>) -> Result<()> {
    match node.data_type() {
        DataType::Utf8View | DataType::BinaryView => Ok(()),
        other => Err(node.wrong(format_args!("its type is {other}, expected Utf8View or BinaryView"))),
    }
}

/// Runs `check` with the bits of the validity, if contents are to be looked at, and text at that.
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
    node.expect_children_and_validity(0)?;
    let last =
        node.raw.n_buffers().checked_sub(1).ok_or_else(|| node.wrong("it has no buffers, expected views"))?;
    let (expected, found) = (node.len.saturating_mul(VIEW_BYTES), node.buffer_bytes(last)?);
    if found == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("its views have {found} bytes, expected {expected}")))
}

fn views(job: &Job<'_>) -> Result<DeviceArray> {
    let (validity, buffers) = views_of(job)?;
    check_values(job, &validity, &buffers)?;
    job.array(job.node.data_type(), validity, buffers)
}

/// The validity, and the views with what they point into.
pub(crate) fn views_of(job: &Job<'_>) -> Result<(Validity, Vec<Option<Buffer>>)> {
    let last = job.node.raw.n_buffers().saturating_sub(1);
    let validity = job.validity(job.node.expect_children_and_validity(0)?.then_some(0))?;
    let mut buffers = vec![job.take_buffer(last, VIEW_BYTES)?];
    for i in 0..last {
        buffers.push(Some(job.take_buffer(i, 1)?.map_or_else(|| job.copy(&[]), Ok)?));
    }
    Ok((validity, buffers))
}

/// Checks views, if contents are to be looked at.
pub(crate) fn check_values(job: &Job<'_>, validity: &Validity, buffers: &[Option<Buffer>]) -> Result<()> {
    if job.validate != Validate::Full {
        return Ok(());
    }
    let mut in_reach = Vec::with_capacity(buffers.len());
    for buffer in buffers {
        in_reach.push(buffer.as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?);
    }
    let mut slices = in_reach.iter().map(|view| -> &[u8] { view.as_ref().map_or(&[], |view| view) });
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
    node.expect_buffers(1)?;
    node.expect_children_and_validity(1)?;
    let told = in_node(node, VarBin::read(node.metadata()))?;
    node.child(0)?.expect_all_valid(&told.offsets_ptype.arrow(), node.len.saturating_add(1), "offsets")
}

/// Writes views into a block, and answers into which parts of it they point.
type Write<'a> = dyn Fn(&[u8], &mut [views::View]) -> Result<Vec<Range<usize>>> + 'a;

/// An array of views into the parts of a block that `write` says.
fn of_views(
    job: &Job<'_>,
    data: Option<Buffer>,
    validity: Validity,
    write: &Write<'_>,
) -> Result<DeviceArray> {
    let mut parts = Vec::new();
    let view = data.as_ref().map(|data| data.host_view(job.stream)).transpose()?;
    let bytes: &[u8] = view.as_ref().map_or(&[], |view| view);
    let made = job.make_values(job.node.len, &mut |to: &mut [views::View]| {
        parts = in_node(&job.node, write(bytes, to))?;
        Ok(())
    })?;
    let part =
        |range: &Range<usize>| data.as_ref().map(|data| data.slice(range.start, range.len())).transpose();
    let data = parts.iter().map(part).collect::<Result<Vec<_>>>()?;
    job.array(job.node.data_type(), validity, std::iter::once(Some(made)).chain(data).collect())
}

fn offsets(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.expect_children_and_validity(1)?.then_some(1))?;
    offsets_of(job, validity, job.take_buffer(0, 1)?)
}

/// With the data.
pub(crate) fn offsets_of(job: &Job<'_>, validity: Validity, data: Option<Buffer>) -> Result<DeviceArray> {
    let offsets = job.child(0)?;
    by_counts!(job, offsets, offsets: Int32 i32, Int64 i64, UInt8 u8, UInt16 u16, UInt32 u32, UInt64 u64 => {
        check_text(job, &validity, |bits| {
            let view = data.as_ref().map(|data| data.host_view(job.stream)).transpose()?;
            utf8::by_offsets(offsets, view.as_ref().map_or(&[], |view| view), bits)
        })?;
        of_views(job, data, validity, &|bytes, to| views::from_offsets(offsets, bytes, to))
    })
}

fn check_fsst(node: &Node<'_>) -> Result<()> {
    is_text(node)?;
    node.expect_buffers(3)?;
    node.expect_children_and_validity(2)?;
    let told = in_node(node, Fsst::read(node.metadata()))?;
    node.child(0)?.expect_all_valid(&told.lengths_ptype.arrow(), node.len, "decoded lengths")?;
    node.child(1)?.expect_all_valid(
        &told.codes_offsets_ptype.arrow(),
        node.len.saturating_add(1),
        "offsets into codes",
    )
}

/// The array of what `decode` writes: values of these lengths, one after the other, at most so many bytes.
fn decoded<L: Index>(
    job: &Job<'_>,
    lengths: &[L],
    most: usize,
    validity: Validity,
    decode: &dyn Fn(&mut [u8], &mut coded::Told<'_>) -> Result<()>,
) -> Result<DeviceArray> {
    let bytes = in_node(&job.node, coded::decoded_bytes(lengths, most))?;
    let check = |bytes: &[u8]| check_text(job, &validity, |bits| utf8::by_lengths(lengths, bytes, bits));
    if bytes > views::MOST_BYTES {
        let data = job.make(bytes, &mut |to| {
            in_node(&job.node, decode(to, &mut |_, _| Ok(())))?;
            check(to)
        })?;
        return of_views(job, Some(data), validity, &|bytes, to| views::from_lengths(lengths, bytes, to));
    }
    let (mut made, mut need_buffer) = (None, false);
    let data = job.make(bytes, &mut |to| {
        made = Some(job.make_values(lengths.len(), &mut |views| {
            let mut texts = Texts::new(lengths, views);
            in_node(&job.node, decode(to, &mut |bytes, values| texts.add(bytes, values)))?;
            need_buffer = texts.need_buffer();
            if texts.is_ascii() { Ok(()) } else { check(to) }
        })?);
        Ok(())
    })?;
    let data = need_buffer.then_some(Some(data));
    job.array(job.node.data_type(), validity, std::iter::once(made).chain(data).collect())
}

fn fsst(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.expect_children_and_validity(2)?.then_some(2))?;
    fsst_of(job, validity, &[job.take_buffer(0, 1)?, job.take_buffer(1, 1)?, job.take_buffer(2, 1)?])
}

/// With the symbols, their lengths, and the codes.
pub(crate) fn fsst_of(
    job: &Job<'_>,
    validity: Validity,
    buffers: &[Option<Buffer>; 3],
) -> Result<DeviceArray> {
    const MOST_OF_A_CODE: usize = 8;
    let node = &job.node;
    let view = |buffer: &Option<Buffer>| match buffer {
        Some(buffer) => buffer.host_view(job.stream).map(|view| view.to_vec()),
        None => Ok(Vec::new()),
    };
    let symbols = in_node(node, fsst::Symbols::read(&view(&buffers[0])?, &view(&buffers[1])?))?;
    let codes = buffers[2].as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let codes: &[u8] = codes.as_ref().map_or(&[], |view| view);
    let most = codes.len().saturating_mul(MOST_OF_A_CODE);
    by_counts!(job, job.child(0)?, lengths: UInt8 u8, UInt16 u16, UInt32 u32 => {
        by_counts!(job, job.child(1)?, offsets: UInt32 u32 => {
            decoded(job, lengths, most, validity, &|to, told| symbols.decode(codes, offsets, lengths, to, told))
        })
    })
}

fn check_onpair(node: &Node<'_>) -> Result<()> {
    is_text(node)?;
    node.expect_buffers(1)?;
    node.expect_children_and_validity(4)?;
    let told = in_node(node, OnPair::read(node.metadata()))?;
    node.child(0)?.expect_all_valid(
        &told.dictionary_offsets_ptype.arrow(),
        told.dictionary_len + 1,
        "offsets of tokens",
    )?;
    node.child(1)?.expect_all_valid(&told.codes_ptype.arrow(), told.codes_len, "codes")?;
    node.child(2)?.expect_all_valid(
        &told.codes_offsets_ptype.arrow(),
        node.len.saturating_add(1),
        "offsets into codes",
    )?;
    node.child(3)?.expect_all_valid(&told.lengths_ptype.arrow(), node.len, "decoded lengths")
}

fn onpair(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.expect_children_and_validity(4)?.then_some(4))?;
    onpair_of(job, validity, job.take_buffer(0, 1)?.as_ref())
}

/// With the dictionary.
pub(crate) fn onpair_of(
    job: &Job<'_>,
    validity: Validity,
    dictionary: Option<&Buffer>,
) -> Result<DeviceArray> {
    const MOST_OF_A_CODE: usize = 16;
    let node = &job.node;
    let dictionary = dictionary.map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let dictionary: &[u8] = dictionary.as_ref().map_or(&[], |view| view);
    let tokens = by_counts!(job, job.child(0)?, tokens_at: UInt16 u16, UInt32 u32 => {
        in_node(node, onpair::Tokens::read(dictionary, tokens_at))
    })?;
    let codes = job.child(1)?;
    let values = Values::of(codes, job.stream)?;
    let most = codes.len().saturating_mul(MOST_OF_A_CODE);
    by_counts!(job, job.child(3)?, lengths: UInt8 u8, UInt16 u16, UInt32 u32 => {
        by_counts!(job, job.child(2)?, offsets: UInt32 u32 => {
            decoded(job, lengths, most, validity, &|to, told| match codes.data_type() {
                DataType::UInt8 => tokens.decode(values.get::<u8>()?, offsets, lengths, to, told),
                _ => tokens.decode(values.get::<u16>()?, offsets, lengths, to, told),
            })
        })
    })
}
