"""All kinds of paths, to files whose names are not UTF-8."""

import os

import crossdock as cd
import pyarrow as pa
import pytest

NAME = b"na\xffme"
SHOWN = "na\ufffdme"


class Path:
    """An `os.PathLike` of a str or bytes."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


KINDS = {
    "str": os.fsdecode,
    "bytes": os.fsencode,
    "PathLike of str": lambda path: Path(os.fsdecode(path)),
    "PathLike of bytes": lambda path: Path(os.fsencode(path)),
}


def as_source(path):
    """Returns a path for functions that read. They treat bytes as the content of a file."""
    return os.fsdecode(path) if isinstance(path, bytes) else path


@pytest.fixture
def folder(tmp_path):
    folder = os.fsencode(tmp_path) + b"/" + NAME
    os.mkdir(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_reads_and_writes_names_that_are_not_utf8(session, folder, kind):
    table = session.from_arrow(pa.table({"a": [1, 2]}))
    path = folder + b"/" + NAME + b".arrow"
    for write in (table.write, table.write_ipc):
        write(kind(path))
        assert pa.table(session.read(as_source(kind(path)))).to_pydict() == {"a": [1, 2]}
        assert session.scan([kind(path)]).to_table().num_rows == 2
        os.remove(path)
    table.write(kind(path))
    assert session.read_ipc(as_source(kind(path))).num_rows == 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_error_of_missing_file_has_its_name(session, folder, kind):
    for name, use in [
        (b"/none", lambda path: session.read(as_source(path))),
        (b"/none/a.arrow", session.from_arrow(pa.table({"a": [1]})).write),
    ]:
        with pytest.raises(FileNotFoundError) as raised:
            use(kind(folder + name))
        assert raised.value.filename == os.fsdecode(folder + name)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_plugin_paths_may_be_of_any_kind(session, folder, kind):
    with pytest.raises(cd.PluginError, match=SHOWN):
        cd.Session(plugins=[kind(folder + b"/none.so")])
    with cd.Session(plugins=[kind(folder)]) as folder_session:
        assert folder_session.plugins == session.plugins


def test_rejects_other_types_of_paths(session):
    for path in (3, None, [3]):
        with pytest.raises(TypeError):
            session.read(path)
