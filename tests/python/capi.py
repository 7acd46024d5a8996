"""libcrossdock.so by ctypes: as much of crossdock-host.h as the peer tests need to take Python's capsules through a plugin
and back. The structs are those of crossdock.h and of Arrow's C interfaces.

A stream gives batches, a writer takes them, and both leave the bytes where they are: what pyarrow gets from here lies in
Crossdock's memory (or in whoever's it was), and is released when pyarrow releases it."""

import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_void_p
from pathlib import Path

import pyarrow as pa
from capi_structs import (
    RELEASE_CAPSULE,
    ArrowSchema,
    Batch,
    BatchStream,
    Capsule,
    Capsules,
    Device,
    Error,
    HostSettings,
    Leak,
    Leaks,
    Ledger,
    Option,
    ReadSettings,
    SessionSettings,
    Str,
    Writer,
    WriteSettings,
)

CPU = 1
ARROW_NAMES = (
    b"arrow_schema",
    b"arrow_array",
    b"arrow_array_stream",
    b"arrow_device_array",
    b"arrow_device_array_stream",
)
"""Objects that are moved out of a capsule. The others free themselves."""
CODES = "ok invalid_argument unsupported bad_data version out_of_memory device io cancelled panicked internal".split()


class CrossdockError(Exception):
    """A failure: `code` is its name in crossdock.h, in lower case, or a number."""

    def __init__(self, code, message, details):
        super().__init__(message)
        self.code = CODES[code] if 0 <= code < len(CODES) else code
        self.details = details


# ------------------------------------------------------------------------------------------------------- library ---


RELEASE_BYTES = ctypes.CFUNCTYPE(None, c_void_p)


def library_path():
    """The library under test: CROSSDOCK_LIB, or the one beside CROSSDOCK_BIN; None where neither is set."""
    if path := os.environ.get("CROSSDOCK_LIB"):
        return Path(path)
    if command := os.environ.get("CROSSDOCK_BIN"):
        return Path(command).parent / "libcrossdock.so"
    return None


_loaded = None


def library():
    """The loaded library."""
    global _loaded
    if _loaded is None:
        path = library_path()
        if path is None:
            raise RuntimeError("neither CROSSDOCK_LIB nor CROSSDOCK_BIN is set")
        _loaded = ctypes.CDLL(str(path))
        for name, arguments in {
            "host_create": [c_void_p, POINTER(c_void_p), c_void_p],
            "host_ledger": [c_void_p, c_void_p, c_void_p],
            "host_settle": [c_void_p, c_void_p, c_void_p],
            "session_create": [c_void_p, c_void_p, POINTER(c_void_p), c_void_p],
            "session_read_path": [c_void_p, Str, c_void_p, c_void_p, c_void_p],
            "session_read_bytes": [c_void_p, c_void_p, c_size_t, RELEASE_BYTES] + [c_void_p] * 4,
            "session_read_capsules": [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p],
            "session_write_path": [c_void_p, Str, c_void_p, c_void_p, c_void_p, c_void_p],
            "session_write_capsules": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p],
        }.items():
            getattr(_loaded, "crossdock_" + name).argtypes = arguments
            getattr(_loaded, "crossdock_" + name).restype = c_int32
        for name in ["host_destroy", "session_destroy"]:
            getattr(_loaded, "crossdock_" + name).argtypes = [c_void_p]
            getattr(_loaded, "crossdock_" + name).restype = None
        _loaded.crossdock_version.restype = c_char_p
    return _loaded


def version():
    return library().crossdock_version().decode()


def release(struct):
    """Releases an object of the boundary; nothing happens to one that is released."""
    if struct.release:
        address = ctypes.cast(struct.release, c_void_p).value
        ctypes.CFUNCTYPE(None, c_void_p)(address)(ctypes.addressof(struct))


def check(function, *arguments):
    """Calls a function whose last parameter is a crossdock_error."""
    error = Error(struct_size=ctypes.sizeof(Error))
    code = function(*arguments, byref(error))
    if code:
        text = [field.decode(errors="replace") if field else None for field in (error.message, error.details)]
        release(error)
        raise CrossdockError(code, *text)


def text(value):
    """A crossdock_str; whoever holds it keeps its text."""
    data = os.fsencode(value)
    return Str(data, len(data))


def sized(struct, **fields):
    return struct(struct_size=ctypes.sizeof(struct), **fields)


def _options(options):
    """(pointer, number) of the options; the list is kept by the pointer."""
    pairs = [Option(text(key), text(value)) for key, value in (options or {}).items()]
    return (Option * len(pairs))(*pairs), len(pairs)


def _schema(schema):
    """An ArrowSchema of a pyarrow schema, an object with __arrow_c_schema__, or such a capsule; to be released."""
    out = ArrowSchema()
    if not isinstance(schema, pa.Schema):
        schema = pa.Schema._import_from_c_capsule(schema if is_capsule(schema) else schema.__arrow_c_schema__())
    schema._export_to_c(ctypes.addressof(out))
    return out


