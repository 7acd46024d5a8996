"""Checks of offsets and sizes in buffers, and views of their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._native import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .cuda import Buffer


def byte_count(name: str, value: int) -> int:
    """Returns `value`, a number of bytes. Raises UsageError if it is negative."""
    if value < 0:
        raise UsageError(f"{name}={value}: expected 0 or more")
    return value


def range_of(first: str, start: int, second: str, n: int, size: int, what: str) -> tuple[int, int]:
    """Returns the start and the length of the range of `n` bytes that begins at `start`, in `what` of `size`
    bytes. If `n` is -1, the range ends at the end of `what`. Raises UsageError if `what` does not contain the
    range. The error names the arguments `first` (`start`) and `second` (`n`)."""
    if start < 0 or start > size:
        raise UsageError(f"{first}={start}: expected 0 to {size} bytes, the size of {what}")
    if n == -1:
        n = size - start
    if n < 0 or n > size - start:
        raise UsageError(
            f"{second}={n} at {first}={start}: expected 0 to {size - start}, because {what} has {size} bytes"
        )
    return start, n


def copy_len(position: int, nbytes: int, available: int, size: int) -> int:
    """Returns the number of bytes to copy to `position` of a buffer of `size` bytes. If `nbytes` is -1,
    returns how many of the `available` bytes fit. Raises UsageError if `nbytes` exceeds the available bytes,
    or the bytes of the buffer after `position`."""
    if position < 0 or position > size:
        raise UsageError(f"position={position}: expected 0 to {size} bytes, the size of the buffer")
    if nbytes == -1:
        return min(available, size - position)
    if nbytes < 0 or nbytes > available:
        raise UsageError(f"nbytes={nbytes}: the source has {available} bytes")
    if nbytes > size - position:
        raise UsageError(
            f"nbytes={nbytes} at position={position}: expected at most {size - position} bytes, because "
            f"the buffer has {size}"
        )
    return nbytes


def contiguous(data: Any, name: str) -> memoryview:
    """Returns a view of an object's bytes in host memory. The name of the argument appears in errors."""
    view = memoryview(data)
    if view.nbytes == 0:
        # An empty view of several dimensions cannot be cast.
        return memoryview(b"")
    if not view.c_contiguous:
        raise UsageError(f"{name}: the bytes are not contiguous: copy them first")
    if view.ndim == 1 and view.format == "B":
        return view
    try:
        return view.cast("B")
    except (TypeError, NotImplementedError):
        # memoryview does not support all formats, for example complex numbers.
        from pickle import PickleBuffer

        return PickleBuffer(view).raw()


class Elements:
    """An array of a buffer's bytes, with `__cuda_array_interface__`."""

    def __init__(self, buffer: Buffer, dtype: Any, shape: int | Sequence[int] | None) -> None:
        if buffer.size % dtype.itemsize and shape is None:
            raise UsageError(
                f"{buffer.size} bytes: expected a multiple of {dtype.itemsize} bytes, the size of a {dtype}"
            )
        if shape is None:
            shape = buffer.size // dtype.itemsize
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.buffer, self.typestr = buffer, dtype.str
        needed = dtype.itemsize
        for n in self.shape:
            needed *= byte_count("shape", n)
        if needed > buffer.size:
            raise UsageError(f"{dtype} of shape {self.shape}: expected {needed} bytes, the buffer has {buffer.size}")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.buffer._interface(self.typestr, self.shape)
