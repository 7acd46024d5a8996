"""Vortex's protocol: accepted and rejected objects, ownership, and repeated use."""

import collections.abc
import concurrent.futures
import gc
import os
import resource
import sys

import capsules
import crossdock as cd
import dtypes
import numpy as np
import pyarrow as pa
import pytest
import trees
import vortex as vx
from capsules import Exporter, capsule_of, tuple_of
from conftest import assert_all_memory_freed
from craft import alp, boolean, primitive, run_end, sparse
from flat import Tree, export_of

NULLS = Tree.of(vx.array(pa.nulls(1))).dtype
THREE = primitive(np.arange(3, dtype="u4"))
IMPORTS = min(10_000, int(os.environ.get("CROSSDOCK_LEAK_EXCHANGES", "10000")))
WARM_UP = 500
ALLOWED_BYTES = 4 << 20


class FixedResult:
    """An object whose method returns or raises a fixed value."""

    def __init__(self, result):
        self.result = result

    def __vortex_array_metadata__(self):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class LiveBuffers(dict):
    """Exported buffers that are not released yet, by address. Counts created, released and wrongly released
    buffers."""

    def __init__(self):
        self.created = self.released = self.wrong = 0

    def __setitem__(self, address, export):
        self.created += 1
        super().__setitem__(address, export)

    def __delitem__(self, address):
        self.wrong += address not in self
        self.released += 1
        self.pop(address, None)


@pytest.fixture
def live(monkeypatch):
    live = LiveBuffers()
    monkeypatch.setattr(capsules, "LIVE", live)
    return live


def struct_of(**fields):
    dtype = Tree.of(vx.array(pa.table({name: pa.array([0], pa.uint32()) for name in fields}))).dtype
    return Tree("vortex.struct", dtype, 3, b"", [], list(fields.values()))


@pytest.mark.parametrize(
    "value", [7, None, "text", [1, 2], pa.array([1]), object()], ids=lambda value: type(value).__name__
)
def test_rejects_object_without_protocol(session, value):
    with pytest.raises(
        TypeError, match=f"expected a Vortex array with __vortex_array_metadata__, got {type(value).__name__}"
    ):
        session.from_vortex(value)


@pytest.mark.parametrize(
    "result",
    [
        None,
        (),
        7,
        ["vortex.null", NULLS, 1, b"", [], []],
        ("vortex.null", NULLS, 1, b"", []),
        ("vortex.null", NULLS, 1, b"", [], [], []),
        (b"vortex.null", NULLS, 1, b"", [], []),
        ("vortex.nul\ud800", NULLS, 1, b"", [], []),
        ("vortex.null", NULLS.hex(), 1, b"", [], []),
        ("vortex.null", None, 1, b"", [], []),
        ("vortex.null", NULLS, -1, b"", [], []),
        ("vortex.null", NULLS, 1 << 64, b"", [], []),
        ("vortex.null", NULLS, 1.5, b"", [], []),
        ("vortex.null", NULLS, 1, "", [], []),
        ("vortex.null", NULLS, 1, b"", None, []),
        ("vortex.null", NULLS, 1, b"", {1: 2}, []),
        ("vortex.null", NULLS, 1, b"", [b"bytes"], []),
        ("vortex.null", NULLS, 1, b"", "text", []),
        ("vortex.null", NULLS, 1, b"", [], None),
        ("vortex.null", NULLS, 1, b"", [], {}),
    ],
    ids=repr,
)
def test_error_for_malformed_tuple_has_the_node_index(session, result):
    with pytest.raises(cd.UsageError, match="from_vortex: node 0: (expected a tuple|buffers|children).*: .") as raised:
        session.from_vortex(FixedResult(result))
    assert raised.value.__cause__ is not None
    # A child node is checked like the root.
    with pytest.raises(cd.UsageError, match="node 1: "):
        session.from_vortex(FixedResult(("vortex.null", NULLS, 1, b"", [], [result])))


@pytest.mark.parametrize(
    "id_and_type", [("", NULLS), ("a" * 300, NULLS), ("vortex.null", b"")], ids=["no id", "long id", "no type"]
)
def test_rejects_invalid_ids_and_types(session, id_and_type):
    with pytest.raises(cd.DataError, match="node 0 has an id of"):
        session.from_vortex(FixedResult((*id_and_type, 1, b"", [], [])))


