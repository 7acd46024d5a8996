"""Batches of a scan for training: the rows of each rank, their order, and the position in them.

`crossdock.torch.Loader` adds the tensors. Nothing here needs torch.
"""

import hashlib
import operator
import random
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple, Protocol

from ._loader_columns import Columns
from ._native import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import Any

    from ._fragments import Fragment
    from ._native import Column, Scan, Table


class Tensors(Protocol):
    """The library of the tensors."""

    def permutation(self, seed: int, n: int) -> "Any":
        """The numbers below n in an order that only the seed determines, as an array for `Table.take`."""

    def tensors(self, columns: "dict[str, Column]") -> "dict[str, Any]":
        """Imports columns, ordered with the work of the calling thread."""

    def divided(self, tensor: "Any", rows: int) -> "Sequence[Any]":
        """Slices of `rows` rows each; the last one may have fewer rows."""

    def stream(self) -> "Any":
        """The stream with which `tensors` orders; None: no stream."""


class Part(NamedTuple):
    """Rows of a fragment; the number is None if it is not known."""

    fragment: int
    start: int
    rows: int | None


def mixed(*numbers: int) -> int:
    """A number below 2**63 that is different for different arguments, and the same on every machine."""
    digest = hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def fragment_order(n: int, shuffle: bool, seed: int, epoch: int) -> list[int]:
    order = list(range(n))
    if shuffle:
        random.Random(mixed(seed, epoch)).shuffle(order)
    return order


