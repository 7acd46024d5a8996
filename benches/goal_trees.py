"""Repeated columns of the flights table, each in an encoding with a performance goal on devices.

The trees have the layout of vortex-data, whose compressor would choose other encodings."""

import craft
import dtypes
import numpy as np
import proto
import pyarrow
import pyarrow.compute
import vortex
from flat import Tree
from reference import numbers

# The names of a patched column, and of the same column with the excess bits cut off.
PATCHED, FITTING = (
    "u32, {bits} bits, {share:.2f} % patched: departure delay",
    "u32, {bits} bits: departure delay, cut off",
)


def over(encoding, child, metadata=b""):
    return Tree(encoding, child.dtype, child.length, metadata, [], [child])


def reference(tree, scalar):
    return over("fastlanes.for", tree, scalar)


def zigzag(values, bits):
    """Encodes signed integers that need at most `bits` bits each."""
    packed = craft.bitpacked(((values << 1) ^ (values >> 8 * values.itemsize - 1)).view(f"u{values.itemsize}"), bits)
    return Tree("vortex.zigzag", dtypes.primitive(craft.ptype_of(values.dtype)), len(values), b"", [], [packed])


def alp(integers, up, down, float_type):
    dtype = dtypes.primitive(craft.ptype_of(float_type))
    return Tree("vortex.alp", dtype, integers.length, proto.write({1: down, 2: up}), [], [integers])


def dictionary(values, dtype, bits):
    distinct, codes = np.unique(values, return_inverse=True)
    distinct, codes = craft.primitive(distinct.astype(dtype)), craft.bitpacked(codes.astype("u1"), bits)
    meta = proto.write({1: distinct.length, 2: proto.Present(craft.ptype_of("u1"))})
    return Tree("vortex.dict", distinct.dtype, codes.length, meta, [], [codes, distinct])


def texts(values, rows):
    """Encodes strings as FSST, with the symbols that the compressor chooses for the distinct strings as bytes."""
    distinct = values.dictionary_encode()
    tree = Tree.of(vortex.compress(vortex.array(distinct.dictionary.cast(pyarrow.binary()))))
    if tree.id != "vortex.fsst":
        raise SystemExit(f"the compressor chose {tree.ids()} for strings, expected vortex.fsst")
    lengths, ends = (numbers(child).astype("u4") for child in tree.children[:2])
    text = distinct.indices.to_numpy()
    sizes = np.diff(ends)[text]
    last = np.cumsum(sizes)
    codes = np.repeat(ends[text] - last + sizes, sizes) + np.arange(last[-1], dtype="u4")
    codes = np.frombuffer(tree.buffers[2], "u1")[codes.astype("u4")]
    ends = np.append(0, np.cumsum(np.resize(sizes, rows), dtype="u4"))
    children = [packed(np.resize(lengths[text], rows).astype("u2")), packed(ends.astype("u4"))]
    meta = proto.write({1: craft.ptype_of("u2"), 2: proto.Present(craft.ptype_of("u4"))})
    buffers = [*tree.buffers[:2], np.resize(codes, ends[-1]).tobytes()]
    return Tree(tree.id, dtypes.text(), rows, meta, buffers, children)


def packed(values):
    return craft.bitpacked(values, max(int(values.max()).bit_length(), 1))


def trees(flights, rows):
    """Returns for each encoding a name, and a function that returns a tree and its first values."""

    def column(name, dtype):
        return flights[name].combine_chunks().drop_null().to_numpy(zero_copy_only=False).astype(dtype)

    def words(*names):
        parts = [pyarrow.compute.cast(flights[name].combine_chunks(), pyarrow.string()) for name in names]
        return pyarrow.compute.binary_join_element_wise(*parts, " ", null_handling="replace", null_replacement="-")

    def repeated(values):
        return np.resize(values, rows)

    minute, hour = column("minute", "i4"), column("hour", "i4")
    seconds = (hour * 3600 + minute * 60).astype("i8")
    delays = (column("dep_delay", "i4") + 43).view("u4")
    bits = 8
    late = 100 * np.mean(delays >> bits != 0)
    hours = np.sort(column("time_hour", "i8"))
    flown = np.sort(column("flight", "u4"))
    year = flights["time_hour"].combine_chunks()
    day = pyarrow.compute.strftime(year, format="%Y-%m-%d")
    lines = pyarrow.compute.binary_join_element_wise(
        day, words("carrier", "flight", "origin", "dest", "tailnum"), " ", null_handling="replace", null_replacement="-"
    )
    tails = words("tailnum")

    def tenths(dtype, values, bits):
        integers = repeated(values)
        packed_integers = craft.bitpacked(integers - integers.min(), bits)
        child = reference(packed_integers, proto.write_int(int(integers.min())))
        scalar_type = np.dtype(dtype).type
        return alp(child, 0, 1, dtype), values.astype(scalar_type) * scalar_type(1e-1)

    def runs(values):
        return craft.run_end(repeated(values)), values

    def encoded(values, dtype):
        return dictionary(repeated(values), dtype, 6), values.astype(dtype)

    def patched(values):
        return craft.bitpacked(repeated(values), bits), values

    def mean_run(values):
        return len(values) / (1 + np.count_nonzero(np.diff(values)))

    middle = minute - 30
    return [
        (
            "u32, 6 bits, zigzag and a reference: minute",
            lambda: (reference(zigzag(repeated(middle), 6), proto.write_int(30)), minute),
        ),
        (
            "u64, 17 bits: second of the day",
            lambda: (craft.bitpacked(repeated(seconds.view("u8")), 17), seconds.view("u8")),
        ),
        ("ALP f32 over 6 bits: tenths of minutes", lambda: tenths("f4", minute, 6)),
        ("ALP f64 over 17 bits: tenths of seconds", lambda: tenths("f8", seconds, 17)),
        (FITTING.format(bits=bits), lambda: patched(np.minimum(delays, (1 << bits) - 1))),
        (PATCHED.format(bits=bits, share=late), lambda: patched(delays)),
        ("dictionary u32 by codes of 6 bits: minute", lambda: encoded(minute, "u4")),
        ("dictionary u64 by codes of 6 bits: minute", lambda: encoded(minute, "u8")),
        (f"runs of {mean_run(flown):.0f}, u32: flight, sorted", lambda: runs(flown)),
        (f"runs of {mean_run(hours):.0f}, i64: hour of the year", lambda: runs(hours)),
        ("FSST, short words: tail number", lambda: (texts(tails, rows), tails)),
        ("FSST, long: date, carrier, flight, airports, tail number", lambda: (texts(lines, rows // 4), lines)),
    ]
