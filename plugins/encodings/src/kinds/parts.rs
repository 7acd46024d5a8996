//! Decodes ALP-RD, decimals, date-time parts, byte bools and masked arrays.

use arrow_schema::{DataType, TimeUnit};
use crossdock_arrays::DeviceArray;
use crossdock_plugin_api::{Error, Result};

use super::chain::Patched;
use super::numbers::floats;
use super::slots::{Source, by_integers};
use super::{Kind, fixed_size, no_bytes, only_validity};
use crate::children::{Child, Children};
use crate::cpu::{alprd, byte_bool, date_time_parts, decimals};
use crate::job::{Job, Values};
use crate::node::{Node, in_node};
use crate::validity::Validity;
use crate::wire::PType;
use crate::wire::metadata::{AlpRd, DateTimeParts, Decimal, DecimalByteParts};

pub(crate) const ALP_RD: &str = "vortex.alprd";
pub(crate) const DECIMAL: &str = "vortex.decimal";
pub(crate) const BYTE_PARTS: &str = "vortex.decimal_byte_parts";
pub(crate) const TIMESTAMP: &str = "vortex.datetimeparts";
pub(crate) const BYTES: &str = "vortex.bytebool";

pub const KINDS: &[Kind] = &[
    Kind {
        id: ALP_RD,
        check: check_alprd,
        children: alprd_children,
        size: fixed_size,
        plan: None,
        decode: alprd,
    },
    Kind {
        id: DECIMAL,
        check: check_decimal,
        children: only_validity,
        size: fixed_size,
        plan: None,
        decode: decimal,
    },
    Kind {
        id: BYTE_PARTS,
        check: check_byte_parts,
        children: byte_parts_children,
        size: fixed_size,
        plan: None,
        decode: byte_parts,
    },
    Kind {
        id: TIMESTAMP,
        check: check_timestamp,
        children: timestamp_children,
        size: fixed_size,
        plan: None,
        decode: timestamp,
    },
    Kind {
        id: BYTES,
        check: check_bytes,
        children: only_validity,
        size: super::slots::size,
        plan: None,
        decode: bytes,
    },
    Kind {
        id: "vortex.masked",
        check: check_masked,
        children: masked_children,
        size: no_bytes,
        plan: None,
        decode: masked,
    },
];

pub(crate) fn alprd_metadata(node: &Node<'_>) -> Result<AlpRd> {
    in_node(node, AlpRd::read(node.metadata(), floats(node)?, node.len))
}

fn check_alprd(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    alprd_metadata(node).map(drop)
}

fn alprd_children(node: &Node<'_>) -> Result<Children> {
    let right = if floats(node)? == PType::F32 { DataType::UInt32 } else { DataType::UInt64 };
    let mut children = vec![
        Child::with_nulls("codes of left parts", DataType::UInt16, node.is_nullable(), node.len),
        Child::all_valid("right parts", right, node.len),
    ];
    if let Some(patches) = alprd_metadata(node)?.patches {
        children.extend(patches.children(node, DataType::UInt16, false)?);
    }
    Ok(Children::new(children))
}

fn alprd(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let metadata = alprd_metadata(node)?;
    let (codes, rights) = (job.child(0)?, job.child(1)?);
    let validity_source = Source::from_validity(job, codes)?;
    let (code_values, rights) = (Values::new(codes, job.stream)?, Values::new(rights, job.stream)?);
    let patched = metadata.patches.as_ref().map(|patches| Patched::new(job, node, 2, patches)).transpose()?;
    macro_rules! join {
        ($t:ty) => {{
            let cut = in_node(node, alprd::Cut::<$t>::new(metadata.right_bit_width, &metadata.dictionary))?;
            let rights = rights.get::<$t>()?;
            job.make_values(node.len, &mut |to: &mut [$t]| {
                to.copy_from_slice(rights);
                in_node(node, cut.join(code_values.get()?, validity_source.valid()?, to))?;
                let Some(patched) = &patched else { return Ok(()) };
                let lefts = Values::new(patched.values, job.stream)?;
                by_integers!(job, patched.indices, indices => {
                    in_node(node, cut.patch(indices, patched.offset, lefts.get()?, to))
                })
            })
        }};
    }
    let values = if floats(node)? == PType::F32 { join!(u32) } else { join!(u64) }?;
    job.array(node.data_type(), Validity::from_array(job, codes)?, vec![Some(values)])
}

