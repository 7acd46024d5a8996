//! What older and other writers make of the format, and metadata at every level.

use std::sync::Arc;

use crate::common::tables::{everything, single};
use crate::common::{FORMS, How, Rig, WAYS, peer_reads, peer_writes};
use arrow_array::{Array, ArrayRef, Int32Array, NullArray, RecordBatch, UnionArray};
use arrow_buffer::ScalarBuffer;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::{
    Buffer, Endianness, FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder,
    SchemaBuilder,
};
use arrow_schema::{DataType, Field, Metadata, Schema, UnionFields};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device};
use crossdock_test_support::devices;
use flatbuffers::FlatBufferBuilder;

fn written_with(batches: &[RecordBatch], form: &str, options: IpcWriteOptions) -> Vec<u8> {
    let mut out = Vec::new();
    if form == FILE {
        let mut writer = FileWriter::try_new_with_options(&mut out, &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    } else {
        let mut writer = StreamWriter::try_new_with_options(&mut out, &batches[0].schema(), options).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.finish().unwrap();
    }
    out
}

#[test]
fn version_4_without_continuation_markers_and_with_narrow_alignment_is_read() {
    let table = everything(50, true);
    for form in FORMS {
        for (legacy, version) in
            [(true, MetadataVersion::V4), (false, MetadataVersion::V4), (false, MetadataVersion::V5)]
        {
            let options = IpcWriteOptions::try_new(8, legacy, version).unwrap();
            let from = written_with(std::slice::from_ref(&table), form, options);
            assert_eq!(from.windows(4).any(|w| w == [0xff; 4] && !legacy), !legacy);
            for device in devices().iter().copied() {
                let rig = Rig::new();
                for how in WAYS {
                    let out = rig.convert(&from, how, device, form, "none").unwrap();
                    assert_eq!(
                        peer_reads(&out),
                        std::slice::from_ref(&table),
                        "{form} {legacy} {version:?} {how:?}"
                    );
                }
                rig.host.assert_nothing_leaked();
            }
        }
    }
}

#[test]
fn a_union_with_nulls_of_its_own_is_refused_and_one_with_a_bitmap_that_says_nothing_is_read() {
    let fields = UnionFields::try_new([0], [Field::new("n", DataType::Int32, true)]).unwrap();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![5, 6, 7]));
    let union = UnionArray::try_new(fields, ScalarBuffer::from(vec![0i8; 3]), None, vec![numbers]).unwrap();
    let table = single(Arc::new(union));
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V4).unwrap();
    let from = written_with(std::slice::from_ref(&table), STREAM, options);
    let rig = Rig::new();
    assert_eq!(peer_reads(&rig.convert(&from, How::Mapped, Device::CPU, FILE, "none").unwrap()), [table]);
    // The union's node: 3 values and no nulls; the other one is the child's.
    let node = [3i64.to_le_bytes(), 0i64.to_le_bytes()].concat();
    let at: Vec<usize> = (0..from.len() - 16).filter(|i| from[*i..i + 16] == node).collect();
    let mut bad = from.clone();
    bad[at[0] + 8] = 1;
    let error = rig.read(&bad, How::Mapped, Device::CPU).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("field 'column': a union with 1 nulls of its own"), "{error}");
}

#[test]
fn metadata_of_a_file_s_footer_is_carried_and_goes_back_into_the_footer() {
    let table = single(Arc::new(Int32Array::from(vec![1, 2, 3])));
    let mut from = Vec::new();
    let mut writer = FileWriter::try_new(&mut from, &table.schema()).unwrap();
    writer.write_metadata("written by", "a test");
    writer.write(&table).unwrap();
    writer.finish().unwrap();
    let rig = Rig::new();
    let (schema, batches) = rig.read(&from, How::Mapped, Device::CPU).unwrap();
    let key = "crossdock.arrow-ipc.footer:written by";
    assert_eq!(schema.metadata().get(key).map(String::as_str), Some("a test"));
    let file = rig.write(&schema, &batches, FILE, "none").unwrap();
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(&file), None).unwrap();
    assert_eq!(reader.custom_metadata().get("written by").map(String::as_str), Some("a test"));
    assert_eq!(reader.schema(), table.schema());
    let stream = rig.write(&schema, &batches, STREAM, "none").unwrap();
    assert_eq!(peer_reads(&stream)[0].schema().metadata().get(key).map(String::as_str), Some("a test"));
}