def parts_of_rank(lengths: "Sequence[int | None]", order: "Sequence[int]", rank: int, world_size: int) -> list[Part]:
    """The rows that a rank reads: adjacent rows, whose number differs by at most 1 between the ranks. If a length is not
    known, there must be one rank."""
    if world_size == 1:
        return [Part(i, 0, lengths[i]) for i in order]
    known = [length for length in lengths if length is not None]
    begin, end = (sum(known) * i // world_size for i in (rank, rank + 1))
    parts, at = [], 0
    for i in order:
        first, last = max(begin - at, 0), min(end - at, known[i])
        if first < last:
            parts.append(Part(i, first, last - first))
        at += known[i]
    return parts


def after_rows(parts: list[Part], rows: int) -> tuple[list[Part], int]:
    """The parts without the first `rows` rows, and how many of these must still be left out when the first part is
    read, because its length is not known."""
    for i, (fragment, start, length) in enumerate(parts):
        if length is None:
            return parts[i:], rows
        if rows < length:
            return [Part(fragment, start + rows, length - rows), *parts[i + 1 :]], 0
        rows -= length
    return [], rows


def n_batches(rows: int, batch_size: int, drop_last: bool, world_size: int, rank: int) -> int:
    """The number of batches of a rank; with drop_last, it is the same for all ranks."""
    if drop_last:
        return rows // world_size // batch_size
    own = rows * (rank + 1) // world_size - rows * rank // world_size
    return -(-own // batch_size)


def rows_of(tables: "Iterator[Table]", start: int, rows: int | None) -> "Iterator[Table]":
    """At most `rows` rows of tables, from `start` on."""
    for table in tables:
        if start or rows is not None:
            left_out = min(start, table.num_rows)
            table, start = table.slice(left_out, rows), start - left_out
        yield table
        if rows is not None:
            rows -= table.num_rows
            if rows == 0:
                return


def windows_of(tables: "Iterator[Table]", size: int, left_out: int) -> "Iterator[list[Table]]":
    """Divides the rows of tables, without the first ones, into lists of tables that have `size` rows together."""
    window: list[Table] = []
    missing = size
    for table in tables:
        at = min(left_out, table.num_rows)
        left_out -= at
        while at < table.num_rows:
            rows = min(missing, table.num_rows - at)
            window.append(table.slice(at, rows))
            at, missing = at + rows, missing - rows
            if missing == 0:
                yield window
                window, missing = [], size
    if window:
        yield window


def read_ahead(items: "Iterator[Any]", n: int, stop: threading.Event) -> "Iterator[Any]":
    """Iterates over a generator, up to `n` items ahead on a thread. Sets `stop` at the end of the iteration, or if it
    is closed or garbage-collected before."""
    if n == 0:
        yield from items
        return
    end = object()
    # The thread never waits for this iterator: it is given one item after another to make. So it
    # ends by itself, and the end of the interpreter waits for at most n items.
    executor = ThreadPoolExecutor(1, thread_name_prefix="crossdock-loader")
    ahead = deque(executor.submit(next, items, end) for _ in range(n))
    try:
        while (item := ahead.popleft().result()) is not end:
            ahead.append(executor.submit(next, items, end))
            yield item
            # Otherwise the item would be kept while the next one is made.
            del item
    finally:
        # Without waiting, because this may run in the garbage collector, on any thread.
        stop.set()
        for future in ahead:
            future.cancel()
        executor.shutdown(wait=False)


class Position:
    """How much of an iteration was yielded."""

    def __init__(self, epoch: int = 0, batches: int = 0) -> None:
        self.epoch = epoch
        self.batches = batches


class BatchLoader:
    """The part of `crossdock.torch.Loader` that does not need torch."""

    def __init__(
        self,
        scan: "Scan",
        columns: "Sequence[str] | None",
        tensors: "Tensors",
        *,
        batch_size: int,
        shuffle: bool,
        seed: int,
        epochs: int,
        drop_last: bool,
        rank: int,
        world_size: int,
        window: int | None,
        nulls: "Any",
        prefetch: int,
    ) -> None:
        self._tensors = tensors
        self._batch_size = _integer("batch_size", batch_size, 1)
        self._shuffle = bool(shuffle)
        self._seed = _integer("seed", seed, None)
        self._epochs = _integer("epochs", epochs, 0)
        self._drop_last = bool(drop_last)
        self._world_size = _integer("world_size", world_size, 1)
        self._rank = _integer("rank", rank, 0)
        if self._rank >= self._world_size:
            raise UsageError(f"rank={rank}: expected less than world_size={world_size}")
        rows = max(64 * self._batch_size, 65536) if window is None else _integer("window", window, 1)
        # A multiple of the batch size, so that each batch is a slice of one window.
        self._window = -(-rows // self._batch_size) * self._batch_size
        self._prefetch = _integer("prefetch", prefetch, 0)
        self._columns = Columns(scan, columns, nulls)
        self._fragments = scan.fragments()
        self._lengths = [fragment.num_rows for fragment in self._fragments]
        if None in self._lengths and self._world_size > 1:
            # Only known numbers of rows can be divided equally. One pass over a column counts them.
            self._lengths = [self._columns.count_rows(fragment) for fragment in self._fragments]
        self._settings = self._what_determines_batches()
        self._position = Position()
        self._resumed: Position | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the last batch, from 0 on.

        >>> loader = crossdock.torch.Loader(session.scan(folder / "people.arrow"), ["id"], batch_size=3, epochs=2)
        >>> [loader.epoch for batch in loader]
        [0, 1]
        """
        return self._position.epoch

    def __len__(self) -> int:
        """The number of batches of this rank in an epoch."""
        n = self._n_batches()
        if n is None:
            raise TypeError(
                "the number of batches is not known before the rows are read: the format, or a filter of the scan, "
                "does not tell the number of rows"
            )
        return n

    def _n_batches(self) -> int | None:
        known = [length for length in self._lengths if length is not None]
        if len(known) < len(self._lengths):
            return None
        return n_batches(sum(known), self._batch_size, self._drop_last, self._world_size, self._rank)

    def __iter__(self) -> "Iterator[dict[str, Any]]":
        """Begins with the first epoch, or, after `load_state_dict`, at the position of the state."""
        self._position, self._resumed = self._resumed or Position(), None
        return self._batches(self._position)

    def _batches(self, position: Position) -> "Iterator[dict[str, Any]]":
        while position.epoch < self._epochs:
            yield from self._batches_of_epoch(position)
            if position.epoch + 1 >= self._epochs:
                return
            # Changed together, so that a state has the end of an epoch or the begin of the next.
            position.epoch, position.batches = position.epoch + 1, 0

    def _batches_of_epoch(self, position: Position) -> "Iterator[dict[str, Any]]":
        size = self._batch_size
        end = self._n_batches()
        first_window, at = divmod(position.batches * size, self._window)
        stop = threading.Event()
        ahead = read_ahead(self._windows(position.epoch, first_window, stop), self._prefetch, stop)
        try:
            for columns, rows in ahead:
                stream, window = self._tensors.stream(), self._slices(columns)
                while at < rows and (end is None or position.batches < end):
                    if self._drop_last and rows - at < size:
                        return
                    # Another stream has not waited for the columns.
                    if (current := self._tensors.stream()) != stream:
                        stream, window = current, self._slices(columns)
                    position.batches += 1
                    number = at // size
                    yield {name: slices[number] for name, slices in window}
                    at += size
                at = 0
                del columns, window
                if end is not None and position.batches >= end:
                    return
        finally:
            ahead.close()  # type: ignore[attr-defined]

    def _slices(self, columns: "dict[str, Column]") -> "list[tuple[str, Sequence[Any]]]":
        """The tensors of the batches of a window. One division is faster than many slices."""
        return [
            (name, self._tensors.divided(tensor, self._batch_size))
            for name, tensor in self._tensors.tensors(columns).items()
        ]

    def _windows(self, epoch: int, first: int, stop: threading.Event) -> "Iterator[tuple[dict[str, Column], int]]":
        """The columns of each window from the first on, in the order of their batches."""
        order = fragment_order(len(self._lengths), self._shuffle, self._seed, epoch)
        parts = parts_of_rank(self._lengths, order, self._rank, self._world_size)
        parts, left_out = after_rows(parts, first * self._window)
        tables = self._tables(parts, stop)
        for number, window in enumerate(windows_of(tables, self._window, left_out), first):
            rows = sum(table.num_rows for table in window)
            taken = self._tensors.permutation(mixed(self._seed, epoch, number), rows) if self._shuffle else None
            where = f"row {number * self._window} of this rank in epoch {epoch}"
            columns = self._columns.of_window(window, taken, where)
            del window
            yield columns, rows

    def _tables(self, parts: list[Part], stop: threading.Event) -> "Iterator[Table]":
        for part in parts:
            fragment = self._fragments[part.fragment]
            with closing(self._tables_of(fragment, part)) as tables:
                for table in tables:
                    if stop.is_set():
                        return
                    self._columns.check_dictionaries(table, fragment)
                    yield table

    def _tables_of(self, fragment: "Fragment", part: Part) -> "Generator[Table, None, None]":
        # A fragment without a number of rows cannot be asked for some of its rows.
        if fragment.num_rows is None or part.rows is None:
            with closing(iter(self._columns.scan(fragment, None))) as batches:
                yield from rows_of(batches, part.start, part.rows)
            return
        scan = self._columns.scan(fragment, (part.start, part.start + part.rows))
        if part.rows <= self._window:
            # One call instead of one for each batch, because each may wait for the interpreter.
            yield scan.to_table()
            return
        with closing(iter(scan)) as batches:
            yield from batches

    def state_dict(self) -> "dict[str, Any]":
        """The position behind the last batch, and what determines the batches, as numbers and texts.

        >>> loader = crossdock.torch.Loader(session.scan(folder / "people.arrow"), ["id"], batch_size=1)
        >>> first = next(iter(loader))
        >>> loader.state_dict()["batches"]
        1
        """
        position = self._resumed or self._position
        return {"epoch": position.epoch, "batches": position.batches, "settings": self._settings}

    def load_state_dict(self, state: "dict[str, Any]") -> None:
        """Makes the next iteration begin behind the last batch of the loader that made the state. It must have had the
        same settings and the same files.

        >>> loader = crossdock.torch.Loader(session.scan(folder / "people.arrow"), ["id"], batch_size=1)
        >>> first = next(iter(loader))
        >>> again = crossdock.torch.Loader(session.scan(folder / "people.arrow"), ["id"], batch_size=1)
        >>> again.load_state_dict(loader.state_dict())
        >>> [batch["id"].item() for batch in again]
        [2, 3]
        """
        try:
            epoch, batches, theirs = (state[key] for key in ("epoch", "batches", "settings"))
            theirs = dict(theirs)
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"expected a state of Loader.state_dict, got {state!r:.200}") from error
        ours = self._settings
        differences = [
            _DIFFERENCES.get(name, f"{name} was {theirs.get(name)!r} and is {ours.get(name)!r}")
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) != theirs.get(name)
        ]
        if differences:
            raise UsageError(f"the state belongs to another loader: {'; '.join(differences)}")
        self._resumed = Position(_integer("epoch", epoch, 0), _integer("batches", batches, 0))

    def _what_determines_batches(self) -> "dict[str, Any]":
        files = hashlib.blake2b(digest_size=16)
        for fragment, rows in zip(self._fragments, self._lengths):
            files.update(repr((fragment.token, rows, fragment.bytes)).encode())
        return {
            "columns": self._columns.described(),
            "files": files.hexdigest(),
            "batch_size": self._batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            # Libraries do not promise that their next release makes the same order.
            "order": self._tensors.permutation(self._seed, 8).tolist() if self._shuffle else None,
            "window": self._window,
            "drop_last": self._drop_last,
            "rank": self._rank,
            "world_size": self._world_size,
        }


_DIFFERENCES = {
    "files": "the files are others, or were changed, moved or copied since",
    "order": "the library of the tensors makes another order of the same seed",
}


def _integer(name: str, value: "Any", least: int | None) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or (least is not None and number < least):
        expected = "an integer" if least is None else f"an integer of at least {least}"
        raise UsageError(f"{name}={value!r}: expected {expected}")
    return number
