"""Checks of offsets and sizes in buffers."""

from __future__ import annotations

from ._native import UsageError


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
