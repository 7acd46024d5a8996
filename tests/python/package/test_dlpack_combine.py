"""Concatenation of batches and chunks."""

import numpy as np
import pyarrow as pa
import pytest
from peers import assert_equal
from samples import SAMPLES, make


def sample(name):
    reader = pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(*make(name)))
    return reader.schema, list(reader)


def is_unsupported(kind, device="cpu"):
    if pa.types.is_union(kind) and kind.mode == "dense" and device != "cpu":
        return True
    if pa.types.is_run_end_encoded(kind):
        return is_unsupported(kind.value_type, device)
    if isinstance(kind, pa.BaseExtensionType):
        return is_unsupported(kind.storage_type, device)
    if pa.types.is_dictionary(kind):
        return False
    return any(is_unsupported(kind.field(i).type, device) for i in range(kind.num_fields))


@pytest.mark.parametrize("where", ["session", pytest.param("cuda_session", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", SAMPLES)
def test_combining_keeps_the_rows_of_every_type(request, name, where):
    session = request.getfixturevalue(where)
    schema, batches = sample(name)
    # The slices begin within a byte of a bitmap. One slice is empty.
    parts = [part for batch in batches for part in (batch.slice(1), batch.slice(0, 0), batch.slice(0, 3), batch)]
    table = session.from_arrow(pa.RecordBatchReader.from_batches(schema, parts))
    device = "cpu" if where == "session" else "cuda"
    filled = [part for part in parts if part.num_rows]
    if len(filled) > 1 and any(is_unsupported(field.type, device) for field in schema):
        with pytest.raises(NotImplementedError, match="only on the cpu"):
            table.combine_batches()
        return
    one = table.combine_batches()
    assert one.num_batches <= 1
    got = pa.RecordBatchReader.from_stream(one)
    whole = next(iter([*got, None]))
    ends = np.cumsum([0, *(part.num_rows for part in filled)]).tolist()
    pieces = [whole.slice(begin, end - begin) for begin, end in zip(ends, ends[1:])] if filled else []
    assert ends[-1] == one.num_rows
    assert_equal((schema, filled), (got.schema, pieces))


def test_combining_one_batch_is_zero_copy(session):
    table = session.from_arrow(pa.table({"a": [1, 2, 3]}))
    one = table.combine_batches()
    address = [np.from_dlpack(t["a"]).ctypes.data for t in (table, one)]
    assert address[0] == address[1]
    assert table["a"].combine_chunks().num_chunks == 1


def test_combines_tables_without_rows_or_batches(session):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    none = session.from_arrow(pa.RecordBatchReader.from_batches(schema, []))
    empty = session.from_arrow(pa.RecordBatchReader.from_batches(schema, [pa.record_batch([[], []], schema)] * 3))
    for table in (none, empty):
        one = table.combine_batches()
        assert (one.num_rows, one.schema == table.schema) == (0, True)


def test_combined_table_does_not_keep_its_batches_alive(session):
    parts = session.from_arrow(pa.chunked_array([np.arange(5), np.arange(5)]))
    one = parts.combine_chunks()
    del parts
    assert np.asarray(one).tolist() == [*range(5), *range(5)]
    assert session.memory_used() != {}


def test_rejects_text_beyond_32_bit_offsets(session):
    """Combines the same 1 GiB of text three times. The error is raised before the result is allocated."""
    big = np.zeros(2**30, np.uint8)
    offsets = pa.py_buffer(np.array([0, 2**30], np.int32))
    chunk = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(big)])
    column = session.from_arrow(pa.chunked_array([chunk] * 3))
    with pytest.raises(NotImplementedError, match="32-bit offsets reach only to 2147483647"):
        column.combine_chunks()


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_combined_views_refer_to_their_text(session, kind):
    chunks = [[f"{word} {i}, too long to be in place", "short"] for i, word in enumerate(["one", "two", "three"])]
    column = session.from_arrow(pa.chunked_array([pa.array(chunk).cast(kind) for chunk in chunks]))
    got = column.combine_chunks().to_pyarrow()
    assert got.num_chunks == 1
    assert got.cast(pa.string()).to_pylist() == sum(chunks, [])
    got.validate(full=True)


@pytest.mark.parametrize("where", ["session", pytest.param("cuda_session", marks=pytest.mark.cuda)])
def test_combining_unifies_dictionaries(request, where):
    session = request.getfixturevalue(where)

    def chunks(*values):
        return session.from_arrow(
            pa.chunked_array([pa.DictionaryArray.from_arrays([1, 0], pa.array(chunk)) for chunk in values])
        )

    same = chunks(["a", "b"], ["a", "b"]).combine_chunks().to_pyarrow()
    assert same.to_pylist() == ["b", "a", "b", "a"]
    other = chunks(["a", "b"], ["c", "a"]).combine_chunks().to_pyarrow()
    assert other.to_pylist() == ["b", "a", "a", "c"]
    assert other.chunk(0).dictionary.to_pylist() == ["a", "b", "c"]
