"""Batches as tensors of torch. tests/python/package/test_loader.py tests the order of the rows, the shares of ranks,
positions and threads without torch."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pyarrow as pa
import pytest

import crossdock as cd

# On Linux, pip installs torch only with several GB of libraries for CUDA, so it is no requirement.
torch = pytest.importorskip("torch", reason="torch is not installed")

from crossdock.torch import Loader, scan_of  # noqa: E402
from test_recipes import BEGIN, PROGRAMS  # noqa: E402

FILES = [1000, 1, 700, 2300]
ROWS = sum(FILES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    for i in range(len(FILES)):
        ids = np.arange(sum(FILES[:i]), sum(FILES[: i + 1]))
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "half": pa.array(ids / 2, pa.float32()),
                "even": pa.array(ids % 2 == 0),
                "day": pa.array(ids, pa.int32()).cast(pa.date32()),
                "maybe": pa.array([None if i % 3 == 0 else int(i) for i in ids], pa.int16()),
                "word": pa.DictionaryArray.from_arrays(pa.array(ids % 3, pa.int8()), ["a", "b", "c"]),
                "tokens": pa.array([[int(i), -1] for i in ids], pa.list_(pa.int32())),
                "image": pa.array([[[int(i)] * 3] * 2 for i in ids], pa.list_(pa.list_(pa.int64(), 3), 2)),
            }
        )
        with pa.OSFile(str(folder / f"{i}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=300)
    return folder


@pytest.fixture
def scan(session, folder):
    return session.scan(folder)


def ids(batches):
    return [row for batch in batches for row in batch["id"].tolist()]


@pytest.mark.parametrize("shuffle", [False, True])
def test_columns_become_tensors(scan, shuffle):
    rows = []
    for batch in Loader(scan, batch_size=64, shuffle=shuffle, window=1000, nulls={"maybe": "mask"}):
        id = batch["id"]
        rows += id.tolist()
        assert {tensor.device.type for tensor in batch.values()} == {"cpu"} and id.dtype == torch.int64
        assert batch["half"].dtype == torch.float32 and torch.equal(batch["half"], id.float() / 2)
        assert batch["even"].dtype == torch.bool and torch.equal(batch["even"], id % 2 == 0)
        assert batch["day"].dtype == torch.int32 and torch.equal(batch["day"].long(), id)
        assert torch.equal(batch["maybe_mask"], id % 3 == 0) and batch["maybe"].dtype == torch.int16
        assert torch.equal(batch["maybe"].long(), torch.where(id % 3 == 0, 0, id))
        assert torch.equal(batch["word"].long(), id % 3)
        assert torch.equal(batch["tokens"].long(), torch.stack([id, torch.full_like(id, -1)], 1))
        assert torch.equal(batch["image"], id[:, None, None].expand(-1, 2, 3))
    assert (rows == list(range(ROWS))) != shuffle and sorted(rows) == list(range(ROWS))


def test_order_depends_on_the_seed(scan):
    def order(**arguments):
        return ids(Loader(scan, ["id"], batch_size=50, shuffle=True, window=500, **arguments))

    assert order(seed=1) == order(seed=1, prefetch=0)
    assert order(seed=1) != order(seed=2)
    both = order(seed=1, epochs=2)
    assert both[:ROWS] == order(seed=1) and sorted(both[ROWS:]) == sorted(both[:ROWS]) and both[ROWS:] != both[:ROWS]


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 9])
def test_ranks_read_each_row_once(scan, world_size):
    def ranks(**arguments):
        made = (Loader(scan, ["id"], rank=i, world_size=world_size, **arguments) for i in range(world_size))
        return [list(loader) for loader in made]

    rows = [ids(batches) for batches in ranks(batch_size=64, shuffle=True)]
    assert sorted(sum(rows, [])) == list(range(ROWS)) and min(map(len, rows)) > 0
    assert {len(batches) for batches in ranks(batch_size=64, drop_last=True)} == {ROWS // world_size // 64}


def test_resumed_iteration_equals_the_uninterrupted_one(scan, tmp_path):
    def made():
        return Loader(scan, ["id", "tokens"], batch_size=150, shuffle=True, epochs=2, window=600)

    expected = list(made())
    loader = made()
    states = [loader.state_dict()] + [loader.state_dict() for _ in loader]
    assert len(states) == len(expected) + 1 and len(loader) * 2 == len(expected)
    for n, state in enumerate(states):
        torch.save(state, tmp_path / "state.pt")
        resumed = made()
        resumed.load_state_dict(torch.load(tmp_path / "state.pt"))
        rest = list(resumed)
        assert len(rest) == len(expected) - n
        for batch, other in zip(rest, expected[n:]):
            assert batch.keys() == other.keys() and all(torch.equal(batch[name], other[name]) for name in batch)
    with pytest.raises(cd.UsageError, match="batch_size was 150 and is 151"):
        Loader(scan, ["id", "tokens"], batch_size=151, shuffle=True, epochs=2, window=600).load_state_dict(state)


def test_interrupted_iteration_leaves_nothing(session, scan):
    batches = iter(Loader(scan, batch_size=10, window=100, shuffle=True, nulls="mask"))
    batch = next(batches)
    assert session.memory_used() != {}
    # The batch stays valid without the loader.
    batches.close()
    del batches
    assert len(batch["id"]) == 10
    until = time.monotonic() + 20
    while any("crossdock-loader" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


INTERRUPTED = """
import sys