def test_rejects_endless_sequence(session):
    class Endless(collections.abc.Sequence):
        def __len__(self):
            return 1

        def __getitem__(self, i):
            return 7

    for parts in ((Endless(), []), ([], Endless())):
        with pytest.raises(cd.UsageError, match="node 0: (buffers|children): expected at most 1048576 objects"):
            session.from_vortex(FixedResult(("vortex.null", NULLS, 1, b"", *parts)))


def test_rejects_capsule_with_another_name(session):
    schema = session.from_arrow(pa.array([1])).__arrow_c_schema__()
    with pytest.raises(cd.UsageError, match="expected a capsule 'vortex_buffer_export', got a capsule 'arrow_schema'"):
        session.from_vortex(FixedResult(("vortex.primitive", THREE.dtype, 3, b"", [schema], [])))


@pytest.mark.parametrize(
    "fields, error, message",
    [
        ({"version": 2}, cd.UsageError, "version 2, expected 1"),
        ({"version": 0}, cd.UsageError, "version 0, expected 1"),
        ({"kind": 7}, cd.UsageError, "kind 7, expected 0"),
        ({"ptr": None}, cd.DataError, "at 0x0"),
        ({"len": 1 << 63}, cd.DataError, "9223372036854775808 bytes, expected 12"),
        ({"len": (1 << 64) - 1}, cd.DataError, "18446744073709551615 bytes"),
        ({"len": 11}, cd.DataError, "11 bytes, expected 12"),
        ({"len": 0}, cd.DataError, "0 bytes, expected 12"),
    ],
    ids=str,
)
def test_rejects_and_releases_invalid_buffers(session, live, fields, error, message):
    capsule = capsule_of(THREE.buffers[0])
    for field, value in fields.items():
        setattr(export_of(capsule), field, value)
    with pytest.raises(error, match=message):
        session.from_vortex(FixedResult(("vortex.primitive", THREE.dtype, 3, b"", [capsule], [])))
    del capsule
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


@pytest.mark.parametrize("alignment", [0, 1, 3, 1 << 40, 1 << 63])
def test_declared_alignment_may_be_wrong(session, live, alignment):
    capsule = capsule_of(THREE.buffers[0])
    export_of(capsule).alignment = alignment
    column = session.from_vortex(FixedResult(("vortex.primitive", THREE.dtype, 3, b"", [capsule], [])))
    assert column.to_pyarrow().to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("skew", [1, 2, 3])
def test_values_may_be_unaligned(session, skew):
    capsule = capsule_of(bytes(skew) + THREE.buffers[0])
    export = export_of(capsule)
    export.ptr, export.len = export.ptr + skew, 12
    column = session.from_vortex(FixedResult(("vortex.primitive", THREE.dtype, 3, b"", [capsule], [])))
    assert column.to_pyarrow().to_pylist() == [0, 1, 2]


@pytest.mark.parametrize("address", [None, 0x100, 1 << 63])
def test_empty_buffer_may_have_any_address(session, address):
    capsule = capsule_of(b"")
    export_of(capsule).ptr = address
    column = session.from_vortex(FixedResult(("vortex.primitive", THREE.dtype, 0, b"", [capsule], [])))
    assert column.to_pyarrow().to_pylist() == []


@pytest.mark.parametrize("id", ["vortex.nope", "vortex.primitive.v2", "fastlanes.bitpacked.v3", "x"])
def test_error_for_unknown_id_has_path_and_known_ids(session, live, id):
    unknown = Tree(id, THREE.dtype, 3)
    with pytest.raises(cd.UnsupportedError) as raised:
        session.from_vortex(Exporter(struct_of(a=THREE, b=unknown)))
    message = str(raised.value)
    assert f"vortex.struct[1]/{id}: " in message and f"'{id}'" in message
    for known in ("fastlanes.bitpacked", "vortex.dict", "vortex.fsst"):
        assert known in message.split("its plugins decode")[1]
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


