"""Tables in a local Ray cluster of two nodes."""

import os
import subprocess
import sys

import numpy as np
import pytest
import ray
import ray.data
from ray.cluster_utils import Cluster

import crossdock as cd
import crossdock.ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 200_000_000})
    cluster.add_node(num_cpus=1, resources={"other": 1}, object_store_memory=200_000_000)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def addresses(table):
    """The addresses of a table's buffers."""
    _, parts = table.to_parts()
    return [np.frombuffer(part, np.uint8).__array_interface__["data"][0] for part in parts]


def mapping_of(address):
    """The line of the mapping that contains an address."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= address < end:
                return line
    return ""


def test_tables_are_used_in_the_object_store(table):
    ref = ray.put(table)
    first, second = ray.get(ref), ray.get(ref)
    assert first.to_pyarrow().equals(table.to_pyarrow())
    # Both are the same memory, which Ray shares between processes.
    assert addresses(first) == addresses(second) and set(addresses(first)).isdisjoint(addresses(table))
    assert all("shm" in mapping_of(address) or "plasma" in mapping_of(address) for address in addresses(first))
    del ref, second
    assert first.to_pyarrow().equals(table.to_pyarrow())


@ray.remote(num_cpus=1, resources={"other": 1})
def on_the_other_node(thing):
    return os.getpid(), thing


def test_another_node_receives_and_returns_each_object(mixed):
    encoded = mixed["number"].slice(1, 4).encode("fastlanes.for")
    things = [mixed, mixed.slice(300, 100), mixed["text"], mixed.schema, mixed.schema["list"]]
    results = ray.get([on_the_other_node.remote(thing) for thing in things])
    for thing, (process, again) in zip(things, results, strict=True):
        assert process != os.getpid() and type(again) is type(thing)
        assert again.to_pyarrow().equals(thing.to_pyarrow())
    _, again = ray.get(on_the_other_node.remote(encoded))
    assert again.encoding == "fastlanes.for" and again.to_bytes() == encoded.to_bytes()


def test_dataset_reads_the_fragments_of_a_scan(flights, tmp_path):
    session = cd.default_session()
    for name in "ab":
        session.read_ipc(flights).write_ipc(tmp_path / f"{name}.arrow")
    scan = session.scan(tmp_path, columns=["carrier", "distance"], filter=[("distance", ">", 2000)])
    dataset = ray.data.read_datasource(crossdock.ray.Datasource(scan), override_num_blocks=2)
    rows = [row for batch in dataset.iter_batches(batch_format="pyarrow") for row in batch.to_pylist()]
    assert rows == scan.to_table().to_pyarrow().to_pylist()
    assert dataset.schema().names == ["carrier", "distance"]
    assert dataset.count() == len(scan.to_table())


def test_groups_have_about_the_same_number_of_bytes():
    class Piece:
        def __init__(self, size):
            self.bytes = size

    def sizes(pieces, n):
        return [[piece.bytes for piece in group] for group in crossdock.ray.groups([Piece(size) for size in pieces], n)]

    assert sizes([1, 1, 1, 1], 2) == [[1, 1], [1, 1]]
    assert sizes([10, 1, 1, 1], 2) == [[10], [1, 1, 1]]
    assert sizes([0, 0], 5) == [[0], [0]]
    assert sizes([1], 0) == [[1]] and sizes([], 3) == []


TRANSPORT = """
import pyarrow as pa
import ray

import crossdock as cd
import crossdock.ray

ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=100_000_000, log_to_driver=False)
crossdock.ray.register_tensor_transport()


@ray.remote
class Sender:
    @ray.method(tensor_transport="crossdock")
    def table(self, n, device="cuda:0"):
        numbers = pa.array([None if i % 3 == 0 else i for i in range(n)], pa.int64())
        return cd.Session(device).from_arrow(pa.table({"number": numbers, "text": [str(i) for i in range(n)]}))

    @ray.method(tensor_transport="crossdock")
    def tables(self):
        session = cd.Session("cuda:0")
        one, other = (session.from_arrow(pa.table({"a": [i]})) for i in range(2))
        return {"one": one, "more": [other, "text"]}

    def n_shared(self):
        from ray.experimental.rdt.util import get_tensor_transport_manager

        return len(get_tensor_transport_manager("CROSSDOCK")._shared)


@ray.remote(enable_tensor_transport=True)
class Receiver:
    def values(self, table):
        return table.device, table.to_pyarrow().to_pydict()

    def structure(self, tables):
        other, text = tables["more"]
        return tables["one"].to_pyarrow().to_pydict(), other.to_pyarrow().to_pydict(), text


sender, receiver = Sender.remote(), Receiver.remote()
for n in (0, 5, 1000):
    device, values = ray.get(receiver.values.remote(sender.table.remote(n)))
    assert device == "cuda:0" and values["text"] == [str(i) for i in range(n)]
    assert values["number"] == [None if i % 3 == 0 else i for i in range(n)]
assert ray.get(receiver.structure.remote(sender.tables.remote())) == ({"a": [0]}, {"a": [1]}, "text")
ref = sender.table.remote(3)
assert ray.get(ref).to_pyarrow()["text"].to_pylist() == ["0", "1", "2"]
# Ray frees the shared memory once the object is no longer referenced.
assert ray.get(sender.n_shared.remote()) >= 1
del ref
while ray.get(sender.n_shared.remote()):
    pass
try:
    ray.get(receiver.values.remote(sender.table.remote(3, "cpu")))
except Exception as error:
    print("the table is on cpu, expected a CUDA device" in str(error))
"""


def test_actors_pass_tables_through_device_memory(cuda_environment):
    # On a busy machine, the start of an actor takes longer than the default of a minute.
    environment = {**cuda_environment, "RAY_rdt_fetch_fail_timeout_milliseconds": "600000"}
    out = subprocess.run([sys.executable, "-c", TRANSPORT], env=environment, capture_output=True, text=True)
    assert (out.returncode, out.stdout) == (0, "True\n"), out.stderr


def test_tensor_transport_rejects_an_unknown_release_of_ray(monkeypatch):
    monkeypatch.setattr(ray, "__version__", "9.1.0")
    with pytest.raises(cd.UnsupportedError, match=r"tested with Ray 2\.60\.x, and this is Ray 9\.1\.0"):
        crossdock.ray.register_tensor_transport()
