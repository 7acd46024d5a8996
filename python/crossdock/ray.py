"""Scans as datasets of Ray.

    import crossdock.ray, ray

    scan = session.scan("data/*.parquet", columns=["id", "x"])
    dataset = ray.data.read_datasource(crossdock.ray.Datasource(scan))

Tables, columns and encoded arrays need no preparation: `ray.put` stores their buffers in shared memory, and `ray.get`
uses them there.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ._fragments import Fragment
    from ._native import Scan


def __getattr__(name: str) -> "Any":
    # The class is defined at its first use, because its base class is Ray's.
    if name != "Datasource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = defined = _define()
    return defined


def _define() -> "type[Any]":
    import ray.data.datasource  # type: ignore[import-untyped,import-not-found,unused-ignore]

    contents = {"__module__": __name__, "__doc__": _Methods.__doc__}
    return type("Datasource", (_Methods, ray.data.datasource.Datasource), contents)


class _Methods:
    """The fragments of a scan of files, for `ray.data.read_datasource`.

    Each read task reads adjacent fragments on the worker that runs it, in a session with the settings of the scan's
    session, and returns a block of pyarrow for each batch. Columns, rows and filters are those of the scan.
    """

    def __init__(self, scan: "Scan") -> None:
        super().__init__()
        self._fragments = scan.fragments()
        self._schema = scan.schema.to_pyarrow()

    def estimate_inmemory_data_size(self) -> int:
        """The number of bytes to read for all columns."""
        return sum(fragment.bytes for fragment in self._fragments)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: "Any" = None
    ) -> "list[Any]":
        """Returns at most `parallelism` tasks of about the same number of bytes."""
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
