"""The loader of batches without torch: shares of ranks, order, windows, positions, threads. NumPy makes the tensors."""

import gc
import json
import subprocess
import sys
import threading
import time

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from conftest import assert_all_memory_freed
from crossdock import _loader
from crossdock._loader import BatchLoader, Part

# The numbers of rows of the files, each of which is a fragment.
FILES = [7, 1, 40, 13, 0, 29, 10]
ROWS = sum(FILES)


class Numpy:
    """Tensors of NumPy."""

    def permutation(self, seed, n):
        return np.random.default_rng(seed).permutation(n)

    def tensors(self, columns):
        return {name: np.from_dlpack(column.to("cpu")) for name, column in columns.items()}

    def divided(self, tensor, rows):
        return [tensor[at : at + rows] for at in range(0, len(tensor), rows)]

    def stream(self):
        return None


def loader(scan, columns=None, **arguments):
    defaults = dict(
        batch_size=4,
        shuffle=False,
        seed=0,
        epochs=1,
        drop_last=False,
        rank=0,
        world_size=1,
        window=8,
        nulls="error",
        prefetch=2,
    )
    return BatchLoader(scan, columns, Numpy(), **{**defaults, **arguments})


def table_of(first, rows):
    ids = np.arange(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "half": pa.array(ids / 2, pa.float32()),
            "maybe": pa.array([None if i % 3 == 0 else int(i) for i in ids], pa.int32()),
            "word": pa.DictionaryArray.from_arrays(pa.array(ids % 3, pa.int8()), ["a", "b", "c"]),
            "tokens": pa.array([[int(i), int(i) + 1, -1] for i in ids], pa.list_(pa.int32())),
        }
    )


