"""Scans as datasets of Ray.

>>> import crossdock.ray
>>> import ray.data
>>> scan = session.scan(folder / "people.arrow", columns=["id", "score"])
>>> ray.data.read_datasource(crossdock.ray.Datasource(scan)).sum("score")
4.5

Tables, columns and encoded arrays need no preparation: `ray.put` stores their buffers in shared memory, and `ray.get`
uses them there.

>>> ray.get(ray.put(table)).num_rows
3

After `register_tensor_transport()`, actors on the same host pass tables on GPUs through device memory:

    crossdock.ray.register_tensor_transport()  # before the actors are created

    @ray.remote(num_gpus=1)
    class Reader:
        @ray.method(tensor_transport="crossdock")
        def read(self, path):
            return session.read(path)

    @ray.remote(num_gpus=1, enable_tensor_transport=True)
    class Receiver:
        def use(self, table): ...
"""

from ._native import SharedTable, Table, UnsupportedError
from ._session import shared_session

__all__ = ["Datasource", "register_tensor_transport"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    from ._fragments import Fragment
    from ._native import Column, Scan

    Datasource: type[Any]


# The releases of Ray whose interface of tensor transports is the one that this module implements.
# The interface is not stable.
_TRANSPORT_RELEASES = ("2.60.",)


def register_tensor_transport() -> None:
    """Registers the tensor transport "crossdock" for tables on CUDA devices. Actors must be created afterwards, in this
    process, and receive from actors on the same host. An actor that only receives needs `enable_tensor_transport=True`;
    otherwise Ray waits until a timeout. Raises UnsupportedError if the release of Ray is not one that this module was
    tested with.

    >>> crossdock.ray.register_tensor_transport()
    """
    import ray.experimental  # type: ignore[import-untyped,import-not-found,unused-ignore]

    if not ray.__version__.startswith(_TRANSPORT_RELEASES):
        tested = ", ".join(f"{release}x" for release in _TRANSPORT_RELEASES)
        raise UnsupportedError(
            f"the tensor transport was tested with Ray {tested}, and this is Ray {ray.__version__}, whose interface may "
            "differ: without it, tables are passed through the object store"
        )
    ray.experimental.register_tensor_transport("crossdock", ["cuda"], __getattr__("TableTransport"), Table)


def __getattr__(name: str) -> "Any":
    # These classes are defined at their first use, because their base classes are Ray's.
    methods: type
    if name == "Datasource":
        import ray.data.datasource  # type: ignore[import-untyped,import-not-found,unused-ignore]

        methods, base = _Methods, ray.data.datasource.Datasource
    elif name == "TableTransport":
        import ray.experimental.rdt.tensor_transport_manager as rdt  # type: ignore[import-untyped,import-not-found,unused-ignore]

        methods, base = _Transport, rdt.TensorTransportManager
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    contents = {"__module__": __name__, "__doc__": methods.__doc__}
    globals()[name] = defined = type(name, (methods, base), contents)
    return defined


class _Transport:
    """Passes tables on CUDA devices between actors on the same host. An actor that returns tables shares them, and an
    actor that receives them opens them. Ray frees the shared memory when the object is no longer referenced."""

    def __init__(self) -> None:
        self._shared: dict[str, list[SharedTable]] = {}

    def tensor_transport_backend(self) -> str:
        return "CROSSDOCK"

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return False

    def actor_has_tensor_transport(self, actor: "Any") -> bool:
        return True

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: "list[Table]") -> "Any":
        from ray.experimental.rdt.tensor_transport_manager import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            TensorTransportMetadata,
        )

        for table in rdt_object:
            # Tables in host memory go through the store of Ray, also to other hosts.
            if not table.device.startswith("cuda"):
                raise UnsupportedError(
                    f"the table is on {table.device}, expected a CUDA device: move it first, or return it from a method "
                    "without tensor_transport"
                )
        shared = self._shared[obj_id] = [table.share() for table in rdt_object]
        # Ray passes the metadata of a tensor unchanged, here a description instead of a shape and
        # a type.
        descriptions = [(table.description, None) for table in shared]
        return TensorTransportMetadata(tensor_meta=descriptions, tensor_device="cuda")

    def get_communicator_metadata(self, src_actor: "Any", dst_actor: "Any", backend: str | None = None) -> "Any":
        from ray.experimental.rdt.tensor_transport_manager import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
            CommunicatorMetadata,
        )

        return CommunicatorMetadata()

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: "Any",
        communicator_metadata: "Any",
        target_buffers: "list[Any] | None" = None,
    ) -> "list[Table | Column]":
        if target_buffers:
            raise UnsupportedError("tables cannot be received into existing buffers")
        descriptions = [description for description, _ in tensor_transport_metadata.tensor_meta]
        return [shared_session(description).open_shared(description) for description in descriptions]

    def send_multiple_tensors(self, *_: object) -> "NoReturn":
        raise UnsupportedError("the receiver opens the tables itself")

    def garbage_collect(self, obj_id: str, tensor_transport_meta: "Any", tensors: "list[Any]") -> None:
        for table in self._shared.pop(obj_id, []):
            table.close()

    def abort_transport(self, obj_id: str, communicator_metadata: "Any") -> "NoReturn":
        raise UnsupportedError("a table that is being opened cannot be aborted")