#[test]
fn metadata_of_schema_and_fields_extension_types_and_order_flags_are_kept() {
    let nested = Field::new("inner", DataType::FixedSizeBinary(16), true).with_metadata(
        Metadata::new().with("ARROW:extension:name", "arrow.uuid").with("ARROW:extension:metadata", ""),
    );
    let ordered = Field::new_dictionary("ordered", DataType::UInt16, DataType::Utf8, false)
        .with_dict_is_ordered(true)
        .with_metadata(Metadata::new().with("k", "v"));
    let fields = vec![Field::new("s", DataType::Struct(vec![nested].into()), false), ordered];
    let schema = Schema::new_with_metadata(
        fields,
        Metadata::new().with("z", "1").with("a", "\n").with("", "empty key"),
    );
    let rig = Rig::new();
    for form in FORMS {
        let bytes = rig.write(&schema, &[], form, "none").unwrap();
        for how in WAYS {
            let read = rig.read(&bytes, how, Device::CPU).unwrap().0;
            assert_eq!(*read, schema);
            assert_eq!(read.field(1).dict_is_ordered(), Some(true));
        }
        let mut again = rig.write(&schema, &[], form, "none").unwrap();
        assert_eq!(again, bytes, "the same table gives the same bytes");
        again.clear();
    }
}

#[test]
fn a_batch_s_own_metadata_goes_along_with_it() {
    let rig = Rig::new();
    let from = peer_writes(&crate::common::tables::small(), STREAM, "none");
    let (schema, batches) = rig.read(&from, How::Mapped, Device::CPU).unwrap();
    let own = Metadata::new().with("part", "7").with("", "");
    let batches = [batches[0].clone().with_metadata(own.clone()), batches[1].clone()];
    for form in FORMS {
        let bytes = rig.write(&schema, &batches, form, "lz4").unwrap();
        for how in WAYS {
            let (_, back) = rig.read(&bytes, how, Device::CPU).unwrap();
            assert_eq!(back[0].metadata(), &own, "{form} {how:?}");
            assert!(back[1].metadata().is_empty());
        }
    }
}

/// A stream of one schema message and then `rest`.
fn stream_of(
    schema: impl FnOnce(&mut SchemaBuilder<'_, '_, flatbuffers::DefaultAllocator>),
    rest: Vec<u8>,
) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let fields = b.create_vector::<flatbuffers::WIPOffset<arrow_ipc::Field<'_>>>(&[]);
    let mut builder = SchemaBuilder::new(&mut b);
    builder.add_fields(fields);
    schema(&mut builder);
    let schema = builder.finish().as_union_value();
    [framed(b, MessageHeader::Schema, schema, 0), rest].concat()
}

fn framed(
    mut b: FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: flatbuffers::WIPOffset<flatbuffers::UnionWIPOffset>,
    body_bytes: i64,
) -> Vec<u8> {
    let mut message = MessageBuilder::new(&mut b);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(kind);
    message.add_header(header);
    message.add_bodyLength(body_bytes);
    let message = message.finish();
    b.finish(message, None);
    let metadata = b.finished_data();
    let padded = metadata.len().next_multiple_of(8);
    let mut out = [&[0xff; 4][..], &(padded as i32).to_le_bytes(), metadata].concat();
    out.resize(8 + padded, 0);
    out
}

#[test]
fn big_endian_data_is_refused_by_name() {
    let rig = Rig::new();
    let bytes = stream_of(|schema| schema.add_endianness(Endianness::Big), Vec::new());
    for how in WAYS {
        let error = rig.read(&bytes, how, Device::CPU).unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains("big-endian"), "{error}");
    }
    let little = stream_of(|schema| schema.add_endianness(Endianness::Little), Vec::new());
    assert_eq!(rig.read(&little, How::Mapped, Device::CPU).unwrap().0.fields().len(), 0);
}