def test_error_for_lazy_array_advises_to_call_to_arrow_array(session):
    rows = 3000
    patched = np.where(np.arange(rows) % 100 == 7, 1.1e-7, np.arange(rows) / 100)
    lazy = vx.compress(vx.array(pa.array(patched))).slice(5, 2000)
    with pytest.raises(RuntimeError):
        lazy.__vortex_array_metadata__()
    with pytest.raises(cd.UsageError, match=r"call to_arrow_array\(\).*vortex\.slice") as raised:
        session.from_vortex(lazy)
    assert isinstance(raised.value.__cause__, RuntimeError) and "\n" not in str(raised.value)
    decoded = session.from_vortex(vx.array(lazy.to_arrow_array()))
    assert decoded.to_pyarrow().to_pylist() == patched[5:2000].tolist()


def test_error_for_scan_of_a_file_names_the_plugin_for_files(session, tmp_path):
    path = str(tmp_path / "numbers.vortex")
    values = np.where(np.arange(100_000) % 100 == 7, 1.1e-7, np.arange(100_000) / 100)
    vx.io.write(pa.table({"a": values}), path)
    batches = vx.open(path).scan(batch_size=1000)
    with pytest.raises(cd.UsageError, match=r"Session\.read or Session\.scan \(plugin vortex-file\)"):
        for batch in batches:
            session.from_vortex(batch)
    assert session.read(path).to_pyarrow().to_pydict() == {"a": values.tolist()}


def test_keyboard_interrupt_of_producer_is_raised_unchanged(session):
    with pytest.raises(KeyboardInterrupt):
        session.from_vortex(FixedResult(KeyboardInterrupt()))


def test_tree_is_consumed_once(session, live):
    source = FixedResult(tuple_of(struct_of(a=THREE, b=THREE)))
    first = session.from_vortex(source)
    for _ in range(2):
        with pytest.raises(cd.UsageError, match="node 1: buffers: the buffer was already consumed: call the array's"):
            session.from_vortex(source)
    assert [row["b"] for row in first.to_pyarrow().to_pylist()] == [0, 1, 2]
    del first
    gc.collect()
    session.synchronize()
    # The tuple is still alive, but its buffers were consumed.
    assert source.result and (live.created, live.released, live.wrong) == (2, 2, 0)


def test_array_can_be_imported_repeatedly(session):
    array = vx.compress(vx.array(pa.array([1, 2, 3] * 500)))
    for _ in range(3):
        assert session.from_vortex(array).to_pyarrow().to_pylist() == [1, 2, 3] * 500


def test_rejects_repeated_node(session, live):
    node = tuple_of(THREE)
    tree = struct_of(a=THREE, b=THREE)
    with pytest.raises(cd.UsageError, match="node 2: buffers: the buffer was already consumed"):
        session.from_vortex(FixedResult((tree.id, tree.dtype, 3, b"", [], [node, node])))
    with pytest.raises(cd.UsageError, match="node 0: buffers: the buffer was already consumed"):
        session.from_vortex(FixedResult((*node[:4], [capsule := capsule_of(bytes(12)), capsule], [])))
    del node, capsule
    gc.collect()
    assert (live.created, live.released, live.wrong) == (2, 2, 0)


