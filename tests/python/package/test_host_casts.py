"""`cast` between texts and other values, and between decimals and other numbers, compared with pyarrow."""

import decimal
import itertools
import random

import crossdock as cd
import pyarrow as pa
import pytest

D = decimal.Decimal
FLOATS = [0.0, -0.0, 1.0, 1.5, 1e9, 9999999999.0, 1e10, 12345678901.5, 1e20, 1e-6, 1e-7, 5e-324, 1.7976931348623157e308]
FLOATS += [float("nan"), float("inf"), -float("inf"), 0.1, 1 / 3, 123456789.125, None]
SOURCES = {
    "bool": pa.array([True, None, False]),
    **{str(kind): pa.array([0, None, 1, 127], kind) for kind in (pa.int8(), pa.uint8(), pa.uint32())},
    "int64": pa.array([-(2**63), None, 2**63 - 1, 0]),
    "uint64": pa.array([2**64 - 1, None, 0], pa.uint64()),
    "halffloat": pa.array([1.5, None, 0.1, 65504.0, 6e-8], pa.float16()),
    "float": pa.array([*FLOATS[:8], 3.4e38, 0.1, 16777216.0, None], pa.float32()),
    "double": pa.array(FLOATS),
    "decimal32": pa.array([D("1.25"), None, D("-0.05"), D("0.00")], pa.decimal32(5, 2)),
    "decimal128": pa.array([D("1.25"), None, D("-99999999999999999999.99")], pa.decimal128(38, 2)),
    "decimal256": pa.array(
        [D("7"), None, D("-12345678901234567890123456789012345678901234567890")], pa.decimal256(60, 0)
    ),
    "date32": pa.array([0, None, 19782, -719528], pa.int32()).cast(pa.date32()),
    "date64": pa.array([0, None, 86_400_000 * 19782]).cast(pa.date64()),
    **{
        f"{kind}": pa.array([0, None, 1_709_200_001], pa.int64()).cast(kind)
        for kind in (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"))
    },
    "time32": pa.array([0, None, 86399], pa.int32()).cast(pa.time32("s")),
    "time64": pa.array([0, None, 86_399_999_999_999]).cast(pa.time64("ns")),
    "duration": pa.array([0, None, -5]).cast(pa.duration("ms")),
}
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]


def slices(array):
    return [array, array.slice(1), array.slice(1, 2), array.slice(0, 0), pa.chunked_array([array.slice(1), array])]


@pytest.mark.parametrize(("name", "to"), [*itertools.product(SOURCES, TEXTS)], ids=str)
def test_values_become_the_texts_of_pyarrow(any_session, name, to):
    for source in slices(SOURCES[name]):
        got = any_session.from_arrow(source, as_column=True).cast(to)
        assert got.device == any_session.device
        got = pa.chunked_array(got.to("cpu"))
        assert got.type == to
        assert got.to_pylist() == source.cast(pa.string()).to_pylist()


@pytest.mark.parametrize("of", TEXTS, ids=str)
@pytest.mark.parametrize("name", [name for name in SOURCES if not name.startswith("duration")])
def test_texts_become_the_values_they_came_from(any_session, name, of):
    for source in slices(SOURCES[name]):
        texts = source.cast(pa.string()).cast(of)
        got = pa.chunked_array(any_session.from_arrow(texts, as_column=True).cast(source.type).to("cpu"))
        assert got.type == source.type
        # Python has no dates before the year 1 and no nanoseconds.
        assert got.cast(pa.string()).to_pylist() == texts.to_pylist()


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("TRUE", pa.bool_()),
        ("0", pa.bool_()),
        ("1e3", pa.float64()),
        ("2024-02-29T10:00", pa.timestamp("s")),
        ("2024-02-29", pa.timestamp("ns")),
        ("1.25", pa.decimal128(9, 4)),
    ],
    ids=str,
)
def test_other_forms_of_texts_that_pyarrow_accepts(session, text, to):
    assert session.from_arrow(pa.array([text])).cast(to).to_pylist() == pa.array([text]).cast(to).to_pylist()


