"""The structs of crossdock.h, crossdock-host.h and Arrow's C interfaces that capi.py uses."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p


class Error(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("code", c_int32),
        ("flags", c_uint32),
        ("message", c_char_p),
        ("details", c_char_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
        ("offset", c_uint64),
        ("row", c_uint64),
    ]


class Str(Structure):
    _fields_ = [("data", c_char_p), ("bytes", c_size_t)]


class Option(Structure):
    _fields_ = [("key", Str), ("value", Str)]


class Device(Structure):
    _fields_ = [("id", c_int64), ("type", c_int32), ("reserved", c_int32)]


class ArrowSchema(Structure):
    _fields_ = [
        ("format", c_char_p),
        ("name", c_char_p),
        ("metadata", c_void_p),
        ("flags", c_int64),
        ("n_children", c_int64),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowArray(Structure):
    _fields_ = [
        ("length", c_int64),
        ("null_count", c_int64),
        ("offset", c_int64),
        ("n_buffers", c_int64),
        ("n_children", c_int64),
        ("buffers", c_void_p),
        ("children", c_void_p),
        ("dictionary", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowDeviceArray(Structure):
    _fields_ = [
        ("array", ArrowArray),
        ("device_id", c_int64),
        ("device_type", c_int32),
        ("sync_event", c_void_p),
        ("reserved", c_int64 * 3),
    ]


class Batch(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("array", ArrowDeviceArray),
        ("schema", ArrowSchema),
        ("buffer_sizes", c_void_p),
        ("n_buffer_sizes", c_size_t),
        ("metadata", c_void_p),
    ]


class Capsule(Structure):
    pass


RELEASE_CAPSULE = ctypes.CFUNCTYPE(None, POINTER(Capsule))
Capsule._fields_ = [
    ("struct_size", c_size_t),
    ("name", c_char_p),
    ("pointer", c_void_p),
    ("release", RELEASE_CAPSULE),
    ("private_data", c_void_p),
]


class Capsules(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("capsules", c_void_p),
        ("n_capsules", c_size_t),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class BatchStream(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("get_schema", ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(ArrowSchema), POINTER(Error))),
        ("get_next", ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Batch), POINTER(Error))),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class Writer(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        (
            "write",
            ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Batch), POINTER(Capsules), POINTER(Error)),
        ),
        ("finish", ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Capsules), POINTER(Error))),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class HostSettings(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("plugins", POINTER(Str)),
        ("n_plugins", c_size_t),
        ("flags", c_uint32),
        ("threads", c_uint32),
        ("memory_limit", c_uint64),
        ("log", c_void_p),
        ("log_data", c_void_p),
        ("log_release", c_void_p),
        ("log_level", c_int32),
        ("reserved", c_uint32),
    ]


class SessionSettings(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("device", Device),
        ("flags", c_uint32),
        ("validate", c_uint32),
        ("byte_budget", c_uint64),
    ]


class ReadSettings(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("format", Str),
        ("options", POINTER(Option)),
        ("n_options", c_size_t),
        ("schema", POINTER(ArrowSchema)),
        ("progress", c_void_p),
        ("progress_data", c_void_p),
    ]


class WriteSettings(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("format", Str),
        ("options", POINTER(Option)),
        ("n_options", c_size_t),
    ]


class Ledger(Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64)
        for name in "live_bytes live_blocks cached_bytes copied_h2d copied_d2h copied_d2d copied_h2h".split()
    ]


class Leak(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("account", Str),
        ("device", Device),
        ("bytes", c_uint64),
        ("blocks", c_uint64),
    ]


class Leaks(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("leaks", c_void_p),
        ("n_leaks", c_size_t),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]
