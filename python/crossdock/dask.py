"""Scans as collections of Dask.

>>> import crossdock.dask
>>> frame = crossdock.dask.from_scan(session.scan(folder / "people.arrow", columns=["id", "score"]))
>>> float(frame["score"].sum().compute())
4.5

Tables, columns and encoded arrays need no preparation: workers exchange their buffers without copies in Python.

`dask worker --preload crossdock.dask`, or `LocalCluster(preload=["crossdock.dask"])`, exchanges tables and columns in
faster ways. Workers of the same user on the same host exchange those in host memory by shared memory. Workers that
communicate by UCX exchange those on GPUs without the host; the client and the scheduler must call `register_cuda()`, too.
"""

import contextlib
import os
import socket
from contextvars import ContextVar

__all__ = ["dask_setup", "delayed_tables", "from_scan", "register_cuda", "register_sizes", "share_on_host"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fragments import Fragment
    from ._native import Column, DeviceMemory, Scan, Table

# The number of bytes from which sharing a table is faster than sending it.
_MIN_SHARED_BYTES = 256 << 10

# Whether data that this worker sends goes to a worker that can open shared memory.
_can_share: "ContextVar[bool]" = ContextVar("can_share", default=False)


def delayed_tables(scan: "Scan") -> "list[Any]":
    """Returns a delayed `Table` for each fragment of a scan of files, in the order of the scan.

    >>> (people,) = crossdock.dask.delayed_tables(session.scan(folder / "people.arrow"))
    >>> people.num_rows.compute()
    3
    """
    import dask  # type: ignore[import-untyped,import-not-found,unused-ignore]

    read = dask.delayed(_table, pure=True)
    return [read(fragment) for fragment in scan.fragments()]


def from_scan(scan: "Scan", **arguments: "Any") -> "Any":
    """Returns a Dask DataFrame with a partition for each fragment of a scan of files.

    arguments: of `pyarrow.Table.to_pandas`.

    >>> frame = crossdock.dask.from_scan(session.scan(folder / "people.arrow", columns=["id", "score"]))
    >>> frame.npartitions, len(frame)
    (1, 3)
    """
    import dask.dataframe  # type: ignore[import-untyped,import-not-found,unused-ignore]

    meta = scan.head(0).to_pyarrow().to_pandas(**arguments)
    fragments = scan.fragments()
    if not fragments:
        return dask.dataframe.from_pandas(meta, npartitions=1)
    return dask.dataframe.from_map(_frame, fragments, meta=meta, **arguments)


def register_sizes(sizeof: "Any") -> None:
    """Tells Dask how many bytes tables, columns and encoded arrays have. Dask calls this function at its start.

    >>> from dask.sizeof import sizeof
    >>> crossdock.dask.register_sizes(sizeof)
    >>> sizeof(table) == table.nbytes
    True
    """
    from ._native import Column, Table

    sizeof.register((Table, Column))(lambda thing: thing.nbytes)


def register_cuda() -> None:
    """Registers tables and columns on CUDA devices with the serialisation family "cuda" of distributed. A table is copied
    once on its device, and sent as one frame of device memory.

    >>> crossdock.dask.register_cuda()
    """
    from distributed.protocol.cuda import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        cuda_deserialize,
        cuda_serialize,
    )

    from ._native import Column, Table

    cuda_serialize.register((Table, Column))(_to_frame)
    cuda_deserialize.register((Table, Column))(_from_frame)


