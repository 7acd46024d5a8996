//! Converts validity children and validity bitmaps of arrays.

use arrow_schema::DataType;
use crossdock_arrays::{DeviceArray, take};
use crossdock_memory::Buffer;
use crossdock_plugin_api::{Device, Result};

use crate::cpu::bits::Bits;
use crate::job::Job;
use crate::validity::Validity;

impl Job<'_> {
    /// The validity of the node, given the index of its validity child.
    pub fn validity(&self, child: Option<usize>) -> Result<Validity> {
        match child {
            Some(i) => validity_from_bools(self, self.child(i)?),
            None => Ok(Validity::all_valid()),
        }
    }
}

impl Validity {
    /// Returns the validity of an array as a bitmap that begins with the array's first value.
    pub fn from_array(job: &Job<'_>, array: &DeviceArray) -> Result<Self> {
        if array.null_count() == Some(0) || !array.layout().has_validity {
            return Ok(Self::all_valid());
        }
        let Some(bits) = array.buffers().first().and_then(Option::as_ref) else {
            return Ok(Self::all_valid());
        };
        let bits = from_first_bit(job, bits, array.offset(), array.len())?;
        Ok(Self { bits: Some(bits), null_count: array.null_count() })
    }
}

/// Converts an array of bools to a validity. A value is valid if its bool is true.
pub fn validity_from_bools(job: &Job<'_>, bools: &DeviceArray) -> Result<Validity> {
    if *bools.data_type() != DataType::Boolean || bools.len() != job.node.len {
        return Err(job.node.wrong(format_args!(
            "the validity is {} values of {}, expected {} of bool",
            bools.len(),
            crossdock_arrays::type_name(bools.data_type()),
            job.node.len
        )));
    }
    match bools.buffers().get(1).and_then(Option::as_ref) {
        Some(bits) => {
            let bits = from_first_bit(job, bits, bools.offset(), bools.len())?;
            Ok(Validity { bits: Some(bits), null_count: None })
        }
        None => Ok(Validity::all_valid()),
    }
}

/// Returns the bits of `buffer` from bit `offset` on, shifted so that bit `offset` becomes bit 0.
pub fn from_first_bit(job: &Job<'_>, buffer: &Buffer, offset: usize, len: usize) -> Result<Buffer> {
    let bytes = len.div_ceil(8);
    if offset.is_multiple_of(8) {
        return buffer.slice(offset / 8, bytes);
    }
    if job.stream.device() != Device::CPU {
        return take::byte_aligned_bits(job.stream, buffer, offset, len);
    }
    let view = buffer.host_view(job.stream)?;
    let bits = Bits::new(&view, offset, len)?;
    job.make(bytes, &mut |to| bits.copy_to(to))
}