def write(path, table, new=pa.ipc.new_file, rows=6):
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=rows):
            writer.write_batch(batch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("loader")
    for i, rows in enumerate(FILES):
        write(folder / f"{i}.arrow", table_of(sum(FILES[:i]), rows))
    return folder


@pytest.fixture(params=["known", "unknown"])
def scan(request, session, folder):
    """A scan whose numbers of rows are known, and one whose numbers are not, because it has a filter."""
    return session.scan(folder, filter=[("id", ">=", 0)] if request.param == "unknown" else None)


def ids(batches):
    return [row for batch in batches for row in batch["id"].tolist()]


def content(batches):
    """Everything in batches, for comparisons."""
    return [{name: (str(tensor.dtype), tensor.tolist()) for name, tensor in batch.items()} for batch in batches]


# Plans


def test_parts_of_ranks_contain_each_row_once():
    for world_size in range(1, 12):
        for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
            lengths = [5, 0, 9, 2]
            ranks = [_loader.parts_of_rank(lengths, order, rank, world_size) for rank in range(world_size)]
            rows = [(part.fragment, part.start + i) for parts in ranks for part in parts for i in range(part.rows)]
            assert rows == [(fragment, row) for fragment in order for row in range(lengths[fragment])]
            sizes = [sum(part.rows for part in parts) for parts in ranks]
            assert max(sizes) - min(sizes) <= 1


def test_whole_parts_before_a_row_are_left_out():
    parts = [Part(3, 2, 4), Part(1, 0, 5), Part(0, 0, None), Part(2, 0, 7)]
    assert _loader.after_rows(parts, 0) == (parts, 0)
    assert _loader.after_rows(parts, 3) == ([Part(3, 5, 1), *parts[1:]], 0)
    assert _loader.after_rows(parts, 4) == (parts[1:], 0)
    # From a part of unknown length on, rows are left out while they are read.
    assert _loader.after_rows(parts, 20) == (parts[2:], 11)
    assert _loader.after_rows(parts[:2], 9) == ([], 0)


def test_order_is_the_same_on_each_machine():
    assert _loader.fragment_order(6, False, 1, 2) == [0, 1, 2, 3, 4, 5]
    assert _loader.fragment_order(6, True, 1, 2) == [5, 1, 3, 4, 2, 0]
    assert _loader.mixed(1, 2, 3) == 2904650318439132554
    assert len({_loader.mixed(*numbers) for numbers in [(1, 23), (12, 3), (1, 2, 3), (-1, 23), (123,)]}) == 5


# Batches


def test_batches_are_the_rows_in_order(scan):
    batches = list(loader(scan, nulls="mask"))
    assert ids(batches) == list(range(ROWS))
    assert [len(batch["id"]) for batch in loader(scan, ["id"])] == [4] * (ROWS // 4)
    assert [len(batch["id"]) for batch in loader(scan, ["id"], batch_size=7)] == [7] * 14 + [2]
    assert [len(batch["id"]) for batch in loader(scan, ["id"], batch_size=7, drop_last=True)] == [7] * 14
    assert ids(loader(scan, ["id"], batch_size=1000)) == list(range(ROWS))


def test_columns_become_tensors(any_session, folder):
    scan = any_session.scan(folder)
    for shuffle in (False, True):
        for batch in loader(scan, nulls={"maybe": "mask"}, shuffle=shuffle):
            rows = batch["id"]
            assert list(batch) == ["id", "half", "maybe", "maybe_mask", "word", "tokens"]
            assert batch["half"].dtype == np.float32 and (batch["half"] == rows / 2).all()
            assert (batch["maybe_mask"] == (rows % 3 == 0)).all()
            assert (batch["maybe"] == np.where(rows % 3 == 0, 0, rows)).all()
            assert (batch["word"] == rows % 3).all()
            assert (batch["tokens"] == np.stack([rows, rows + 1, np.full_like(rows, -1)], 1)).all()
    (batch,) = loader(scan, ["maybe"], nulls=-5, batch_size=ROWS)
    assert batch["maybe"].tolist() == [-5 if i % 3 == 0 else i for i in range(ROWS)]


def test_shuffle_depends_on_the_seed_and_the_epoch(scan):
    first = ids(loader(scan, ["id"], shuffle=True, seed=1))
    assert sorted(first) == list(range(ROWS)) and first != sorted(first)
    assert ids(loader(scan, shuffle=True, seed=1, nulls="mask", prefetch=0)) == first
    assert ids(loader(scan, ["id"], shuffle=True, seed=2)) != first
    both = ids(loader(scan, ["id"], shuffle=True, seed=1, epochs=2))
    assert both[:ROWS] == first and both[ROWS:] != first and sorted(both[ROWS:]) == sorted(first)
    # A window contains only rows of adjacent fragments, a larger one more of them.
    assert ids(loader(scan, ["id"], shuffle=True, seed=1, window=1000)) != first


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8, 30])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_read_each_row_once(scan, world_size, shuffle):
    ranks = [loader(scan, ["id"], rank=i, world_size=world_size, shuffle=shuffle) for i in range(world_size)]
    rows = [ids(of_rank) for of_rank in ranks]
    assert sorted(sum(rows, [])) == list(range(ROWS))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1 and min(map(len, rows)) > 0
    ranks = [loader(scan, ["id"], rank=i, world_size=world_size, drop_last=True) for i in range(world_size)]
    assert {sum(1 for _ in of_rank) for of_rank in ranks} == {ROWS // world_size // 4}


def test_length_is_the_number_of_batches(session, folder):
    scan = session.scan(folder)
    for arguments in ({}, {"batch_size": 7}, {"batch_size": 7, "drop_last": True}, {"rank": 2, "world_size": 3}):
        made = loader(scan, ["id"], **arguments)
        assert len(made) == sum(1 for _ in made)
    with pytest.raises(TypeError, match="not known before the rows are read"):
        len(loader(session.scan(folder, filter=[("id", ">", 5)])))
    assert len(loader(session.scan(folder, filter=[("id", "<", 8)]), world_size=2)) == 1
    empty = loader(session.scan(folder, rows=(0, 0)))
    assert len(empty) == 0 and list(empty) == []


def test_requests_of_the_scan_are_kept(session, folder):
    scan = session.scan(folder, columns=["half", "id"], rows=(5, 50), limit=20)
    batches = list(loader(scan, ["id"], world_size=2, rank=1))
    assert ids(batches) == list(range(15, 25)) and list(batches[0]) == ["id"]
    schema = pa.schema([("id", pa.int32()), ("half", pa.float64())])
    (batch,) = loader(session.scan(folder, schema=schema), ["half"], batch_size=ROWS)
    assert batch["half"].dtype == np.float64 and batch["half"].tolist() == [i / 2 for i in range(ROWS)]


def test_another_stream_imports_the_columns_again(session, folder):
    made = loader(session.scan(folder), ["id"])
    imported = []
    tensors = made._tensors.tensors
    made._tensors.tensors = lambda columns: imported.append(stream) or tensors(columns)
    made._tensors.stream = lambda: stream
    stream, batches = 1, iter(made)
    next(batches)
    stream = 2
    next(batches)
    # The next window.
    next(batches)
    next(batches)
    assert imported == [1, 2, 2]
    batches.close()


# Positions


@pytest.mark.parametrize("world_size", [1, 2])
def test_resumed_iteration_equals_the_uninterrupted_one(scan, world_size):
    def made():
        arguments = dict(shuffle=True, seed=3, epochs=2, batch_size=5, window=10, nulls="mask")
        return loader(scan, rank=world_size - 1, world_size=world_size, **arguments)

    expected = content(made())
    interrupted = made()
    states = [interrupted.state_dict()] + [interrupted.state_dict() for _ in interrupted]
    states = json.loads(json.dumps(states))
    for n, state in enumerate(states):
        resumed = made()
        resumed.load_state_dict(state)
        assert resumed.state_dict() == state
        assert content(resumed) == expected[n:]
        # The next iteration begins with the first epoch.
        assert resumed.state_dict() == states[-1] and (n > 3 or content(resumed) == expected)


def test_epoch_is_that_of_the_last_batch(scan):
    made = loader(scan, ["id"], batch_size=50, epochs=3)
    assert [made.epoch for _ in made] == [0, 0, 1, 1, 2, 2]
    assert [made.epoch for _ in made] == [0, 0, 1, 1, 2, 2]


def test_resuming_does_not_read_fragments_before_the_position(session, tmp_path):
    for i in range(3):
        write(tmp_path / f"{i}.arrow", table_of(100 * i, 100))
    made = loader(session.scan(tmp_path), ["id"])
    batches = iter(made)
    for _ in range(60):
        next(batches)
    state = made.state_dict()
    batches.close()
    resumed = loader(session.scan(tmp_path), ["id"])
    resumed.load_state_dict(state)
    read = []
    scan_part = resumed._columns.scan
    resumed._columns.scan = lambda fragment, rows: read.append((fragment, rows)) or scan_part(fragment, rows)
    assert ids(resumed) == list(range(240, 300))
    assert [(fragment.source, rows) for fragment, rows in read] == [(str(tmp_path / "2.arrow"), (40, 100))]


def test_state_of_another_random_order_is_rejected(session, folder, monkeypatch):
    scan = session.scan(folder)
    state = loader(scan, ["id"], shuffle=True).state_dict()
    monkeypatch.setattr(Numpy, "permutation", lambda self, seed, n: np.arange(n))
    with pytest.raises(cd.UsageError, match="makes another order of the same seed"):
        loader(scan, ["id"], shuffle=True).load_state_dict(state)


def test_state_of_other_settings_is_rejected(session, folder, tmp_path):
    scan = session.scan(folder)
    state = loader(scan, ["id"]).state_dict()
    for changed, text in [
        ({"batch_size": 8}, "batch_size was 4 and is 8"),
        ({"shuffle": True, "seed": 9}, r"shuffle was False and is True; seed was 0 and is 9; .*another order"),
        ({"window": 1000}, "window was 8 and is 1000"),
        ({"world_size": 2}, "world_size was 1 and is 2"),
        ({"nulls": 0}, "columns was"),
    ]:
        with pytest.raises(cd.UsageError, match=text):
            loader(scan, ["id"], **changed).load_state_dict(state)
    with pytest.raises(cd.UsageError, match="columns was"):
        loader(scan, ["half"]).load_state_dict(state)
    write(tmp_path / "other.arrow", table_of(0, ROWS))
    with pytest.raises(cd.UsageError, match="the files are others"):
        loader(session.scan(tmp_path), ["id"]).load_state_dict(state)
    for bad in ({}, {"epoch": 0}, None, {**state, "settings": 7}):
        with pytest.raises(cd.UsageError, match="expected a state"):
            loader(scan, ["id"]).load_state_dict(bad)


# Dictionaries


def word_files(folder, *dictionaries):
    for i, values in enumerate(dictionaries):
        keys = pa.array([0] * 5, pa.int8())
        write(folder / f"{i}.arrow", pa.table({"word": pa.DictionaryArray.from_arrays(keys, values)}))


@pytest.mark.parametrize("rank", [0, 1])
def test_keys_of_other_dictionaries_are_rejected(session, tmp_path, rank):
    word_files(tmp_path, ["a", "b"], ["a"], ["b", "a"])
    made = loader(session.scan(tmp_path), rank=rank, world_size=2)
    if rank == 0:
        assert [batch["word"].tolist() for batch in made] == [[0] * 4, [0] * 3]
        return
    with pytest.raises(cd.UsageError, match=r"column 'word': .*2\.arrow.* has another dictionary"):
        list(made)


def test_longer_dictionary_is_rejected(session, tmp_path):
    # Another rank could read a file in which the additional key is another value.
    word_files(tmp_path, ["a"], ["a", "b"])
    with pytest.raises(cd.UsageError, match="has another dictionary"):
        list(loader(session.scan(tmp_path)))


def test_batches_without_rows_may_have_other_dictionaries(session, tmp_path):
    empty = pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), pa.array([], pa.string()))
    table = pa.table({"word": empty})
    with pa.OSFile(str(tmp_path / "0.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_batch(pa.record_batch({"word": empty}))
    assert list(loader(session.scan(tmp_path))) == []
    for i in (1, 2):
        words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), ["a", "b"])
        write(tmp_path / f"{i}.arrow", pa.table({"word": words}))
    (batch,) = loader(session.scan(tmp_path))
    assert batch["word"].tolist() == [0, 1, 0, 1]


