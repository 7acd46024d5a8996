"""Sessions: arguments, lifetime, and closing."""

import gc
import os
import subprocess
import sys
import weakref

import crossdock as cd
import pyarrow as pa
import pytest
from samples import mixed


def test_errors_name_invalid_arguments():
    for arguments, message in [
        ({"device": "gpu"}, "gpu"),
        ({"device": "cuda:x"}, "cuda:x"),
        ({"memory": "lots"}, "lots"),
        ({"memory": 0}, "expected a number of bytes above 0"),
        ({"memory": -1}, "expected a number of bytes above 0"),
        ({"memory": []}, "expected a number of bytes above 0"),
        ({"validate": "maybe"}, 'expected "layout" or "full"'),
        ({"threads": 0}, "expected at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            cd.Session(**arguments)
    with pytest.raises(TypeError):
        cd.Session(colour="red")
    with pytest.raises(TypeError):
        cd.Session("cpu", "1GiB")


def test_error_for_missing_device_names_it():
    with pytest.raises(cd.DeviceError, match="cuda:63"):
        cd.Session("cuda:63")


def test_rejects_missing_plugin(tmp_path):
    with pytest.raises((cd.Error, OSError), match="no-such"):
        cd.Session(plugins=[tmp_path / "no-such.so"])
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(cd.PluginError, match="text.so"):
        cd.Session(plugins=[tmp_path / "text.so"])


def test_policy_of_the_environment_applies(tmp_path):
    policy = tmp_path / "crossdock.toml"
    program = "import crossdock as cd; print(cd.Session().plugins)"

    def plugins(text):
        policy.write_text(text)
        policy.chmod(0o644)
        environment = {**os.environ, "CROSSDOCK_POLICY": str(policy)}
        return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)

    assert plugins("allow = ['dlpack']").stdout.strip() == "['dlpack']"
    mistaken = plugins("alow = ['dlpack']")
    assert mistaken.returncode == 1
    assert "PluginError" in mistaken.stderr and "line 1" in mistaken.stderr and "alow" in mistaken.stderr


def test_memory_budget_is_enforced(tmp_path):
    batch = pa.record_batch({"a": pa.array(range(100_000), pa.int64())})
    path = tmp_path / "in.arrow"
    with pa.ipc.new_file(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write(batch)
    with cd.Session(memory="100KiB") as small, pytest.raises(MemoryError, match="(?i)memory|budget") as raised:
        small.read_ipc(path)
    assert isinstance(raised.value, cd.OutOfMemoryError)
    for enough in ("8MiB", 8 << 20):
        with cd.Session(memory=enough) as session:
            table = session.read_ipc(path)
            ((account, used),) = session.memory_used().items()
            assert "arrow-ipc" in account and 800_000 <= used["cpu"] <= 8 << 20
            del table
            gc.collect()
            assert session.memory_used() == {}


def test_closed_session_rejects_work_and_its_tables_stay_usable(tmp_path):
    session = cd.Session()
    table = session.from_arrow(mixed())
    assert repr(session) == 'crossdock.Session("cpu")'
    session.close()
    session.close()
    assert repr(session) == 'crossdock.Session("cpu", closed)'
    for use in (lambda: session.from_arrow(mixed()), lambda: session.plugins, session.memory_used, session.synchronize):
        with pytest.raises(cd.UsageError, match="the session is closed: open another one"):
            use()
    assert table.to_pyarrow().equals(pa.Table.from_batches([mixed()]))
    table.write_ipc(tmp_path / "out.arrow")
    assert table.slice(3, 5)["n"].null_count == mixed().slice(3, 5)["n"].null_count


def test_context_manager_propagates_exceptions_and_closes_session():
    with pytest.raises(LookupError), cd.Session() as session:
        raise LookupError
    with pytest.raises(cd.UsageError, match="closed"):
        session.synchronize()


def test_sessions_are_independent():
    with cd.Session(memory="1MiB") as one, cd.Session() as other:
        table = one.from_arrow(mixed())
        again = other.from_arrow(table)
        one.close()
        del table
        assert again.to_pyarrow().equals(pa.Table.from_batches([mixed()]))


def test_unreferenced_objects_are_freed():
    session = cd.Session()
    table = session.from_arrow(mixed())
    references = [weakref.ref(obj) for obj in (table["n"], table, session)]
    del table, session
    gc.collect()
    assert [ref() for ref in references] == [None, None, None]


def test_objects_are_immutable():
    with cd.Session() as session:
        table = session.from_arrow(mixed())
        for obj, name in [(session, "device"), (table, "num_rows"), (table["n"], "name"), (table.schema, "names")]:
            with pytest.raises(AttributeError):
                setattr(obj, name, 7)
            with pytest.raises(AttributeError):
                obj.anything = 7


DEFAULT = """
import crossdock as cd
assert cd.default_session() is cd.default_session()
print(cd.default_session().device)
"""


def test_default_session_follows_the_environment():
    def output(**environment):
        done = subprocess.run(
            [sys.executable, "-c", DEFAULT], capture_output=True, text=True, env=os.environ | environment
        )
        return done.stdout.strip() or done.stderr.strip().splitlines()[-1]

    assert output() == "cpu"
    assert "nonsense" in output(CROSSDOCK_DEVICE="nonsense")


def test_columns_are_found_by_name_and_by_index():
    with cd.Session() as session:
        table = session.from_arrow(pa.table([[1], [2], [3]], names=["a", "b", "b"]))
        assert table["a"].name == table[0].name == table[-3].name == "a"
        assert [column.name for column in table.columns] == table.column_names == ["a", "b", "b"]
        assert (len(table), len(table["a"])) == (1, 1)
        with pytest.raises(KeyError, match="no column is named .*c.*, the columns are .*a"):
            table["c"]
        with pytest.raises(KeyError, match="several columns are named .*b.*: use an index"):
            table["b"]
        for index in (3, -4, 10**12):
            with pytest.raises(IndexError, match=f"column index {index} is out of range for 3 columns"):
                table[index]
        with pytest.raises(TypeError):
            table[1.5]
        with pytest.raises(KeyError):
            table.select(["a", "zzz"])
        with pytest.raises(IndexError, match="chunk 1 of a column of 1 chunks"):
            table["a"].chunk(1)
        with pytest.raises((OverflowError, ValueError)):
            table.slice(-1)


def test_plan_reports_a_verdict_for_each_column():
    with cd.Session() as session:
        table = session.from_arrow(pa.table({"n": [1, 2], "t": ["a", "b"]}))
        number, text = table.plan("dlpack")
        assert (number["name"], number["verdict"], number["device"]) == ("n", "zero-copy", "cpu")
        assert (text["verdict"], bool(text["reason"])) == ("unsupported", True)
        assert {row["verdict"] for row in table.plan("arrow-c-device")} == {"zero-copy"}
        with pytest.raises(cd.Error, match="no-such-format"):
            table.plan("no-such-format")
