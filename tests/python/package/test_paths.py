"""Paths of every kind that Python has, to files whose names are not UTF-8."""

import os

import crossdock as cd
import pyarrow as pa
import pytest

NAME = b"na\xffme"
SHOWN = "na\ufffdme"


class Path:
    """An `os.PathLike` of whatever it holds."""

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


@pytest.fixture
def folder(tmp_path):
    folder = os.fsencode(tmp_path) + b"/" + NAME
    os.mkdir(folder)
    return folder


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_files_are_read_and_written_whatever_their_names(session, folder, kind):
    table = session.from_arrow(pa.table({"a": [1, 2]}))
    path = folder + b"/" + NAME + b".arrow"
    for write in (table.write, table.write_ipc):
        write(kind(path))
        assert pa.table(session.read(kind(path))).to_pydict() == {"a": [1, 2]}
        os.remove(path)
    table.write(kind(path))
    # Bytes are the content.
    source = kind(path) if not isinstance(kind(path), bytes) else os.fsdecode(path)
    assert session.read_ipc(source).num_rows == 2


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_file_that_is_missing_is_shown_with_a_stand_in(session, folder, kind):
    path = kind(folder + b"/none")
    with pytest.raises(OSError, match=SHOWN):
        session.read(path)
    with pytest.raises(OSError, match=SHOWN):
        session.from_arrow(pa.table({"a": [1]})).write(kind(folder + b"/none/a.arrow"))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_plugins_lie_wherever_they_do(session, folder, kind):
    with pytest.raises(cd.PluginError, match=SHOWN):
        cd.Session(plugins=[kind(folder + b"/none.so")])
    with cd.Session(plugins=[kind(folder)]) as own:
        assert own.plugins == session.plugins


def test_what_is_no_path_is_a_type_error(session):
    for path in (3, None, [b"a"]):
        with pytest.raises(TypeError):
            session.read(path)
