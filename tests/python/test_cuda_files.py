"""`crossdock convert` on a CUDA device: the command reads, validates, exports and writes on the device. The
result equals the values that pyarrow reads from the input."""

import pyarrow as pa
import pytest
from conftest import golden_cases
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make
from test_golden import GOLDEN_SUFFIXES
from test_types import round_trip
from truth import truth, with_substitutes

VIAS = {
    "alone": (),
    "device": ("--via", "arrow-c-device"),
    "device-stream": ("--via", "arrow-c-device-stream"),
    "bytes": ("--via", "arrow-ipc-stream"),
}
"""Formats that support every type. Tensors support only numbers."""
OTHER_FORM = {"file": "stream", "stream": "file"}
CASES = golden_cases()


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", GOLDEN_SUFFIXES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_golden_cases_round_trip_through_a_device(convert_on_cuda, tmp_path, case, form, via):
    source = case.with_name(case.name + GOLDEN_SUFFIXES[form])
    target = tmp_path / f"out{FORMS[OTHER_FORM[form]]}"
    convert_on_cuda(source, target, *VIAS[via])
    got = read(target, OTHER_FORM[form])
    assert_equal(read(source, form), got)
    assert_equal(truth(case), with_substitutes(got))


def test_golden_cases_exist(cuda, golden):
    """This test is skipped if the golden files are missing. The tests of golden cases then have no cases to
    run."""
    assert CASES


def has_a_tensor(kind):
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def of_numbers(schema, batches):
    """Returns the columns that tensors support: with distinct names, and without nulls within rows."""

    def inner_nulls(column):
        inside = column.values if pa.types.is_fixed_size_list(column.type) else None
        return inside is not None and (inside.null_count > 0 or inner_nulls(inside))

    names = [field.name for field in schema]
    indices = [
        i
        for i, field in enumerate(schema)
        if has_a_tensor(field.type)
        and names.count(field.name) == 1
        and field.name
        and "," not in field.name
        and not any(inner_nulls(batch.column(i)) for batch in batches)
    ]
    return [names[i] for i in indices], [batch.select(indices) for batch in batches]


NUMERIC = [case for case in CASES if of_numbers(*read(case.with_name(case.name + ".arrow_file"), "file"))[0]]
"""The cases with columns that tensors support."""


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
@pytest.mark.parametrize("case", NUMERIC, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_numbers_of_golden_cases_round_trip_as_tensors(convert_on_cuda, tmp_path, case, via):
    source, target = case.with_name(case.name + ".arrow_file"), tmp_path / "out.arrow"
    schema, batches = read(source, "file")
    names, expected = of_numbers(schema, batches)
    convert_on_cuda(source, target, "--via", via, "--nulls", "mask", "--columns", ",".join(names))
    got_schema, got = read(target, "file")
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    assert_equal((schema, expected), (got_schema, got))


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_round_trip_through_a_device(convert_on_cuda, tmp_path, name, form, via):
    round_trip(convert_on_cuda, tmp_path, *make(name), form, OTHER_FORM[form], *VIAS[via])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_compressed_samples_are_read_and_written(convert_on_cuda, tmp_path, name, form, compression):
    other = {"lz4": "zstd", "zstd": "lz4"}[compression]
    flags = ("--compression", other, "--via", "arrow-c-device")
    round_trip(convert_on_cuda, tmp_path, *make(name), form, form, *flags, compression=compression)


def test_numbers_round_trip_through_all_formats_in_turn(convert_on_cuda, tmp_path):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    columns = {
        "i": pa.array([1, None, 3], pa.int32()),
        "b": pa.array([True, False, None]),
        "l": pa.array([[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]], pa.list_(pa.float64(), 2)),
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    write(source, "file", batch.schema, [batch, batch.slice(1), batch.slice(0, 0)])
    vias = ["dlpack", "arrow-c-device", "arrow-ipc-stream", "dlpack-legacy", "arrow-c-device-stream"]
    convert_on_cuda(source, target, "--nulls", "mask", *(flag for via in vias for flag in ("--via", via)))
    assert_equal(read(source, "file"), read(target, "file"))


def test_error_for_missing_device_names_it(cuda, run, sample, tmp_path):
    done = run("convert", sample, tmp_path / "out.arrow", "--device", "cuda:63", "--quiet")
    assert done.returncode == 1 and b"cuda:63" in done.stderr and not (tmp_path / "out.arrow").exists()