def released_trees():
    """Returns trees by name. Some trees are rejected, each at a different stage of an import. All other trees
    decode."""
    codes = primitive(np.array([0, 1, 2], "u1"))
    bad_codes = primitive(np.array([0, 1, 9], "u1"))
    meta = b"\x08\x03\x10\x00"
    patched = sparse(np.array([5, 6, 5], "u4"), 5)
    wrong = sparse(np.array([5, 6, 5], "u4"), 5)
    wrong.children[0] = primitive(np.array([3], "u4"))
    return {
        "kept: one array": THREE,
        "kept: the fields of a struct": struct_of(a=THREE, b=THREE),
        "with validity": primitive(np.arange(3.0), np.array([True, False, True])),
        "copied": alp(np.array([1, 2, 3], "i4"), 0, 0),
        "runs": run_end(np.array([1, 1, 2], "i8"), np.array([True, False, True])),
        "patched": patched,
        "rejected before decoding: metadata": Tree(
            patched.id, patched.dtype, 3, b"\xff", patched.buffers, patched.children
        ),
        "rejected before decoding: a child's length": struct_of(a=THREE, b=primitive(np.arange(4, dtype="u4"))),
        "rejected before decoding: too many buffers": Tree("vortex.null", NULLS, 3, b"", [b"abc", b"", b"d"]),
        "rejected before decoding: an unknown id": struct_of(
            a=THREE, b=Tree("vortex.nope", THREE.dtype, 3, b"", [b"a"])
        ),
        "rejected before decoding: a malformed type": Tree("vortex.primitive", b"\1\2\3\4\5", 3, b"", THREE.buffers),
        "rejected before decoding: depth": deep(100, THREE),
        "rejected when decoded: a patch": wrong,
        "rejected when decoded: a code": Tree("vortex.dict", THREE.dtype, 3, meta, [], [bad_codes, THREE]),
        "rejected when decoded: the last of three fields": struct_of(
            a=THREE, b=Tree("vortex.dict", THREE.dtype, 3, meta, [], [codes, THREE]), c=wrong
        ),
        "rejected when decoded: by validation": Tree(
            "vortex.varbin", dtypes.text(), 1, b"\x08\x06", [b"\xff\xfe"], [primitive(np.array([0, 2], "i4"))]
        ),
    }


def deep(levels, tree):
    for _ in range(levels):
        tree = Tree("vortex.masked", dtypes.primitive(2, True), 3, b"", [], [tree, boolean([True] * 3)])
    return tree


@pytest.mark.parametrize("name", released_trees())
def test_buffers_are_released_once(session, live, name):
    tree = released_trees()[name]
    if name.startswith("rejected"):
        with pytest.raises(cd.Error):
            session.from_vortex(Exporter(tree))
    else:
        column = session.from_vortex(Exporter(tree))
        if name.startswith("kept"):
            assert len(live) == live.created, "values are not copied"
        arrow = column.to_pyarrow()
        column = column.slice(1)
        assert len(arrow) == 3 and len(column) == 2 and arrow.to_pylist()[1:] == column.to_pyarrow().to_pylist()
        del arrow, column
    gc.collect()
    session.synchronize()
    assert live.created and (live.released, live.wrong, len(live)) == (live.created, 0, 0)


def test_rejected_tree_is_released(session, live):
    """Buffers are released whether they were consumed before the error or not."""
    tuples = [tuple_of(THREE), tuple_of(THREE), (1, 2, 3), tuple_of(THREE)]
    with pytest.raises(cd.UsageError, match="node 3: "):
        session.from_vortex(FixedResult(("vortex.struct", NULLS, 3, b"", [], tuples)))
    assert (live.created, live.released) == (3, 2)
    del tuples
    gc.collect()
    assert (live.created, live.released, live.wrong) == (3, 3, 0)


def test_values_outlive_the_session_and_the_column(live):
    with cd.Session() as session:
        arrow = session.from_vortex(Exporter(THREE)).to_pyarrow()
    del session
    gc.collect()
    assert arrow.to_pylist() == [0, 1, 2] and len(live) == 1
    del arrow
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


def test_rejects_trees_that_are_too_deep(session, live):
    with pytest.raises(cd.DataError, match="node 64 is deeper than 64 levels"):
        session.from_vortex(Exporter(chain(100_000)))
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


def chain(levels):
    tree = THREE
    for _ in range(levels):
        tree = Tree("fastlanes.for", THREE.dtype, 3, b"\x20\x01", [], [tree])
    return tree


def test_decodes_trees_of_maximum_depth(session):
    assert session.from_vortex(Exporter(chain(63))).to_pyarrow().to_pylist() == [63, 64, 65]


def test_rejects_trees_of_too_many_nodes(session):
    leaf = ("vortex.null", NULLS, 0, b"", [], [])
    with pytest.raises(cd.UsageError, match="the tree has more than 1048576 nodes"):
        session.from_vortex(FixedResult(("vortex.chunked", NULLS, 0, b"", [], [leaf] * 3_000_000)))
    # This tree has two levels of 1000 and 2000 nodes.
    branch = ("vortex.chunked", NULLS, 0, b"", [], [leaf] * 2000)
    with pytest.raises(cd.UsageError, match="the tree has more than 1048576 nodes"):
        session.from_vortex(FixedResult(("vortex.chunked", NULLS, 0, b"", [], [branch] * 1000)))


