"""Tests external plugins (examples/rust-plugin and examples/c-plugin) that are named by path or provided by an
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
from conftest import ROOT, assert_all_memory_freed
from flat import Tree

import crossdock as cd

engine = test_extension.engine


def rust_plugin(_):
    target = ROOT / "target" / "examples"
    file = "libcrossdock_example_plugin.so"
    # The plugin in the archive of tests, which is used on machines without Cargo.
    packed = Path(cd.__file__).parents[2] / "release" / "example-plugin" / file
    if packed.exists():
        return packed
    if shutil.which("cargo"):
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
        environment.pop("LD_LIBRARY_PATH", None)
        project = ROOT / "examples" / "rust-plugin"
        subprocess.run(["cargo", "build", "--quiet", "--locked"], cwd=project, check=True, env=environment)
    elif not (target / "debug" / file).exists():
        pytest.skip("examples/rust-plugin is not built, and there is no cargo")
    return target / "debug" / file


def c_plugin(folder):
    project = ROOT / "examples" / "c-plugin"
    if not project.exists() or not shutil.which("make"):
        pytest.skip("building examples/c-plugin needs make and a checkout of the repository")
    subprocess.run(["make", "--silent", "--directory", project, f"OUT={folder}"], check=True)
    return folder / "libcrossdock_csv_plugin.so"


VALUES = np.array([1000.25, 1000.5, np.nan, 999.75, 1001.0] * 500)
VALID = np.arange(len(VALUES)) % 7 != 0
REFERENCE = np.array([1000.0]).view("u8")
INTEGERS = np.arange(2500, dtype="i8") % 1000 - 500
SCALE = np.array([0.25])


def xor():
    """Values XOR a reference, bit-packed, with patches."""
    words = VALUES.view("u8") ^ REFERENCE
    words = craft.bitpacked(words, 45, VALID)
    dtype = dtypes.primitive(dtypes.NUMPY.index("f8"), True)
    return Tree("example.xor", dtype, len(VALUES), REFERENCE.tobytes(), [], [words])


def scaled():
    """Integers times a scale, decoded only by the host's kernels."""
    dtype = dtypes.primitive(dtypes.NUMPY.index("f8"), True)
    integers = craft.primitive(INTEGERS, VALID)
    return Tree("example.scaled", dtype, len(INTEGERS), SCALE.tobytes(), [], [integers])


class Example:
    """A plugin, its name, and a tree of its encoding with the decoded values."""

    def __init__(self, name, build, tree, values):
        self.name, self.build, self.tree, self.values = name, build, tree, values
        self.id = tree().id

    def assert_decoded(self, column):
        got = column.to_pyarrow()
        assert got.type == pa.float64() and got.null_count == np.count_nonzero(~VALID)
        valid_values = got.drop_null().to_numpy().view("u8")
        assert np.array_equal(valid_values, self.values[VALID].view("u8"))


EXAMPLES = {
    "rust": Example("example", rust_plugin, xor, VALUES),
    "c": Example("csv", c_plugin, scaled, INTEGERS * SCALE),
}


@pytest.fixture(scope="session", params=EXAMPLES)
def example(request, tmp_path_factory):
    """Builds an example as its README describes, and returns it with its `file`."""
    example = EXAMPLES[request.param]
    example.file = example.build(tmp_path_factory.mktemp(example.name))
    return example


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """Builds all examples, and returns their files."""
    return {key: each.build(tmp_path_factory.mktemp(each.name)) for key, each in EXAMPLES.items()}


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """A plugin that decodes the same encoding as the C example, but has a different name."""
    folder = tmp_path_factory.mktemp("other")
    if not (ROOT / "examples" / "c-plugin").exists() or not shutil.which("make"):
        pytest.skip("building examples/c-plugin needs make and a checkout of the repository")
    source = shutil.copytree(ROOT / "examples" / "c-plugin", folder / "source", ignore=shutil.ignore_patterns("build"))
    text = (source / "plugin.c").read_text()
    assert text.count('    .name = "csv",') == 1
    (source / "plugin.c").write_text(text.replace('    .name = "csv",', '    .name = "other",'))
    include = ROOT / "plugin-api" / "include"
    command = ["make", "--silent", "--directory", source, f"OUT={folder}", f"CROSSDOCK_INCLUDE={include}"]
    subprocess.run(command, check=True)
    return folder / "libcrossdock_csv_plugin.so"


@pytest.fixture
def folder_of(tmp_path):
    """Creates a folder with the package's plugins and another plugin."""

    def folder_of(*files):
        for i, file in enumerate([*test_extension.PLUGINS.iterdir(), *files]):
            (tmp_path / f"{i}_{file.name}").symlink_to(file.resolve())
        return tmp_path

    return folder_of


def check_decoding(example, device):
    with cd.Session(device, plugins=[example.file]) as session:
        assert example.name in session.plugins
        example.assert_decoded(session.from_vortex(capsules.Exporter(example.tree())))
        assert_all_memory_freed(session)


def test_plugin_decodes_its_encoding(example):
    check_decoding(example, "cpu")


def test_plugin_decodes_its_encoding_on_a_device(example, cuda):
    check_decoding(example, cuda)


@pytest.mark.parametrize("tree", [xor, scaled])
def test_error_without_plugin_names_the_encoding(session, tree):
    with pytest.raises(cd.UnsupportedError, match=f"example.{tree.__name__}"):
        session.from_vortex(capsules.Exporter(tree()))


