"""Other extension modules: one that is built apart and has a host of its own, the capsule `crossdock.host.v1`, and plugins that
other packages bring."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import crossdock as cd
import pyarrow as pa

PLUGINS = Path(cd.__file__).parent / "plugins"


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """The module of examples/python-extension, built as its README says."""
    target = ROOT / "target" / "examples"
    built = target / "debug" / "libcrossdock_engine.so"
    if shutil.which("cargo"):
        example = ROOT / "examples" / "python-extension"
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "PYO3_BUILD_EXTENSION_MODULE": "1"}
        environment.pop("LD_LIBRARY_PATH", None)
        subprocess.run(["cargo", "build", "--quiet"], cwd=example, check=True, env=environment)
    elif not built.exists():
        pytest.skip("no cargo to build examples/python-extension with, and it is not built")
    folder = tmp_path_factory.mktemp("engine")
    shutil.copy(built, folder / "crossdock_engine.so")
    sys.path.insert(0, str(folder))
    import crossdock_engine

    return crossdock_engine


def through_the_engine(engine, session, tmp_path):
    there = engine.Engine(PLUGINS, session.device)
    assert there.plugins() == session.plugins
    columns = {"a": [1, 2, None, 4], "b": ["x", None, "z", "w"], "c": [[1], [], None, [2, 3]]}
    table = session.from_arrow(pa.record_batch(columns))
    rows = there.take(table)
    assert len(rows) == 4
    back = session.from_arrow(rows.skip(1))
    assert back.device == session.device
    assert back.to_pyarrow().equals(pa.table(columns).slice(1))
    # By a plugin that the engine loaded itself.
    rows.write(tmp_path / "rows.arrow")
    assert session.read_ipc(tmp_path / "rows.arrow").to_pyarrow().equals(pa.table(columns))
    assert len(there.read(tmp_path / "rows.arrow")) == 4
    # What it gave outlives it.
    del there, rows, table
    assert back.to_pyarrow().num_rows == 3


def test_a_module_built_apart_takes_a_table_and_gives_one_back(engine, session, tmp_path):
    through_the_engine(engine, session, tmp_path)


def test_a_module_built_apart_works_on_a_device(engine, there, tmp_path):
    through_the_engine(engine, there, tmp_path)


def in_a_lent_host(engine, session):
    column = session.from_capsules(*engine.sequence(session, 1000))
    assert column.device == session.device
    assert column.to_pyarrow().to_pylist() == list(range(1000))
    assert session.memory_used()["crossdock_engine"][session.device] >= 8000
    with pytest.raises(ValueError, match="-1 rows"):
        engine.sequence(session, -1)
    with pytest.raises(TypeError, match="crossdock.host.v1"):
        engine.sequence(Wrong(), 1)


class Wrong:
    def __crossdock_host__(self, name):
        return object()


def test_a_lent_host_s_memory_is_the_session_s(engine, session):
    in_a_lent_host(engine, session)


def test_a_lent_host_s_memory_is_the_device_s(engine, there):
    in_a_lent_host(engine, there)


def test_what_a_lent_host_gives_is_within_the_session_s_budget(engine):
    session = cd.Session(memory="1MiB")
    with pytest.raises(RuntimeError, match="crossdock_engine"):
        engine.sequence(session, 1_000_000)
    assert session.from_capsules(*engine.sequence(session, 10)).to_pyarrow().to_pylist() == list(range(10))


def test_a_lent_host_outlives_its_session_and_capsules_may_go_unused(engine):
    session = cd.Session()
    pair = engine.sequence(session, 5)
    unused = session.__crossdock_host__("nobody")
    session.close()
    del session
    assert pa.Array._import_from_c_capsule(*as_host_array(pair)).to_pylist() == list(range(5))
    del unused


def as_host_array(pair):
    other = cd.Session()
    return other.from_capsules(*pair).__arrow_c_array__()


def test_a_closed_session_lends_nothing():
    session = cd.Session()
    session.close()
    with pytest.raises(cd.UsageError, match="closed"):
        session.__crossdock_host__("late")


def package(folder, name, entry, plugin=None):
    """An installed package with an entry point, as pip leaves one."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('its code is not to be run')\n")
    if plugin:
        shutil.copy(plugin, folder / name)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[crossdock.plugins]\n{name} = {entry}\n")


def plugins_with(folder):
    code = "import crossdock as cd; print(*cd.Session().plugins)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)])}
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, done.stdout.split(), done.stderr


def test_a_package_brings_a_plugin_and_none_of_its_code_is_run(tmp_path):
    example = ROOT / "target" / "debug" / "libbad_citizen.so"
    if not example.exists():
        pytest.skip("no plugin of a third party's is built: target/debug/libbad_citizen.so")
    package(tmp_path, "their_encodings", "their_encodings", example)
    status, plugins, err = plugins_with(tmp_path)
    assert (status, err) == (0, "")
    assert plugins == ["arrow-c-device", "arrow-ipc", "dlpack", "encodings", "bad-citizen"]


def test_an_entry_point_to_nothing_does_not_keep_others_from_being_found(tmp_path):
    package(tmp_path, "without_plugins", "without_plugins")
    package(tmp_path, "gone", "no_such_package.at_all")
    status, plugins, err = plugins_with(tmp_path)
    assert (status, plugins) == (0, ["arrow-c-device", "arrow-ipc", "dlpack", "encodings"]), err