def test_dictionaries_within_other_types_are_rejected(session, tmp_path):
    words = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), words[:2])
    lists = pa.FixedSizeListArray.from_arrays(pa.concat_arrays([words, words]), 2)
    named = pa.array([[1, 2]] * 4, pa.list_(pa.field("dictionary", pa.int32())))
    write(tmp_path / "a.arrow", pa.table({"runs": runs, "lists": lists, "named": named}))
    scan = session.scan(tmp_path)
    with pytest.raises(cd.UsageError, match="column 'runs' of type"):
        loader(scan, ["runs"])
    with pytest.raises(cd.UsageError, match="column 'lists': .*elements are of type dictionary"):
        loader(scan, ["lists"])
    (batch,) = loader(scan, ["named"])
    assert batch["named"].tolist() == [[1, 2]] * 4


# Errors


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_size": 0}, "batch_size=0: expected an integer of at least 1"),
        ({"batch_size": 2.5}, "batch_size=2.5: expected an integer"),
        ({"window": -1}, "window=-1: expected an integer of at least 1"),
        ({"seed": "x"}, "seed='x': expected an integer"),
        ({"epochs": -1}, "epochs=-1"),
        ({"prefetch": True}, "prefetch=True"),
        ({"rank": 2, "world_size": 2}, "rank=2: expected less than world_size=2"),
        ({"rank": -1}, "rank=-1"),
        ({"columns": ["no"]}, "the scan has no column 'no'; it has 'id', 'half'"),
        ({"columns": ["id", "id"]}, "'id' occurs more than once"),
        ({"columns": "id"}, "columns='id': expected a list of names"),
        ({"columns": []}, "expected at least one column"),
        ({"nulls": {"no": 0}}, "nulls: 'no' is not among the columns"),
        ({"nulls": "drop"}, 'nulls="drop": expected'),
    ],
)
def test_wrong_arguments_are_rejected(session, folder, arguments, text):
    with pytest.raises(cd.UsageError) as error:
        loader(session.scan(folder), **arguments)
    assert text in str(error.value)


