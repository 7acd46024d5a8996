//! Encodes integers: bit-packed, or as bit-packed differences from their minimum.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use crossdock_arrays::{
    DeviceArray, call_stream, check_nullability, export_field, import_batch, import_field_ref,
};
use crossdock_memory::{Buffer, Memory, Stream};
use crossdock_plugin_api::{
    Call, Device, EncodedArray, Error, LogicalType, NodeParts, Options, Owned, Result, abi,
};

use crate::cpu::bits::Bits;
use crate::cpu::fastlanes;
use crate::cpu::words::Word;
use crate::job::{Plain, Values};
use crate::kinds::chain::{BIT_PACKED, FRAME};
use crate::wire::PType;
use crate::wire::protobuf::{message, one_field};
use crate::wire::scalar::kind::{INT64, UINT64};

/// The encodings that the encoder encodes to.
pub(crate) const IDS: [&str; 2] = [BIT_PACKED, FRAME];

/// Encodes a column of integers, which is on the CPU, to one of [`IDS`].
pub(crate) fn encode(
    memory: &Memory,
    call: &Call<'_>,
    encoding: &str,
    options: &Options,
    schema: &abi::ArrowSchema,
    column: Owned<abi::Batch>,
) -> Result<EncodedArray> {
    options.only(encoding, &[])?;
    if !IDS.contains(&encoding) {
        return Err(Error::unsupported(format!("this plugin does not encode to '{encoding}'")));
    }
    if call.device() != Device::CPU {
        return Err(Error::unsupported(format!("{encoding}: columns are encoded only on the CPU")));
    }
    // SAFETY: the plugin boundary requires a valid schema that lives until the call returns.
    let field = unsafe { import_field_ref(schema) }?;
    let ptype = PType::from_arrow(field.data_type()).filter(|ptype| ptype.is_int());
    let ptype = ptype.ok_or_else(|| {
        Error::unsupported(format!(
            "{encoding}: the type is {}, expected integers",
            crossdock_arrays::type_name(field.data_type())
        ))
    })?;
    let batch = import_batch(column, &Arc::new(Schema::new(vec![field.clone()])), memory)?;
    let stream = call_stream(memory, call, batch.device())?;
    // A node of a non-nullable type has no validity, so its nulls would become values.
    check_nullability(&batch, &stream)?;
    let array = batch.column(0).ok_or_else(|| Error::internal("a batch lacks its column"))?;
    let packer =
        Packer { field: &field, ptype, array, memory, stream: &stream, has_frame: encoding == FRAME };
    match ptype.bytes() {
        1 => packer.encode::<u8>(),
        2 => packer.encode::<u16>(),
        4 => packer.encode::<u32>(),
        _ => packer.encode::<u64>(),
    }
}

struct Packer<'a> {
    field: &'a Field,
    ptype: PType,
    array: &'a DeviceArray,
    memory: &'a Memory,
    /// A stream of the CPU, where the array is.
    stream: &'a Stream,
    /// Whether the differences from the minimum are packed, instead of the values.
    has_frame: bool,
}

impl Packer<'_> {
    fn encode<T: Word + Plain>(&self) -> Result<EncodedArray> {
        let array = self.array;
        let values = Values::new(array, self.stream)?;
        let values: &[T] = values.get()?;
        let validity = array.validity_bits();
        let view = validity.as_ref().map(|(bits, _)| bits.host_view(self.stream)).transpose()?;
        let first = validity.as_ref().map_or(0, |(_, first)| *first);
        let valid = view.as_ref().map(|view| Bits::new(view, first, array.len())).transpose()?;
        let is_valid = |i: usize| valid.as_ref().is_none_or(|valid| valid.get(i));
        // Signed integers have the order of their bits with the sign inverted.
        let sign = T::low(if self.ptype.is_signed() { 1 << (T::BITS - 1) } else { 0 });
        let range = |range: Option<(T, T)>, (i, value): (usize, &T)| {
            if !is_valid(i) {
                return range;
            }
            let value = *value ^ sign;
            let (least, greatest) = range.unwrap_or((value, value));
            Some((least.min(value), greatest.max(value)))
        };
        let (least, greatest) = values.iter().enumerate().fold(None, range).unwrap_or((sign, sign));
        let reference = if self.has_frame { least ^ sign } else { T::default() };
        if !self.has_frame && self.ptype.is_signed() && least < sign {
            return Err(Error::unsupported(format!(
                "{BIT_PACKED}: a value is negative: encode to '{FRAME}', which allows negative values"
            )));
        }
        let width = (greatest ^ sign).minus(reference).bits();
        let bytes = fastlanes::packed_bytes(width, 0, values.len())?;
        // Nulls are packed as zeros.
        let packed = |i: usize| match values.get(i) {
            Some(value) if is_valid(i) => value.minus(reference),
            _ => T::default(),
        };
        let fill = |to: &mut [u8]| {
            fastlanes::pack(width, to, packed);
            Ok(())
        };
        let buffer = self.memory.alloc_with(self.stream, bytes, fill)?.freeze(self.stream)?;
        self.nodes(reference.wide(), width, buffer)
    }

    fn nodes(&self, reference: u64, width: u32, packed: Buffer) -> Result<EncodedArray> {
        let (mut nodes, mut buffers) = (Vec::new(), vec![packed.to_encoded()]);
        if self.has_frame {
            // The bits of a signed reference are extended by its sign, and zigzag-encoded.
            let unused = 64 - 8 * self.ptype.bytes() as u32;
            let signed = ((reference << unused) as i64) >> unused;
            let metadata = match self.ptype.is_signed() {
                true => one_field(INT64, (signed << 1 ^ signed >> 63) as u64),
                false => one_field(UINT64, reference),
            };
            nodes.push(self.node(FRAME, self.field, metadata, 0, 1)?);
        }
        let validity = self.array.validity_bits().filter(|_| self.field.is_nullable());
        let metadata = message(&[(1, width.into())]);
        nodes.push(self.node(BIT_PACKED, self.field, metadata, 1, usize::from(validity.is_some()))?);
        if let Some((bits, first)) = validity {
            let bytes = (first % 8 + self.array.len()).div_ceil(8);
            buffers.push(bits.slice(first / 8, bytes)?.to_encoded());
            let bools = Field::new("", DataType::Boolean, false);
            nodes.push(self.node("vortex.bool", &bools, message(&[(1, (first % 8) as u64)]), 1, 0)?);
        }
        EncodedArray::new(nodes, buffers)
    }

    fn node(
        &self,
        id: &str,
        field: &Field,
        metadata: Vec<u8>,
        n_buffers: u32,
        n_children: usize,
    ) -> Result<NodeParts> {
        Ok(NodeParts {
            encoding: id.into(),
            logical_type: LogicalType::Schema(export_field(&field.clone().with_name(""))?),
            length: self.array.len() as u64,
            metadata,
            n_buffers,
            n_children: n_children as u32,
        })
    }
}