fn is_decimal(node: &Node<'_>) -> Result<()> {
    match node.data_type() {
        DataType::Decimal128(..) | DataType::Decimal256(..) => Ok(()),
        other => Err(node.wrong(format_args!(
            "the type is {}, expected a decimal of 128 or 256 bits",
            crossdock_arrays::type_name(other)
        ))),
    }
}

fn check_decimal(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(1)?;
    is_decimal(node)?;
    let width = in_node(node, Decimal::read(node.metadata()))?.value_bytes;
    let (expected, actual) = (node.len.saturating_mul(width), node.buffer_bytes(0)?);
    if actual == expected as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!("the values have {actual} bytes, expected {expected}")))
}

/// Bytes per stored value.
pub(crate) fn stored_bytes(node: &Node<'_>) -> Result<usize> {
    Ok(in_node(node, Decimal::read(node.metadata()))?.value_bytes)
}

fn decimal(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let width = stored_bytes(node)?;
    let validity = job.validity(node.has_validity(0)?.then_some(0))?;
    let stored = job.take_buffer(0, width)?;
    if width == node.width()? {
        return job.array(node.data_type(), validity, vec![stored]);
    }
    let view = stored.as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let bytes: &[u8] = view.as_ref().map_or(&[], |view| view);
    let values = match width {
        1 => widen(job, crate::job::values::<i8>(bytes)?),
        2 => widen(job, crate::job::values::<i16>(bytes)?),
        4 => widen(job, crate::job::values::<i32>(bytes)?),
        8 => widen(job, crate::job::values::<i64>(bytes)?),
        16 => widen(job, crate::job::values::<i128>(bytes)?),
        _ => {
            let bits = validity.bits.as_ref().map(|bits| bits.host_view(job.stream)).transpose()?;
            let valid =
                bits.as_ref().map(|bits| crate::cpu::bits::Bits::new(bits, 0, node.len)).transpose()?;
            let wide = crate::job::values::<decimals::Wide>(bytes)?;
            job.make_values(node.len, &mut |to: &mut [i128]| {
                in_node(node, decimals::narrow_from_256(wide, valid, to))
            })
        }
    }?;
    job.array(node.data_type(), validity, vec![Some(values)])
}

/// Widens integers to the width of the node's type.
fn widen<S: Copy + Into<i128>>(job: &Job<'_>, from: &[S]) -> Result<crossdock_memory::Buffer> {
    if job.node.width()? == 16 {
        job.make_values(from.len(), &mut |to: &mut [i128]| decimals::widen(from, to))
    } else {
        job.make_values(from.len(), &mut |to: &mut [decimals::Wide]| decimals::widen_to_256(from, to))
    }
}

fn check_byte_parts(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    is_decimal(node)
}

fn byte_parts_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, DecimalByteParts::read(node.metadata()))?;
    let unscaled = metadata.ptype.arrow();
    Ok(Children::new([Child::with_nulls("unscaled decimals", unscaled, node.is_nullable(), node.len)]))
}

fn byte_parts(job: &Job<'_>) -> Result<DeviceArray> {
    let child = job.child(0)?;
    let from = Values::new(child, job.stream)?;
    let values = match child.data_type() {
        DataType::Int8 => widen(job, from.get::<i8>()?),
        DataType::Int16 => widen(job, from.get::<i16>()?),
        DataType::Int32 => widen(job, from.get::<i32>()?),
        _ => widen(job, from.get::<i64>()?),
    }?;
    job.array(job.node.data_type(), Validity::from_array(job, child)?, vec![Some(values)])
}

/// Ticks of the node's unit per second.
pub(crate) fn ticks(node: &Node<'_>) -> Result<i64> {
    match node.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => Ok(1),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Ok(1_000),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(1_000_000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => Ok(1_000_000_000),
        other => Err(node
            .wrong(format_args!("the type is {}, expected a timestamp", crossdock_arrays::type_name(other)))),
    }
}

fn check_timestamp(node: &Node<'_>) -> Result<()> {
    node.expect_buffers(0)?;
    ticks(node).map(drop)
}

fn timestamp_children(node: &Node<'_>) -> Result<Children> {
    let metadata = in_node(node, DateTimeParts::read(node.metadata()))?;
    Ok(Children::new([
        Child::with_nulls("days", metadata.days.arrow(), node.is_nullable(), node.len),
        Child::all_valid("seconds", metadata.seconds.arrow(), node.len),
        Child::all_valid("parts of seconds", metadata.subseconds.arrow(), node.len),
    ]))
}