def test_columns_that_are_no_tensors_are_rejected(session, tmp_path):
    table = pa.table({"text": ["a"], "texts": [["a"]], "a": [1], "a_mask": [2], "struct": [{"x": 1}]})
    write(tmp_path / "a.arrow", table)
    scan = session.scan(tmp_path / "a.arrow")
    with pytest.raises(cd.UsageError, match=r"column 'text' of type string is no tensor: dictionary_encode"):
        loader(scan)
    with pytest.raises(cd.UsageError, match="column 'struct'"):
        loader(scan, ["struct"])
    with pytest.raises(cd.UsageError, match="column 'texts'"):
        loader(scan, ["texts"])
    with pytest.raises(cd.UsageError, match="'a_mask' has the name of a mask"):
        loader(scan, ["a", "a_mask"], nulls={"a": "mask"})


def test_null_is_an_error_that_names_the_row(session, folder):
    with pytest.raises(cd.UsageError, match=r"column 'maybe', row 0: .*row 0 is row 0 of this rank in epoch 0"):
        list(loader(session.scan(folder), ["maybe"]))


def test_lists_of_other_lengths_are_rejected(session, tmp_path):
    for i, length in enumerate([2, 2, 3]):
        write(tmp_path / f"{i}.arrow", pa.table({"tokens": [[i] * length] * 8}))
    with pytest.raises(cd.UsageError, match=r"column 'tokens': .*from row 16 of this rank.*3.*and before.*2"):
        list(loader(session.scan(tmp_path)))
    with pytest.raises(cd.UsageError, match=r"column 'tokens', row 16: .*2 elements, and this one has 3"):
        list(loader(session.scan(tmp_path), window=100))


