"""Calls functions of libcrossdock.so through ctypes, and converts between its capsules and Python's capsules.
The structs are defined in crossdock.h and in Arrow's C interfaces.

Reading and writing is zero-copy: pyarrow's arrays use the memory of Crossdock or of the producer. The memory
is released when pyarrow releases the arrays."""

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
"""Names of the capsules whose struct a consumer moves out. The structs in other capsules free themselves."""
CODES = "ok invalid_argument unsupported bad_data version out_of_memory device io cancelled panicked internal".split()


class CrossdockError(Exception):
    """An error of the library. `code` is its name in crossdock.h, in lower case, or the number of an unknown
    code."""

    def __init__(self, code, message, details):
        super().__init__(message)
        self.code = CODES[code] if 0 <= code < len(CODES) else code
        self.details = details


# --- Library ---


RELEASE_BYTES = ctypes.CFUNCTYPE(None, c_void_p)


def library_path():
    """Returns the library's path: CROSSDOCK_LIB, or the library in the folder of CROSSDOCK_BIN, or None if
    neither variable is set."""
    if path := os.environ.get("CROSSDOCK_LIB"):
        return Path(path)
    if command := os.environ.get("CROSSDOCK_BIN"):
        return Path(command).parent / "libcrossdock.so"
    return None


_loaded = None


def library():
    """Returns the library. The first call loads it."""
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
    """Releases a struct, unless it is released already."""
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
    """Returns a crossdock_str that keeps its text alive."""
    data = os.fsencode(value)
    return Str(data, len(data))


def sized(struct, **fields):
    return struct(struct_size=ctypes.sizeof(struct), **fields)


def _options(options):
    """Returns (pointer, number) of the options. The pointer keeps the list alive."""
    pairs = [Option(text(key), text(value)) for key, value in (options or {}).items()]
    return (Option * len(pairs))(*pairs), len(pairs)


def _schema(schema):
    """Converts a pyarrow schema, an object with __arrow_c_schema__, or a capsule to an ArrowSchema. The
    caller must release it."""
    out = ArrowSchema()
    if not isinstance(schema, pa.Schema):
        schema = pa.Schema._import_from_c_capsule(schema if is_capsule(schema) else schema.__arrow_c_schema__())
    schema._export_to_c(ctypes.addressof(out))
    return out


# --- Capsules ---