fn part<'a>(array: &DeviceArray, values: &'a Values<'_>) -> Result<date_time_parts::Part<'a>> {
    Ok(match array.data_type() {
        DataType::Int8 => values.get::<i8>()?.into(),
        DataType::Int16 => values.get::<i16>()?.into(),
        DataType::Int32 => values.get::<i32>()?.into(),
        DataType::Int64 => values.get::<i64>()?.into(),
        DataType::UInt8 => values.get::<u8>()?.into(),
        DataType::UInt16 => values.get::<u16>()?.into(),
        DataType::UInt32 => values.get::<u32>()?.into(),
        _ => values.get::<u64>()?.into(),
    })
}

fn timestamp(job: &Job<'_>) -> Result<DeviceArray> {
    let node = &job.node;
    let (days, seconds, rest) = (job.child(0)?, job.child(1)?, job.child(2)?);
    let second = ticks(node)?;
    let validity = Source::from_validity(job, days)?;
    let views =
        (Values::new(days, job.stream)?, Values::new(seconds, job.stream)?, Values::new(rest, job.stream)?);
    let parts = [
        (part(days, &views.0)?, date_time_parts::SECONDS_PER_DAY * second),
        (part(seconds, &views.1)?, second),
        (part(rest, &views.2)?, 1),
    ];
    let values = job.make_values(node.len, &mut |to: &mut [i64]| {
        in_node(node, date_time_parts::combine(&parts, validity.valid()?, to))
    })?;
    job.array(node.data_type(), Validity::from_array(job, days)?, vec![Some(values)])
}

fn check_bytes(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(1)?;
    let actual = node.buffer_bytes(0)?;
    if *node.data_type() == DataType::Boolean && actual == node.len as u64 {
        return Ok(());
    }
    Err(node.wrong(format_args!(
        "the node has {actual} bytes for {} values of {}, expected one byte for each boolean value",
        node.len,
        crossdock_arrays::type_name(node.data_type())
    )))
}

fn bytes(job: &Job<'_>) -> Result<DeviceArray> {
    let validity = job.validity(job.node.has_validity(0)?.then_some(0))?;
    let stored = job.take_buffer(0, 1)?;
    let view = stored.as_ref().map(|buffer| buffer.host_view(job.stream)).transpose()?;
    let bytes: &[u8] = view.as_ref().map_or(&[], |view| view);
    let bits = super::slots::bitmap(job, &mut |to| byte_bool::pack(bytes, to))?;
    job.array(&DataType::Boolean, validity, vec![Some(bits)])
}

fn check_masked(node: &Node<'_>) -> Result<()> {
    node.expect_no_metadata()?;
    node.expect_buffers(0)?;
    let children = node.raw.n_children();
    if (1..=2).contains(&children) && node.field.is_nullable() {
        return Ok(());
    }
    Err(node
        .wrong(format_args!("the node has {children} children, expected values and optionally a validity")))
}

fn masked_children(node: &Node<'_>) -> Result<Children> {
    let values = Child::with_nulls("masked values", node.data_type().clone(), false, node.len);
    // The validity is the last child, also if the values are structs.
    let validity = Child::all_valid("validity", DataType::Boolean, node.len);
    Ok(Children::new(if node.raw.n_children() == 2 { vec![values, validity] } else { vec![values] }))
}

fn masked(job: &Job<'_>) -> Result<DeviceArray> {
    let values = job.child(0)?;
    let validity = job.validity((job.node.raw.n_children() == 2).then_some(1))?;
    if values.null_count() != Some(0) && values.count_nulls(job.stream)? > 0 {
        return Err(job.node.wrong("the values have nulls, expected none in a masked array"));
    }
    if values.offset() > 0 {
        return Err(Error::unsupported(format!(
            "{}: slices of masked arrays are unsupported",
            job.node.raw.path()
        )));
    }
    let mut buffers = values.buffers().to_vec();
    if let Some(bits) = buffers.first_mut().filter(|_| values.layout().has_validity) {
        *bits = validity.bits;
    }
    let (children, dictionary) = (values.children().to_vec(), values.dictionary().cloned());
    DeviceArray::try_new(
        job.node.data_type().clone(),
        values.len(),
        0,
        validity.null_count,
        buffers,
        children,
        dictionary,
    )
}