class _Methods:
    """The fragments of a scan of files, for `ray.data.read_datasource`.

    Each read task reads adjacent fragments on the worker that runs it, in a session with the settings of the scan's
    session, and returns a block of pyarrow for each batch. Columns, rows and filters are those of the scan.

    >>> source = crossdock.ray.Datasource(session.scan(folder / "people.arrow", columns=["id"]))
    >>> ray.data.read_datasource(source).take_all()
    [{'id': 1}, {'id': 2}, {'id': 3}]
    """

    def __init__(self, scan: "Scan") -> None:
        super().__init__()
        self._fragments = scan.fragments()
        self._schema = scan.schema.to_pyarrow()

    def estimate_inmemory_data_size(self) -> int:
        """The number of bytes to read for all columns.

        >>> source = crossdock.ray.Datasource(session.scan(folder / "people.arrow"))
        >>> source.estimate_inmemory_data_size() > 0
        True
        """
        return sum(fragment.bytes for fragment in self._fragments)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: "Any" = None
    ) -> "list[Any]":
        """Returns at most `parallelism` tasks of about the same number of bytes.

        >>> source = crossdock.ray.Datasource(session.scan(folder / "people.arrow"))
        >>> [task.metadata.num_rows for task in source.get_read_tasks(4)]
        [3]
        """
        return [self._task(group, per_task_row_limit) for group in groups(self._fragments, parallelism)]

    def _task(self, fragments: "list[Fragment]", row_limit: int | None) -> "Any":
        import ray.data.block  # type: ignore[import-untyped,import-not-found,unused-ignore]
        import ray.data.datasource  # type: ignore[import-untyped,import-not-found,unused-ignore]

        rows = [fragment.num_rows for fragment in fragments if fragment.num_rows is not None]
        metadata = ray.data.block.BlockMetadata(
            num_rows=sum(rows) if len(rows) == len(fragments) else None,
            size_bytes=sum(fragment.bytes for fragment in fragments) or None,
            exec_stats=None,
            input_files=_files(fragments),
        )
        return ray.data.datasource.ReadTask(_reader(fragments), metadata, self._schema, row_limit)


def _reader(fragments: "list[Fragment]") -> "Callable[[], Iterator[Any]]":
    def read() -> "Iterator[Any]":
        for fragment in fragments:
            for table in fragment.scan():
                yield table.to_pyarrow()

    return read


def _files(fragments: "list[Fragment]") -> tuple[str, ...] | None:
    sources = dict.fromkeys(fragment.source for fragment in fragments if isinstance(fragment.source, str))
    return tuple(sources) or None


def groups(fragments: "list[Fragment]", n: int) -> "list[list[Fragment]]":
    """Divides the fragments into at most `n` lists of adjacent fragments with about the same number of bytes."""
    n = max(n, 1)
    sizes = [max(fragment.bytes, 1) for fragment in fragments]
    total, done = sum(sizes), 0
    divided: list[list[Fragment]] = [[] for _ in range(n)]
    for fragment, size in zip(fragments, sizes, strict=True):
        # The group that contains the middle of the fragment.
        divided[min((2 * done + size) * n // (2 * total), n - 1)].append(fragment)
        done += size
    return [group for group in divided if group]
