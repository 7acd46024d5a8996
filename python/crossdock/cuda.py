"""Buffers of bytes in the memory of CUDA devices, with the API of `pyarrow.cuda`.

>>> from crossdock import cuda
>>> context = cuda.Context(0)
>>> buffer = context.buffer_from_data(b"to the device")
>>> buffer.copy_to_host()
b'to the device'

A buffer implements neither the buffer protocol nor `__array__`, so code that needs host memory raises instead
of reading a device address. `copy_to_host()` copies the bytes. To move tables and columns with their types,
use `table.to("cuda:0")`.

**Order.** All operations on a buffer run on the stream of its context's session, so a read returns the result
of all earlier writes. Other libraries may write a buffer in place after it was exported: by `address`,
`to_numba`, `__cuda_array_interface__` or IPC. After the export, operations are also ordered with the legacy
default stream in both directions. For example, `copy_to_host` reads what a kernel on that stream wrote. A
stream that does not synchronize with the legacy default stream is not ordered. Synchronize such a stream
before reading the buffer with this module, and call `Context.synchronize()` before using the buffer on that
stream.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, overload

from . import _native
from ._cuda_ranges import Elements, byte_count, contiguous, copy_len, range_of
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
    """Returns the number of CUDA devices. Raises DeviceError if there is no driver.

    >>> context.device_number < cuda.get_num_devices()
    True
    """
    return _native.cuda_device_count()


class Context:
    """A CUDA device, and a session on it.

    `Context(n)` uses device `n` and a session that this module keeps for that device. `Context(session=s)`
    uses the device, the budget and the stream of `s`.

    >>> context = cuda.Context(session=cuda_session)
    >>> context.buffer_from_data(b"abc").to_pybytes()
    b'abc'
    """

    __slots__ = ("__weakref__", "_native", "_session")

    def __init__(self, device_number: int | None = None, *, session: Session | None = None) -> None:
        if session is None:
            session = _session_on(0 if device_number is None else device_number)
        self._session = session
        self._native = _native.DeviceContext(session)
        if device_number is not None and device_number != self.device_number:
            raise UsageError(
                f"device_number={device_number}: the session is on {session.device}: omit one of the arguments"
            )

    @staticmethod
    def get_num_devices() -> int:
        """Returns the number of CUDA devices. Raises DeviceError if there is no driver.

        >>> context.device_number < cuda.Context.get_num_devices()
        True
        """
        return get_num_devices()

    @property
    def num_devices(self) -> int:
        """Number of CUDA devices.

        >>> context.device_number < context.num_devices
        True
        """
        return get_num_devices()

    @property
    def device_number(self) -> int:
        """Index of the device: N in "cuda:N".

        >>> context.device_number
        0
        """
        return self._native.device_number

    @property
    def session(self) -> Session:
        """The session of the context.

        >>> context.session.device
        'cuda:0'
        """
        return self._session

    @property
    def bytes_allocated(self) -> int:
        """Bytes of live buffers that `new_buffer` and `buffer_from_data` allocated in the session.

        >>> buffer = context.new_buffer(1024)
        >>> context.bytes_allocated >= buffer.size
        True
        """
        return self._native.bytes_allocated

    def synchronize(self) -> None:
        """Waits for all work submitted to the stream of the session and to the legacy default stream.

        >>> context.synchronize()
        """
        self._native.synchronize()

    def new_buffer(self, size: int) -> Buffer:
        """Allocates `size` bytes on the device, uninitialised. The buffer can be exported to other
        processes.

        >>> context.new_buffer(1024).size
        1024
        """
        return Buffer._of(self._native.allocate(byte_count("size", size)), self)

    def buffer_from_data(self, data: _HostData | Buffer, offset: int = 0, size: int = -1) -> Buffer:
        """Copies the `size` bytes of `data` that begin at `offset` into a new buffer. If `size` is -1, copies
        all bytes from `offset` to the end.

        data: a bytes-like object, a column on the cpu, or another buffer.

        >>> context.buffer_from_data(b"abcdef", offset=2, size=3).to_pybytes()
        b'cde'
        """
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
        """Imports the memory of an array in place, and keeps the array alive. The buffer of a read-only array
        is read-only.

        obj: an object with `__dlpack__` or `__cuda_array_interface__` whose elements are contiguous on this
        device.

        >>> context.buffer_from_object(table.to("cuda:0")["id"]).size
        24
        """
        if isinstance(obj, Buffer):
            if obj.context.device_number != self.device_number:
                raise UsageError(
                    f"the buffer is on cuda:{obj.context.device_number}, expected cuda:{self.device_number}: use "
                    "buffer_from_data to copy it"
                )
            return obj
        memory = self._native.of_tensor(obj)
        return self.new_buffer(0) if memory is None else Buffer._of(memory, self)

    def foreign_buffer(self, address: int, size: int, base: object = None) -> Buffer:
        """Imports `size` bytes at an address of this device in place. The range must be in an allocation of
        the CUDA driver.

        base: the owner of the memory, which the buffer keeps alive. If None, the caller must keep the memory
        allocated as long as the buffer exists.

        >>> owner = context.buffer_from_data(b"abc")
        >>> context.foreign_buffer(owner.address, owner.size, base=owner).to_pybytes()
        b'abc'
        """
        n = byte_count("size", size)
        if address == 0 and n == 0:
            return self.new_buffer(0)
        return Buffer._of(self._native.foreign(byte_count("address", address), n, base), self)

    def open_ipc_buffer(self, ipc_handle: IpcMemHandle) -> Buffer:
        """Opens memory that another process on this machine exported. Work on it waits for the exporter's
        work before the export. Close the buffer and its slices before the exporter frees the memory.

        >>> def receive(data):
        ...     return context.open_ipc_buffer(cuda.IpcMemHandle.from_buffer(data)).to_pybytes()
        """
        if not isinstance(ipc_handle, IpcMemHandle):
            kind = type(ipc_handle).__name__
            raise TypeError(f"ipc_handle: expected an IpcMemHandle, got {kind}; use IpcMemHandle.from_buffer for bytes")
        return Buffer._of(self._native.open_ipc(ipc_handle.serialize()), self)

    def new_host_buffer(self, size: int) -> HostBuffer:
        """Allocates `size` bytes of pinned host memory, filled with zeros.

        >>> memoryview(context.new_host_buffer(4)).tolist()
        [0, 0, 0, 0]
        """
        return self._native.new_host_buffer(byte_count("size", size))

    @staticmethod
    def from_numba(context: Any = None) -> Context:
        """Returns the context of a Numba context's device, or of the current device if the argument is None.
        Numba and this module use the device's primary context.

        >>> cuda.Context.from_numba(numba.cuda.current_context()).device_number
        0
        """
        if context is None:
            from numba import cuda  # type: ignore[import-not-found,unused-ignore]

            context = cuda.current_context()
        return Context(int(context.device.id))

    def to_numba(self) -> Any:
        """Returns Numba's context of this device. Numba and this module use the device's primary context.

        >>> context.to_numba().device.id
        0
        """
        from numba.cuda.cudadrv import devices  # type: ignore[import-not-found,unused-ignore]

        return devices.get_context(self.device_number)

    def __repr__(self) -> str:
        return f"<crossdock.cuda.Context device_number={self.device_number}>"


class Buffer:
    """Bytes on a CUDA device, created by a `Context`. Slices share the memory. It is freed after the buffer
    and all slices are released and the work on it has finished.

    >>> buffer = context.buffer_from_data(b"abcdef")
    >>> buffer.slice(2, 3).to_pybytes()
    b'cde'
    """

    __slots__ = ("__weakref__", "_context", "_memory")

    _context: Context
    _memory: _native.DeviceMemory

    def __init__(self) -> None:
        raise TypeError("use a method of Context: new_buffer, buffer_from_data, buffer_from_object or open_ipc_buffer")

    @classmethod
    def _of(cls, memory: _native.DeviceMemory, context: Context) -> Buffer:
        buffer = cls.__new__(cls)
        buffer._memory = memory
        buffer._context = context
        return buffer

    @property
    def size(self) -> int:
        """Size in bytes.

        >>> context.buffer_from_data(b"abc").size
        3
        """
        return self._memory.size

    def __len__(self) -> int:
        return self._memory.size

    @property
    def address(self) -> int:
        """Device address of the first byte. The host must not access it. Work on the legacy default stream
        waits for earlier work on this buffer.

        >>> context.buffer_from_data(b"abc").address > 0
        True
        """
        self._memory.mark_exported()
        return self._memory.address

    @property
    def context(self) -> Context:
        """The context of the buffer.

        >>> context.new_buffer(8).context is context
        True
        """
        return self._context

    @property
    def is_cpu(self) -> bool:
        """Always False: the host cannot access the memory.

        >>> context.new_buffer(8).is_cpu
        False
        """
        return False

    @property
    def is_mutable(self) -> bool:
        """Whether the buffer may be written. False for the memory of a read-only array.

        >>> context.new_buffer(8).is_mutable
        True
        """
        return self._memory.writable

    @overload
    def copy_to_host(self, position: int = 0, nbytes: int = -1, buf: None = None) -> bytes: ...
    @overload
    def copy_to_host(self, position: int = 0, nbytes: int = -1, *, buf: _Target) -> _Target: ...
    def copy_to_host(self, position: int = 0, nbytes: int = -1, buf: Any = None) -> Any:
        """Copies the `nbytes` bytes that begin at `position` to the host, and waits for the copy. If `nbytes`
        is -1, copies all bytes from `position` to the end. Ctrl-C ends the copy after at most 256 MiB more.

        buf: a writable buffer of at least `nbytes` bytes, which is filled and returned. A `HostBuffer` is
        fastest. None: the result is a new `bytes` object.

        >>> buffer = context.buffer_from_data(b"abcdef")
        >>> buffer.copy_to_host(position=2, nbytes=3)
        b'cde'
        """
        start, n = range_of("position", position, "nbytes", nbytes, self.size, "the buffer")
        if buf is None:
            return self._memory.read(start, n)
        self._memory.read_into(start, n, _host_bytes(buf, "buf"))
        return buf

    def to_pybytes(self) -> bytes:
        """Copies the whole buffer to the host, like `copy_to_host()`.

        >>> context.buffer_from_data(b"abc").to_pybytes()
        b'abc'
        """
        return self.copy_to_host()

    def copy_from_host(self, data: _HostData, position: int = 0, nbytes: int = -1) -> int:
        """Copies the first `nbytes` bytes of `data` to `position`, and waits for the copy. If `nbytes` is -1,
        copies as many bytes of `data` as fit. Ctrl-C ends the copy after at most 256 MiB more. Returns the
        number of bytes copied.

        >>> buffer = context.buffer_from_data(b"......")
        >>> buffer.copy_from_host(b"abc", position=2)
        3
        >>> buffer.to_pybytes()
        b'..abc.'
        """
        view = _host_bytes(data, "data")
        n = copy_len(position, nbytes, view.nbytes, self.size)
        self._memory.write(position, n, view[:n])
        return n

    def copy_from_device(self, buf: Buffer, position: int = 0, nbytes: int = -1) -> int:
        """Submits a copy of the first `nbytes` bytes of another buffer, which may be on another device, to
        `position`. Does not wait. If `nbytes` is -1, copies as many bytes of `buf` as fit. Returns the number
        of bytes.

        >>> buffer = context.buffer_from_data(b"......")
        >>> buffer.copy_from_device(context.buffer_from_data(b"abc"), position=2)
        3
        >>> buffer.to_pybytes()
        b'..abc.'
        """
        if not isinstance(buf, Buffer):
            raise TypeError(
                f"buf: expected a crossdock.cuda.Buffer, got {type(buf).__name__}; use copy_from_host for host data"
            )
        n = copy_len(position, nbytes, buf.size, self.size)
        self._memory.copy_from(position, buf._memory, 0, n)
        return n

    def slice(self, offset: int = 0, length: int | None = None) -> Buffer:
        """Returns the slice of at most `length` bytes that begins at `offset`. The slice shares the memory.

        >>> context.buffer_from_data(b"abcdef").slice(2, 3).to_pybytes()
        b'cde'
        """
        if offset < 0 or offset > self.size:
            raise UsageError(f"offset={offset}: expected 0 to {self.size} bytes, the size of the buffer")
        rest = self.size - offset
        if length is not None and length < 0:
            raise UsageError(f"length={length}: expected 0 or more (the buffer has {self.size} bytes)")
        return Buffer._of(self._memory.slice(offset, rest if length is None else min(length, rest)), self._context)

    def export_for_ipc(self) -> IpcMemHandle:
        """Exports the memory to other processes on this machine. Only memory from `new_buffer` and
        `buffer_from_data` can be exported. Work of the other processes on the memory waits for the work that
        this process has submitted so far. The processes can access the whole allocation, even if this buffer
        is a slice of it. Until all of them have closed their buffers, keep this process running, and keep this
        buffer, a slice of it, or the handle.

        >>> buffer = context.buffer_from_data(b"abc")
        >>> buffer.export_for_ipc().size
        3
        """
        return IpcMemHandle._of(self._memory.export_ipc(), self)

    @staticmethod
    def from_numba(mem: Any) -> Buffer:
        """Imports the memory of a Numba device array (`array.gpu_data`, a MemoryPointer) in place, and keeps
        it alive.

        >>> array = numba.cuda.to_device(np.arange(3))
        >>> cuda.Buffer.from_numba(array.gpu_data).size
        24
        """
        context = Context.from_numba(mem.context)
        address = mem.device_pointer_value
        return context.foreign_buffer(0 if address is None else int(address), int(mem.size), base=mem)

    def to_numba(self) -> Any:
        """Returns a Numba MemoryPointer that keeps the buffer alive.

        >>> context.buffer_from_data(b"abc").to_numba().size
        3
        """
        import ctypes

        from numba.cuda.cudadrv.driver import MemoryPointer  # type: ignore[import-not-found,unused-ignore]

        pointer = ctypes.c_void_p(self.address)
        return MemoryPointer(self._context.to_numba(), pointer=pointer, size=self.size, owner=self)

    def to_numba_array(self, dtype: Any = "u1", shape: int | Sequence[int] | None = None) -> Any:
        """Returns a Numba device array of the same memory, which keeps the buffer alive.

        dtype: a NumPy dtype.
        shape: None: one dimension that covers the whole buffer.

        >>> buffer = context.buffer_from_data(np.arange(3))
        >>> buffer.to_numba_array("int64").copy_to_host()
        array([0, 1, 2])
        """
        import numpy as np
        from numba import cuda

        return cuda.as_cuda_array(Elements(self, np.dtype(dtype), shape))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The buffer's bytes as a CUDA Array Interface, version 3."""
        return self._interface("|u1", (self.size,))

    def _interface(self, typestr: str, shape: tuple[int, ...]) -> dict[str, Any]:
        stream = self._memory.mark_exported()
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
        """Whether `close` was called.

        >>> with context.new_buffer(8) as buffer:
        ...     buffer.closed
        False
        >>> buffer.closed
        True
        """
        return self._memory.closed

    def close(self) -> None:
        """Releases the memory, unless slices or arrays of other libraries use it. Close a buffer with memory
        of another process before that process frees the memory. Closing twice has no effect.

        >>> buffer = context.new_buffer(8)
        >>> buffer.close()
        """
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
    """A description of a buffer, with which another process opens it. Send the bytes of `serialize()` to the
    other process, which passes `IpcMemHandle.from_buffer(bytes)` to `Context.open_ipc_buffer`. That process
    can read and write the memory, so send the bytes only to trusted processes.

    >>> data = context.buffer_from_data(b"abc").export_for_ipc().serialize()
    >>> cuda.IpcMemHandle.from_buffer(data)
    <crossdock.cuda.IpcMemHandle size=3>
    """

    __slots__ = ("__weakref__", "_buffer", "_description")

    _buffer: Buffer | None
    _description: bytes

    def __init__(self) -> None:
        raise TypeError("use Buffer.export_for_ipc() or IpcMemHandle.from_buffer(bytes)")

    @classmethod
    def _of(cls, description: bytes, buffer: Buffer | None) -> IpcMemHandle:
        handle = cls.__new__(cls)
        handle._description = description
        # A slice keeps the memory allocated after the buffer is closed.
        handle._buffer = None if buffer is None else buffer.slice()
        return handle

    @classmethod
    def from_buffer(cls, serialized: _HostData) -> IpcMemHandle:
        """Reads the bytes of `serialize()`. Raises DataError if the bytes are not a handle. Whether the memory
        still exists is checked only when it is opened.

        >>> data = context.buffer_from_data(b"abc").export_for_ipc().serialize()
        >>> cuda.IpcMemHandle.from_buffer(data).size
        3
        """
        description = bytes(_host_bytes(serialized, "serialized"))
        _native.cuda_ipc_size(description)
        return cls._of(description, None)

    def serialize(self) -> bytes:
        """Returns the description as bytes.

        >>> data = context.new_buffer(8).export_for_ipc().serialize()
        """
        return self._description

    @property
    def size(self) -> int:
        """Size of the buffer in bytes.

        >>> context.new_buffer(8).export_for_ipc().size
        8
        """
        return _native.cuda_ipc_size(self._description)

    def __repr__(self) -> str:
        return f"<crossdock.cuda.IpcMemHandle size={self.size}>"


