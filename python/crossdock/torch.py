"""Batches of a scan as tensors of PyTorch.

>>> import crossdock.torch
>>> scan = session.scan(folder / "people.arrow")
>>> for batch in crossdock.torch.Loader(scan, ["id", "score"], batch_size=2):
...     print(batch)
{'id': tensor([1, 2]), 'score': tensor([0.5000, 1.5000], dtype=torch.float64)}
{'id': tensor([3]), 'score': tensor([2.5000], dtype=torch.float64)}

The tensors are on the device of the scan's session. Other libraries take them through DLPack, such as
`jax.dlpack.from_dlpack(batch["id"])` and `cupy.from_dlpack(batch["id"])`.

`scan_of` makes a scan from a dataset of Hugging Face.
"""

from ._loader import BatchLoader
from ._native import UsageError
from ._session import default_session

__all__ = ["Loader", "scan_of"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ._native import Column, Scan, Session


class Loader(BatchLoader):
    """Iterates over a scan in batches: dicts from names of columns to tensors on the device of the scan.

    Columns become tensors as by `Column.to_tensor`. Only the columns of the loader are read. Each iteration begins with
    the first epoch. Tensors of a batch are slices of a window, so they must not be written to.

    >>> scan = session.scan(folder / "people.arrow")
    >>> loader = crossdock.torch.Loader(scan, ["id"], batch_size=1, shuffle=True, seed=1, epochs=2)
    >>> sorted(batch["id"].item() for batch in loader)
    [1, 1, 2, 2, 3, 3]
    """

    def __init__(
        self,
        scan: "Scan",
        columns: "Sequence[str] | None" = None,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int = 0,
        epochs: int = 1,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        window: int | None = None,
        nulls: "Any" = "error",
        prefetch: int = 2,
    ) -> None:
        """scan: a scan of files or bytes, which can be divided into fragments.
        columns: names; None: all columns of the scan.
        batch_size: number of rows. Only the last batch of an epoch has fewer rows, unless drop_last leaves it out.
        shuffle: read the fragments in another order in each epoch, and reorder the rows of each window. The order depends
        on nothing but the files and the arguments.
        rank, world_size: read only this rank's share of the rows. None: as in torch.distributed if it is initialised,
        else all rows. If the numbers of rows are known, the shares are equal, and with drop_last all ranks have equally
        many batches.
        window: number of rows that are reordered together, rounded up to a multiple of batch_size. None: 64 batches, at
        least 65,536 rows.
        nulls: as in `Column.to_tensor`, or a dict from names to such values. With "mask", batches also have NAME_mask.
        prefetch: number of windows that a thread prepares ahead; 0: none.
        """
        rank, world_size = _rank(rank, world_size)
        super().__init__(
            scan,
            columns,
            _Tensors(scan.device),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            window=window,
            nulls=nulls,
            prefetch=prefetch,
        )


class _Tensors:
    """Tensors of torch.

    Everything that torch does on a GPU is done on the thread that uses the batches. `torch.from_dlpack` makes the current
    stream of this thread wait for the columns, which the thread of the loader prepared on the stream of the session. The
    memory belongs to the session and not to torch's allocator, so `Tensor.record_stream` does not apply: the session frees
    exported memory only after all work in flight on the device.
    """

    def __init__(self, device: str) -> None:
        import torch  # type: ignore[import-not-found,unused-ignore]

        self._torch = torch
        kind, _, number = device.partition(":")
        self._device = int(number) if kind == "cuda" else None

    def permutation(self, seed: int, n: int) -> "Any":
        # On the CPU, so that the order is the same on each device.
        return self._torch.randperm(n, generator=self._torch.Generator().manual_seed(seed))

    def tensors(self, columns: "dict[str, Column]") -> "dict[str, Any]":
        return {name: self._torch.from_dlpack(column) for name, column in columns.items()}

    def divided(self, tensor: "Any", rows: int) -> "Sequence[Any]":
        return tensor.split(rows)  # type: ignore[no-any-return,unused-ignore]

    def stream(self) -> "Any":
        return None if self._device is None else self._torch.cuda.current_stream(self._device)


def _rank(rank: int | None, world_size: int | None) -> tuple[int, int]:
    import torch.distributed  # type: ignore[import-not-found,unused-ignore]

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        actual = torch.distributed.get_rank(), torch.distributed.get_world_size()
        for name, given, expected in zip(("rank", "world_size"), (rank, world_size), actual):
            if given is not None and given != expected:
                raise UsageError(f"{name}={given!r}: in torch.distributed, it is {expected}; leave the argument out")
        return actual
    if (rank is None) != (world_size is None):
        raise UsageError(
            f"rank={rank!r}, world_size={world_size!r}: expected both or none, as torch.distributed is not initialised"
        )
    return (0, 1) if rank is None or world_size is None else (rank, world_size)


def scan_of(dataset: "Any", session: "Session | None" = None, **arguments: "Any") -> "Scan":
    """Scans the Arrow files of a dataset of Hugging Face (`datasets.Dataset`) in place, with the dataset's columns.

    The format of the dataset chooses columns, but not the types of the tensors. A dataset whose rows or values are not
    those of its files is an error.

    session: None: the default session.
    arguments: of `Session.scan`.

    >>> import datasets
    >>> datasets.Dataset.from_dict({"token": [3, 1, 2]}).save_to_disk(folder / "tokens")
    >>> scan = crossdock.torch.scan_of(datasets.load_from_disk(folder / "tokens"), session)
    >>> scan.to_table()["token"].to_pylist()
    [3, 1, 2]
    """
    if not hasattr(dataset, "cache_files") or not hasattr(dataset, "_data"):
        raise UsageError(f"expected a datasets.Dataset, got {type(dataset).__name__}")
    if dataset._indices is not None:
        raise UsageError("the rows of the dataset were selected or reordered: call flatten_indices() first")
    if obstacle := _difference_to_files(dataset):
        raise UsageError(f"{obstacle}: call save_to_disk(FOLDER), and pass datasets.load_from_disk(FOLDER)")
    form = dataset.format
    if form["type"] == "custom" or form["format_kwargs"]:
        raise UsageError(
            f"the dataset has the format {form['type']!r} with {', '.join(form['format_kwargs'])}, which changes values when "
            "they are read: call reset_format() first, and change the tensors"
        )
    files = [file["filename"] for file in dataset.cache_files]
    columns = [(name,) for name in form["columns"]]
    return (session or default_session()).scan(files, **{"columns": columns, **arguments})


# Methods of tables that change neither rows nor values nor names.
_CHOOSE_COLUMNS = ("drop", "remove_column", "replace_schema_metadata", "select")


def _difference_to_files(dataset: "Any") -> str | None:
    """Why the rows and values of a dataset are not those of its files; None if they are."""
    if not dataset.cache_files:
        return "the dataset is in memory"
    # A table is a list of blocks, each of which has a list of blocks with some of the columns. A
    # block that maps a file has the methods that were applied to it.
    for blocks in getattr(dataset._data, "blocks", [[dataset._data]]):
        if len(blocks) != 1 or not hasattr(blocks[0], "replays"):
            return "rows or columns of the dataset are in memory"
        changes = [method for method, *_ in blocks[0].replays if method not in _CHOOSE_COLUMNS]
        if changes:
            return f"the dataset differs from its files by {', '.join(dict.fromkeys(changes))}"
    return None
