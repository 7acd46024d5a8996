"""Encoded arrays that are not decoded yet: as bytes, in files, given to others, any number of times."""

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
from test_vortex_protocol import Gives, Released, resident, struct_of
from vortex_mutants import KEPT

SIZES = (0, 1, 1025)
THREE = primitive(np.arange(3, dtype="u4"))


@pytest.fixture
def live(monkeypatch):
    live = Released()
    monkeypatch.setattr(capsules, "LIVE", live)
    return live


def told(array):
    """All that an array tells of itself."""
    nodes, buffers = flatten(array)
    return nodes, [bytes_of(buffer) for buffer in buffers]


@pytest.mark.parametrize("kind", [*KINDS, "nested"])
def test_every_kind_goes_through_bytes_and_files(session, kind, tmp_path):
    path, n = tmp_path / "a column.cdenc", 0
    for name, array in arrays(kind, SIZES):
        data = session.encoded(array).to_bytes()
        again = session.encoded(data)
        assert again.to_bytes() == data, name
        assert told(again) == told(array), name
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
    assert n or kind.endswith(".v2"), "nothing was decoded"


def command(*arguments):
    """What the command prints."""
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


def test_the_command_converts_what_was_written_to_what_the_session_decodes(session, flight, tmp_path):
    source, target = tmp_path / "distance.cdenc", tmp_path / "distance.arrow"
    source.write_bytes(session.encoded(flight).to_bytes())
    for flags in ((), ("--from", "encodings")):
        command("convert", source, target, *flags, "--quiet")
        table = pa.ipc.open_file(target).read_all()
        assert table.column_names == [""]
        assert whole(table[0]).equals(whole(session.from_vortex(flight).to_pyarrow()))


def test_the_command_shows_the_tree(session, flight, tmp_path):
    source = tmp_path / "distance.cdenc"
    data = session.encoded(flight).to_bytes()
    source.write_bytes(data)
    nodes, buffers = told(flight)
    lines = command("inspect", source).splitlines()
    assert [line.split()[0] for line in lines[2:]] == [node.id for node in nodes]
    assert all("encodings" in line for line in lines[2:])
    shown = json.loads(command("inspect", source, "--json"))
    assert shown["bytes"] == len(data)
    assert [bytes.fromhex(node["metadata"]) for node in shown["nodes"]] == [node.metadata for node in nodes]
    assert [lies["bytes"] for node in shown["nodes"] for lies in node["buffers"]] == [len(data) for data in buffers]
    assert shown["nodes"][0]["type"] == session.from_vortex(flight).type


def test_what_it_says_of_itself(session):
    array = session.encoded(Exporter(struct_of(a=THREE)))
    assert (array.encoding, len(array)) == ("vortex.struct", 3)
    assert array.type == session.from_vortex(Exporter(struct_of(a=THREE))).type
    assert repr(array) == f"crossdock.EncodedArray: vortex.struct of {array.type}, 3 values"
    unknown = session.encoded(Exporter(Tree("x.y", b"no type", 1 << 62)))
    assert repr(unknown) == f"crossdock.EncodedArray: x.y, {1 << 62} values"
    assert len(unknown) == 1 << 62
    with pytest.raises(cd.DataError, match=r"x\.y: its type"):
        _ = unknown.type


def test_it_is_used_any_number_of_times(session, live):
    array = session.encoded(Exporter(struct_of(a=THREE)))
    data = array.to_bytes()
    for _ in range(3):
        assert array.to_bytes() == data
        assert array.decode().to_pyarrow().to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}]
        assert session.from_vortex(array).to_pyarrow().to_pylist()[2] == {"a": 2}
        assert session.encoded(array).to_bytes() == data
        assert Tree.of(array).children[0].buffers == THREE.buffers
    assert (live.made, live.released) == (1, 0)
    column = array.decode()
    del array
    gc.collect()
    assert live.released == 0, "the column lies in its buffer"
    assert column.to_pyarrow().to_pylist()[1] == {"a": 1}
    del column
    gc.collect()
    assert (live.made, live.released, live.wrong) == (1, 1, 0)


@pytest.mark.parametrize("method", ["__vortex_array_metadata__", "__crossdock_encoded_array__"])
def test_what_it_gave_outlives_it_is_taken_once_and_given_back(session, live, method):
    array = session.encoded(Exporter(THREE))
    unused, given = getattr(array, method)(), getattr(array, method)()
    del array
    gc.collect()

    def decoded(given):
        source = Gives(given) if isinstance(given, tuple) else given
        return session.encoded(source).decode().to_pyarrow().to_pylist()

    assert decoded(given) == [0, 1, 2]
    with pytest.raises(cd.UsageError, match="taken already|consumed already"):
        decoded(given)
    gc.collect()
    assert live.released == 0
    del unused, given
    gc.collect()
    assert (live.made, live.released, live.wrong) == (1, 1, 0)