@pytest.mark.parametrize(
    ("text", "to"),
    [
        *itertools.product(["", " 1", "x", "1_0", "1.5", "99999999999999999999"], [pa.int64(), pa.int8()]),
        ("300", pa.int8()),
        ("-1", pa.uint32()),
        ("", pa.float64()),
        ("yes", pa.bool_()),
        ("2023-02-29", pa.date32()),
        ("2024-02-29 10:00:00.5", pa.timestamp("s")),
        ("1.25", pa.decimal128(5, 1)),
        ("1234", pa.decimal128(3, 0)),
    ],
    ids=str,
)
def test_texts_that_are_no_values_are_errors_with_their_row(any_session, text, to):
    table = any_session.from_arrow(pa.table({"c": [None, text]}))
    with pytest.raises(cd.UsageError, match="column 'c'") as caught:
        table["c"].cast(to)
    assert caught.value.row == 1 and str(to).partition("[")[0] in str(caught.value), caught.value


DECIMALS = [pa.decimal32(9, 2), pa.decimal64(18, 0), pa.decimal128(38, 6), pa.decimal256(76, 10), pa.decimal128(20, -2)]


@pytest.mark.parametrize(
    ("of", "to"), [*itertools.product(DECIMALS, [*DECIMALS, pa.int64(), pa.uint64(), pa.int8()])], ids=str
)
def test_decimals_become_other_numbers(any_session, of, to):
    rng = random.Random(1)
    for exponent in (0, 2, 5):
        unit = D(10) ** -max(of.scale - exponent, of.scale if of.scale < 0 else 0)
        numbers = [None, *(unit * rng.randrange(-99, 99) for _ in range(5)), D(0)]
        try:
            array = pa.array(numbers, pa.decimal256(76, 12)).cast(of)
        except pa.ArrowInvalid:
            continue
        for mode in (True, False):
            try:
                # pyarrow rejects all values if the precision is low, so Python computes the result.
                exact = [None if n is None else decimal_of(n, to, mode) for n in array.to_pylist()]
            except ValueError:
                with pytest.raises(cd.UsageError, match="cannot be a value of type"):
                    any_session.from_arrow(array).cast(to, safe=mode)
                continue
            got = pa.chunked_array(any_session.from_arrow(array).cast(to, safe=mode).to("cpu"))
            assert got.type == to and got.to_pylist() == exact


def decimal_of(number, to, is_exact):
    """The number as a value of the type; ValueError if it has none."""
    scale = to.scale if pa.types.is_decimal(to) else 0
    rounded = number.quantize(D(1).scaleb(-scale), decimal.ROUND_DOWN, decimal.Context(prec=200))
    if is_exact and rounded != number:
        raise ValueError
    if pa.types.is_decimal(to):
        if abs(rounded).scaleb(scale) >= D(10) ** to.precision:
            raise ValueError
        return rounded
    low, high = (
        (0, 2**to.bit_width) if str(to).startswith("u") else (-(2 ** (to.bit_width - 1)), 2 ** (to.bit_width - 1))
    )
    if not low <= rounded < high:
        raise ValueError
    return int(rounded)


def test_numbers_become_decimals(any_session):
    column = any_session.from_arrow(pa.array([5, None, -7], pa.int32()))
    assert column.cast(pa.decimal128(5, 2)).to_pylist() == [D("5.00"), None, D("-7.00")]
    floats = pa.array([0.1, None, -2.375, 1e6])
    got = any_session.from_arrow(floats).cast(pa.decimal64(9, 2))
    assert got.to_pylist() == floats.cast(pa.decimal64(9, 2)).to_pylist()
    for value, message in ((1e9, "cannot be a value of type"), (float("nan"), "cannot be a value of type")):
        with pytest.raises(cd.UsageError, match=message) as caught:
            any_session.from_arrow(pa.array([None, value])).cast(pa.decimal32(5, 2))
        assert caught.value.row == 1