def test_encodings_lists_plugins_by_id(both, session):
    known = session.encodings()
    assert known["vortex.dict"] == ["encodings"] and not any(id.startswith("example.") for id in known)
    with cd.Session(plugins=list(both.values())) as session_with_examples:
        example_encodings = {example.id: [example.name] for example in EXAMPLES.values()}
        assert session_with_examples.encodings() == example_encodings | known
    with pytest.raises(cd.UsageError, match="closed"):
        session_with_examples.encodings()


def test_first_of_two_plugins_for_an_encoding_decodes_it(both, other):
    """Tests both orders of the plugins, each in a separate session."""
    for files, names in [([both["c"], other], ["csv", "other"]), ([other, both["c"]], ["other", "csv"])]:
        with cd.Session(plugins=files) as session:
            assert session.encodings()["example.scaled"] == names
            broken = scaled()
            broken.metadata = b"five!"
            with pytest.raises(cd.DataError, match=f"{names[0]} .*metadata has 5 bytes"):
                session.from_vortex(capsules.Exporter(broken))
            EXAMPLES["c"].assert_decoded(session.from_vortex(capsules.Exporter(scaled())))


def test_separately_built_module_lists_plugins_by_id(both, other, engine, folder_of, session):
    without_examples = engine.Engine(test_extension.PLUGINS).encodings()
    assert without_examples == session.encodings()
    with_examples = engine.Engine(folder_of(*both.values(), other)).encodings()
    assert with_examples.pop("example.xor") == ["example"]
    # The plugins are ordered by file name.
    assert sorted(with_examples.pop("example.scaled")) == ["csv", "other"]
    assert with_examples == without_examples


def test_separately_built_module_uses_the_plugin(example, engine, session, folder_of):
    """The engine reads the tree from a file, with a plugin that it was not built with."""
    folder = folder_of(example.file)
    tree_file = folder / "tree.cdenc"
    tree_file.write_bytes(session.encoded(capsules.Exporter(example.tree())).to_bytes())
    rows = engine.Engine(folder).read(tree_file)
    example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def check_exchange(example, engine, session, device, folder, capsule_of=capsules.capsule_of):
    """The session has no plugin for the encoding. The engine decodes the tree on a device, and returns a
    table."""
    separate_engine = engine.Engine(folder, device)
    tree = session.encoded(capsules.Exporter(example.tree(), capsule_of))
    assert tree.encoding == example.id and tree.encoding not in session.encodings()
    # Each call returns a new capsule.
    for _ in range(2):
        rows = separate_engine.decode(tree)
        assert len(rows) == len(tree)
        example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())
    # The result outlives the engine and the tree.
    del separate_engine, tree
    example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def test_tree_passes_to_a_separately_built_module(example, engine, session, folder_of):
    check_exchange(example, engine, session, "cpu", folder_of(example.file))


def test_tree_passes_to_a_module_on_a_device(example, engine, session, cuda, folder_of):
    check_exchange(example, engine, session, cuda, folder_of(example.file))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_device_tree_passes_to_a_module(example, engine, cuda_session, folder_of, device):
    on_the_device = capsules.on_the_device_of(cuda_session)
    check_exchange(example, engine, cuda_session, device, folder_of(example.file), on_the_device)


class FixedResult:
    """An object whose method returns a fixed value."""

    def __init__(self, result):
        self.result = result

    def __crossdock_encoded_array__(self):
        return self.result


def test_capsule_is_consumed_once_in_either_module(example, engine, session, folder_of):
    folder = folder_of(example.file)
    separate_engine, tree = engine.Engine(folder), session.encoded(capsules.Exporter(example.tree()))
    source = FixedResult(tree.__crossdock_encoded_array__())
    example.assert_decoded(session.from_arrow(separate_engine.decode(source))[0].combine_chunks())
    with pytest.raises(ValueError, match="crossdock_encoded_array.* already consumed"):
        separate_engine.decode(source)
    with pytest.raises(cd.UsageError, match="'crossdock_encoded_array' was already consumed"):
        session.encoded(source)
    # The session consumes the tree, so the engine must reject the consumed tree.
    source = FixedResult(tree.__crossdock_encoded_array__())
    assert session.encoded(source).encoding == example.id
    with pytest.raises(ValueError, match="already consumed"):
        separate_engine.decode(source)


@pytest.mark.parametrize("source", [None, 7, b"bytes"], ids=repr)
def test_separately_built_module_rejects_other_capsules(engine, session, source):
    separate_engine = engine.Engine(test_extension.PLUGINS)
    schema = session.from_arrow(pa.array([1])).__arrow_c_schema__()
    for other in (source, schema):
        with pytest.raises(TypeError, match="expected a capsule .*crossdock_encoded_array"):
            separate_engine.decode(FixedResult(other))
    with pytest.raises(AttributeError, match="__crossdock_encoded_array__"):
        separate_engine.decode(source)


def test_error_of_module_without_plugin_lists_known_ids(example, engine, session):
    separate_engine = engine.Engine(test_extension.PLUGINS)
    tree = session.encoded(capsules.Exporter(example.tree()))
    with pytest.raises(RuntimeError, match=f"no plugin of the session decodes '{example.id}'.*vortex.dict"):
        separate_engine.decode(tree)


def test_installed_package_provides_the_plugin(example, tmp_path):
    """A program uses the plugin without naming it or its package."""
    (tmp_path / "some_encodings").mkdir()
    shutil.copy(example.file, tmp_path / "some_encodings")
    dist_info = tmp_path / "some_encodings-1.0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: some_encodings\nVersion: 1.0\n")
    (dist_info / "entry_points.txt").write_text(f"[crossdock.plugins]\n{example.name} = some_encodings\n")
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