/// A batch of one column of 32-bit integers whose buffers begin at `offsets` in a body of `body`.
fn integers(length: i64, nulls: i64, spans: &[(i64, i64)], body: &[u8]) -> Vec<u8> {
    let mut b = FlatBufferBuilder::new();
    let nodes = b.create_vector(&[FieldNode::new(length, nulls)]);
    let spans: Vec<_> = spans.iter().map(|(offset, bytes)| Buffer::new(*offset, *bytes)).collect();
    let spans = b.create_vector(&spans);
    let mut batch = RecordBatchBuilder::new(&mut b);
    batch.add_length(length);
    batch.add_nodes(nodes);
    batch.add_buffers(spans);
    let batch = batch.finish().as_union_value();
    let message = framed(b, MessageHeader::RecordBatch, batch, body.len() as i64);
    let schema = peer_writes(&[single(Arc::new(Int32Array::from(Vec::<i32>::new())))], STREAM, "none");
    let end = schema.windows(4).enumerate().filter(|(_, w)| *w == [0xff; 4]).nth(1).unwrap().0;
    [&schema[..end], &message, body].concat()
}

#[test]
fn buffers_at_odd_places_are_moved_to_even_ones() {
    let body =
        [&[0b101u8][..], &7i32.to_le_bytes(), &8i32.to_le_bytes(), &9i32.to_le_bytes(), &[0; 3]].concat();
    let bytes = integers(3, 1, &[(0, 1), (1, 12)], &body);
    let expected = single(Arc::new(Int32Array::from(vec![Some(7), None, Some(9)])));
    for device in devices().iter().copied() {
        let rig = Rig::new();
        for how in WAYS {
            let out = rig.convert(&bytes, how, device, FILE, "none").unwrap();
            assert_eq!(peer_reads(&out), std::slice::from_ref(&expected), "{how:?}");
        }
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn buffers_that_overlap_are_read_where_that_does_no_harm() {
    let rig = Rig::new();
    let body = [&7i32.to_le_bytes()[..], &[0; 4]].concat();
    // Validity and values in the same place: strange, and within the body.
    let (_, batches) = rig.read(&integers(1, 0, &[(0, 1), (0, 4)], &body), How::Mapped, Device::CPU).unwrap();
    assert_eq!(batches[0].len(), 1);
    let error = rig.read(&integers(1, 0, &[(0, 0), (5, 4)], &body), How::Mapped, Device::CPU).unwrap_err();
    assert!(
        error.message().contains("buffer 1 lies at 5..+4, outside its message's body of 8 bytes"),
        "{error}"
    );
}

#[test]
fn wrong_counts_are_named() {
    let rig = Rig::new();
    let refused = |spans: &[(i64, i64)], length: i64, nulls: i64| {
        rig.read(&integers(length, nulls, spans, &[0; 64]), How::Mapped, Device::CPU).unwrap_err().to_string()
    };
    assert!(refused(&[(0, 8)], 1, 0).contains("a message has 1 buffers, its schema expects 2"));
    assert!(refused(&[(0, 8); 3], 1, 0).contains("a message has 3 buffers, its schema expects 2"));
    assert!(refused(&[(0, 0), (0, 64)], -1, 0).contains("claims -1"));
    assert!(refused(&[(0, 8), (0, 64)], 3, 4).contains("claims 4 nulls among 3 values"));
    assert!(refused(&[(0, 0), (0, 64)], 3, 1).contains("1 nulls, but no validity bitmap"));
    assert!(refused(&[(0, 0), (0, 64)], 17, 0).contains("has 64 bytes, expected at least 68"));
    assert!(refused(&[(0, 0), (0, 64)], i64::MAX, 0).contains("claims"));
}

#[test]
fn a_column_of_nulls_is_only_a_length() {
    let rig = Rig::new();
    let table = single(Arc::new(NullArray::new(1_000_000_000)));
    let out = rig
        .convert(
            &peer_writes(std::slice::from_ref(&table), FILE, "none"),
            How::Mapped,
            Device::CPU,
            FILE,
            "lz4",
        )
        .unwrap();
    assert!(out.len() < 2_000);
    assert_eq!(peer_reads(&out)[0].column(0).len(), 1_000_000_000);
}