def new_host_buffer(size: int, device: int = 0) -> HostBuffer:
    """Allocates `size` bytes of pinned host memory, filled with zeros.

    >>> cuda.new_host_buffer(8, device=context.device_number).size
    8
    """
    return Context(device).new_host_buffer(size)


def _host_bytes(data: Any, name: str) -> memoryview:
    """Returns a view of an object's bytes in host memory."""
    if isinstance(data, Buffer):
        raise TypeError(
            f"{name}: expected host memory, got a crossdock.cuda.Buffer: use its copy_to_host(), or copy_from_device() to "
            "copy between devices"
        )
    return contiguous(data, name)


_lock = threading.Lock()
_sessions: dict[int, Session] = {}


def _session_on(device_number: int) -> Session:
    """Returns the session that this module keeps for a device."""
    if device_number < 0:
        raise UsageError(f"device_number={device_number}: expected 0 or more, and less than get_num_devices()")
    with _lock:
        session = _sessions.get(device_number)
        if session is None:
            session = _sessions[device_number] = Session(f"cuda:{device_number}")
        return session


def _forget_after_fork() -> None:
    # The driver's state is invalid after a fork, so the child opens new sessions.
    global _lock, _sessions
    _lock, _sessions = threading.Lock(), {}


os.register_at_fork(after_in_child=_forget_after_fork)
