"""Scans as collections of Dask.

>>> import crossdock.dask
>>> frame = crossdock.dask.from_scan(session.scan(folder / "people.arrow", columns=["id", "score"]))
>>> float(frame["score"].sum().compute())
4.5

Tables, columns and encoded arrays need no preparation: workers exchange their buffers without copies in Python. Workers
that communicate by UCX exchange tables on GPUs without the host if each of them, and the client, has called
`register_cuda()`, for example by `dask worker --preload crossdock.dask`.
"""

__all__ = ["dask_setup", "delayed_tables", "from_scan", "register_cuda", "register_sizes"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fragments import Fragment
    from ._native import Column, DeviceMemory, Scan, Table


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


def dask_setup(_: "Any") -> None:
    """Called by the option --preload of a scheduler or a worker. Calls `register_cuda`.

    >>> crossdock.dask.dask_setup(None)
    """
    register_cuda()


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