def share_on_host(worker: "Any") -> None:
    """Lets a worker exchange tables and columns in host memory with other workers that have called this function, by
    shared memory instead of a connection, if they run on the same host as the same user. A table is copied once. The
    other worker uses the copy in place.

    worker: a `distributed.Worker`.

    >>> from distributed import Client
    >>> with Client(n_workers=1, processes=False, dashboard_address=None) as client:
    ...     done = client.run(lambda dask_worker: crossdock.dask.share_on_host(dask_worker))
    """
    from distributed.protocol import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        dask_deserialize,
        dask_serialize,
    )

    from ._native import Column, Table

    dask_serialize.register((Table, Column))(_to_description)
    dask_deserialize.register((Table, Column))(_from_description)
    # A worker that can connect to this socket can open shared memory. Nothing is sent to it.
    reachable = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reachable.bind(_socket_name(worker.address))
    worker.extensions["crossdock"] = reachable
    get_data = worker.handlers["get_data"]

    async def get_data_of_worker(comm: "Any", who: "str | None" = None, **arguments: "Any") -> "Any":
        # Only another worker states its address. Others may pass the data on to other hosts.
        token = _can_share.set(who is not None and _is_reachable(who))
        try:
            return await get_data(comm, who=who, **arguments)
        finally:
            _can_share.reset(token)

    worker.handlers["get_data"] = get_data_of_worker


def _socket_name(address: str) -> str:
    return f"\0crossdock-dask-{os.geteuid()}-{address}"


def _is_reachable(address: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.connect(_socket_name(address))
        return True
    return False


def dask_setup(server: "Any") -> None:
    """Called by the option --preload of a scheduler or a worker. Calls `register_cuda`, and `share_on_host` for a worker.

    >>> crossdock.dask.dask_setup(None)
    """
    register_cuda()
    if hasattr(server, "get_data"):
        share_on_host(server)


class _NotSharedError(NotImplementedError, TypeError):
    """Dask then uses its next way to serialise, for which it expects the one type here and the other type there."""


def _to_description(table: "Table | Column") -> "tuple[dict[str, bytes], list[bytes]]":
    from ._native import DeviceError, UnsupportedError

    if not _can_share.get():
        raise _NotSharedError("the data does not go to a worker that can open shared memory")
    if table.device != "cpu" or table.nbytes < _MIN_SHARED_BYTES:
        raise _NotSharedError(f"the table has {table.nbytes} bytes on {table.device}")
    try:
        return {}, [table._share_once()]
    except (DeviceError, UnsupportedError, MemoryError) as error:
        # For example, the session's limit leaves no memory for a copy.
        raise _NotSharedError(str(error)) from error


def _from_description(_: "dict[str, bytes]", frames: "list[Any]") -> "Table | Column":
    from ._native import DeviceError
    from ._session import shared_session

    (description,) = map(bytes, frames)
    try:
        return shared_session(description).open_shared(description)
    except DeviceError as error:
        # Dask then gets the data from another worker, or computes it again.
        raise ConnectionError(str(error)) from error


def _to_frame(table: "Table | Column") -> "tuple[dict[str, bytes], list[Any]]":
    if not table.device.startswith("cuda:"):
        # Dask then uses the next family of serialisers.
        raise NotImplementedError(f"the table is on {table.device}")
    from ._native import device_parts

    header, memory = device_parts(table)
    return {"crossdock": header}, [_Frame(memory)]


class _Frame:
    """Device memory to send."""

    def __init__(self, memory: "DeviceMemory") -> None:
        self._memory = memory
        self.nbytes = memory.size

    def __len__(self) -> int:
        return self.nbytes

    @property
    def __cuda_array_interface__(self) -> "dict[str, Any]":
        # The receiver of the address must wait for the copy on this stream.
        stream = self._memory.mark_exported()
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self._memory.address, True),
            "strides": None,
            "mask": None,
            "version": 3,
            "stream": stream,
        }


def _from_frame(header: "dict[str, bytes]", frames: "list[Any]") -> "Table | Column":
    from ._native import UsageError
    from .cuda import Context, get_num_devices

    (frame,) = frames
    for number in range(get_num_devices()):
        context = Context(number)
        try:
            buffer = context.buffer_from_object(frame)
        except UsageError:
            # The frame is on another device.
            continue
        return context._native.rebuild(header["crossdock"], buffer._memory)
    raise UsageError("the frame of a table is on no device of this process")


def _table(fragment: "Fragment") -> "Table":
    return fragment.scan().to_table()


def _frame(fragment: "Fragment", **arguments: "Any") -> "Any":
    return _table(fragment).to_pyarrow().to_pandas(**arguments)
