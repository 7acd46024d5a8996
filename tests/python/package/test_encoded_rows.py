"""Rows of encoded arrays: equal to the same rows of the decoded array, without decoding the others."""

import combined
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
import reference
import vortex as vx
from capsules import Exporter
from flat import Tree
from test_vortex_kinds import KINDS, arrays, not_yet, whole

SIZES = (1, 1025, 100_003)


def ranges(n):
    """Ranges of n rows: none, one row, the middle, and across the boundary of a block."""
    all_ranges = {(0, 0), (0, 1), (n - 1, n), (n // 3, n - n // 3), (1020, 1031)}
    return sorted((begin, end) for begin, end in all_ranges if 0 <= begin <= end <= n)


def assert_rows_equal(session, name, array):
    decoded = whole(session.encoded(array).decode().to_pyarrow())
    for begin, end in ranges(len(decoded)):
        column = session.encoded(array).decode(rows=(begin, end))
        got = whole(column.to_pyarrow())
        got.validate(full=True)
        expected = decoded.slice(begin, end - begin)
        assert len(column) == end - begin, (name, begin, end)
        assert reference.same(expected, got), (name, begin, end)


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_rows_equal_those_of_the_decoded_array(session, kind):
    for name, array in arrays(kind, SIZES):
        if not not_yet(kind, name):
            assert_rows_equal(session, name, array)


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_rows_on_a_device_equal_those_of_the_decoded_array(cuda_session, kind):
    for name, array in arrays(kind, SIZES):
        if not not_yet(kind, name):
            assert_rows_equal(cuda_session, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_rows_of_nested_values_equal_those_of_the_decoded_array(session, group):
    for name, array in combined.arrays(group):
        assert_rows_equal(session, name, array)


@pytest.mark.parametrize("group", combined.GROUPS)
def test_rows_of_nested_values_on_a_device_equal_those_of_the_decoded_array(cuda_session, group):
    for name, array in combined.arrays(group):
        assert_rows_equal(cuda_session, name, array)


ROWS = 2_000_000
MEMORY = "4MiB"

# Arrays whose values do not fit into MEMORY, but whose rows do.
LARGE = {
    "bit-packed": lambda: vx.compress(vx.array(pa.array(np.arange(ROWS) % 1000))),
    "floats": lambda: vx.compress(vx.array(pa.array(np.arange(ROWS) % 777 / 100))),
    "texts": lambda: vx.compress(vx.array(pa.array([f"https://example.org/{i}" for i in range(ROWS // 4)]))),
    "dictionary": lambda: vx.compress(vx.array(pa.array(np.arange(ROWS) % 999).dictionary_encode())),
}


@pytest.mark.parametrize("name", LARGE)
def test_rows_need_no_memory_for_the_other_rows(name):
    array = LARGE[name]()
    with cd.Session(memory=MEMORY) as session:
        encoded = session.encoded(array)
        with pytest.raises(cd.OutOfMemoryError):
            encoded.decode()
        middle = len(encoded) // 2
        got = whole(encoded.decode(rows=range(middle, middle + 100)).to_pyarrow())
    assert got.equals(whole(array.to_arrow_array()).slice(middle, 100).cast(got.type))


def test_chunks_outside_of_the_rows_are_not_read(session):
    tree = Tree.of(vx.array(pa.chunked_array([pa.array(np.arange(1000) + i) for i in range(4)])))
    _offsets, *chunks = tree.children
    chunks[0].id, chunks[3].id = "unknown.first", "unknown.last"
    with pytest.raises(cd.UnsupportedError, match=r"unknown\.(first|last)"):
        session.encoded(Exporter(tree)).decode()
    got = session.encoded(Exporter(tree)).decode(rows=(1900, 2100)).to_pyarrow()
    assert got.to_pylist() == [i - 999 for i in range(1900, 2000)] + [i - 1998 for i in range(2000, 2100)]
    with pytest.raises(cd.UnsupportedError, match=r"unknown\.last"):
        session.encoded(Exporter(tree)).decode(rows=(2999, 3001))


def test_rows_behind_the_last_value_are_ignored(session):
    encoded = session.encoded(vx.array(pa.array([1, 2, 3])))
    values = {(1, 9): [2, 3], (5, 9): [], (3, 3): []}
    for rows, expected in values.items():
        assert encoded.decode(rows=rows).to_pyarrow().to_pylist() == expected
    assert encoded.decode(rows=slice(None, 2)).to_pyarrow().to_pylist() == [1, 2]
    assert len(encoded.decode(rows=None)) == 3


@pytest.mark.parametrize("rows", [5, "all", (1,), range(0, 9, 2), (-1, 2), [(0, 1)]], ids=repr)
def test_error_for_an_argument_that_is_no_range_states_what_is_expected(session, rows):
    encoded = session.encoded(vx.array(pa.array([1, 2, 3])))
    with pytest.raises(cd.UsageError, match=r"rows: expected \(start, stop\)"):
        encoded.decode(rows=rows)


@pytest.mark.parametrize("rows", [(10, 20), [(0, 5), (100, 101), (2990, 3000)], [(5, 5)]], ids=repr)
def test_scan_of_an_encoded_array_reads_its_rows(session, tmp_path, rows):
    array = vx.array(pa.chunked_array([pa.array(np.arange(1000)), pa.array(np.arange(2000))]))
    path = tmp_path / "a.cdenc"
    path.write_bytes(session.encoded(array).to_bytes())
    expected = [i for begin, end in (rows if isinstance(rows, list) else [rows]) for i in range(begin, end)]
    table = session.scan(path, rows=rows).to_table()
    assert table[0].to_pyarrow().to_pylist() == [i if i < 1000 else i - 1000 for i in expected]
