"""Encoded arrays without decoding: serialised, in files, exported, and used repeatedly."""

import concurrent.futures
import gc
import json
import os
import subprocess
import sys
import threading
import time
import zlib

import capsules
import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
import reference
import vortex as vx
from capsules import Exporter
from craft import boolean, primitive
from flat import Tree, bytes_of, export_of, flatten
from ipc import build
from kinds import KINDS
from test_vortex_kinds import arrays, not_yet, truth, whole
from test_vortex_protocol import FixedResult, LiveBuffers, resident, struct_of
from vortex_mutants import PYARROW_ERRORS

SIZES = (0, 1, 1025)
THREE = primitive(np.arange(3, dtype="u4"))


@pytest.fixture
def live(monkeypatch):
    live = LiveBuffers()
    monkeypatch.setattr(capsules, "LIVE", live)
    return live


def content(array):
    """Returns all nodes and buffers of an array."""
    nodes, buffers = flatten(array)
    return nodes, [bytes_of(buffer) for buffer in buffers]


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_each_kind_of_array_round_trips_through_bytes_and_files(session, kind, tmp_path):
    path, n = tmp_path / "a column.cdenc", 0
    for name, array in arrays(kind, SIZES):
        data = session.encoded(array).to_bytes()
        again = session.encoded(data)
        assert again.to_bytes() == data, name
        assert content(again) == content(array), name
        path.write_bytes(data)
        if not_yet(kind, name):
            with pytest.raises(cd.UnsupportedError):
                session.read(path)
            continue
        n += 1
        expected = session.from_vortex(array)
        columns = [again.decode(), session.read(path)[0], session.read(path, "encodings")[0]]
        for column in columns:
            got = whole(column.to_pyarrow())
            got.validate(full=True)
            assert (column.type, again.type) == (expected.type, expected.type), name
            assert len(column) == len(again) == len(array), name
            assert reference.same(whole(expected.to_pyarrow()), got), name
    assert n or kind.endswith(".v2"), "no array was decoded"


def command(*arguments):
    """Returns the output of the command."""
    program = os.environ.get("CROSSDOCK_BIN")
    if not program:
        pytest.skip("CROSSDOCK_BIN is not set; `cargo xtask test` sets it to the command that it built")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def flight(flights):
    """A column of numbers, compressed."""
    table = pa.ipc.open_file(flights).read_all()
    return vx.compress(vx.array(table["distance"].combine_chunks()))


def test_command_decodes_written_files(session, flight, tmp_path):
    source, target = tmp_path / "distance.cdenc", tmp_path / "distance.arrow"
    source.write_bytes(session.encoded(flight).to_bytes())
    for flags in ((), ("--from", "encodings")):
        command("convert", source, target, *flags, "--quiet")
        table = pa.ipc.open_file(target).read_all()
        assert table.column_names == [""]
        assert whole(table[0]).equals(whole(session.from_vortex(flight).to_pyarrow()))


def test_command_shows_the_tree(session, flight, tmp_path):
    source = tmp_path / "distance.cdenc"
    data = session.encoded(flight).to_bytes()
    source.write_bytes(data)
    nodes, buffers = content(flight)
    lines = command("inspect", source).splitlines()
    assert [line.split()[0] for line in lines[2:]] == [node.id for node in nodes]
    assert all("encodings" in line for line in lines[2:])
    shown = json.loads(command("inspect", source, "--json"))
    assert shown["bytes"] == len(data)
    assert [bytes.fromhex(node["metadata"]) for node in shown["nodes"]] == [node.metadata for node in nodes]
    assert [buffer["bytes"] for node in shown["nodes"] for buffer in node["buffers"]] == [len(data) for data in buffers]
    assert shown["nodes"][0]["type"] == session.from_vortex(flight).type


def test_array_has_encoding_type_length_and_repr(session):
    array = session.encoded(Exporter(struct_of(a=THREE)))
    assert (array.encoding, len(array)) == ("vortex.struct", 3)
    assert array.type == session.from_vortex(Exporter(struct_of(a=THREE))).type
    assert repr(array) == f"crossdock.EncodedArray: vortex.struct of {array.type}, 3 values"
    unknown = session.encoded(Exporter(Tree("x.y", b"no type", 1 << 62)))
    assert repr(unknown) == f"crossdock.EncodedArray: x.y, {1 << 62} values"
    assert len(unknown) == 1 << 62
    with pytest.raises(cd.DataError, match=r"x\.y: the type"):
        _ = unknown.type