import crossdock as cd
from crossdock.torch import Loader

print("ready", flush=True)
try:
    for batch in Loader(cd.Session().scan(sys.argv[1]), ["id"], batch_size=1, epochs=10**9):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupt_ends_an_iteration(folder):
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "interrupted\n")


def test_ranks_of_torch_distributed(scan, tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert ids(Loader(scan, ["id"], batch_size=100)) == list(range(ROWS))
        with pytest.raises(cd.UsageError, match=r"rank=1: in torch\.distributed, it is 0"):
            Loader(scan, batch_size=1, rank=1, world_size=2)
        with pytest.raises(cd.UsageError, match=r"world_size=2: in torch\.distributed, it is 1"):
            Loader(scan, batch_size=1, rank=0, world_size=2)
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(cd.UsageError, match="expected both or none"):
        Loader(scan, batch_size=1, rank=0)


def test_vortex_file_and_tensors_in_memory_have_the_same_losses(flights, tmp_path):
    vortex = pytest.importorskip("vortex", reason="vortex-data is not installed")
    table = cd.read(flights).to_pyarrow().select(["dep_delay", "distance", "air_time", "hour", "arr_delay"])
    vortex.io.write(table, str(tmp_path / "flights.vortex"))
    shutil.copy(flights, tmp_path / "flights.arrow")
    (program,) = PROGRAMS["torch"]
    program = BEGIN + program.replace('session.scan("flights.arrow"', 'session.scan("flights.vortex"')
    assert "flights.vortex" in program
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_batches_equal_those_of_a_dataset(tmp_path, session):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    made = datasets.Dataset.from_dict({"id": range(1000), "tokens": [[i, i + 1] for i in range(1000)]})
    made.save_to_disk(tmp_path / "saved", num_shards=3)
    theirs = datasets.load_from_disk(tmp_path / "saved").with_format("torch")
    scan = scan_of(theirs, session)
    for batch, other in zip(Loader(scan, batch_size=64), theirs.iter(64), strict=True):
        assert batch.keys() == other.keys() and all(torch.equal(batch[name], other[name]) for name in batch)
    ranks = [Loader(scan, ["id"], batch_size=64, rank=rank, world_size=5) for rank in range(5)]
    assert [ids(loader) for loader in ranks] == [list(range(200 * i, 200 * i + 200)) for i in range(5)]


def test_module_is_imported_without_torch():
    program = "import crossdock.torch, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
