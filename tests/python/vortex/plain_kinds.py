"""Generates arrays in the encodings that store values as Arrow does."""

import decimal

import numpy as np
import pyarrow as pa
import vortex as vx
from kinds import compressed, kind
from values import INTEGERS, NULLS, WORDS, arrow, columns, distinct_texts, integers, rng, texts


@kind("vortex.primitive")
def primitive(rows):
    for dtype in [*INTEGERS, "f2", "f4", "f8"]:
        for nulls in NULLS:
            values = rng(rows).integers(0, 256, rows * np.dtype(dtype).itemsize).astype("u1").tobytes()
            yield f"{dtype}, {nulls}", vx.array(arrow(np.frombuffer(values, dtype), None, nulls))


@kind("vortex.bool")
def boolean(rows):
    for nulls in NULLS:
        yield nulls, vx.array(arrow(rng(rows).random(rows) < 0.5, None, nulls))


@kind("vortex.null")
def null(rows):
    if rows:
        yield "nulls", vx.array(pa.nulls(rows))


@kind("vortex.varbin")
def var_bin(rows):
    for type in [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]:
        for nulls in NULLS:
            yield f"{type}, {nulls}", vx.array(arrow(texts(rows), type, nulls))


@kind("vortex.varbinview")
def var_bin_view(rows):
    for type in [pa.string_view(), pa.binary_view()]:
        for nulls in NULLS:
            yield f"{type}, {nulls}", vx.array(arrow(texts(rows), type, nulls))
    parts = [pa.array(distinct_texts(rows // 2), pa.string_view()), pa.array(texts(rows - rows // 2), pa.string_view())]
    yield "several buffers", vx.array(pa.concat_arrays(parts))


@kind("vortex.decimal", "vortex.decimal_byte_parts")
def decimals(rows, id):
    for type in [
        pa.decimal32(5, 2),
        pa.decimal64(15, 2),
        pa.decimal128(10, 2),
        pa.decimal128(38, 3),
        pa.decimal256(76, 4),
    ]:
        scale = decimal.Decimal(1).scaleb(-type.scale)
        # A number of three digits times this factor has as many digits as the precision allows.
        big = {5: 1, 15: 10**9 + 7, 10: 10**6 + 3, 38: 10**30 + 1, 76: 10**60 + 7}[type.precision]
        for nulls in NULLS:
            if id == "vortex.decimal":
                context = decimal.Context(prec=80)
                values = [
                    context.multiply(decimal.Decimal(int(n) * big), scale) for n in rng(rows).integers(-999, 999, rows)
                ]
                yield f"{type}, {nulls}", vx.array(arrow(values, type, nulls))
            elif type.precision >= 10:
                values = lambda n, s=scale: [int(i) * s for i in rng(n).integers(-(10**6), 10**6, n)]  # noqa: E731
                yield from compressed(f"{type}, {nulls}", id, values, rows, nulls, type)


@kind("vortex.ext")
def extension(rows):
    for type in [pa.date32(), pa.date64(), *map(pa.time32, ["s", "ms"]), *map(pa.time64, ["us", "ns"])]:
        scale = 86_400_000 if type == pa.date64() else 1
        values = (rng(rows).integers(0, 20_000, rows) * scale).astype(f"i{type.bit_width // 8}")
        for nulls in NULLS:
            yield f"{type}, {nulls}", vx.array(arrow(values, type, nulls))
    for unit in ["s", "ms", "us", "ns"]:
        for zone in [None, "UTC", "America/New_York"]:
            for nulls in NULLS:
                yield (
                    f"{unit} {zone}, {nulls}",
                    vx.array(arrow(rng(rows).integers(-(10**9), 10**9, rows), pa.timestamp(unit, zone), nulls)),
                )


@kind("vortex.list", "vortex.listview", "vortex.fixed_size_list", "vortex.map", "vortex.struct")
def nested(rows, id):
    sizes = rng(rows).integers(0, 4, rows).tolist()
    lists = [[None if i == 2 else i + size for i in range(size)] for size in sizes]
    words = [[WORDS[i] for i in range(size)] for size in sizes]
    values_by_encoding = {
        "vortex.list": [
            (pa.list_(pa.int32()), lists),
            (pa.large_list(pa.int8()), lists),
            (pa.list_(pa.string()), words),
            (pa.list_(pa.list_(pa.int8())), [[row] for row in lists]),
        ],
        "vortex.listview": [(pa.list_view(pa.int32()), lists), (pa.list_view(pa.string()), words)],
        "vortex.fixed_size_list": [
            (pa.list_(pa.float32(), 3), [[1.5, None, size] for size in sizes]),
            (pa.list_(pa.string(), 1), [[WORDS[size]] for size in sizes]),
        ],
        "vortex.map": [(pa.map_(pa.string(), pa.int32()), [list(zip(keys, row)) for keys, row in zip(words, lists)])],
        "vortex.struct": [
            (
                pa.struct([("a", pa.int64()), ("b", pa.string())]),
                [{"a": size, "b": None if size == 1 else WORDS[size]} for size in sizes],
            ),
            (
                pa.struct([("inner", pa.struct([("x", pa.float64())]))]),
                [{"inner": {"x": size / 7} if size else None} for size in sizes],
            ),
        ],
    }
    for type, values in values_by_encoding[id]:
        for nulls in NULLS:
            yield f"{type}, {nulls}", vx.array(arrow(values, type, nulls))


@kind("vortex.struct")
def struct_of_columns(rows):
    yield "table, compressed", vx.compress(vx.array(columns(rows)))


@kind("vortex.chunked")
def chunked(rows):
    for nulls in NULLS:
        whole = arrow(integers(rows, "i4"), None, nulls)
        pieces = [whole.slice(0, rows // 3), whole.slice(0, 0), whole.slice(rows // 3)]
        yield f"i4, {nulls}", vx.array(pa.chunked_array(pieces))
    yield (
        "utf8",
        vx.array(
            pa.chunked_array([pa.array(texts(rows), pa.string()), pa.array(distinct_texts(rows), pa.string())]).slice(
                rows // 2, rows
            )
        ),
    )
    yield "table", vx.array(columns(rows))