def test_array_can_be_used_repeatedly(session, live):
    array = session.encoded(Exporter(struct_of(a=THREE)))
    data = array.to_bytes()
    for _ in range(3):
        assert array.to_bytes() == data
        assert array.decode().to_pyarrow().to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
        assert session.from_vortex(array).to_pyarrow().to_pylist()[2] == {"a": 2}
        assert session.encoded(array).to_bytes() == data
        assert Tree.of(array).children[0].buffers == THREE.buffers
    assert (live.created, live.released) == (1, 0)
    column = array.decode()
    del array
    gc.collect()
    assert live.released == 0, "the column uses the buffer"
    assert column.to_pyarrow().to_pylist()[1] == {"a": 1}
    del column
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


@pytest.mark.parametrize("method", ["__vortex_array_metadata__", "__crossdock_encoded_array__"])
def test_export_outlives_the_array_and_is_consumed_once(session, live, method):
    array = session.encoded(Exporter(THREE))
    unused, export = getattr(array, method)(), getattr(array, method)()
    del array
    gc.collect()

    def decode(export):
        source = FixedResult(export) if isinstance(export, tuple) else export
        return session.encoded(source).decode().to_pyarrow().to_pylist()

    assert decode(export) == [0, 1, 2]
    with pytest.raises(cd.UsageError, match="already consumed"):
        decode(export)
    gc.collect()
    assert live.released == 0
    del unused, export
    gc.collect()
    assert (live.created, live.released, live.wrong) == (1, 1, 0)


def test_vortex_imports_the_export(session, flight):
    array = build(Tree.of(session.encoded(session.encoded(flight).to_bytes())))
    assert array.to_arrow_array().equals(flight.to_arrow_array())


def test_bytes_are_used_in_place_without_allocation(session):
    data = session.encoded(Exporter(primitive(np.arange(100_000, dtype="u4")))).to_bytes()
    start = np.frombuffer(data, "u1").ctypes.data
    column = session.encoded(data).decode()
    assert start <= column.to_pyarrow().chunk(0).buffers()[1].address < start + len(data)
    assert session.memory_used() == {}
    del data
    gc.collect()
    assert column.to_pyarrow()[99_999].as_py() == 99_999


@pytest.mark.parametrize("skew", range(1, 8))
def test_bytes_may_be_unaligned(session, skew):
    tree = struct_of(a=primitive(np.arange(3, dtype="u4"), np.array([1, 0, 1], bool)))
    data = bytes(skew) + session.encoded(Exporter(tree)).to_bytes()
    column = session.encoded(memoryview(data)[skew:]).decode()
    assert [row["a"] for row in column.to_pyarrow().to_pylist()] == [0, None, 2]
    assert session.encoded(bytearray(data)[skew:]).decode().to_pyarrow() == column.to_pyarrow()


def test_bytes_follow_the_documented_format(session):
    data = session.encoded(Exporter(THREE)).to_bytes()
    number = lambda at, n: int.from_bytes(data[at : at + n], "little")  # noqa: E731
    header = number(24, 8)
    assert data[:8] == b"CDENC\r\n\x1a" and number(8, 4) == 1
    assert number(16, 8) == len(data) and (number(32, 4), number(36, 4)) == (1, 1)
    assert number(12, 4) == zlib.crc32(data[:12] + bytes(4) + data[16:header])
    offset = number(header - 24, 8)
    assert offset % 64 == 0 and data[offset:] == THREE.buffers[0]


