//! Converts Arrow arrays to trees of nodes with plain values, which refer to the arrays' buffers.

use arrow_schema::{DataType, Field, Fields};
use crossdock_arrays::DeviceArray;
use crossdock_arrays::metadata::of_dictionary_values;
use crossdock_arrays::take::to_plain;
use crossdock_memory::{Buffer, Memory};
use crossdock_plugin_api::{Device, EncodedArray, EncodedBuffers, Error, LogicalType, NodeParts, Result};

use crate::wire::dtype::{EXTENSION_NAME, is_uuid, uuid_storage};
use crate::wire::protobuf::message;
use crate::wire::{PType, dtype_write};

/// Builds a tree in pre-order.
pub(super) struct Tree<'a> {
    memory: &'a Memory,
    nodes: Vec<NodeParts>,
    buffers: EncodedBuffers,
}

fn unnamed(data_type: DataType, nullable: bool) -> Field {
    Field::new("", data_type, nullable)
}

impl<'a> Tree<'a> {
    /// Encodes one array as a plain node, or several arrays as the chunks of one node.
    pub fn encode(memory: &'a Memory, field: &Field, arrays: &[DeviceArray]) -> Result<EncodedArray> {
        let mut tree = Self { memory, nodes: Vec::new(), buffers: Vec::new() };
        match arrays {
            [array] => tree.array(field, array)?,
            _ => tree.chunks(field, arrays)?,
        }
        EncodedArray::new(tree.nodes, tree.buffers)
    }

    fn node(
        &mut self,
        (id, field): (&str, &Field),
        len: usize,
        metadata: Vec<u8>,
        buffers: Vec<Buffer>,
        n_children: usize,
    ) -> Result<()> {
        self.nodes.push(NodeParts {
            encoding: id.into(),
            logical_type: LogicalType::Dtype(dtype_write::write(field)?),
            length: len as u64,
            metadata,
            n_buffers: buffers.len() as u32,
            n_children: n_children as u32,
        });
        self.buffers.extend(buffers.iter().map(Buffer::to_encoded));
        Ok(())
    }

    /// Returns a range of the array's buffer `i`. A missing buffer is replaced by zeros on the
    /// host.
    fn buffer_range(&self, array: &DeviceArray, i: usize, at: usize, bytes: usize) -> Result<Buffer> {
        match array.buffers().get(i).and_then(Option::as_ref) {
            Some(buffer) if bytes > 0 => buffer.slice(at, bytes),
            _ => self.new_buffer(bytes, |to| to.fill(0)),
        }
    }