def test_vortex_reads_what_is_given_in_its_own_protocol(session, flight):
    given = build(Tree.of(session.encoded(session.encoded(flight).to_bytes())))
    assert given.to_arrow_array().equals(flight.to_arrow_array())


def test_bytes_are_used_in_place_and_nothing_is_held_for_them(session):
    data = session.encoded(Exporter(primitive(np.arange(100_000, dtype="u4")))).to_bytes()
    start = np.frombuffer(data, "u1").ctypes.data
    column = session.encoded(data).decode()
    assert start <= column.to_pyarrow().chunk(0).buffers()[1].address < start + len(data)
    assert session.memory_used() == {}
    del data
    gc.collect()
    assert column.to_pyarrow()[99_999].as_py() == 99_999


@pytest.mark.parametrize("skew", range(1, 8))
def test_bytes_may_lie_askew(session, skew):
    tree = struct_of(a=primitive(np.arange(3, dtype="u4"), np.array([1, 0, 1], bool)))
    data = bytes(skew) + session.encoded(Exporter(tree)).to_bytes()
    column = session.encoded(memoryview(data)[skew:]).decode()
    assert [row["a"] for row in column.to_pyarrow().to_pylist()] == [0, None, 2]
    assert session.encoded(bytearray(data)[skew:]).decode().to_pyarrow() == column.to_pyarrow()


def test_the_bytes_are_as_the_document_says(session):
    data = session.encoded(Exporter(THREE)).to_bytes()
    number = lambda at, n: int.from_bytes(data[at : at + n], "little")  # noqa: E731
    header = number(24, 8)
    assert data[:8] == b"CDENC\r\n\x1a" and number(8, 4) == 1
    assert number(16, 8) == len(data) and (number(32, 4), number(36, 4)) == (1, 1)
    assert number(12, 4) == zlib.crc32(data[:12] + bytes(4) + data[16:header])
    offset = number(header - 24, 8)
    assert offset % 64 == 0 and data[offset:] == THREE.buffers[0]


def test_bytes_that_were_damaged_are_refused(session, tmp_path):
    data = session.encoded(Exporter(struct_of(a=THREE))).to_bytes()
    path = tmp_path / "damaged.cdenc"
    for damaged, error, words in [
        (data[:-1], cd.DataError, "truncated"),
        (data[:63], cd.DataError, "truncated"),
        (b"", cd.DataError, "truncated"),
        (data + b"\n", cd.DataError, "something follows their end"),
        (b"X" + data[1:], cd.DataError, "they begin with"),
        (data[:8] + b"\2" + data[9:], cd.UnsupportedError, "version 2, and only version 1 is read"),
        (data[:70] + b"\1" + data[71:], cd.DataError, "checksum"),
    ]:
        with pytest.raises(error, match=words):
            session.encoded(damaged)
        path.write_bytes(damaged)
        with pytest.raises(error, match=words):
            session.read(path, "encodings")


@pytest.mark.parametrize("it", [7, None, "text", [1, 2], object()], ids=lambda it: type(it).__name__)
def test_others_are_refused_as_a_type(session, it):
    with pytest.raises(TypeError, match=f"encoded: a {type(it).__name__} has no __crossdock_encoded_array__, no"):
        session.encoded(it)


def test_capsules_of_others_are_refused(session):
    class Other:
        def __crossdock_encoded_array__(self):
            return session.from_arrow(pa.array([1])).__arrow_c_schema__()

    with pytest.raises(TypeError, match="expected a capsule 'crossdock_encoded_array', got a capsule 'arrow_schema'"):
        session.encoded(Other())


def test_faults_of_the_tuples_are_told_as_of_this_call(session):
    with pytest.raises(cd.UsageError, match="^encoded: node 0: expected a tuple"):
        session.encoded(Gives(7))


def test_what_nobody_decodes_can_still_be_written_and_given(session):
    unknown = Tree("somebody.else", THREE.dtype, 3, b"abc", [b"1234567"], [boolean([True] * 3)])
    array = session.encoded(Exporter(unknown))
    with pytest.raises(cd.UnsupportedError, match="no plugin of the session decodes 'somebody.else'"):
        array.decode()
    assert told(session.encoded(array.to_bytes())) == told(Exporter(unknown))


def test_an_array_outlives_its_session(live):
    with cd.Session() as session:
        array = session.encoded(Exporter(THREE))
    assert array.decode().to_pyarrow().to_pylist() == [0, 1, 2]
    data = array.to_bytes()
    with cd.Session() as other:
        assert other.encoded(data).to_bytes() == data == other.encoded(array).to_bytes()
        with pytest.raises(cd.UsageError, match="closed"):
            session.encoded(data)


