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
        self.id = tree().id

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


@pytest.fixture(scope="session")
def both(tmp_path_factory):
    """The files of all of them."""
    return {key: each.build(tmp_path_factory.mktemp(each.name)) for key, each in EXAMPLES.items()}


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """A plugin of another name that has the encoding of the one in C too."""
    folder = tmp_path_factory.mktemp("other")
    if not (ROOT / "examples" / "c-plugin").exists() or not shutil.which("make"):
        pytest.skip("no make to build examples/c-plugin with, or it is not here")
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
    """Makes a folder with the package's own plugins and another one's file: what an engine looks at."""

    def folder_of(*files):
        for i, file in enumerate([*test_extension.PLUGINS.iterdir(), *files]):
            (tmp_path / f"{i}_{file.name}").symlink_to(file.resolve())
        return tmp_path

    return folder_of


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


def test_a_session_says_which_plugin_decodes_which_id(both, session):
    known = session.encodings()
    assert known["vortex.dict"] == ["encodings"] and not any(id.startswith("example.") for id in known)
    with cd.Session(plugins=list(both.values())) as more:
        theirs = {example.id: [example.name] for example in EXAMPLES.values()}
        assert more.encodings() == theirs | known
    with pytest.raises(cd.UsageError, match="closed"):
        more.encodings()


def test_of_two_plugins_the_first_is_named_first_and_is_asked(both, other):
    """Given one way and the other, each to a session of its own."""
    for files, names in [([both["c"], other], ["csv", "other"]), ([other, both["c"]], ["other", "csv"])]:
        with cd.Session(plugins=files) as session:
            assert session.encodings()["example.scaled"] == names
            broken = scaled()
            broken.metadata = b"five!"
            with pytest.raises(cd.DataError, match=f"{names[0]} .*metadata has 5 bytes"):
                session.from_vortex(capsules.Exporter(broken))
            EXAMPLES["c"].assert_decoded(session.from_vortex(capsules.Exporter(scaled())))


def test_a_module_that_is_built_apart_says_which_plugin_decodes_which_id(both, other, engine, folder_of, session):
    own = engine.Engine(test_extension.PLUGINS).encodings()
    assert own == session.encodings()
    more = engine.Engine(folder_of(*both.values(), other)).encodings()
    assert more.pop("example.xor") == ["example"]
    # In the order of their files' names.
    assert sorted(more.pop("example.scaled")) == ["csv", "other"]
    assert more == own


def test_a_module_that_is_built_apart_uses_the_plugin_too(example, engine, session, folder_of):
    """Neither the engine nor the package was built with the plugin: the tree goes to the engine as a file."""
    folder = folder_of(example.file)
    tree_file = folder / "tree.cdenc"
    tree_file.write_bytes(session.encoded(capsules.Exporter(example.tree())).to_bytes())
    rows = engine.Engine(folder).read(tree_file)
    example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def crosses(example, engine, session, device, folder, capsule_of=capsules.capsule_of):
    """The tree goes from the session, which knows nothing of its encoding, to an engine on a device, and comes back as a table."""
    there = engine.Engine(folder, device)
    tree = session.encoded(capsules.Exporter(example.tree(), capsule_of))
    assert tree.encoding == example.id and tree.encoding not in session.encodings()
    # It is not used up: each capsule is another one.
    for _ in range(2):
        rows = there.decode(tree)
        assert len(rows) == len(tree)
        example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())
    # What was made of it outlives both.
    del there, tree
    example.assert_decoded(session.from_arrow(rows)[0].combine_chunks())


def test_a_tree_crosses_to_a_module_that_is_built_apart(example, engine, session, folder_of):
    crosses(example, engine, session, "cpu", folder_of(example.file))


def test_a_tree_crosses_to_a_module_that_decodes_it_on_a_device(example, engine, session, cuda, folder_of):
    crosses(example, engine, session, cuda, folder_of(example.file))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_tree_that_lies_on_a_device_crosses(example, engine, there, folder_of, device):
    on_the_device = capsules.on_the_device_of(there)
    crosses(example, engine, there, device, folder_of(example.file), on_the_device)


class Gives:
    """An object whose method gives what it is told."""

    def __init__(self, given):
        self.given = given

    def __crossdock_encoded_array__(self):
        return self.given


def test_a_capsule_is_good_for_one_consumer_in_either_module(example, engine, session, folder_of):
    folder = folder_of(example.file)
    there, tree = engine.Engine(folder), session.encoded(capsules.Exporter(example.tree()))
    given = Gives(tree.__crossdock_encoded_array__())
    example.assert_decoded(session.from_arrow(there.decode(given))[0].combine_chunks())
    with pytest.raises(ValueError, match="crossdock_encoded_array.* consumed already"):
        there.decode(given)
    with pytest.raises(cd.UsageError, match="'crossdock_encoded_array' has been consumed already"):
        session.encoded(given)
    # And taken by the session, it is nothing for the engine.
    given = Gives(tree.__crossdock_encoded_array__())
    assert session.encoded(given).encoding == example.id
    with pytest.raises(ValueError, match="consumed already"):
        there.decode(given)


@pytest.mark.parametrize("given", [None, 7, b"bytes"], ids=repr)
def test_a_module_that_is_built_apart_takes_no_other_capsule(engine, session, given):
    there = engine.Engine(test_extension.PLUGINS)
    schema = session.from_arrow(pa.array([1])).__arrow_c_schema__()
    for other in (given, schema):
        with pytest.raises(TypeError, match="expected a capsule .*crossdock_encoded_array"):
            there.decode(Gives(other))
    with pytest.raises(AttributeError, match="__crossdock_encoded_array__"):
        there.decode(given)


def test_a_module_without_the_plugin_names_the_id_and_what_it_knows(example, engine, session):
    there = engine.Engine(test_extension.PLUGINS)
    tree = session.encoded(capsules.Exporter(example.tree()))
    with pytest.raises(RuntimeError, match=f"no plugin of the session decodes '{example.id}'.*vortex.dict"):
        there.decode(tree)


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
