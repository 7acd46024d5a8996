"""Tables in a local Ray cluster of two nodes."""

import os

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
