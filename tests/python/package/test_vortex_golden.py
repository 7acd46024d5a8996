"""Trees of several Vortex versions, stored as bytes, decode to Vortex's values, without Vortex. The installed
version must still produce the same trees, so that a change of the format is detected."""

import importlib.metadata
import io
import json
import zipfile
from pathlib import Path

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import is_installed

GOLDEN = Path(__file__).resolve().parents[1] / "vortex" / "golden"
# Encodings that are not decoded.
UNSUPPORTED = ["fastlanes.bitpacked.v2", "fastlanes.for.v2", "vortex.decimal_byte_parts.v2"]


def golden_trees():
    for path in sorted(GOLDEN.glob("*.zip")):
        with zipfile.ZipFile(path) as file:
            for i, name in enumerate(json.loads(file.read("names.json"))["names"]):
                yield path.stem, i, name


GOLDEN_TREES = list(golden_trees())


def read(version, i):
    with zipfile.ZipFile(GOLDEN / f"{version}.zip") as file:
        values = pa.ipc.open_file(io.BytesIO(file.read(f"{i}.arrow"))).read_all().column(0)
        return file.read(f"{i}.cdenc"), values


def test_golden_trees_cover_two_versions():
    assert len({version for version, _, _ in GOLDEN_TREES}) >= 2 and len(GOLDEN_TREES) > 250


each_tree = pytest.mark.parametrize(
    "version, i, name", GOLDEN_TREES, ids=[f"{version} {name}" for version, _, name in GOLDEN_TREES]
)


@each_tree
def test_golden_trees_decode(session, version, i, name):
    assert_decodes(session, version, i, name)


@each_tree
def test_golden_trees_decode_on_a_device(cuda_session, version, i, name):
    assert_decodes(cuda_session, version, i, name)


def assert_decodes(session, version, i, name):
    tree, expected = read(version, i)
    if any(name.startswith(id) for id in UNSUPPORTED):
        with pytest.raises(cd.UnsupportedError, match=r"\.v2"):
            session.encoded(tree).decode()
        return
    column = session.encoded(tree).decode()
    assert column.device == session.device or not column.nbytes
    column = column.to_pyarrow()
    column.validate(full=True)
    assert len(column) == len(expected) and column.null_count == expected.null_count
    if not pa.types.is_nested(column.type):
        expected = expected.cast(column.type)
    assert column.to_pylist() == expected.to_pylist()


def test_current_wheel_reproduces_its_golden_trees(session):
    """Compares ids, types, lengths and metadata of all nodes. The layout of buffers may differ."""
    if not is_installed("vortex"):
        pytest.skip("vortex-data is not installed")
    import make_golden
    import trees

    version = importlib.metadata.version("vortex-data")
    assert (GOLDEN / f"{version}.zip").exists(), f"run tests/python/vortex/make_golden.py with vortex-data {version}"
    sizes = [rows for rows, _ in make_golden.KEPT]
    arrays = dict(named for kind in trees.KINDS for named in trees.arrays(kind, sizes))
    of_this_version = [(i, name) for of, i, name in GOLDEN_TREES if of == version]
    for i, name in of_this_version:
        tree, _ = read(version, i)
        assert nodes(session.encoded(arrays[name])) == nodes(session.encoded(tree)), name


def nodes(array):
    """Returns (id, type, length, metadata) of each node, in pre-order."""
    pending, fields = [array.__vortex_array_metadata__()], []
    while pending:
        id, dtype, length, metadata, _, children = pending.pop()
        fields.append((id, dtype, length, metadata))
        pending.extend(children)
    return fields
