//! Tests files of older writers and of other writers, and metadata of all kinds.

use std::sync::Arc;

use crate::common::tables::{everything, single};
use crate::common::{FORMS, Rig, SOURCE_KINDS, SourceKind, peer_reads, peer_writes};
use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int8Array, Int32Array, NullArray, RecordBatch, UnionArray,
};
use arrow_buffer::ScalarBuffer;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_ipc::{
    Buffer, DictionaryBatchBuilder, Endianness, FieldNode, KeyValue, KeyValueArgs, MessageBuilder,
    MessageHeader, MetadataVersion, RecordBatchBuilder, SchemaBuilder,
};
use arrow_schema::{DataType, Field, Metadata, Schema, UnionFields};
use crossdock_arrow_ipc::{FILE, STREAM};
use crossdock_memory::{Code, Device};
use crossdock_plugin_api::abi;
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
fn reads_version_4_without_markers_and_with_8_byte_alignment() {
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
                for how in SOURCE_KINDS {
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
fn rejects_unions_with_nulls_and_reads_unions_with_an_empty_bitmap() {
    let fields = UnionFields::try_new([0], [Field::new("n", DataType::Int32, true)]).unwrap();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![5, 6, 7]));
    let union = UnionArray::try_new(fields, ScalarBuffer::from(vec![0i8; 3]), None, vec![numbers]).unwrap();
    let table = single(Arc::new(union));
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V4).unwrap();
    let from = written_with(std::slice::from_ref(&table), STREAM, options);
    let rig = Rig::new();
    assert_eq!(
        peer_reads(&rig.convert(&from, SourceKind::Mapped, Device::CPU, FILE, "none").unwrap()),
        [table]
    );
    // The node of the union has 3 values and no nulls. The other node belongs to the child.
    let node = [3i64.to_le_bytes(), 0i64.to_le_bytes()].concat();
    let at: Vec<usize> = (0..from.len() - 16).filter(|i| from[*i..i + 16] == node).collect();
    let mut bad = from.clone();
    bad[at[0] + 8] = 1;
    let error = rig.read(&bad, SourceKind::Mapped, Device::CPU).unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
    assert!(error.message().contains("field 'column': a union has 1 nulls in a validity bitmap"), "{error}");
}

