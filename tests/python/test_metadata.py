"""Metadata of batches. Unlike other metadata, it is not part of the schema."""

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest


BATCH = pa.record_batch([pa.array([1, None, 3])], names=["n"])
METADATA = [{"part": "one", "café": "ü"}, {}, {"part": "three"}]


@pytest.mark.parametrize("via", [(), ("--via", "arrow-c-device"), ("--via", "arrow-c-stream")])
@pytest.mark.parametrize("form", ["arrow", "arrows"])
def test_batches_keep_their_metadata(convert, tmp_path, form, via):
    source, target = tmp_path / f"in.{form}", tmp_path / f"out.{form}"
    new = ipc.new_file if form == "arrow" else ipc.new_stream
    with new(source, BATCH.schema) as out:
        for metadata_of_batch in METADATA:
            out.write_batch(BATCH, custom_metadata=metadata_of_batch)
    convert(source, target, *via)
    if form == "arrow":
        reader = ipc.open_file(target)
        back = [reader.get_batch_with_custom_metadata(i) for i in range(reader.num_record_batches)]
    else:
        reader = ipc.open_stream(target)
        back = [reader.read_next_batch_with_custom_metadata() for _ in METADATA]
    for (batch, metadata), metadata_of_batch in zip(back, METADATA, strict=True):
        assert batch.equals(BATCH)
        text = {} if metadata is None else {k.decode(): v.decode() for k, v in metadata.items()}
        assert text == metadata_of_batch
