"""Generates arrays in the encodings that accept every type, and in the encodings of strings."""

import decimal

import craft
import dtypes
import numpy as np
import pyarrow as pa
import vortex as vx
from tree_slices import slice_tree
from flat import Tree
from ipc import build
from kinds import ENOUGH, compressed, kind, encode
from values import INTEGERS, NULLS, WORDS, arrow, nulls_of, rng, spiked, texts


@kind("vortex.constant")
def constant(rows):
    scalars = [(True, pa.bool_()), (0, pa.int8()), (-7, pa.int64()), (2**64 - 1, pa.uint64()), (1.5, pa.float16())]
    scalars += [(0.1, pa.float32()), (float("nan"), pa.float64()), ("", pa.string()), (WORDS[3], pa.string())]
    scalars += [(b"\x00\xff", pa.binary()), (decimal.Decimal("-1.25"), pa.decimal128(10, 2)), (5, pa.date32())]
    scalars += [(7, pa.timestamp("us", "UTC")), (None, pa.int32()), (None, pa.string()), (None, pa.timestamp("s"))]
    for value, type in scalars:
        tree = Tree.of(vx.compress(vx.array(pa.array([value] * ENOUGH, type))))
        tree = tree.children[0] if tree.id == "vortex.ext" else tree
        if tree.id == "vortex.constant":
            yield f"{type} {value}", build(slice_tree(Tree(tree.id, tree.dtype, 2 * rows, b"", tree.buffers), 0, rows))


@kind("vortex.dict")
def dictionary(rows):
    few = lambda n: rng(n).choice([1, 10**15, -(5**20)], n)  # noqa: E731
    for nulls in NULLS:
        yield from compressed(f"i8, {nulls}", "vortex.dict", few, rows, nulls)
        yield from compressed(f"f8, {nulls}", "vortex.dict", lambda n: few(n) * 0.1, rows, nulls)
        yield from compressed(f"utf8, {nulls}", "vortex.dict", texts, rows, nulls)
    for nulls in NULLS:
        yield f"arrow, {nulls}", vx.array(arrow(texts(rows), pa.dictionary(pa.int16(), pa.string()), nulls))
    if rows:
        indices = pa.array([None if i % 7 == 3 else i % 3 for i in range(rows)], pa.uint32())
        for name, values in {
            "lists": pa.array([[1, 2], None, [3]]),
            "structs in lists": pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int16(), 2)),
            "decimals": pa.array([decimal.Decimal("1.5"), None, decimal.Decimal("-2.5")], pa.decimal128(10, 1)),
        }.items():
            yield f"{name} taken", vx.array(values).take(vx.array(indices))


@kind("vortex.runend")
def run_end(rows):
    for dtype in INTEGERS:
        values = np.repeat(rng(rows).integers(0, 100, rows // 10 + 1), 10)[:rows].astype(dtype)
        for nulls in NULLS:
            mask = nulls_of(rows, nulls)
            yield f"{dtype}, {nulls}", encode(craft.run_end, values, None if mask is None else ~mask)
    if rows:
        ends = pa.array([*range(64, rows, 64), rows], pa.int32())
        for type, values in [
            (pa.string(), texts),
            (pa.bool_(), lambda n: rng(n).random(n) < 0.5),
            (pa.float64(), lambda n: rng(n).random(n)),
        ]:
            for nulls in NULLS:
                yield (
                    f"{type}, {nulls}",
                    vx.array(pa.RunEndEncodedArray.from_arrays(ends, arrow(values(len(ends)), type, nulls))),
                )


@kind("vortex.sparse")
def sparse(rows):
    # A sparse array needs a patch, so it must have rows.
    if rows == 1:
        yield "i4, one patch", craft.sparse(np.array([16], "i4"), 5)
    if rows > 1000:
        for dtype in INTEGERS:
            values = spiked(rows, dtype)
            yield f"{dtype}", craft.sparse(np.where(values < 16, 5, values).astype(dtype), 5)
        yield from compressed(
            "i8, compressed",
            "vortex.sparse",
            lambda n: np.where(rng(n).random(n) < 0.01, rng(n).integers(0, 10**9, n), 7),
            rows,
        )
        mostly_null = arrow(rng(rows).integers(0, 10**9, rows))
        mostly_null = pa.array(
            [value if i % 97 == 5 else None for i, value in enumerate(mostly_null.to_pylist())], pa.int64()
        )
        yield "i8, fill null", vx.compress(vx.array(mostly_null))


@kind("vortex.masked")
def masked(rows):
    # Vortex turns a single row into a constant.
    if rows > 1:
        indices = pa.array([None if i % 3 == 0 else 0 for i in range(rows)], pa.uint64())
        for type, value in [(pa.int32(), 7), (pa.string(), WORDS[3])]:
            yield f"{type}", vx.compress(vx.array(pa.array([value] * ENOUGH, type))).take(vx.array(indices))


def digits(rows):
    return [f"{n:x}" if n % 3 else f"{n:08x}" for n in rng(rows).integers(0, 2**32, rows)]


def addresses(rows):
    return [f"http://www.example.com/path/{i}?q={n}" for i, n in enumerate(rng(rows).integers(0, 10**6, rows))]


@kind("vortex.fsst", "vortex.onpair")
def strings(rows, id):
    values = digits if id == "vortex.fsst" else addresses
    for nulls in NULLS:
        for name, tree in compressed(f"utf8, {nulls}", id, values, rows, nulls):
            yield name, tree
            binary = dtypes.binary(nulls != "no null")
            # The compressor uses OnPair for utf8 only, but the encoding supports any bytes.
            yield f"binary, {nulls}", Tree(tree.id, binary, tree.length, tree.metadata, tree.buffers, tree.children)
            if tree.id == "vortex.fsst":
                yield f"utf8, {nulls}, two buffers", craft.legacy_fsst(tree)
