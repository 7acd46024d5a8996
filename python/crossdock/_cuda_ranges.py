"""Numbers that say which bytes of a buffer are meant, looked at before anything is done with them."""

from __future__ import annotations

from ._native import UsageError


def byte_count(name: str, value: int) -> int:
    if value < 0:
        raise UsageError(f"{name}={value}: expected 0 or more")
    return value


def range_of(first: str, start: int, second: str, n: int, size: int, what: str) -> tuple[int, int]:
    """`n` of `size` bytes from `start` on; all that follow for -1."""
    if start < 0 or start > size:
        raise UsageError(f"{first}={start} lies outside {what}, which has {size} bytes")
    if n == -1:
        n = size - start
    if n < 0 or n > size - start:
        raise UsageError(
            f"{second}={n} from {first}={start} on: {what} has {size} bytes, {size - start} of them from there on"
        )
    return start, n


def room_for(position: int, nbytes: int, available: int, size: int) -> int:
    """How many of `available` bytes go to `position`."""
    if position < 0 or position > size:
        raise UsageError(f"position={position} lies outside the buffer, which has {size} bytes")
    if nbytes == -1:
        return min(available, size - position)
    if nbytes < 0 or nbytes > available:
        raise UsageError(f"nbytes={nbytes}: the source has {available} bytes")
    if nbytes > size - position:
        raise UsageError(
            f"nbytes={nbytes} at position={position}: the buffer has room for {size - position} bytes there"
        )
    return nbytes