def test_buffers_on_devices_are_written_decoded_and_given_on(session, there, live):
    values = there.from_arrow(pa.array([0, 1, 2], pa.uint32())).to(there.device)
    there.synchronize()
    address = values.__cuda_array_interface__["data"][0]
    capsule = capsules.capsule_of(bytes(12), kind=1, ptr=address, device_id=0)
    array = there.encoded(Gives(("vortex.primitive", THREE.dtype, 3, b"", [capsule], [])))
    data = array.to_bytes()
    assert data == session.encoded(Exporter(THREE)).to_bytes()
    _, given = flatten(array)
    export = export_of(given[0])
    assert (export.kind, export.device_id, export.ptr, export.len) == (1, 0, address, 12)
    shared = there.encoded(array), there.encoded(Gives(array.__vortex_array_metadata__())), there.encoded(data)
    for again in (array, *shared):
        column = again.decode()
        assert (column.device, column.to_pyarrow().to_pylist()) == (there.device, [0, 1, 2])
        assert again.to_bytes() == data
    del capsule, array, given, shared, again, column
    # The values' owner may go once nobody has what was given out; the last of that goes on another thread.
    for _ in range(1000):
        gc.collect()
        there.synchronize()
        if live.released == live.made:
            break
        time.sleep(0.01)
    assert (live.made, live.released, live.wrong) == (2, 2, 0)


def test_files_are_decoded_on_the_device(session, there, flight, tmp_path):
    path = tmp_path / "distance.cdenc"
    path.write_bytes(session.encoded(flight).to_bytes())
    column = there.read(path)[0]
    assert column.device == there.device
    assert whole(column.to_pyarrow()).equals(whole(session.from_vortex(flight).to_pyarrow()))


@pytest.mark.parametrize("what", ["decode", "to_bytes", "from_vortex"])
def test_other_threads_run_while_an_array_is_worked_on(session, what):
    """The interpreter's lock is let go of: nobody else takes it here in all the time that a test has."""
    array = session.encoded(Exporter(primitive(np.arange(1_000_000, dtype="u4"))))
    work = {"from_vortex": lambda: session.from_vortex(array)}.get(what) or getattr(array, what)
    ready, ran = threading.Event(), []
    go = threading.Lock()
    go.acquire()

    def other():
        ready.set()
        with go:
            ran.append(True)

    thread, before = threading.Thread(target=other), sys.getswitchinterval()
    thread.start()
    ready.wait()
    sys.setswitchinterval(10_000)
    try:
        go.release()
        for _ in range(10_000):
            work()
            if ran:
                break
        ran_meanwhile = bool(ran)
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert ran_meanwhile


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


def test_all_rows_of_a_wide_tree(session):
    """More than the tests above have of everything: a hundred fields, chunks of them, and a large buffer."""
    rng = np.random.default_rng(3)
    part = pa.table({f"c{i}": rng.integers(0, 1 << i % 60 + 1, 5000) for i in range(100)})
    table = pa.concat_tables([part, part])
    array = vx.array(table)
    again = session.encoded(session.encoded(array).to_bytes())
    assert whole(again.decode().to_pyarrow()).equals(whole(session.from_vortex(array).to_pyarrow()))
    assert len(truth(array)) == len(again) == 10_000


def test_memory_stays_flat(session, flight):
    if "libasan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("a measure of memory, which the sanitizer keeps")
    data = session.encoded(flight).to_bytes()

    def one():
        array = session.encoded(flight)
        given, capsule = array.__vortex_array_metadata__(), array.__crossdock_encoded_array__()
        assert array.to_bytes() == session.encoded(capsule).to_bytes() == data
        assert len(session.encoded(data).decode()) == len(session.from_vortex(Gives(given)))
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
    """The bytes with a checksum that fits their header, where they have one."""
    header = bytes(data[:12]) + bytes(4) + bytes(data[16 : int.from_bytes(data[24:32], "little")])
    data[12:16] = zlib.crc32(header).to_bytes(4, "little")
    return bytes(data)


def mutants(data, n):
    """The bytes with one to three of them changed, in the header more often than behind it."""
    rng = np.random.default_rng(len(data))
    header = int.from_bytes(data[24:32], "little")
    for _ in range(n):
        changed = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(64, len(data) if rng.integers(3) == 0 else header)
            changed[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.integers(256), changed[at] ^ 1 << rng.integers(8)])
        yield signed(changed)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_was_changed_and_signed_it_is_an_error_or_a_column(kind):
    refused = decoded = 0
    with cd.Session(memory="64MiB") as session:
        for _, array in arrays(kind, (1025,)):
            for data in mutants(session.encoded(array).to_bytes(), 40):
                try:
                    column = session.encoded(data).decode()
                except cd.Error as error:
                    assert not isinstance(error, (cd.PluginError, cd.DeviceError)), repr(error)
                    refused += 1
                    continue
                decoded += 1
                try:
                    column.to_pyarrow().validate(full=True)
                except pa.ArrowInvalid as error:
                    assert any(words in str(error) for words in KEPT), error
    assert refused > 5 and (decoded or kind.endswith(".v2")), "the changes are too few or too many"