def test_rejects_damaged_bytes(session, tmp_path):
    data = session.encoded(Exporter(struct_of(a=THREE))).to_bytes()
    path = tmp_path / "damaged.cdenc"
    for damaged, error, message in [
        (data[:-1], cd.DataError, "truncated"),
        (data[:63], cd.DataError, "truncated"),
        (b"", cd.DataError, "truncated"),
        (data + b"\n", cd.DataError, "trailing bytes"),
        (b"X" + data[1:], cd.DataError, "the magic is"),
        (data[:8] + b"\2" + data[9:], cd.UnsupportedError, "version 2, expected version 1"),
        (data[:70] + b"\1" + data[71:], cd.DataError, "checksum"),
    ]:
        with pytest.raises(error, match=message):
            session.encoded(damaged)
        path.write_bytes(damaged)
        with pytest.raises(error, match=message):
            session.read(path, "encodings")


@pytest.mark.parametrize("value", [7, None, "text", [1, 2], object()], ids=lambda value: type(value).__name__)
def test_rejects_object_without_protocol(session, value):
    with pytest.raises(
        TypeError,
        match=f"encoded: expected an object with __crossdock_encoded_array__ or .*, got {type(value).__name__}",
    ):
        session.encoded(value)


def test_rejects_capsule_with_another_name(session):
    class Other:
        def __crossdock_encoded_array__(self):
            return session.from_arrow(pa.array([1])).__arrow_c_schema__()

    with pytest.raises(TypeError, match="expected a capsule 'crossdock_encoded_array', got a capsule 'arrow_schema'"):
        session.encoded(Other())


def test_error_for_invalid_tuple_names_the_function(session):
    with pytest.raises(cd.UsageError, match="^encoded: node 0: expected a tuple"):
        session.encoded(FixedResult(7))


def test_unknown_encoding_can_be_written_and_exported(session):
    unknown = Tree("example.unknown", THREE.dtype, 3, b"abc", [b"1234567"], [boolean([True] * 3)])
    array = session.encoded(Exporter(unknown))
    with pytest.raises(cd.UnsupportedError, match="no plugin of the session decodes 'example.unknown'"):
        array.decode()
    assert content(session.encoded(array.to_bytes())) == content(Exporter(unknown))


def test_array_outlives_its_session(live):
    with cd.Session() as session:
        array = session.encoded(Exporter(THREE))
    assert array.decode().to_pyarrow().to_pylist() == [0, 1, 2]
    data = array.to_bytes()
    with cd.Session() as other:
        assert other.encoded(data).to_bytes() == data == other.encoded(array).to_bytes()
        with pytest.raises(cd.UsageError, match="closed"):
            session.encoded(data)


def test_device_buffers_are_written_decoded_and_exported(session, cuda_session, live):
    values = cuda_session.from_arrow(pa.array([0, 1, 2], pa.uint32())).to(cuda_session.device)
    cuda_session.synchronize()
    address = values.__cuda_array_interface__["data"][0]
    capsule = capsules.capsule_of(bytes(12), kind=1, ptr=address, device_id=0)
    array = cuda_session.encoded(FixedResult(("vortex.primitive", THREE.dtype, 3, b"", [capsule], [])))
    data = array.to_bytes()
    assert data == session.encoded(Exporter(THREE)).to_bytes()
    _, buffers = flatten(array)
    export = export_of(buffers[0])
    assert (export.kind, export.device_id, export.ptr, export.len) == (1, 0, address, 12)
    shared = (
        cuda_session.encoded(array),
        cuda_session.encoded(FixedResult(array.__vortex_array_metadata__())),
        cuda_session.encoded(data),
    )
    for again in (array, *shared):
        column = again.decode()
        assert (column.device, column.to_pyarrow().to_pylist()) == (cuda_session.device, [0, 1, 2])
        assert again.to_bytes() == data
    del capsule, array, buffers, shared, again, column
    # Another thread drops the last export. The owner of the values is freed afterwards.
    for _ in range(1000):
        gc.collect()
        cuda_session.synchronize()
        if live.released == live.created:
            break
        time.sleep(0.01)
    assert (live.created, live.released, live.wrong) == (2, 2, 0)


def test_files_decode_on_the_device(session, cuda_session, flight, tmp_path):
    path = tmp_path / "distance.cdenc"
    path.write_bytes(session.encoded(flight).to_bytes())
    column = cuda_session.read(path)[0]
    assert column.device == cuda_session.device
    assert whole(column.to_pyarrow()).equals(whole(session.from_vortex(flight).to_pyarrow()))


