"""Memory of CUDA devices as buffers of bytes: what `pyarrow.cuda` offers, without its crash.

    from crossdock import cuda

    context = cuda.Context(0)
    buffer = context.buffer_from_data(b"to the device")
    buffer.copy_to_host()

A buffer has no buffer protocol and no `__array__`: where host memory is needed, Python itself raises, and nobody looks at an
address of the device. `copy_to_host()` brings the bytes over. Tables and columns are moved with their types by
`table.to("cuda:0")`; buffers are for bytes.

**Order.** Everything that is done with a buffer goes onto the stream of its context's session, so that a read sees every
write before it. Buffers are written in place, by you and by those that you show them to. From then on (`address`,
`to_numba`, `__cuda_array_interface__`, IPC) what is done here is also ordered with the legacy default stream, both ways: what
a kernel on it wrote is what `copy_to_host` reads. For work on a stream that does not wait for that one, wait yourself:
for theirs before you read, with `Context.synchronize()` before they do.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, overload

from . import _native
from ._cuda_ranges import byte_count, range_of, room_for
from ._native import Column, HostBuffer, Session, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import TypeAlias, TypeVar

    from typing_extensions import Buffer as _Bytes

    _HostData: TypeAlias = _Bytes | HostBuffer | Column
    _Target = TypeVar("_Target", bound=_Bytes | HostBuffer)

__all__ = ["Buffer", "Context", "HostBuffer", "IpcMemHandle", "get_num_devices", "new_host_buffer"]


def get_num_devices() -> int:
    """How many CUDA devices there are. DeviceError, which says what is missing, where there is no driver."""
    return _native.cuda_device_count()


class Context:
    """A CUDA device, and a session that works on it.

    `Context(n)` is device `n` with a session of this module's own, the same for all who ask for it. `Context(session=s)` is
    the device, the budget and the stream of a session of yours.
    """

    __slots__ = ("__weakref__", "_native", "_session")

    def __init__(self, device_number: int | None = None, *, session: Session | None = None) -> None:
        if session is None:
            session = _session_on(0 if device_number is None else device_number)
        self._session = session
        self._native = _native.DeviceContext(session)
        if device_number is not None and device_number != self.device_number:
            raise UsageError(
                f"device_number={device_number}: the session works on {session.device}; leave one of them out"
            )

    @staticmethod
    def get_num_devices() -> int:
        """How many CUDA devices there are. DeviceError, which says what is missing, where there is no driver."""
        return get_num_devices()

    @property
    def num_devices(self) -> int:
        """How many CUDA devices there are."""
        return get_num_devices()

    @property
    def device_number(self) -> int:
        """N of "cuda:N"."""
        return self._native.device_number

    @property
    def session(self) -> Session:
        """What it works with."""
        return self._session

    @property
    def bytes_allocated(self) -> int:
        """Of this context's `new_buffer` and `buffer_from_data`, what has not been given back."""
        return self._native.bytes_allocated

    def synchronize(self) -> None:
        """Waits until everything has run that was done here, and on the legacy default stream."""
        self._native.synchronize()

    def new_buffer(self, size: int) -> Buffer:
        """`size` bytes of the device, with whatever is in them; other processes can be given them."""
        return Buffer._of(self._native.allocate(byte_count("size", size)), self)

    def buffer_from_data(self, data: _HostData | Buffer, offset: int = 0, size: int = -1) -> Buffer:
        """A new buffer with a copy of `data`: bytes-like, a column on the cpu, or another buffer. `size` bytes of it from
        `offset` on, all that follow for -1."""
        if isinstance(data, Buffer):
            start, n = range_of("offset", offset, "size", size, data.size, "the data")
            buffer = self.new_buffer(n)
            buffer._memory.copy_from(0, data._memory, start, n)
            return buffer
        view = _host_bytes(data, "data")
        start, n = range_of("offset", offset, "size", size, view.nbytes, "the data")
        buffer = self.new_buffer(n)
        buffer._memory.write(0, n, view[start : start + n])
        return buffer

    def buffer_from_object(self, obj: Any) -> Buffer:
        """The memory of an array, in place: of anything with `__dlpack__` or `__cuda_array_interface__` whose elements lie
        side by side on this device. What may only be read stays so. The array is kept as long as the buffer."""
        if isinstance(obj, Buffer):
            if obj.context.device_number != self.device_number:
                raise UsageError(
                    f"the buffer lies on cuda:{obj.context.device_number}, and the context is of cuda:{self.device_number}: "
                    "buffer_from_data copies it"
                )
            return obj
        memory = self._native.of_tensor(obj)
        return self.new_buffer(0) if memory is None else Buffer._of(memory, self)

    def foreign_buffer(self, address: int, size: int, base: object = None) -> Buffer:
        """`size` bytes at an address of this device, as the driver knows it, which `base` owns: it is kept as long as the
        buffer. Without one it is yours to see to that the memory outlives the buffer."""
        n = byte_count("size", size)
        if address == 0 and n == 0:
            return self.new_buffer(0)
        return Buffer._of(self._native.foreign(byte_count("address", address), n, base), self)

    def open_ipc_buffer(self, ipc_handle: IpcMemHandle) -> Buffer:
        """What another process of this machine exported. It comes after what was done there before the export; close it, and
        drop its slices, before the exporter gives the memory up."""
        if not isinstance(ipc_handle, IpcMemHandle):
            kind = type(ipc_handle).__name__
            raise TypeError(f"ipc_handle: expected an IpcMemHandle, got a {kind}; IpcMemHandle.from_buffer takes bytes")
        return Buffer._of(self._native.open_ipc(ipc_handle.serialize()), self)

    def new_host_buffer(self, size: int) -> HostBuffer:
        """`size` bytes of host memory that the device copies from and to at full speed; zeros at first."""
        return self._native.new_host_buffer(byte_count("size", size))

    @staticmethod
    def from_numba(context: Any = None) -> Context:
        """The context of the device of a Numba context, the current one for None. Both are the device's primary context."""
        if context is None:
            from numba import cuda  # type: ignore[import-not-found,unused-ignore]

            context = cuda.current_context()
        return Context(int(context.device.id))

    def to_numba(self) -> Any:
        """Numba's own context of this device: the device's primary one, as this is."""
        from numba.cuda.cudadrv import devices  # type: ignore[import-not-found,unused-ignore]

        return devices.get_context(self.device_number)

    def __repr__(self) -> str:
        return f"<crossdock.cuda.Context device_number={self.device_number}>"


