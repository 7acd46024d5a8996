"""Other extension modules: a separately built module with its own host, the capsule `crossdock.host.v1`, and
plugins of other packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BAD_CITIZEN, ROOT

import crossdock as cd
import pyarrow as pa

PLUGINS = Path(cd.__file__).parent / "plugins"


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    """Builds examples/python-extension as its README describes, and imports it."""
    target = ROOT / "target" / "examples"
    built = target / "debug" / "libcrossdock_engine.so"
    if shutil.which("cargo"):
        example = ROOT / "examples" / "python-extension"
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "PYO3_BUILD_EXTENSION_MODULE": "1"}
        environment.pop("LD_LIBRARY_PATH", None)
        subprocess.run(["cargo", "build", "--quiet"], cwd=example, check=True, env=environment)
    elif not built.exists():
        pytest.skip("examples/python-extension is not built, and there is no cargo")
    folder = tmp_path_factory.mktemp("engine")
    shutil.copy(built, folder / "crossdock_engine.so")
    sys.path.insert(0, str(folder))
    import crossdock_engine

    return crossdock_engine


def check_exchange(engine, session, tmp_path):
    separate_engine = engine.Engine(PLUGINS, session.device)
    assert separate_engine.plugins() == session.plugins
    columns = {"a": [1, 2, None, 4], "b": ["x", None, "z", "w"], "c": [[1], [], None, [2, 3]]}
    table = session.from_arrow(pa.record_batch(columns))
    rows = separate_engine.take(table)
    assert len(rows) == 4
    back = session.from_arrow(rows.skip(1))
    assert back.device == session.device
    assert back.to_pyarrow().equals(pa.table(columns).slice(1))
    # A plugin that the engine loaded decodes this array.
    rows.write(tmp_path / "rows.arrow")
    assert session.read_ipc(tmp_path / "rows.arrow").to_pyarrow().equals(pa.table(columns))
    assert len(separate_engine.read(tmp_path / "rows.arrow")) == 4
    # The results of the engine outlive the engine.
    del separate_engine, rows, table
    assert back.to_pyarrow().num_rows == 3


def test_separately_built_module_exchanges_tables(engine, session, tmp_path):
    check_exchange(engine, session, tmp_path)


def test_separately_built_module_works_on_a_device(engine, cuda_session, tmp_path):
    check_exchange(engine, cuda_session, tmp_path)


def check_host_capsule(engine, session):
    column = session.from_capsules(*engine.sequence(session, 1000))
    assert column.device == session.device
    assert column.to_pyarrow().to_pylist() == list(range(1000))
    assert session.memory_used()["crossdock_engine"][session.device] >= 8000
    with pytest.raises(ValueError, match="-1 rows"):
        engine.sequence(session, -1)
    with pytest.raises(TypeError, match="crossdock.host.v1"):
        engine.sequence(WithoutHostCapsule(), 1)


class WithoutHostCapsule:
    def __crossdock_host__(self, name):
        return object()


def test_host_capsule_allocates_in_the_session(engine, session):
    check_host_capsule(engine, session)


def test_host_capsule_allocates_on_the_device(engine, cuda_session):
    check_host_capsule(engine, cuda_session)


def test_host_capsule_respects_the_budget(engine):
    session = cd.Session(memory="1MiB")
    with pytest.raises(RuntimeError, match="crossdock_engine"):
        engine.sequence(session, 1_000_000)
    assert session.from_capsules(*engine.sequence(session, 10)).to_pyarrow().to_pylist() == list(range(10))


def test_host_capsule_outlives_its_session(engine):
    session = cd.Session()
    pair = engine.sequence(session, 5)
    unused = session.__crossdock_host__("unused")
    session.close()
    del session
    assert pa.Array._import_from_c_capsule(*as_host_array(pair)).to_pylist() == list(range(5))
    del unused


def as_host_array(pair):
    other = cd.Session()
    return other.from_capsules(*pair).__arrow_c_array__()


def test_closed_session_creates_no_host_capsule():
    session = cd.Session()
    session.close()
    with pytest.raises(cd.UsageError, match="closed"):
        session.__crossdock_host__("late")


def package(folder, name, entry, plugin=None):
    """Creates an installed package with an entry point, as pip does."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise AssertionError('the package was imported')\n")
    if plugin:
        shutil.copy(plugin, folder / name)
    dist_info = folder / f"{name}-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(f"[crossdock.plugins]\n{name} = {entry}\n")


def plugins_with(folder):
    code = "import crossdock as cd; print(*cd.Session().plugins)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)])}
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, done.stdout.split(), done.stderr


def test_entry_point_provides_plugin_without_running_code(tmp_path):
    if not BAD_CITIZEN.exists():
        pytest.skip("the plugin target/debug/libbad_citizen.so is not built")
    _, bundled, _ = plugins_with(tmp_path)
    package(tmp_path, "other_encodings", "other_encodings", BAD_CITIZEN)
    status, plugins, err = plugins_with(tmp_path)
    assert (status, err) == (0, "")
    assert "encodings" in bundled and plugins == [*bundled, "bad-citizen"]


def test_ignores_entry_point_without_folder(tmp_path):
    _, bundled, _ = plugins_with(tmp_path)
    package(tmp_path, "without_plugins", "without_plugins")
    package(tmp_path, "gone", "no_such_package.at_all")
    status, plugins, err = plugins_with(tmp_path)
    assert "encodings" in bundled and (status, plugins) == (0, bundled), err
