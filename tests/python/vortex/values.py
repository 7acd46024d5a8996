"""Generates values for arrays, reproducibly for each number of rows."""

import numpy as np
import pyarrow as pa

INTEGERS = ["u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"]
NULLS = ("no null", "some null", "all null")
WORDS = ["alpha", "bravo charlie", "", "a text of more than twelve bytes", "日本語", "http://example.com/a?b=c"]


def nulls_of(rows, nulls, seed=7):
    """Returns a mask that is True for null rows, or None for an array that is not nullable."""
    if nulls == "no null":
        return None
    fraction = 1.0 if nulls == "all null" else 0.1
    return np.random.default_rng(seed).random(rows) < fraction


def arrow(values, type=None, nulls="no null"):
    mask = nulls_of(len(values), nulls)
    if isinstance(values, np.ndarray) and (type is None or values.dtype.kind != "O"):
        array = pa.array(values, mask=mask)
        return array if type is None else array.view(type)
    return pa.array([None if mask is not None and mask[i] else value for i, value in enumerate(values)], type)


def rng(rows):
    return np.random.default_rng(rows + 1)


def integers(rows, dtype):
    """Returns small values that every integer type can represent. Half of the signed ones are negative."""
    return (rng(rows).integers(0, 100, rows) - (50 if dtype[0] == "i" else 0)).astype(dtype)


def spiked(rows, dtype):
    """Returns small values. One value in a hundred is large, so that it becomes a patch."""
    small = rng(rows).integers(0, 16, rows).astype(dtype)
    return np.where(rng(rows).random(rows) < 0.01, np.array(np.iinfo(dtype).max, dtype) - small, small)


def texts(rows):
    return [WORDS[i] for i in rng(rows).integers(0, len(WORDS), rows)]


def distinct_texts(rows):
    return [f"{i} {WORDS[i % 3]} {n}" for i, n in enumerate(rng(rows).integers(0, 10**6, rows))]


def prices(rows, dtype):
    """Returns numbers with one or two decimal places. One number in a hundred has more decimal places."""
    places = 10 if dtype == "f4" else 100
    short = rng(rows).integers(0, 50_000 if dtype == "f8" else 5000, rows) / places
    return np.where(rng(rows).random(rows) < 0.01, rng(rows).random(rows), short).astype(dtype)


def columns(rows):
    return pa.table({"a": integers(rows, "i8"), "b": pa.array(texts(rows), pa.string()), "c": prices(rows, "f8")})
