"""A plugin of somebody else's, examples/rust-plugin, which this package was not built with: given by its path, and brought by an
installed package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import capsules
import craft
import dtypes
import numpy as np
import pyarrow as pa
import pytest
import test_extension
from conftest import ROOT, assert_nothing_held
from flat import Tree

import crossdock as cd

engine = test_extension.engine
FILE = "libcrossdock_example_plugin.so"


@pytest.fixture(scope="session")
def example():
    """The plugin, built as its README says."""
    target = ROOT / "target" / "examples"
    # Beside the tests' programs, where those were packed for a machine without Cargo.
    packed = Path(cd.__file__).parents[2] / "release" / "example-plugin" / FILE
    if packed.exists():
        return packed
    if shutil.which("cargo"):
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        environment.pop("LD_LIBRARY_PATH", None)
        project = ROOT / "examples" / "rust-plugin"
        subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=project, check=True, env=environment)
    elif not (target / "debug" / FILE).exists():
        pytest.skip("no cargo to build examples/rust-plugin with, and it is not built")
    return target / "debug" / FILE


VALUES = np.array([1000.25, 1000.5, np.nan, 999.75, 1001.0] * 500)
VALID = np.arange(len(VALUES)) % 7 != 0
REFERENCE = np.array([1000.0]).view("u8")


def tree():
    """The values less what they share with a reference, in as many bits as the rest needs, the others as patches."""
    words = VALUES.view("u8") ^ REFERENCE
    words = craft.bitpacked(words, 45, VALID)
    dtype = dtypes.primitive(dtypes.NUMPY.index("f8"), True)
    return Tree("example.xor", dtype, len(VALUES), REFERENCE.tobytes(), [], [words])


def assert_decoded(column):
    got = column.to_pyarrow()
    assert got.type == pa.float64() and got.null_count == np.count_nonzero(~VALID)
    kept = got.drop_null().to_numpy().view("u8")
    assert np.array_equal(kept, VALUES[VALID].view("u8"))


def decodes(plugin, device):
    with cd.Session(device, plugins=[plugin]) as session:
        assert "example" in session.plugins
        assert_decoded(session.from_vortex(capsules.Exporter(tree())))
        assert_nothing_held(session)


def test_a_plugin_that_is_given_decodes_its_encoding(example):
    decodes(example, "cpu")


def test_a_plugin_that_is_given_decodes_its_encoding_on_a_device(example, cuda):
    decodes(example, cuda)


def test_without_the_plugin_its_encoding_is_told_with_its_name(session):
    with pytest.raises(cd.UnsupportedError, match="example.xor"):
        session.from_vortex(capsules.Exporter(tree()))


def test_a_module_that_is_built_apart_uses_the_plugin_too(example, engine, session, tmp_path):
    """Neither the engine nor the package was built with the plugin: the tree goes to the engine as a file."""
    for plugin in [*test_extension.PLUGINS.iterdir(), example]:
        (tmp_path / plugin.name).symlink_to(plugin.resolve())
    tree_file = tmp_path / "tree.cdenc"
    tree_file.write_bytes(session.encoded(capsules.Exporter(tree())).to_bytes())
    rows = engine.Engine(tmp_path).read(tree_file)
    assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def test_an_installed_package_brings_the_plugin(example, tmp_path):
    """The package is found, and its plugin used, by a program that names neither."""
    (tmp_path / "somebody_s_encodings").mkdir()
    shutil.copy(example, tmp_path / "somebody_s_encodings")
    about = tmp_path / "somebody_s_encodings-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody_s_encodings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[crossdock.plugins]\nexample = somebody_s_encodings\n")
    code = """
import capsules, crossdock as cd, test_third_party as test
test.assert_decoded(cd.Session().from_vortex(capsules.Exporter(test.tree())))
"""
    here = Path(__file__).parent
    path = [os.environ.get("PYTHONPATH", ""), here, here.parent, here.parent / "vortex", tmp_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