# Threads


def assert_thread_ends():
    until = time.monotonic() + 20
    while any(thread.name.startswith("crossdock-loader") for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("ending", ["close", "delete", "collect", "exception", "end"])
def test_end_of_an_iteration_frees_everything(session, folder, ending):
    batches = iter(loader(session.scan(folder), nulls="mask", shuffle=True))
    batch = next(batches)
    if ending == "close":
        batches.close()
    elif ending == "collect":
        cycle = [batches]
        cycle.append(cycle)
        del cycle
    elif ending == "exception":
        with pytest.raises(ZeroDivisionError):
            for batch in batches:
                1 / (batch["id"][0] * 0).item()
    elif ending == "end":
        assert len(list(batches)) == ROWS // 4 - 1
    del batches, batch
    gc.collect()
    assert_thread_ends()
    assert_all_memory_freed(session)


def test_only_few_windows_are_prepared(session, folder):
    made = loader(session.scan(folder), ["id"], prefetch=2)
    prepared = []
    of_window = made._columns.of_window
    made._columns.of_window = lambda *arguments: prepared.append(1) or of_window(*arguments)
    batches = iter(made)
    next(batches)
    time.sleep(0.2)
    # The current window and two further ones.
    assert len(prepared) == 3
    batches.close()
    assert_thread_ends()


def test_damaged_file_is_an_error_in_the_loop(session, folder, tmp_path):
    write(tmp_path / "0.arrow", table_of(0, 50))
    write(tmp_path / "1.arrow", table_of(50, 50))
    made = loader(session.scan(tmp_path), ["id"])
    data = bytearray((tmp_path / "1.arrow").read_bytes())
    data[8:400] = b"\xff" * 392
    (tmp_path / "1.arrow").write_bytes(data)
    with pytest.raises((cd.DataError, OSError)):
        list(made)
    assert_thread_ends()


@pytest.mark.parametrize("held", [True, False])
def test_interpreter_ends_within_an_iteration(folder, held):
    program = f"""
import sys
sys.path.insert(0, {str(folder.parent)!r})
sys.path.insert(0, {__file__.rpartition("/")[0]!r})
import crossdock as cd
from test_loader import loader

batches = iter(loader(cd.Session().scan({str(folder)!r}), ["id"]))
batch = next(batches)
{"" if held else "del batches"}
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    # conftest.py, which test_loader imports, names the files that it skips.
    errors = [line for line in done.stderr.splitlines() if not line.startswith("skipped: ")]
    assert (done.returncode, done.stdout, errors) == (0, "end\n", [])