@pytest.mark.parametrize("what", ["decode", "to_bytes", "from_vortex"])
def test_decode_export_and_import_release_the_interpreters_lock(session, what):
    """Another thread can run only if the interpreter's lock is released."""
    array = session.encoded(Exporter(primitive(np.arange(1_000_000, dtype="u4"))))
    work = {"from_vortex": lambda: session.from_vortex(array)}.get(what) or getattr(array, what)
    ready, ran = threading.Event(), []
    lock = threading.Lock()
    lock.acquire()

    def other():
        ready.set()
        with lock:
            ran.append(True)

    thread, before = threading.Thread(target=other), sys.getswitchinterval()
    thread.start()
    ready.wait()
    sys.setswitchinterval(10_000)
    try:
        lock.release()
        for _ in range(10_000):
            work()
            if ran:
                break
        ran_during_work = bool(ran)
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert ran_during_work


def test_many_threads_use_one_array(session):
    array = session.encoded(Exporter(struct_of(a=THREE)))
    data = array.to_bytes()

    def work(_):
        for _ in range(30):
            assert array.to_bytes() == data
            assert array.decode().to_pyarrow().to_pylist()[2] == {"a": 2}
            assert session.encoded(array).to_bytes() == data
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_wide_tree_round_trips(session):
    """The tree has a hundred fields with chunks, and a large buffer."""
    rng = np.random.default_rng(3)
    part = pa.table({f"c{i}": rng.integers(0, 1 << i % 60 + 1, 5000) for i in range(100)})
    table = pa.concat_tables([part, part])
    array = vx.array(table)
    again = session.encoded(session.encoded(array).to_bytes())
    assert whole(again.decode().to_pyarrow()).equals(whole(session.from_vortex(array).to_pyarrow()))
    assert len(truth(array)) == len(again) == 10_000


def test_memory_stays_flat(session, flight):
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("the sanitizer delays the release of memory")
    data = session.encoded(flight).to_bytes()

    def one():
        array = session.encoded(flight)
        export, capsule = array.__vortex_array_metadata__(), array.__crossdock_encoded_array__()
        assert array.to_bytes() == session.encoded(capsule).to_bytes() == data
        assert len(session.encoded(data).decode()) == len(session.from_vortex(FixedResult(export)))
        with pytest.raises(cd.DataError):
            session.encoded(data[:-1])
        array.__vortex_array_metadata__()
        array.__crossdock_encoded_array__()

    for _ in range(100):
        one()
    gc.collect()
    before = resident()
    for _ in range(1000):
        one()
    gc.collect()
    assert resident() - before < 4 << 20


def signed(data):
    """Writes a valid checksum of the header into the bytes, and returns the bytes."""
    header = bytes(data[:12]) + bytes(4) + bytes(data[16 : int.from_bytes(data[24:32], "little")])
    data[12:16] = zlib.crc32(header).to_bytes(4, "little")
    return bytes(data)


def mutants(data, n):
    """Changes one to three bytes. Most changes are in the header."""
    rng = np.random.default_rng(len(data))
    header = int.from_bytes(data[24:32], "little")
    for _ in range(n):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(64, len(data) if rng.integers(3) == 0 else header)
            changed[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256), changed[at] ^ 1 << rng.integers(8)])
        yield signed(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_changed_bytes_with_valid_checksum_are_rejected_or_decode(kind):
    n_rejected = n_decoded = 0
    with cd.Session(memory="64MiB") as session:
        for _, array in arrays(kind, (1025,)):
            for data in mutants(session.encoded(array).to_bytes(), 40):
                try:
                    column = session.encoded(data).decode()
                except cd.Error as error:
                    assert not isinstance(error, (cd.PluginError, cd.DeviceError)), repr(error)
                    n_rejected += 1
                    continue
                n_decoded += 1
                try:
                    column.to_pyarrow().validate(full=True)
                except pa.ArrowInvalid as error:
                    assert any(message in str(error) for message in PYARROW_ERRORS), error
    assert n_rejected > 5 and (n_decoded or kind.endswith(".v2")), "the changes are too few or too many"
