"""Trees that versions of the wheel made and that are kept as bytes: they decode to what Vortex made of them then, without any
Vortex here; and today's wheel still makes the same, so that a change of the format is seen."""

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
# What no version here reads yet.
REFUSED = ["fastlanes.bitpacked.v2", "fastlanes.for.v2", "vortex.decimal_byte_parts.v2"]


def kept():
    for path in sorted(GOLDEN.glob("*.zip")):
        with zipfile.ZipFile(path) as file:
            for i, name in enumerate(json.loads(file.read("names.json"))["names"]):
                yield path.stem, i, name


KEPT = list(kept())


def read(version, i):
    with zipfile.ZipFile(GOLDEN / f"{version}.zip") as file:
        values = pa.ipc.open_file(io.BytesIO(file.read(f"{i}.arrow"))).read_all().column(0)
        return file.read(f"{i}.cdenc"), values


def test_there_are_trees_of_two_versions():
    assert len({version for version, _, _ in KEPT}) >= 2 and len(KEPT) > 250


EACH = pytest.mark.parametrize("version, i, name", KEPT, ids=[f"{version} {name}" for version, _, name in KEPT])


@EACH
def test_what_was_made_decodes_as_it_did(session, version, i, name):
    decodes_as_it_did(session, version, i, name)


@EACH
def test_what_was_made_decodes_on_a_device_as_it_did(there, version, i, name):
    decodes_as_it_did(there, version, i, name)


def decodes_as_it_did(session, version, i, name):
    tree, expected = read(version, i)
    if any(name.startswith(id) for id in REFUSED):
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


def test_todays_wheel_makes_what_was_kept_of_its_version(session):
    """By ids, types, lengths and metadata of all nodes; buffers beside each other may be laid otherwise."""
    if not is_installed("vortex"):
        pytest.skip("vortex-data is not installed")
    import make_golden
    import trees

    version = importlib.metadata.version("vortex-data")
    assert (GOLDEN / f"{version}.zip").exists(), f"run tests/python/vortex/make_golden.py with vortex-data {version}"
    sizes = [rows for rows, _ in make_golden.KEPT]
    made = dict(named for kind in trees.KINDS for named in trees.arrays(kind, sizes))
    mine = [(i, name) for of, i, name in KEPT if of == version]
    for i, name in mine:
        tree, _ = read(version, i)
        assert nodes(session.encoded(made[name])) == nodes(session.encoded(tree)), name


def nodes(array):
    """(id, type, length, metadata) of each node, in pre-order."""
    waiting, found = [array.__vortex_array_metadata__()], []
    while waiting:
        id, dtype, length, metadata, _, children = waiting.pop()
        found.append((id, dtype, length, metadata))
        waiting.extend(children)
    return found
