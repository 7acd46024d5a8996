"""Tables in a local Dask cluster of two workers, which are processes that exchange data by TCP or by UCX."""

import os
import subprocess
import sys
from types import SimpleNamespace

import dask.sizeof
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster, Nanny, Scheduler, SpecCluster, wait
from distributed.protocol import dask_serialize, deserialize, serialize

import crossdock as cd
import crossdock.dask


@pytest.fixture(scope="module", params=["tcp", "ucx"])
def client(request):
    if request.param == "ucx":
        pytest.importorskip("distributed_ucxx")
    settings = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with LocalCluster(protocol=request.param, host="127.0.0.1", **settings) as cluster, Client(cluster) as client:
        yield client


def workers(client):
    return list(client.scheduler_info(n_workers=-1)["workers"])


def process_and(thing):
    return os.getpid(), thing


def test_workers_pass_each_object(client, mixed):
    first, second = workers(client)
    encoded = mixed["number"].slice(1, 4).encode("fastlanes.for")
    for thing in [mixed, mixed.slice(300, 100), mixed["text"], mixed.schema, mixed.schema["list"]]:
        sent = client.scatter(thing, workers=[first], hash=False)
        here = client.submit(process_and, sent, workers=[first], pure=False)
        there = client.submit(process_and, sent, workers=[second], pure=False)
        (one, again), (other, moved) = here.result(), there.result()
        assert len({one, other, os.getpid()}) == 3
        assert again.to_pyarrow().equals(thing.to_pyarrow()) and moved.to_pyarrow().equals(thing.to_pyarrow())
    again = client.submit(lambda array: array, encoded, workers=[second]).result()
    assert again.encoding == "fastlanes.for" and again.to_bytes() == encoded.to_bytes()


def count_shared():
    """Counts the tables that this process shares. Runs in a worker."""
    crossdock.dask.n_shared = 0
    to_description = crossdock.dask._to_description

    def counted(table):
        result = to_description(table)
        crossdock.dask.n_shared += 1
        return result

    dask_serialize.register((cd.Table, cd.Column))(counted)