def in_itself():
    """A node that is its own child."""
    children = []
    children.append(("vortex.chunked", NULLS, 0, b"", [], children))
    return children[0]


def in_each_other():
    """Two nodes, each a child of the other twice, so the number of nodes doubles at each level."""
    first, second = [], []
    first.extend([("vortex.chunked", NULLS, 0, b"", [], second)] * 2)
    second.extend([("vortex.chunked", NULLS, 0, b"", [], first)] * 2)
    return first[0]


@pytest.mark.parametrize("cycle", [in_itself, in_each_other])
def test_rejects_trees_that_contain_themselves(session, cycle):
    for import_tree in (session.from_vortex, session.encoded):
        with pytest.raises(cd.UsageError, match="the tree has more than 1048576 nodes"):
            import_tree(FixedResult(cycle()))


def test_rejects_list_that_contains_itself(session):
    children = []
    children.append(children)
    with pytest.raises(cd.UsageError, match="node 1: expected a tuple"):
        session.from_vortex(FixedResult(("vortex.chunked", NULLS, 0, b"", [], children)))


def test_threads_import_concurrently(session):
    """Each thread decodes its own values, and buffers are released on any thread."""
    sources = [
        (array, array.to_arrow_array())
        for kind in ("vortex.primitive", "vortex.dict", "vortex.alp", "vortex.struct", "vortex.fsst")
        for name, array in list(trees.arrays(kind, (1025,)))[:6]
        if "taken" not in name
    ]
    expected = [session.from_vortex(array).to_pyarrow() for array, _ in sources]

    def work(i):
        for n in range(40):
            at = (i * 7 + n) % len(sources)
            assert session.from_vortex(sources[at][0]).to_pyarrow().equals(expected[at])
            assert session.from_vortex(Exporter(THREE)).to_pyarrow().to_pylist() == [0, 1, 2]
        return i

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))


def test_tree_shared_by_threads_is_consumed_once(session, live):
    for _ in range(50):
        source = FixedResult(tuple_of(struct_of(a=THREE)))

        def work(_, source=source):
            try:
                return len(session.from_vortex(source))
            except cd.UsageError as error:
                assert "already consumed" in str(error)
                return 0

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(work, range(4))) == [0, 0, 0, 3]
        del source, work
    gc.collect()
    session.synchronize()
    assert (live.created, live.released, live.wrong) == (50, 50, 0)


def imports(session):
    """Returns a function for each kind of import."""
    plain = vx.array(pa.array([1.0, None, 3.0]))
    coded = vx.compress(vx.array(pa.table({"n": [1, 2, 3] * 50, "t": ["a", None, "c" * 20] * 50})))
    rejected = rejected_trees()

    def import_rejected():
        for tree in rejected:
            with pytest.raises(cd.Error):
                session.from_vortex(Exporter(tree))

    def import_twice():
        source = FixedResult(tuple_of(THREE))
        session.from_vortex(source)
        with pytest.raises(cd.UsageError):
            session.from_vortex(source)

    return {
        "plain": lambda: session.from_vortex(plain),
        "compressed, to pyarrow": lambda: session.from_vortex(coded).to_pyarrow(),
        "rejected": import_rejected,
        "twice": import_twice,
    }


def rejected_trees():
    trees = released_trees()
    return [trees[name] for name in trees if name.startswith("rejected") and "depth" not in name]


@pytest.mark.parametrize("kind", ["plain", "compressed, to pyarrow", "rejected", "twice"])
def test_memory_stays_flat(session, kind):
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizer delays the release of memory")
    one = imports(session)[kind]
    n = IMPORTS // 10 if kind == "rejected" else IMPORTS
    for _ in range(WARM_UP):
        one()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(n):
        one()
    gc.collect()
    assert resident() - before < ALLOWED_BYTES
    assert sys.getallocatedblocks() - blocks < 1000
    assert_all_memory_freed(session)


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
