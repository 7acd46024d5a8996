"""Columns that plugins encode: decoded by the session and by vortex-data to the same values."""

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ENCODINGS = ["fastlanes.bitpacked", "fastlanes.for"]
TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


# Columns whose trees have several kinds of nodes.
COLUMNS = {
    "numbers": pa.array([None if i % 7 == 0 else i / 3 for i in range(3000)]),
    "texts": pa.array([None if i % 5 == 0 else f"text {i} of more than twelve bytes" for i in range(3000)]),
    "lists": pa.array([[i, None] if i % 3 else None for i in range(3000)]),
    "structs": pa.array([{"a": i, "b": str(i)} for i in range(3000)]),
    "dictionaries": pa.array([f"value {i % 9}" for i in range(3000)]).dictionary_encode(),
    "chunks": pa.chunked_array([pa.array(range(i, i + 500)) for i in range(6)]),
}


def whole(array):
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def bounds(type):
    info = np.iinfo(type.to_pandas_dtype())
    return int(info.min), int(info.max)


def assert_round_trip(session, array, encoding):
    column = session.from_arrow(array)
    encoded = column.encode(encoding)
    assert (encoded.encoding, len(encoded), encoded.type) == (encoding, len(array), column.type)
    got = encoded.decode()
    assert got.device == column.device or not len(array)
    assert whole(got.to_pyarrow()).equals(whole(array))
    return encoded


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("type", TYPES, ids=str)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_integers_round_trip(encoding, type, data):
    least, greatest = bounds(type)
    low = data.draw(st.integers(0 if encoding == "fastlanes.bitpacked" else least, greatest))
    values = st.one_of(st.none(), st.integers(low, data.draw(st.integers(low, greatest))))
    array = pa.array(data.draw(st.lists(values, max_size=40)) * data.draw(st.integers(1, 60)), type)
    begin = data.draw(st.integers(0, len(array)))
    with cd.Session() as session:
        assert_round_trip(session, array[begin:], encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("type", TYPES, ids=str)
def test_vortex_decodes_the_encoded_column(session, type, encoding):
    pytest.importorskip("vortex._lib")
    from flat import Tree
    from ipc import build

    least, greatest = bounds(type)
    low = 0 if encoding == "fastlanes.bitpacked" else least
    # vortex-data panics on frames of reference without values.
    none = [] if encoding == "fastlanes.for" else [[]]
    for values in (*none, [low], [low, None, greatest], [low + i % 50 for i in range(2500)], [None] * 9):
        array = pa.array(values, type)
        encoded = session.from_arrow(array).encode(encoding)
        assert build(Tree.of(encoded)).to_arrow_array().equals(array), values


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_columns_on_a_device_are_encoded(cuda_session, encoding):
    array = pa.array([None if i % 7 == 0 else i for i in range(5000)])
    assert_round_trip(cuda_session, array[13:], encoding)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_rows_of_encoded_columns_are_decoded_on_a_device(cuda_session, encoding):
    array = pa.array([None if i % 7 == 0 else i for i in range(5000)])
    encoded = cuda_session.from_arrow(array).encode(encoding)
    for begin, end in ((0, 1), (1020, 1030), (4999, 5000), (7, 4000)):
        got = encoded.decode(rows=(begin, end))
        assert got.device == cuda_session.device
        assert whole(got.to_pyarrow()).equals(array[begin:end]), (begin, end)


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_plain_columns_are_decoded_on_a_device(cuda_session, name):
    encoded = cuda_session.encoded(cuda_session.from_arrow(COLUMNS[name]))
    decoded = encoded.decode().to_pyarrow().to_pylist()
    for begin, end in ((0, 0), (0, 1), (480, 1030), (2999, 3000)):
        got = encoded.decode(rows=(begin, end))
        assert got.device == cuda_session.device or begin == end
        assert got.to_pyarrow().to_pylist() == decoded[begin:end], (begin, end)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_chunks_are_combined(session, encoding):
    chunks = pa.chunked_array([pa.array([1, None]), pa.array([], pa.int64()), pa.array([9])])
    assert_round_trip(session, chunks, encoding)
    assert_round_trip(session, pa.chunked_array([], pa.int64()), encoding)


def test_encoded_column_is_smaller(session):
    encoded = assert_round_trip(session, pa.array(1_000_000 + np.arange(10_240) % 32), "fastlanes.for")
    assert len(encoded.to_bytes()) < 10_240 * 5 / 8 + 1000


def test_error_for_negative_values_names_an_encoding_that_allows_them(session):
    column = session.from_arrow(pa.array([1, -1]))
    with pytest.raises(cd.UnsupportedError, match=r"negative.*'fastlanes\.for'"):
        column.encode("fastlanes.bitpacked")


@pytest.mark.parametrize(("value", "name"), [(1.5, "double"), ("a", "string"), (True, "bool")])
def test_error_for_a_type_names_it(session, value, name):
    column = session.from_arrow(pa.array([value]))
    with pytest.raises(cd.UnsupportedError, match=f"the type is {name}, expected integers"):
        column.encode("fastlanes.for")


def test_error_for_an_unknown_encoding_lists_the_known_ones(session):
    column = session.from_arrow(pa.array([1]))
    with pytest.raises(cd.UsageError, match=r"encodes to 'none\.such'.*fastlanes\.bitpacked, fastlanes\.for"):
        column.encode("none.such")


def test_error_for_an_unknown_option_names_it(session):
    with pytest.raises(cd.Error, match="no option 'bits'"):
        session.from_arrow(pa.array([1])).encode("fastlanes.for", bits=3)


def test_encoded_column_outlives_its_session():
    with cd.Session() as session:
        encoded = session.from_arrow(pa.array([3, 4])).encode("fastlanes.for")
        tree = encoded.__crossdock_encoded_array__()
    with cd.Session() as other:
        assert other.encoded(tree).decode().to_pyarrow().to_pylist() == [3, 4]