_api = ctypes.pythonapi
_DESTROY = ctypes.PYFUNCTYPE(None, c_void_p)
# The parameters are addresses instead of objects, because a capsule must not be referenced in its
# destructor.
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_void_p, _DESTROY)(("PyCapsule_New", _api))
_name_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetName", _api))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_void_p)(("PyCapsule_GetPointer", _api))
_context_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p)(("PyCapsule_GetContext", _api))
_set_context = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(("PyCapsule_SetContext", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_void_p)(("PyCapsule_SetName", _api))

_names = {}
"""Names of capsules. They must live as long as the process."""
_created = {}
"""The crossdock_capsule of each PyCapsule that `_to_python` created, by its address."""
_owners = {}
"""The owner of each crossdock_capsule that `_to_crossdock` created, by the number in its private_data."""


def is_capsule(value):
    return type(value).__name__ == "PyCapsule"


def _interned_name(name):
    if name not in _names:
        _names[name] = ctypes.create_string_buffer(name)
    return ctypes.addressof(_names[name])


def capsule_name(capsule):
    """Returns a PyCapsule's name as bytes."""
    return ctypes.string_at(_name_of(id(capsule)))


def capsule_pointer(capsule):
    """Returns the pointer of a PyCapsule."""
    return _pointer_of(id(capsule), _name_of(id(capsule)))


@_DESTROY
def _destroy(address):
    """Releases the crossdock_capsule of a PyCapsule. The name of a consumed DLPack capsule begins with
    used_."""
    moved = _created.pop(_context_of(address), None)
    if moved is None:
        return
    if ctypes.string_at(_name_of(address)).startswith(b"used_"):
        moved.pointer = None
    release(moved)


def _to_python(raw):
    """Moves a crossdock_capsule into a PyCapsule."""
    moved = Capsule()
    ctypes.memmove(byref(moved), byref(raw), ctypes.sizeof(Capsule))
    raw.release = RELEASE_CAPSULE()
    address = ctypes.addressof(moved)
    _created[address] = moved
    capsule = _new(moved.pointer, _interned_name(moved.name), _destroy)
    _set_context(id(capsule), address)
    return capsule


def _to_capsules(capsules):
    """Converts a crossdock_capsules struct into a list of PyCapsules, and releases the struct."""
    if not capsules.release:
        return []
    first = Capsule.from_address(capsules.capsules)
    addresses = [capsules.capsules + i * first.struct_size for i in range(capsules.n_capsules)]
    out = [_to_python(Capsule.from_address(address)) for address in addresses]
    release(capsules)
    return out


@RELEASE_CAPSULE
def _release_passed(raw):
    """Called when Crossdock releases a capsule. If Crossdock consumed a tensor, the PyCapsule must not delete
    it."""
    moved = raw.contents
    moved.release = RELEASE_CAPSULE()
    owner = _owners.pop(moved.private_data, None)
    if owner is not None and is_capsule(owner) and not moved.pointer and moved.name not in ARROW_NAMES:
        _set_name(id(owner), _interned_name(b"used_" + moved.name))


def _to_crossdock(name, value):
    """Returns a crossdock_capsule for a PyCapsule or for the address of an object. The crossdock_capsule
    keeps the PyCapsule alive. The caller owns the object at the address."""
    name = name.encode() if isinstance(name, str) else name
    pointer = capsule_pointer(value) if is_capsule(value) else value
    number = max(_owners, default=0) + 1
    _owners[number] = value
    # Crossdock moves the struct by copying its bytes, so the name must outlive the original struct.
    name = ctypes.cast(_interned_name(name), c_char_p)
    return sized(Capsule, name=name, pointer=pointer, release=_release_passed, private_data=number)


# --- Host, session, work ---


class Host:
    """A host. `plugins`: plugin files, and folders with plugin files. None: the folder that contains the
    library."""

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
        """Returns the fields of crossdock_ledger as a dict."""
        ledger = sized(Ledger)
        check(library().crossdock_host_ledger, self._handle, byref(ledger))
        return {name: getattr(ledger, name) for name, _ in Ledger._fields_[1:]}

    def settle(self):
        """Returns the leaks as (account, bytes, blocks), after destroying all plugin instances without
        references."""
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
    """A session. `device`: (type, id) as in Arrow's C Device interface. `validate`: None, 'layout' or
    'full'."""

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
        buffer = ctypes.create_string_buffer(data, len(data))
        # The library releases the bytes later, on any thread.
        release = RELEASE_BYTES(lambda _: None)
        arguments = self._handle, buffer, len(data), release, None, byref(settings), byref(out)
        check(library().crossdock_session_read_bytes, *arguments)
        stream = Stream(out)
        stream.owners = buffer, release
        return stream

    def import_capsules(self, format, capsules, schema=None, options=None):
        """Imports pairs (name, PyCapsule) or (name, address). Takes ownership of the objects. Afterwards a
        PyCapsule has the state of a consumed capsule."""
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
        """Returns a writer of capsules."""
        return self._write(library().crossdock_session_write_capsules, [], format, schema, options)

    def write(self, path, schema, format="", options=None):
        """Returns a writer of a file."""
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
    """A stream of batches. Iteration yields record batches of pyarrow, and raises ValueError for a batch on a
    device."""

    def __init__(self, raw):
        self._raw = raw

    @property
    def schema(self):
        out = ArrowSchema()
        check(self._raw.get_schema, byref(self._raw), byref(out))
        return pa.Schema._import_from_c(ctypes.addressof(out))

    def next_raw(self):
        """Returns the next crossdock_batch, on any device, or None. The caller must move or `release` its
        array."""
        out = sized(Batch)
        check(self._raw.get_next, byref(self._raw), None, byref(out))
        return out if out.array.array.release else None

    def __iter__(self):
        schema = self.schema
        while (batch := self.next_raw()) is not None:
            if batch.array.device_type != CPU:
                release(batch.array.array)
                raise ValueError(f"the batch is on device type {batch.array.device_type}, not in host memory")
            yield pa.RecordBatch._import_from_c(ctypes.addressof(batch.array.array), schema)

    def batches(self):
        return list(self)

    def reader(self):
        """Returns a pyarrow.RecordBatchReader of the remaining batches."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def close(self):
        release(self._raw)

    __del__ = close


class BatchWriter:
    """Writes record batches of pyarrow. Methods return PyCapsules if the format uses capsules."""

    def __init__(self, raw):
        self._raw = raw

    def write(self, batch):
        raw = sized(Batch)
        raw.array.device_type, raw.array.device_id = CPU, -1
        batch._export_to_c(ctypes.addressof(raw.array.array))
        return self.write_raw(raw)

    def write_raw(self, raw):
        """Writes a crossdock_batch, and takes ownership of it."""
        out = sized(Capsules)
        check(self._raw.write, byref(self._raw), None, byref(raw), byref(out))
        return _to_capsules(out)

    def finish(self):
        out = sized(Capsules)
        check(self._raw.finish, byref(self._raw), None, byref(out))
        return _to_capsules(out)

    def close(self):
        release(self._raw)

    __del__ = close