def large(n_batches):
    """A table of 1.2 MB on each worker."""
    rows = pa.table({"number": list(range(100_000)), "word": ["a", "b", None, "c"] * 25_000})
    return cd.default_session().from_arrow(pa.Table.from_batches(rows.to_batches(100_000 // n_batches)))


def test_workers_on_a_host_share_memory():
    workers = {
        i: {"cls": Nanny, "options": {"nthreads": 1, "preload": preload, "host": "127.0.0.1"}}
        for i, preload in enumerate([["crossdock.dask"], ["crossdock.dask"], []])
    }
    scheduler = {"cls": Scheduler, "options": {"dashboard": False, "port": 0, "host": "127.0.0.1"}}
    expected = large(3).to_pyarrow()
    with SpecCluster(workers=workers, scheduler=scheduler) as cluster, Client(cluster) as client:
        client.wait_for_workers(3)
        names = {worker["name"]: address for address, worker in client.scheduler_info(n_workers=-1)["workers"].items()}
        first, second, third = (names[i] for i in range(3))
        client.run(count_shared, workers=[first, second])
        whole = client.submit(large, 3, workers=[first])
        n_shared = 0
        for take, to, is_shared in [
            (lambda table: table[:], second, True),
            (lambda table: table["number"], second, True),
            (lambda table: table.slice(7, 50_000), second, True),
            (lambda table: {"nested": [table["word"]]}, second, True),
            (lambda table: table[:], third, False),
        ]:
            sent = client.submit(take, whole, workers=[first], pure=False)
            received = client.submit(lambda thing: thing, sent, workers=[to], pure=False)
            received, values = received.result(), take(expected)
            if isinstance(values, dict):
                received, values = received["nested"][0], values["nested"][0]
            assert received.to_pyarrow().equals(values)
            n_shared += is_shared
            assert client.run(lambda: crossdock.dask.n_shared, workers=[first]) == {first: n_shared}
        # The other worker keeps the memory, and the client gets bytes.
        kept = client.submit(
            lambda table: table, client.submit(lambda t: t[:], whole, workers=[first]), workers=[second]
        )
        wait(kept)
        client.retire_workers([first])
        assert kept.result().to_pyarrow().equals(expected)
        assert client.run(lambda: crossdock.dask.n_shared, workers=[second]) == {second: 0}


def test_tables_that_cannot_be_shared_are_sent_as_bytes():
    worker = SimpleNamespace(address=f"tcp://test-{os.getpid()}", extensions={}, handlers={"get_data": None})
    crossdock.dask.share_on_host(worker)
    assert crossdock.dask._is_reachable(worker.address) and not crossdock.dask._is_reachable("tcp://other")
    table, small = large(1), cd.default_session().from_arrow(pa.table({"number": [1]}))
    assert serialize(table)[0]["serializer"] == "pickle"
    token = crossdock.dask._can_share.set(True)
    try:
        assert serialize(small)[0]["serializer"] == "pickle"
        header, frames = serialize(table)
        assert header["serializer"] == "dask" and len(frames) == 1 and len(frames[0]) < 2000
        assert deserialize(header, frames).to_pyarrow().equals(table.to_pyarrow())
        # Dask computes the task of a key again if its data is lost during the transport.
        with pytest.raises(ConnectionError, match="another process has received it"):
            deserialize(header, frames)
        with cd.Session(memory=1 << 20) as limited:
            assert serialize(limited.from_arrow(table.to_pyarrow()))[0]["serializer"] == "pickle"
    finally:
        crossdock.dask._can_share.reset(token)
    worker.extensions["crossdock"].close()
    assert not crossdock.dask._is_reachable(worker.address)


def test_collections_read_the_fragments_of_a_scan(client, flights, tmp_path):
    session = cd.default_session()
    for name in "ab":
        session.read_ipc(flights).write_ipc(tmp_path / f"{name}.arrow")
    scan = session.scan(tmp_path, columns=["carrier", "distance"], filter=[("distance", ">", 2000)])
    expected = scan.to_table().to_pyarrow()
    tables = client.gather(client.compute(crossdock.dask.delayed_tables(scan)))
    assert len(tables) == len(scan.fragments()) == 2
    assert [row for table in tables for row in table.to_pyarrow().to_pylist()] == expected.to_pylist()
    frame = crossdock.dask.from_scan(scan)
    assert frame.npartitions == 2 and list(frame.columns) == ["carrier", "distance"]
    assert frame["distance"].sum().compute() == sum(expected["distance"].to_pylist())
    none = session.scan(tmp_path, columns=["distance"], limit=0)
    assert len(crossdock.dask.from_scan(none).compute()) == 0


def test_dask_knows_the_sizes(mixed):
    crossdock.dask.register_sizes(dask.sizeof.sizeof)
    assert dask.sizeof.sizeof(mixed) == mixed.nbytes > 1000
    assert dask.sizeof.sizeof(mixed["text"]) == mixed["text"].nbytes


CUDA = """
import crossdock as cd
import crossdock.dask
from crossdock.cuda import Context
from distributed.protocol import deserialize, serialize

crossdock.dask.dask_setup(None)
families = ("cuda", "dask", "pickle")
with cd.Session("cuda:0") as session, cd.Session("cpu") as host:
    table = session.read_ipc(FLIGHTS)
    for thing in (table, table.slice(3, 20), table["carrier"]):
        header, frames = serialize(thing, serializers=families)
        assert header["serializer"] == "cuda" and len(frames) == 1
        # A transport such as UCX sends the frame and receives it in other memory.
        context = Context(0)
        frames = [context.buffer_from_data(context.buffer_from_object(frame)) for frame in frames]
        received = deserialize(header, frames)
        assert type(received) is type(thing) and received.device == "cuda:0"
        assert received.to_pyarrow().equals(thing.to_pyarrow())
    header, frames = serialize(host.read_ipc(FLIGHTS), serializers=families)
    assert header["serializer"] == "pickle"
"""


def run(program, flights, environment):
    command = [sys.executable, "-c", program.replace("FLIGHTS", repr(flights))]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_tables_on_a_gpu_are_frames_of_device_memory(flights, cuda_environment):
    out = run(CUDA, flights, cuda_environment)
    assert (out.returncode, out.stderr) == (0, "")


UCX = """
import os

import crossdock as cd
import crossdock.dask
from distributed import Client, LocalCluster


def count_frames():
    # Counts the tables that this process sends as device memory.
    crossdock.dask.n_sent = 0
    to_frame = crossdock.dask._to_frame

    def counted(table):
        result = to_frame(table)
        crossdock.dask.n_sent += 1
        return result

    crossdock.dask._to_frame = counted
    crossdock.dask.register_cuda()


def read(path):
    return cd.Session("cuda:0").read_ipc(path)


def describe(thing):
    return os.getpid(), type(thing).__name__, thing.device, thing.to_pyarrow()


def n_sent():
    return crossdock.dask.n_sent


if __name__ == "__main__":
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(protocol="ucx", host="127.0.0.1", **settings) as cluster, Client(cluster) as client:
        client.run(count_frames)
        count_frames()
        first, second = client.scheduler_info(n_workers=-1)["workers"]
        expected = cd.default_session().read_ipc(FLIGHTS).to_pyarrow()
        whole = client.submit(read, FLIGHTS, workers=[first])
        things = [
            (whole, expected),
            (client.submit(lambda table: table.slice(7, 100), whole, workers=[first]), expected.slice(7, 100)),
            (client.submit(lambda table: table["carrier"], whole, workers=[first]), expected["carrier"]),
            (client.submit(lambda table: table.slice(0, 0), whole, workers=[first]), expected.slice(0, 0)),
        ]
        for n, (thing, values) in enumerate(things, 1):
            process, kind, device, received = client.submit(describe, thing, workers=[second]).result()
            assert process != os.getpid() and device == "cuda:0", (process, device)
            assert kind == ("Column" if n == 3 else "Table") and received.equals(values)
            assert client.run(n_sent, workers=[first]) == {first: n}
        # The client receives the table in device memory, too.
        assert whole.result().device == "cuda:0" and whole.result().to_pyarrow().equals(expected)
    print("passed")
"""


def test_ucx_carries_tables_from_gpu_to_gpu(flights, has_gpu):
    pytest.importorskip("distributed_ucxx")
    if not has_gpu:
        pytest.skip("no CUDA device, and UCX does not support the simulated driver")
    out = run(UCX, flights, os.environ)
    assert (out.returncode, out.stdout) == (0, "passed\n"), out.stderr