# ------------------------------------------------------------------------------------------------------ capsules ---

_api = ctypes.pythonapi
_DESTROY = ctypes.PYFUNCTYPE(None, c_void_p)
# Addresses instead of objects: in its destructor a capsule is no object any more that one may hold.
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, _DESTROY)(("PyCapsule_New", _api))
_name_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetName", _api))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_void_p)(("PyCapsule_GetPointer", _api))
_context_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetContext", _api))
_set_context = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(("PyCapsule_SetContext", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(("PyCapsule_SetName", _api))

_names = {}
"""Names that capsules point at: for ever, and one of each."""
_given = {}
"""The crossdock_capsule behind each PyCapsule that was made here, by its address."""
_lent = {}
"""What each crossdock_capsule that was made here holds, by a number in its private_data."""


def is_capsule(value):
    return type(value).__name__ == "PyCapsule"


def _kept(name):
    if name not in _names:
        _names[name] = ctypes.create_string_buffer(name)
    return ctypes.addressof(_names[name])


def capsule_name(capsule):
    """A PyCapsule's name, as bytes."""
    return ctypes.string_at(_name_of(id(capsule)))


def capsule_pointer(capsule):
    """The address that a PyCapsule holds."""
    return _pointer_of(id(capsule), _name_of(id(capsule)))


@_DESTROY
def _destroy(address):
    """A PyCapsule ends, and the crossdock_capsule behind it with it. Who took a DLPack tensor renamed the capsule."""
    shell = _given.pop(_context_of(address), None)
    if shell is None:
        return
    if ctypes.string_at(_name_of(address)).startswith(b"used_"):
        shell.pointer = None
    release(shell)


def _to_python(raw):
    """A PyCapsule of a crossdock_capsule, which is moved."""
    shell = Capsule()
    ctypes.memmove(byref(shell), byref(raw), ctypes.sizeof(Capsule))
    raw.release = RELEASE_CAPSULE()
    address = ctypes.addressof(shell)
    _given[address] = shell
    capsule = _new(shell.pointer, _kept(shell.name), _destroy)
    _set_context(id(capsule), address)
    return capsule


def _take(capsules):
    """The PyCapsules of a crossdock_capsules, which is released."""
    if not capsules.release:
        return []
    first = Capsule.from_address(capsules.capsules)
    at = [capsules.capsules + i * first.struct_size for i in range(capsules.n_capsules)]
    out = [_to_python(Capsule.from_address(address)) for address in at]
    release(capsules)
    return out


@RELEASE_CAPSULE
def _give_back(raw):
    """Crossdock is done with a capsule of ours. A tensor that it took is not the PyCapsule's to delete any more."""
    shell = raw.contents
    shell.release = RELEASE_CAPSULE()
    held = _lent.pop(shell.private_data, None)
    if held is not None and is_capsule(held) and not shell.pointer and shell.name not in ARROW_NAMES:
        _set_name(id(held), _kept(b"used_" + shell.name))


def _to_crossdock(name, value):
    """A crossdock_capsule of a PyCapsule, which stays alive as long, or of an address, whose object is the caller's."""
    name = name.encode() if isinstance(name, str) else name
    pointer = capsule_pointer(value) if is_capsule(value) else value
    number = max(_lent, default=0) + 1
    _lent[number] = value
    # The struct is moved by copying its bytes: its name must stay where it is without it.
    name = ctypes.cast(_kept(name), c_char_p)
    return sized(Capsule, name=name, pointer=pointer, release=_give_back, private_data=number)


# ------------------------------------------------------------------------------------------- host, session, work ---


class Host:
    """A host with the plugins of `plugins`: files, or folders of them; by default those beside the library."""

    _handle = c_void_p()

    def __init__(self, plugins=None, memory_limit=0, untouchable=False):
        paths = [library_path().parent] if plugins is None else plugins
        texts = (Str * len(paths))(*map(text, paths))
        settings = sized(
            HostSettings,
            plugins=texts,
            n_plugins=len(paths),
            flags=1 | (4 if untouchable else 0),
            memory_limit=memory_limit,
        )
        self._handle = c_void_p()
        check(library().crossdock_host_create, byref(settings), byref(self._handle))

    def session(self, **settings):
        return Session(self, **settings)

    def ledger(self):
        """A dict of crossdock_ledger's numbers."""
        ledger = sized(Ledger)
        check(library().crossdock_host_ledger, self._handle, byref(ledger))
        return {name: getattr(ledger, name) for name, _ in Ledger._fields_[1:]}

    def settle(self):
        """What is still held, once every plugin instance that can end has: (account, bytes, blocks) of each."""
        leaks = sized(Leaks)
        check(library().crossdock_host_settle, self._handle, byref(leaks))
        rows = [Leak.from_address(leaks.leaks + i * ctypes.sizeof(Leak)) for i in range(leaks.n_leaks)]
        out = [(row.account.data[: row.account.bytes].decode(), row.bytes, row.blocks) for row in rows]
        release(leaks)
        return out

    def close(self):
        library().crossdock_host_destroy(self._handle)
        self._handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close


class Session:
    """A session on a device: (type, id) as Arrow numbers them. `validate` is None, 'layout' or 'full'."""

    _handle = c_void_p()

    def __init__(self, host, device=(CPU, -1), validate=None):
        settings = sized(SessionSettings, device=Device(device[1], device[0], 0))
        if validate is not None:
            settings.flags, settings.validate = 1, ["layout", "full"].index(validate)
        self._handle = c_void_p()
        check(library().crossdock_session_create, host._handle, byref(settings), byref(self._handle))

    def read(self, path, format="", options=None):
        pairs, n = _options(options)
        settings = sized(ReadSettings, format=text(format), options=pairs, n_options=n)
        out = sized(BatchStream)
        check(library().crossdock_session_read_path, self._handle, text(path), byref(settings), byref(out))
        return Stream(out)

    def read_bytes(self, data, format=""):
        settings = sized(ReadSettings, format=text(format))
        out = sized(BatchStream)
        kept = ctypes.create_string_buffer(data, len(data))
        # Kept until the library releases them, on any thread.
        release = RELEASE_BYTES(lambda _: None)
        arguments = self._handle, kept, len(data), release, None, byref(settings), byref(out)
        check(library().crossdock_session_read_bytes, *arguments)
        stream = Stream(out)
        stream.kept = kept, release
        return stream

    def import_capsules(self, format, capsules, schema=None, options=None):
        """Reads foreign objects: pairs of a name and a PyCapsule or an address. The object behind an address is moved out
        of there (Arrow's), or taken (DLPack's); a PyCapsule is left as its consumers leave it."""
        pairs, n = _options(options)
        settings = sized(ReadSettings, format=text(format), options=pairs, n_options=n)
        expected = None if schema is None else _schema(schema)
        if expected is not None:
            settings.schema = ctypes.pointer(expected)
        raw = (Capsule * len(capsules))(*(_to_crossdock(name, value) for name, value in capsules))
        out = sized(BatchStream)
        try:
            check(
                library().crossdock_session_read_capsules,
                self._handle,
                raw,
                len(capsules),
                byref(settings),
                byref(out),
            )
        finally:
            if expected is not None:
                release(expected)
        return Stream(out)

    def export(self, format, schema, options=None):
        """A writer of capsules."""
        return self._write(library().crossdock_session_write_capsules, [], format, schema, options)

    def write(self, path, schema, format="", options=None):
        """A writer into a file."""
        return self._write(library().crossdock_session_write_path, [text(path)], format, schema, options)

    def _write(self, begin, where, format, schema, options):
        pairs, n = _options(options)
        settings = sized(WriteSettings, format=text(format), options=pairs, n_options=n)
        raw, out = _schema(schema), sized(Writer)
        try:
            check(begin, self._handle, *where, byref(raw), byref(settings), byref(out))
        finally:
            release(raw)
        return BatchWriter(out)

    def close(self):
        library().crossdock_session_destroy(self._handle)
        self._handle = c_void_p()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    __del__ = close


class Stream:
    """Batches with one schema; iterates over pyarrow's record batches, which must lie in host memory."""

    def __init__(self, raw):
        self._raw = raw

    @property
    def schema(self):
        out = ArrowSchema()
        check(self._raw.get_schema, byref(self._raw), byref(out))
        return pa.Schema._import_from_c(ctypes.addressof(out))

    def next_raw(self):
        """The next crossdock_batch, on any device, or None. Its array is the caller's to move or `release`."""
        out = sized(Batch)
        check(self._raw.get_next, byref(self._raw), None, byref(out))
        return out if out.array.array.release else None

    def __iter__(self):
        schema = self.schema
        while (batch := self.next_raw()) is not None:
            if batch.array.device_type != CPU:
                release(batch.array.array)
                raise ValueError(f"the batch lies on device type {batch.array.device_type}, not in host memory")
            yield pa.RecordBatch._import_from_c(ctypes.addressof(batch.array.array), schema)

    def batches(self):
        return list(self)

    def reader(self):
        """A pyarrow.RecordBatchReader of the rest."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def close(self):
        release(self._raw)

    __del__ = close


class BatchWriter:
    """Takes pyarrow's record batches; gives what they became as PyCapsules, where the format is one of capsules."""

    def __init__(self, raw):
        self._raw = raw

    def write(self, batch):
        raw = sized(Batch)
        raw.array.device_type, raw.array.device_id = CPU, -1
        batch._export_to_c(ctypes.addressof(raw.array.array))
        return self.write_raw(raw)

    def write_raw(self, raw):
        """The same for a crossdock_batch, which is taken."""
        out = sized(Capsules)
        check(self._raw.write, byref(self._raw), None, byref(raw), byref(out))
        return _take(out)

    def finish(self):
        out = sized(Capsules)
        check(self._raw.finish, byref(self._raw), None, byref(out))
        return _take(out)

    def close(self):
        release(self._raw)

    __del__ = close