class Buffer:
    """Bytes on a CUDA device, made by a `Context`. Slices share them; the memory goes back with the last of them, after what
    is still being done with it."""

    __slots__ = ("__weakref__", "_context", "_memory")

    _context: Context
    _memory: _native.DeviceMemory

    def __init__(self) -> None:
        raise TypeError(
            "a buffer is made by a Context: new_buffer, buffer_from_data, buffer_from_object, open_ipc_buffer"
        )

    @classmethod
    def _of(cls, memory: _native.DeviceMemory, context: Context) -> Buffer:
        buffer = cls.__new__(cls)
        buffer._memory = memory
        buffer._context = context
        return buffer

    @property
    def size(self) -> int:
        """In bytes."""
        return self._memory.size

    def __len__(self) -> int:
        return self._memory.size

    @property
    def address(self) -> int:
        """Where it begins: a number for the device's work, nothing for the host to look at. What was done here before comes
        before what is done there on the legacy default stream."""
        self._memory.show()
        return self._memory.address

    @property
    def context(self) -> Context:
        """Whose it is."""
        return self._context

    @property
    def is_cpu(self) -> bool:
        """Always False: the host cannot look at it."""
        return False

    @property
    def is_mutable(self) -> bool:
        """Whether it may be written. Arrays that were lent to be read only may not."""
        return self._memory.writable

    @overload
    def copy_to_host(self, position: int = 0, nbytes: int = -1, buf: None = None) -> bytes: ...
    @overload
    def copy_to_host(self, position: int = 0, nbytes: int = -1, *, buf: _Target) -> _Target: ...
    def copy_to_host(self, position: int = 0, nbytes: int = -1, buf: Any = None) -> Any:
        """`nbytes` bytes from `position` on, all that follow for -1: as `bytes`, or in `buf`, a writable buffer of as many
        bytes or more (a `HostBuffer` is the fastest), which is returned. Waits until they are there; Ctrl-C ends it after
        256 MiB at most."""
        start, n = range_of("position", position, "nbytes", nbytes, self.size, "the buffer")
        if buf is None:
            return self._memory.read(start, n)
        self._memory.read_into(start, n, _host_bytes(buf, "buf"))
        return buf

    def to_pybytes(self) -> bytes:
        """All of it, as `copy_to_host()`."""
        return self.copy_to_host()

    def copy_from_host(self, data: _HostData, position: int = 0, nbytes: int = -1) -> int:
        """Writes `nbytes` bytes of `data`, as many as it has and as fit for -1, from `position` on. They are there when this
        returns; Ctrl-C ends it after 256 MiB at most. Returns how many."""
        view = _host_bytes(data, "data")
        n = room_for(position, nbytes, view.nbytes, self.size)
        self._memory.write(position, n, view[:n])
        return n

    def copy_from_device(self, buf: Buffer, position: int = 0, nbytes: int = -1) -> int:
        """The same from another buffer, of this device or of another one, without waiting. Returns how many."""
        if not isinstance(buf, Buffer):
            raise TypeError(
                f"buf: expected a crossdock.cuda.Buffer, got a {type(buf).__name__}; host data: copy_from_host()"
            )
        n = room_for(position, nbytes, buf.size, self.size)
        self._memory.copy_from(position, buf._memory, 0, n)
        return n

    def slice(self, offset: int = 0, length: int | None = None) -> Buffer:
        """`length` bytes from `offset` on, fewer where the buffer ends. Nothing is copied: what is written to one is in the
        other."""
        if offset < 0 or offset > self.size:
            raise UsageError(f"offset={offset} lies outside the buffer, which has {self.size} bytes")
        rest = self.size - offset
        if length is not None and length < 0:
            raise UsageError(f"length={length} of a buffer of {self.size} bytes: expected 0 or more")
        return Buffer._of(self._memory.slice(offset, rest if length is None else min(length, rest)), self._context)

    def export_for_ipc(self) -> IpcMemHandle:
        """Lets other processes of this machine open it: memory that `new_buffer` or `buffer_from_data` gave. Whoever opens it
        waits for what was done here so far, and may reach the whole buffer that this is a slice of. Keep this buffer, a
        slice of it or the handle until all of them have closed theirs, and this process alive."""
        return IpcMemHandle._of(self._memory.export_ipc(), self)

    @staticmethod
    def from_numba(mem: Any) -> Buffer:
        """The memory of a Numba device array (`array.gpu_data`, a MemoryPointer), in place; it is kept as long as the
        buffer."""
        context = Context.from_numba(mem.context)
        address = mem.device_pointer_value
        return context.foreign_buffer(0 if address is None else int(address), int(mem.size), base=mem)

    def to_numba(self) -> Any:
        """A Numba MemoryPointer of it, which keeps it."""
        import ctypes

        from numba.cuda.cudadrv.driver import MemoryPointer  # type: ignore[import-not-found,unused-ignore]

        pointer = ctypes.c_void_p(self.address)
        return MemoryPointer(self._context.to_numba(), pointer=pointer, size=self.size, owner=self)

    def to_numba_array(self, dtype: Any = "u1", shape: int | Sequence[int] | None = None) -> Any:
        """A Numba device array of it, in place: elements of a numpy dtype in a shape, of one dimension unless given. The array
        keeps the buffer."""
        import numpy as np
        from numba import cuda

        return cuda.as_cuda_array(_Elements(self, np.dtype(dtype), shape))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Its bytes for Numba, CuPy and others: version 3, with the stream after which they are there."""
        return self._interface("|u1", (self.size,))

    def _interface(self, typestr: str, shape: tuple[int, ...]) -> dict[str, Any]:
        stream = self._memory.show()
        return {
            "shape": shape,
            "typestr": typestr,
            "data": (self._memory.address if self.size else 0, not self._memory.writable),
            "strides": None,
            "mask": None,
            "version": 3,
            "stream": stream,
        }

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._memory.closed

    def close(self) -> None:
        """Gives its hold on the memory up, as its end does; slices, and arrays made of it by others, keep theirs. To be called
        where the moment matters: on what another process exported. Closing twice is harmless."""
        self._memory.close()

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "closed" if self.closed else f"address={self._memory.address:#x}"
        return f"<crossdock.cuda.Buffer cuda:{self._context.device_number} {where} size={self.size}>"


class IpcMemHandle:
    """What another process needs to open a buffer: send `serialize()`'s bytes, and give what `from_buffer` makes of them to
    `Context.open_ipc_buffer`. Send them to those only whom you would let read and write the memory."""

    __slots__ = ("__weakref__", "_buffer", "_description")

    _buffer: Buffer | None
    _description: bytes

    def __init__(self) -> None:
        raise TypeError("a handle is made by Buffer.export_for_ipc() or IpcMemHandle.from_buffer(bytes)")

    @classmethod
    def _of(cls, description: bytes, buffer: Buffer | None) -> IpcMemHandle:
        handle = cls.__new__(cls)
        handle._description = description
        # A slice, so that closing the buffer does not take the memory from those who were given it.
        handle._buffer = None if buffer is None else buffer.slice()
        return handle

    @classmethod
    def from_buffer(cls, serialized: _HostData) -> IpcMemHandle:
        """From such bytes. DataError for others; that the memory is there is found out when it is opened."""
        description = bytes(_host_bytes(serialized, "serialized"))
        _native.cuda_ipc_size(description)
        return cls._of(description, None)

    def serialize(self) -> bytes:
        """As bytes."""
        return self._description

    @property
    def size(self) -> int:
        """Bytes of the buffer."""
        return _native.cuda_ipc_size(self._description)

    def __repr__(self) -> str:
        return f"<crossdock.cuda.IpcMemHandle size={self.size}>"


def new_host_buffer(size: int, device: int = 0) -> HostBuffer:
    """`size` bytes of host memory that the device copies from and to at full speed; zeros at first."""
    return Context(device).new_host_buffer(size)


class _Elements:
    """A buffer as an array of elements."""

    def __init__(self, buffer: Buffer, dtype: Any, shape: int | Sequence[int] | None) -> None:
        if buffer.size % dtype.itemsize and shape is None:
            raise UsageError(
                f"{buffer.size} bytes are no whole number of elements of {dtype}, of {dtype.itemsize} bytes each"
            )
        if shape is None:
            shape = buffer.size // dtype.itemsize
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.buffer, self.typestr = buffer, dtype.str
        needed = dtype.itemsize
        for n in self.shape:
            needed *= byte_count("shape", n)
        if needed > buffer.size:
            raise UsageError(f"{dtype} of shape {self.shape} takes {needed} bytes, and the buffer has {buffer.size}")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.buffer._interface(self.typestr, self.shape)


def _host_bytes(data: Any, name: str) -> memoryview:
    """The bytes of an object in host memory, in place."""
    if isinstance(data, Buffer):
        raise TypeError(
            f"{name}: a crossdock.cuda.Buffer lies on a device, and bytes of the host are needed: use its copy_to_host(), or "
            "copy_from_device() to copy between devices"
        )
    view = memoryview(data)
    if view.nbytes == 0:
        # An empty view of several dimensions cannot be cast.
        return memoryview(b"")
    if not view.c_contiguous:
        raise UsageError(f"{name}: its bytes do not lie side by side; copy it first")
    if view.ndim == 1 and view.format == "B":
        return view
    try:
        return view.cast("B")
    except (TypeError, NotImplementedError):
        # A format that memoryview does not know, such as a complex number's.
        from pickle import PickleBuffer

        return PickleBuffer(view).raw()


_lock = threading.Lock()
_sessions: dict[int, Session] = {}


def _session_on(device_number: int) -> Session:
    """The module's own session on a device."""
    if device_number < 0:
        raise UsageError(
            f"device_number={device_number}: expected 0 or more; get_num_devices() says how many there are"
        )
    with _lock:
        session = _sessions.get(device_number)
        if session is None:
            session = _sessions[device_number] = Session(f"cuda:{device_number}")
        return session


def _forget_after_fork() -> None:
    # A driver's state does not survive a fork: the child opens its own.
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget_after_fork)