#[test]
fn footer_metadata_round_trips() {
    let table = single(Arc::new(Int32Array::from(vec![1, 2, 3])));
    let mut from = Vec::new();
    let mut writer = FileWriter::try_new(&mut from, &table.schema()).unwrap();
    writer.write_metadata("written by", "a test");
    writer.write(&table).unwrap();
    writer.finish().unwrap();
    let rig = Rig::new();
    let (schema, batches) = rig.read(&from, SourceKind::Mapped, Device::CPU).unwrap();
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
fn round_trip_keeps_metadata_extension_types_and_order_flags() {
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
        for how in SOURCE_KINDS {
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
fn round_trip_keeps_metadata_of_batches() {
    let rig = Rig::new();
    let from = peer_writes(&crate::common::tables::small(), STREAM, "none");
    let (schema, batches) = rig.read(&from, SourceKind::Mapped, Device::CPU).unwrap();
    let metadata = Metadata::new().with("part", "7").with("", "");
    let batches = [batches[0].clone().with_metadata(metadata.clone()), batches[1].clone()];
    for form in FORMS {
        let bytes = rig.write(&schema, &batches, form, "lz4").unwrap();
        for how in SOURCE_KINDS {
            let (_, back) = rig.read(&bytes, how, Device::CPU).unwrap();
            assert_eq!(back[0].metadata(), &metadata, "{form} {how:?}");
            assert!(back[1].metadata().is_empty());
        }
    }
}

/// Creates a stream that consists of a schema message and `rest`.
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
    b: FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: flatbuffers::WIPOffset<flatbuffers::UnionWIPOffset>,
    body_bytes: i64,
) -> Vec<u8> {
    framed_with_metadata(b, kind, header, body_bytes, &[])
}

fn framed_with_metadata(
    mut b: FlatBufferBuilder<'_>,
    kind: MessageHeader,
    header: flatbuffers::WIPOffset<flatbuffers::UnionWIPOffset>,
    body_bytes: i64,
    metadata: &[(&str, &str)],
) -> Vec<u8> {
    let pairs: Vec<_> = metadata
        .iter()
        .map(|(key, value)| {
            let (key, value) = (Some(b.create_string(key)), Some(b.create_string(value)));
            KeyValue::create(&mut b, &KeyValueArgs { key, value })
        })
        .collect();
    let pairs = (!pairs.is_empty()).then(|| b.create_vector(&pairs));
    let mut message = MessageBuilder::new(&mut b);
    if let Some(pairs) = pairs {
        message.add_custom_metadata(pairs);
    }
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

/// Creates the header of a batch that has one `i32`, which is not null.
fn one_value<'a>(b: &mut FlatBufferBuilder<'a>) -> flatbuffers::WIPOffset<arrow_ipc::RecordBatch<'a>> {
    let nodes = b.create_vector(&[FieldNode::new(1, 0)]);
    let buffers = b.create_vector(&[Buffer::new(0, 0), Buffer::new(0, 8)]);
    let mut batch = RecordBatchBuilder::new(b);
    batch.add_length(1);
    batch.add_nodes(nodes);
    batch.add_buffers(buffers);
    batch.finish()
}

/// Creates a stream with the same dictionary of one `i32` twice, and then a batch whose only key is
/// 0.
fn dictionary_stream(of_dictionary: &[(&str, &str)], of_batch: &[(&str, &str)]) -> Vec<u8> {
    let keys = Int8Array::from(vec![0]);
    let values = Arc::new(Int32Array::from(vec![7]));
    let table = single(Arc::new(DictionaryArray::<Int8Type>::new(keys, values)));
    let stream = peer_writes(&[table], STREAM, "none");
    let schema_end = 8 + u32::from_le_bytes(stream[4..8].try_into().unwrap()) as usize;
    let mut b = FlatBufferBuilder::new();
    let values = one_value(&mut b);
    let mut dictionary = DictionaryBatchBuilder::new(&mut b);
    dictionary.add_id(0);
    dictionary.add_data(values);
    let header = dictionary.finish().as_union_value();
    let dictionary = framed_with_metadata(b, MessageHeader::DictionaryBatch, header, 8, of_dictionary);
    let mut b = FlatBufferBuilder::new();
    let header = one_value(&mut b).as_union_value();
    let batch = framed_with_metadata(b, MessageHeader::RecordBatch, header, 8, of_batch);
    let (seven, zero) = (7i64.to_le_bytes(), [0; 8]);
    [&stream[..schema_end], &dictionary, &seven, &dictionary, &seven, &batch, &zero].concat()
}

#[test]
fn warns_once_that_metadata_of_dictionaries_is_dropped() {
    let rig = Rig::new();
    for how in SOURCE_KINDS {
        let bytes = dictionary_stream(&[("k", "v")], &[]);
        let (_, batches) = rig.read(&bytes, how, Device::CPU).unwrap();
        assert_eq!(batches.len(), 1);
        let text = "'test input' has dictionary batches with metadata, which is dropped";
        assert_eq!(rig.host.take_log(), [(abi::LOG_WARN, text.to_string())], "{how:?}");
        let bytes = dictionary_stream(&[], &[("k", "v")]);
        let (_, batches) = rig.read(&bytes, how, Device::CPU).unwrap();
        assert_eq!(batches[0].metadata().get("k").map(String::as_str), Some("v"));
        assert!(rig.host.take_log().is_empty(), "{how:?}");
    }
}

#[test]
fn rejects_big_endian_data() {
    let rig = Rig::new();
    let bytes = stream_of(|schema| schema.add_endianness(Endianness::Big), Vec::new());
    for how in SOURCE_KINDS {
        let error = rig.read(&bytes, how, Device::CPU).unwrap_err();
        assert_eq!(error.code(), Code::UNSUPPORTED);
        assert!(error.message().contains("big-endian"), "{error}");
    }
    let little = stream_of(|schema| schema.add_endianness(Endianness::Little), Vec::new());
    assert_eq!(rig.read(&little, SourceKind::Mapped, Device::CPU).unwrap().0.fields().len(), 0);
}

/// Creates a batch of one int32 column, whose buffers are ranges of `body`.
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
fn aligns_misaligned_buffers() {
    let body =
        [&[0b101u8][..], &7i32.to_le_bytes(), &8i32.to_le_bytes(), &9i32.to_le_bytes(), &[0; 3]].concat();
    let bytes = integers(3, 1, &[(0, 1), (1, 12)], &body);
    let expected = single(Arc::new(Int32Array::from(vec![Some(7), None, Some(9)])));
    for device in devices().iter().copied() {
        let rig = Rig::new();
        for how in SOURCE_KINDS {
            let out = rig.convert(&bytes, how, device, FILE, "none").unwrap();
            assert_eq!(peer_reads(&out), std::slice::from_ref(&expected), "{how:?}");
        }
        rig.host.assert_nothing_leaked();
    }
}

#[test]
fn reads_buffers_that_overlap_within_the_body() {
    let rig = Rig::new();
    let body = [&7i32.to_le_bytes()[..], &[0; 4]].concat();
    // The ranges of validity and values overlap within the body.
    let (_, batches) =
        rig.read(&integers(1, 0, &[(0, 1), (0, 4)], &body), SourceKind::Mapped, Device::CPU).unwrap();
    assert_eq!(batches[0].len(), 1);
    let error =
        rig.read(&integers(1, 0, &[(0, 0), (5, 4)], &body), SourceKind::Mapped, Device::CPU).unwrap_err();
    assert!(
        error
            .message()
            .contains("buffer 1 has 4 bytes at offset 5, expected a range within the body of 8 bytes"),
        "{error}"
    );
}

#[test]
fn error_for_wrong_count_contains_both_counts() {
    let rig = Rig::new();
    let read_error = |spans: &[(i64, i64)], length: i64, nulls: i64| {
        rig.read(&integers(length, nulls, spans, &[0; 64]), SourceKind::Mapped, Device::CPU)
            .unwrap_err()
            .to_string()
    };
    assert!(read_error(&[(0, 8)], 1, 0).contains("a message has 1 buffers, but its schema requires 2"));
    assert!(read_error(&[(0, 8); 3], 1, 0).contains("a message has 3 buffers, but its schema requires 2"));
    assert!(read_error(&[(0, 0), (0, 64)], -1, 0).contains("declares -1"));
    assert!(read_error(&[(0, 8), (0, 64)], 3, 4).contains("declares 4 nulls, expected at most 3"));
    assert!(
        read_error(&[(0, 0), (0, 64)], 3, 1)
            .contains("null count is 1, but the array has no validity bitmap")
    );
    assert!(read_error(&[(0, 0), (0, 64)], 17, 0).contains("has 64 bytes, expected at least 68"));
    assert!(read_error(&[(0, 0), (0, 64)], i64::MAX, 0).contains("declares"));
}

#[test]
fn null_column_has_no_buffers() {
    let rig = Rig::new();
    let table = single(Arc::new(NullArray::new(1_000_000_000)));
    let out = rig
        .convert(
            &peer_writes(std::slice::from_ref(&table), FILE, "none"),
            SourceKind::Mapped,
            Device::CPU,
            FILE,
            "lz4",
        )
        .unwrap();
    assert!(out.len() < 2_000);
    assert_eq!(peer_reads(&out)[0].column(0).len(), 1_000_000_000);
}
