"""Adapters of other libraries' allocators, for the argument `allocator` of a session."""

from ._native import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    _Functions = tuple[Callable[[int, int], int], Callable[[int, int, int], object]]


def functions(allocator: "Any", ordinal: int) -> "_Functions":
    """Returns allocate(nbytes, stream) -> address and deallocate(address, nbytes, stream). Streams are handles."""
    module = (allocator.__name__ if hasattr(allocator, "__name__") else type(allocator).__module__).partition(".")[0]
    if module == "torch":
        return _torch(ordinal)
    if module == "rmm":
        return _rmm(allocator)
    if module == "cuda":
        return _cuda_core(allocator)
    if callable(getattr(allocator, "allocate", None)) and callable(getattr(allocator, "deallocate", None)):
        return allocator.allocate, allocator.deallocate
    raise UsageError(
        "allocator: expected a memory resource of rmm or cuda.core, the module torch, an object with"
        " __crossdock_allocator__, or an object with allocate(nbytes, stream) and deallocate(address, nbytes, stream),"
        f" got {type(allocator).__name__}"
    )


class _Stream:
    """A stream by its handle, with the protocol of cuda.core."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def _torch(ordinal: int) -> "_Functions":
    import torch  # type: ignore[import-not-found,unused-ignore]

    def allocate(nbytes: int, stream: int) -> int:
        address: int = torch.cuda.caching_allocator_alloc(nbytes, ordinal, stream)
        return address

    return allocate, lambda address, _nbytes, _stream: torch.cuda.caching_allocator_delete(address)


def _rmm(resource: "Any") -> "_Functions":
    from rmm.pylibrmm.stream import Stream  # type: ignore[import-not-found,unused-ignore]

    def allocate(nbytes: int, stream: int) -> int:
        address: int = resource.allocate(nbytes, Stream(_Stream(stream)))
        return address

    return allocate, lambda address, nbytes, stream: resource.deallocate(address, nbytes, Stream(_Stream(stream)))


def _cuda_core(resource: "Any") -> "_Functions":
    buffers: dict[int, Any] = {}
    streams: dict[int, Any] = {}

    def stream_of(handle: int) -> "Any":
        if handle not in streams:
            try:
                from cuda.core import Stream  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                from cuda.core.experimental import Stream  # type: ignore[import-not-found,no-redef,unused-ignore]
            streams[handle] = Stream.from_handle(handle)
        return streams[handle]

    def allocate(nbytes: int, stream: int) -> int:
        buffer = resource.allocate(nbytes, stream=stream_of(stream))
        address = int(buffer.handle)
        buffers[address] = buffer
        return address

    return allocate, lambda address, _nbytes, stream: buffers.pop(address).close(stream_of(stream))