    fn new_buffer(&self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Buffer> {
        let stream = self.memory.default_stream(Device::CPU)?;
        let filled = |to: &mut [u8]| {
            fill(to);
            Ok(())
        };
        self.memory.alloc_with(&stream, bytes, filled)?.freeze(&stream)
    }

    fn chunks(&mut self, field: &Field, arrays: &[DeviceArray]) -> Result<()> {
        let ends = arrays.iter().scan(0u64, |end, array| {
            *end += array.len() as u64;
            Some(*end)
        });
        let offsets: Vec<u8> = std::iter::once(0).chain(ends).flat_map(u64::to_le_bytes).collect();
        let len = arrays.iter().map(DeviceArray::len).sum();
        self.node(("vortex.chunked", field), len, Vec::new(), Vec::new(), 1 + arrays.len())?;
        let buffer = self.new_buffer(offsets.len(), |to| to.copy_from_slice(&offsets))?;
        let plain = unnamed(DataType::UInt64, false);
        self.node(("vortex.primitive", &plain), arrays.len() + 1, Vec::new(), vec![buffer], 0)?;
        arrays.iter().try_for_each(|array| self.array(field, array))
    }

    fn array(&mut self, field: &Field, array: &DeviceArray) -> Result<()> {
        let (data_type, len) = (field.data_type(), array.len());
        if field.metadata().contains_key(EXTENSION_NAME) {
            self.node(("vortex.ext", field), len, Vec::new(), Vec::new(), 1)?;
            if is_uuid(field) {
                let stream = self.memory.default_stream(array.device())?;
                let lists = to_plain(array, &stream)?;
                return self.array(&unnamed(uuid_storage(), field.is_nullable()), &lists);
            }
            return self.array(&unnamed(data_type.clone(), field.is_nullable()), array);
        }
        if let Some(ptype) = PType::stored_as(data_type) {
            if PType::from_arrow(data_type).is_none() {
                self.node(("vortex.ext", field), len, Vec::new(), Vec::new(), 1)?;
            }
            return self.words(ptype, field.is_nullable(), array);
        }
        match data_type {
            DataType::Null => self.node(("vortex.null", field), len, Vec::new(), Vec::new(), 0),
            DataType::Boolean => {
                let (bits, metadata) = self.bits(array, 1)?;
                self.leaf(("vortex.bool", field), array, metadata, vec![bits])
            }
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => {
                let width = data_type.primitive_width().unwrap_or(16);
                let values = self.buffer_range(array, 1, array.offset() * width, len * width)?;
                let metadata = message(&[(1, width.ilog2().into())]);
                self.leaf(("vortex.decimal", field), array, metadata, vec![values])
            }
            DataType::Utf8View | DataType::BinaryView => {
                let data = array.buffers().iter().skip(2).map(|data| match data {
                    Some(data) => Ok(data.clone()),
                    None => self.new_buffer(0, |_| ()),
                });
                let mut buffers = data.collect::<Result<Vec<_>>>()?;
                buffers.push(self.buffer_range(array, 1, array.offset() * 16, len * 16)?);
                self.leaf(("vortex.varbinview", field), array, Vec::new(), buffers)
            }
            DataType::Utf8 | DataType::Binary => self.text(field, array, PType::I32),
            DataType::LargeUtf8 | DataType::LargeBinary => self.text(field, array, PType::I64),
            DataType::List(element) => self.list(field, element, array, PType::I32),
            DataType::LargeList(element) => self.list(field, element, array, PType::I64),
            DataType::ListView(element) => self.list_view(field, element, array, PType::I32),
            DataType::LargeListView(element) => self.list_view(field, element, array, PType::I64),
            DataType::FixedSizeList(element, size) => self.fixed_size_list(field, element, array, *size),
            DataType::Map(entries, _) => {
                self.node(("vortex.map", field), len, Vec::new(), Vec::new(), 1)?;
                let list = unnamed(DataType::List(entries.clone()), field.is_nullable());
                self.map_entries(&list, entries, array)
            }
            DataType::Struct(fields) => self.structs(field, fields, array),
            DataType::Dictionary(codes, values) => self.dictionary(field, array, codes, values),
            DataType::RunEndEncoded(ends, values) => self.runs(field, array, ends, values),
            // Returns the error for the unsupported type.
            _ => dtype_write::write(field).map(drop),
        }
    }

    fn fixed_size_list(
        &mut self,
        field: &Field,
        element: &Field,
        array: &DeviceArray,
        size: i32,
    ) -> Result<()> {
        let size = usize::try_from(size).unwrap_or(0);
        let elements = self.child(array, 0)?.slice(array.offset() * size, array.len() * size)?;
        let write = |tree: &mut Self| tree.array(element, &elements);
        self.with_children(("vortex.fixed_size_list", field), array, Vec::new(), Vec::new(), write, 1)
    }

    fn structs(&mut self, field: &Field, fields: &Fields, array: &DeviceArray) -> Result<()> {
        let has_validity = self.has_validity(field, array);
        let n = fields.len() + usize::from(has_validity);
        self.node(("vortex.struct", field), array.len(), Vec::new(), Vec::new(), n)?;
        if has_validity {
            self.validity(array)?;
        }
        for (i, field) in fields.iter().enumerate() {
            let child = self.child(array, i)?.slice(array.offset(), array.len())?;
            self.array(field, &child)?;
        }
        Ok(())
    }

    fn child<'c>(&self, array: &'c DeviceArray, i: usize) -> Result<&'c DeviceArray> {
        array.children().get(i).ok_or_else(|| Error::internal("an array lacks a child that its type has"))
    }

    /// Whether the node has a validity child.
    fn has_validity(&self, field: &Field, array: &DeviceArray) -> bool {
        field.is_nullable() && array.validity_bits().is_some()
    }

    fn validity(&mut self, array: &DeviceArray) -> Result<()> {
        let (bits, metadata) = self.bits(array, 0)?;
        let bools = unnamed(DataType::Boolean, false);
        self.node(("vortex.bool", &bools), array.len(), metadata, vec![bits], 0)
    }

    /// Returns the bytes of buffer `i` that contain the array's bits, and metadata with the
    /// position of the first of these bits in the first byte.
    fn bits(&self, array: &DeviceArray, i: usize) -> Result<(Buffer, Vec<u8>)> {
        let (skip, len) = (array.offset() % 8, array.len());
        let bytes = if len == 0 { 0 } else { (skip + len).div_ceil(8) };
        Ok((self.buffer_range(array, i, array.offset() / 8, bytes)?, message(&[(1, skip as u64)])))
    }

    /// Adds a node with `n` children, which `write` adds. The validity child, if the node has one,
    /// follows these children.
    fn with_children(
        &mut self,
        id: (&str, &Field),
        array: &DeviceArray,
        metadata: Vec<u8>,
        buffers: Vec<Buffer>,
        write: impl FnOnce(&mut Self) -> Result<()>,
        n: usize,
    ) -> Result<()> {
        let validity = self.has_validity(id.1, array);
        self.node(id, array.len(), metadata, buffers, n + usize::from(validity))?;
        write(self)?;
        if validity { self.validity(array) } else { Ok(()) }
    }

    fn leaf(
        &mut self,
        id: (&str, &Field),
        array: &DeviceArray,
        metadata: Vec<u8>,
        buffers: Vec<Buffer>,
    ) -> Result<()> {
        self.with_children(id, array, metadata, buffers, |_| Ok(()), 0)
    }

    /// Adds numbers of the array's type, or of a type with the same representation in bytes.
    fn words(&mut self, ptype: PType, nullable: bool, array: &DeviceArray) -> Result<()> {
        let width = ptype.bytes();
        let values = self.buffer_range(array, 1, array.offset() * width, array.len() * width)?;
        self.leaf(("vortex.primitive", &unnamed(ptype.arrow(), nullable)), array, Vec::new(), vec![values])
    }

    /// Adds `n` numbers of the array's buffer `i`, from the first value on.
    fn numbers(&mut self, array: &DeviceArray, i: usize, n: usize, ptype: PType) -> Result<()> {
        let width = ptype.bytes();
        let numbers = self.buffer_range(array, i, array.offset() * width, n * width)?;
        self.node(("vortex.primitive", &unnamed(ptype.arrow(), false)), n, Vec::new(), vec![numbers], 0)
    }

    fn text(&mut self, field: &Field, array: &DeviceArray, offsets: PType) -> Result<()> {
        let bytes = match array.buffers().get(2).and_then(Option::as_ref) {
            Some(bytes) => bytes.clone(),
            None => self.new_buffer(0, |_| ())?,
        };
        let metadata = message(&[(1, offsets as u64)]);
        let write = |tree: &mut Self| tree.numbers(array, 1, array.len() + 1, offsets);
        self.with_children(("vortex.varbin", field), array, metadata, vec![bytes], write, 1)
    }

    fn list(&mut self, field: &Field, element: &Field, array: &DeviceArray, offsets: PType) -> Result<()> {
        let elements = self.child(array, 0)?;
        let metadata = message(&[(1, elements.len() as u64), (2, offsets as u64)]);
        let write = |tree: &mut Self| {
            tree.array(element, elements)?;
            tree.numbers(array, 1, array.len() + 1, offsets)
        };
        self.with_children(("vortex.list", field), array, metadata, Vec::new(), write, 2)
    }

    fn list_view(
        &mut self,
        field: &Field,
        element: &Field,
        array: &DeviceArray,
        numbers: PType,
    ) -> Result<()> {
        let elements = self.child(array, 0)?;
        let kind = numbers as u64;
        let metadata = message(&[(1, elements.len() as u64), (2, kind), (3, kind)]);
        let write = |tree: &mut Self| {
            tree.array(element, elements)?;
            tree.numbers(array, 1, array.len(), numbers)?;
            tree.numbers(array, 2, array.len(), numbers)
        };
        self.with_children(("vortex.listview", field), array, metadata, Vec::new(), write, 3)
    }

    /// Adds the entries of a map. Vortex requires a list view for the entries. The sizes of the
    /// view are computed on the host.
    fn map_entries(&mut self, field: &Field, element: &Field, array: &DeviceArray) -> Result<()> {
        let (elements, len) = (self.child(array, 0)?, array.len());
        let stream = self.memory.default_stream(array.device())?;
        let offsets = self.buffer_range(array, 1, array.offset() * 4, (len + 1) * 4)?;
        let view = offsets.host_view(&stream)?;
        let (words, _) = view.as_chunks::<4>();
        let sizes = words.iter().zip(words.iter().skip(1)).flat_map(|(from, to)| {
            i32::from_le_bytes(*to).wrapping_sub(i32::from_le_bytes(*from)).to_le_bytes()
        });
        let sizes: Vec<u8> = sizes.take(len * 4).collect();
        let kind = PType::I32 as u64;
        let metadata = message(&[(1, elements.len() as u64), (2, kind), (3, kind)]);
        let write = |tree: &mut Self| {
            tree.array(element, elements)?;
            tree.numbers(array, 1, len, PType::I32)?;
            let sizes = tree.new_buffer(sizes.len(), |to| to.copy_from_slice(&sizes))?;
            let plain = unnamed(DataType::Int32, false);
            tree.node(("vortex.primitive", &plain), len, Vec::new(), vec![sizes], 0)
        };
        self.with_children(("vortex.listview", field), array, metadata, Vec::new(), write, 3)
    }

    fn dictionary(
        &mut self,
        field: &Field,
        array: &DeviceArray,
        codes: &DataType,
        values: &DataType,
    ) -> Result<()> {
        let dictionary = array.dictionary().ok_or_else(|| Error::internal("a dictionary has no values"))?;
        // Non-null codes are not negative, so they have the same values in the unsigned type.
        let codes = unsigned(codes)?;
        let nullable = field.is_nullable();
        let metadata = message(&[(1, dictionary.len() as u64), (2, codes as u64), (3, nullable.into())]);
        self.node(("vortex.dict", field), array.len(), metadata, Vec::new(), 2)?;
        self.words(codes, nullable, array)?;
        let values = unnamed(values.clone(), nullable && dictionary.null_count() != Some(0));
        self.array(&values.with_metadata(of_dictionary_values(field.metadata())), dictionary)
    }

    fn runs(&mut self, field: &Field, array: &DeviceArray, ends: &Field, values: &Field) -> Result<()> {
        let (run_ends, run_values) = (self.child(array, 0)?, self.child(array, 1)?);
        let kind = unsigned(ends.data_type())?;
        let (n, offset) = (run_ends.len() as u64, array.offset() as u64);
        self.node(
            ("vortex.runend", field),
            array.len(),
            message(&[(1, kind as u64), (2, n), (3, offset)]),
            Vec::new(),
            2,
        )?;
        self.words(kind, false, run_ends)?;
        let nullable = field.is_nullable() || values.is_nullable();
        self.array(&values.clone().with_nullable(nullable), run_values)
    }
}

/// The unsigned type of the same width.
fn unsigned(data_type: &DataType) -> Result<PType> {
    let of = |ptype: PType| {
        PType::ALL.iter().copied().find(|other| other.is_unsigned() && other.bytes() == ptype.bytes())
    };
    let unsigned_type = PType::from_arrow(data_type).filter(|ptype| ptype.is_int()).and_then(of);
    unsigned_type.ok_or_else(|| {
        Error::internal(format!(
            "the type is {data_type}, expected integers",
            data_type = crossdock_arrays::type_name(data_type)
        ))
    })
}
