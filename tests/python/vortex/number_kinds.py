"""Generates arrays in the encodings of numbers and times."""

import craft
import numpy as np
import pyarrow as pa
import vortex as vx
from flat import Tree
from kinds import compressed, kind, encode
from values import INTEGERS, NULLS, arrow, integers, nulls_of, rng, spiked, prices


@kind("vortex.bytebool")
def byte_bool(rows):
    for nulls in NULLS:
        mask = nulls_of(rows, nulls)
        yield nulls, craft.byte_bool(rng(rows).random(rows) < 0.5, None if mask is None else ~mask)


@kind("vortex.sequence")
def sequence(rows):
    if rows:
        for dtype in INTEGERS:
            step = 1 if rows < 100 else 0 if np.dtype(dtype).itemsize < 4 else 3
            whole = range(5, 5 + step * rows, step) if step else range(5, 6)
            if len(whole) == rows:
                type = (vx.int_ if dtype[0] == "i" else vx.uint)(8 * int(dtype[1]))
                yield f"{dtype}, rising", vx.Array.from_range(whole, dtype=type)
        yield "i8, falling", vx.Array.from_range(range(3, 3 - 4 * rows, -4))


@kind("fastlanes.bitpacked")
def bitpacked(rows):
    for dtype in INTEGERS:
        width = np.dtype(dtype).itemsize * 8
        values = rng(rows).integers(0, 256, rows * width // 8).astype("u1").tobytes()
        for bits in sorted({0, 1, 3, width // 2 + 1, width - 1, width}):
            # Values that exceed the width become patches. One value in a hundred exceeds it, or
            # none if the width is the full width of the type.
            packed = np.frombuffer(values, f"u{width // 8}") & np.uint64((1 << bits) - 1).astype(f"u{width // 8}")
            spikes = rng(rows).random(rows) < (0.01 if bits < width else 0)
            packed = np.where(spikes, np.iinfo(dtype).max, packed).astype(f"u{width // 8}").view(dtype)
            for chunks in (True, False):
                yield (
                    f"{dtype}, {bits} bits, patches {'with' if chunks else 'without'} chunks",
                    encode(craft.bitpacked, packed, bits, None, chunks),
                )
            for nulls in NULLS[1:]:
                yield f"{dtype}, {bits} bits, {nulls}", encode(craft.bitpacked, packed, bits, ~nulls_of(rows, nulls))
        yield from compressed(
            f"{dtype}, compressed",
            "fastlanes.bitpacked",
            lambda n, d=dtype: spiked(n, d) if d[1] != "1" else spiked(n, d) & 15,
            rows,
        )


@kind("fastlanes.bitpacked.v2")
def bitpacked_in_widths(rows):
    for dtype in INTEGERS:
        top = 8 * np.dtype(dtype).itemsize
        values = spiked(rows, dtype)
        for chunks in (True, False):
            widths = [4, 5, top - 1, 7]
            yield f"{dtype}, chunks {chunks}", encode(craft.bitpacked_in_widths, values, widths, None, chunks)
        for nulls in NULLS[1:]:
            yield f"{dtype}, {nulls}", encode(craft.bitpacked_in_widths, values, [4, 7, 0], ~nulls_of(rows, nulls))


@kind("fastlanes.for.v2")
def frames_of_reference(rows):
    for dtype in INTEGERS:
        values = np.sort(integers(rows, dtype))
        for nulls in NULLS:
            mask = nulls_of(rows, nulls)
            yield f"{dtype}, {nulls}", encode(craft.frames_of_reference, values, None if mask is None else ~mask)


@kind("vortex.decimal_byte_parts.v2")
def decimal_in_parts(rows):
    for type, parts in [(pa.decimal128(38, 2), 1), (pa.decimal256(57, 2), 2), (pa.decimal256(76, 0), 3)]:
        values = [int(n) * (10 ** (type.precision - 6) + 7) for n in rng(rows).integers(-(10**5), 10**5, rows)]
        for nulls in NULLS:
            mask = nulls_of(rows, nulls)
            nullable = pa.array([None] if mask is not None else [], type)
            dtype = Tree.of(vx.array(nullable)).dtype
            yield f"{type}, {nulls}", craft.decimal_in_parts(dtype, values, parts, None if mask is None else ~mask)


@kind("fastlanes.for")
def frame_of_reference(rows):
    for dtype in INTEGERS:
        for nulls in NULLS:
            low = {"1": 30, "2": 1000}.get(dtype[1], 10**6) * (-1 if dtype[0] == "i" else 1)
            yield from compressed(
                f"{dtype}, {nulls}",
                "fastlanes.for",
                lambda n, d=dtype, low=low: (rng(n).integers(0, 30, n) + low).astype(d),
                rows,
                nulls,
            )


@kind("vortex.zigzag")
def zigzag(rows):
    for dtype in ["i1", "i2", "i4", "i8"]:
        for nulls in NULLS:
            yield f"{dtype}, {nulls}", vx.ZigZagArray.encode(vx.array(arrow(integers(rows, dtype), None, nulls)))
    signs = lambda n: np.where(rng(n).random(n) < 0.02, -(10**15), 1) * rng(n).integers(0, 2000, n)  # noqa: E731
    yield from compressed("i8, compressed", "vortex.zigzag", signs, rows)


@kind("fastlanes.delta")
def delta(rows):
    for dtype in INTEGERS:
        values = np.cumsum(rng(rows).integers(0, 3, rows)).astype(dtype)
        for nulls in NULLS:
            mask = nulls_of(rows, nulls)
            yield f"{dtype}, {nulls}", encode(craft.delta, values, None if mask is None else ~mask)


@kind("fastlanes.rle")
def run_length(rows):
    for dtype in [*INTEGERS, "f4", "f8"]:
        values = np.repeat(rng(rows).integers(0, 100, rows // 10 + 1), 10)[:rows].astype(dtype)
        for nulls in NULLS:
            mask = nulls_of(rows, nulls)
            yield f"{dtype}, {nulls}", encode(craft.run_length, values, None if mask is None else ~mask)


@kind("vortex.alp")
def alp(rows):
    for dtype in ["f4", "f8"]:
        for nulls in NULLS:
            yield from compressed(
                f"{dtype}, {nulls}, patched", "vortex.alp", lambda n, d=dtype: prices(n, d), rows, nulls
            )
        yield from compressed(
            f"{dtype}, whole", "vortex.alp", lambda n, d=dtype: (rng(n).integers(-500, 5000, n) / 10).astype(d), rows
        )


@kind("vortex.alp")
def alp_of_any_integers(rows):
    for dtype, top in [("i4", 10), ("i8", 18)]:
        encoded = np.frombuffer(rng(rows).bytes(rows * int(dtype[1])), dtype)
        for up in range(0, top + 1, 2):
            for down in range(0, top + 1, 3):
                yield f"{dtype}, times 1e{up}, times 1e-{down}", craft.alp(encoded, up, down)


@kind("vortex.alprd")
def alp_rd(rows):
    for dtype in ["f4", "f8"]:
        for nulls in NULLS:
            yield from compressed(
                f"{dtype}, {nulls}", "vortex.alprd", lambda n, d=dtype: (rng(n).random(n) + 1e-3).astype(d), rows, nulls
            )


@kind("vortex.datetimeparts")
def date_time_parts(rows):
    for unit, per_second in [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]:
        hours = lambda n, p=per_second: (rng(n).integers(-(10**5), 10**5, n) * 3600 + 5) * p  # noqa: E731
        for nulls in NULLS:
            yield from compressed(f"{unit}, {nulls}", "vortex.datetimeparts", hours, rows, nulls, pa.timestamp(unit))
