"""Plugins of somebody else's, examples/rust-plugin and examples/c-plugin, which this package was not built with: given by their
paths, and brought by an installed package."""

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


def rust_plugin(_):
    target = ROOT / "target" / "examples"
    file = "libcrossdock_example_plugin.so"
    # Beside the tests' programs, where those were packed for a machine without Cargo.
    packed = Path(cd.__file__).parents[2] / "release" / "example-plugin" / file
    if packed.exists():
        return packed
    if shutil.which("cargo"):
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        environment.pop("LD_LIBRARY_PATH", None)
        project = ROOT / "examples" / "rust-plugin"
        subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=project, check=True, env=environment)
    elif not (target / "debug" / file).exists():
        pytest.skip("no cargo to build examples/rust-plugin with, and it is not built")
    return target / "debug" / file


def c_plugin(folder):
    project = ROOT / "examples" / "c-plugin"
    if not project.exists() or not shutil.which("make"):
        pytest.skip("no make to build examples/c-plugin with, or it is not here")
    subprocess.run(["make", "--silent", "--directory", project, f"OUT={folder}"], check=True)
    return folder / "libcrossdock_csv_plugin.so"


VALUES = np.array([1000.25, 1000.5, np.nan, 999.75, 1001.0] * 500)
VALID = np.arange(len(VALUES)) % 7 != 0
REFERENCE = np.array([1000.0]).view("u8")
INTEGERS = np.arange(2500, dtype="i8") % 1000 - 500
SCALE = np.array([0.25])


def xor():
    """The values less what they share with a reference, in as many bits as the rest needs, the others as patches."""
    words = VALUES.view("u8") ^ REFERENCE
    words = craft.bitpacked(words, 45, VALID)
    dtype = dtypes.primitive(dtypes.NUMPY.index("f8"), True)
    return Tree("example.xor", dtype, len(VALUES), REFERENCE.tobytes(), [], [words])


def scaled():
    """Integers times a scale. Nothing but the host's kernels decodes it."""
    dtype = dtypes.primitive(dtypes.NUMPY.index("f8"), True)
    integers = craft.primitive(INTEGERS, VALID)
    return Tree("example.scaled", dtype, len(INTEGERS), SCALE.tobytes(), [], [integers])


class Example:
    """A plugin, its name, and a tree of its encoding with the values that it stands for."""

    def __init__(self, name, build, tree, values):
        self.name, self.build, self.tree, self.values = name, build, tree, values

    def assert_decoded(self, column):
        got = column.to_pyarrow()
        assert got.type == pa.float64() and got.null_count == np.count_nonzero(~VALID)
        kept = got.drop_null().to_numpy().view("u8")
        assert np.array_equal(kept, self.values[VALID].view("u8"))


EXAMPLES = {
    "rust": Example("example", rust_plugin, xor, VALUES),
    "c": Example("csv", c_plugin, scaled, INTEGERS * SCALE),
}


@pytest.fixture(scope="session", params=EXAMPLES)
def example(request, tmp_path_factory):
    """One of them, with its `file`, built as its README says."""
    example = EXAMPLES[request.param]
    example.file = example.build(tmp_path_factory.mktemp(example.name))
    return example


def decodes(example, device):
    with cd.Session(device, plugins=[example.file]) as session:
        assert example.name in session.plugins
        example.assert_decoded(session.from_vortex(capsules.Exporter(example.tree())))
        assert_nothing_held(session)


def test_a_plugin_that_is_given_decodes_its_encoding(example):
    decodes(example, "cpu")


def test_a_plugin_that_is_given_decodes_its_encoding_on_a_device(example, cuda):
    decodes(example, cuda)


@pytest.mark.parametrize("tree", [xor, scaled])
def test_without_the_plugin_its_encoding_is_told_with_its_name(session, tree):
    with pytest.raises(cd.UnsupportedError, match=f"example.{tree.__name__}"):
        session.from_vortex(capsules.Exporter(tree()))


def test_a_module_that_is_built_apart_uses_the_plugin_too(example, engine, session, tmp_path):
    """Neither the engine nor the package was built with the plugin: the tree goes to the engine as a file."""
    for plugin in [*test_extension.PLUGINS.iterdir(), example.file]:
        (tmp_path / plugin.name).symlink_to(plugin.resolve())
    tree_file = tmp_path / "tree.cdenc"
    tree_file.write_bytes(session.encoded(capsules.Exporter(example.tree())).to_bytes())
    rows = engine.Engine(tmp_path).read(tree_file)
    example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def test_an_installed_package_brings_the_plugin(example, tmp_path):
    """The package is found, and its plugin used, by a program that names neither."""
    (tmp_path / "somebody_s_encodings").mkdir()
    shutil.copy(example.file, tmp_path / "somebody_s_encodings")
    about = tmp_path / "somebody_s_encodings-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody_s_encodings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[crossdock.plugins]\n{example.name} = somebody_s_encodings\n")
    key = next(key for key, known in EXAMPLES.items() if known is example)
    code = f"""
import capsules, crossdock as cd, test_third_party
example = test_third_party.EXAMPLES[{key!r}]
example.assert_decoded(cd.Session().from_vortex(capsules.Exporter(example.tree())))
"""
    here = Path(__file__).parent
    path = [os.environ.get("PYTHONPATH", ""), here, here.parent, here.parent / "vortex", tmp_path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
