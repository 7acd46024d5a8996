"""Exception classes and their messages."""

import crossdock as cd
import pyarrow as pa
import pytest

BUILTINS = {
    "UsageError": ValueError,
    "DataError": ValueError,
    "UnsupportedError": NotImplementedError,
    "OutOfMemoryError": MemoryError,
    "DeviceError": RuntimeError,
    "PluginError": RuntimeError,
    "ExportError": BufferError,
    "CancelledError": RuntimeError,
}


def test_exceptions_derive_from_error_and_a_builtin_class():
    names = {
        name for name in dir(cd) if isinstance(getattr(cd, name), type) and issubclass(getattr(cd, name), BaseException)
    }
    assert names == {"Error", "Warning", *BUILTINS}
    assert issubclass(cd.Warning, UserWarning) and not issubclass(cd.Warning, cd.Error)
    for name, builtin in BUILTINS.items():
        kind = getattr(cd, name)
        assert issubclass(kind, cd.Error) and issubclass(kind, builtin)
        assert (kind.__module__, kind.__qualname__) == ("crossdock", name) and kind.__doc__
    assert issubclass(cd.Error, Exception) and not issubclass(cd.Error, ValueError)


def test_usage_error_is_caught_as_crossdock_error_and_as_value_error():
    for kind in (cd.UsageError, cd.Error, ValueError):
        with pytest.raises(kind):
            cd.Session(threads=0)


def test_messages_are_one_line(tmp_path):
    (tmp_path / "x.arrow").write_bytes(b"ARROW1\0\0 and then nothing of the kind")
    with cd.Session() as session:
        messages = []
        for use in (
            lambda: session.read_ipc(tmp_path / "x.arrow"),
            lambda: session.read_ipc(tmp_path / "missing"),
            lambda: session.from_arrow(7),
            lambda: session.from_arrow(pa.table({"a": [1]}))["b"],
            lambda: session.from_arrow(pa.table({"a": [1]})).to("cuda:63"),
            lambda: session.from_arrow(pa.table({"a": [1]})).write("x.unknown"),
        ):
            with pytest.raises(Exception) as raised:
                use()
            messages.append(str(raised.value))
        assert all(message and "\n" not in message and len(message) < 600 for message in messages), messages


def test_file_errors_have_errno():
    with cd.Session() as session, pytest.raises(FileNotFoundError) as raised:
        session.read_ipc("/no/such/file")
    assert raised.value.errno == 2
