"""What `crossdock convert` does on the cpu, on a CUDA device: read there, checked there, sent through plugins there, and
written from there. What comes out is what pyarrow reads in the input."""

import pyarrow as pa
import pytest
from conftest import golden_cases
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make
from test_golden import GOLDEN_ENDINGS
from test_types import round_trip
from truth import truth, with_stand_ins

VIAS = {
    "alone": (),
    "device": ("--via", "arrow-c-device"),
    "device-stream": ("--via", "arrow-c-device-stream"),
    "bytes": ("--via", "arrow-ipc-stream"),
}
"""The ways that carry every type. Tensors carry numbers: see below."""
OTHER_FORM = {"file": "stream", "stream": "file"}
CASES = golden_cases()


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", GOLDEN_ENDINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_every_golden_case_comes_back_from_a_device_as_its_json_says(convert_on_cuda, tmp_path, case, form, via):
    source = case.with_name(case.name + GOLDEN_ENDINGS[form])
    target = tmp_path / f"out{FORMS[OTHER_FORM[form]]}"
    convert_on_cuda(source, target, *VIAS[via])
    got = read(target, OTHER_FORM[form])
    assert_equal(read(source, form), got)
    assert_equal(truth(case), with_stand_ins(got))


def test_the_golden_cases_are_here(cuda, golden):
    """Skipped, with the reason, where they are not: the cases above are then none."""
    assert CASES


def has_a_tensor(kind):
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def of_numbers(schema, batches):
    """Those columns that tensors have a place for, by distinct names, and without nulls inside of rows."""

    def inner_nulls(column):
        inside = column.values if pa.types.is_fixed_size_list(column.type) else None
        return inside is not None and (inside.null_count > 0 or inner_nulls(inside))

    names = [field.name for field in schema]
    kept = [
        i
        for i, field in enumerate(schema)
        if has_a_tensor(field.type)
        and names.count(field.name) == 1
        and field.name
        and "," not in field.name
        and not any(inner_nulls(batch.column(i)) for batch in batches)
    ]
    return [names[i] for i in kept], [batch.select(kept) for batch in batches]


NUMERIC = [case for case in CASES if of_numbers(*read(case.with_name(case.name + ".arrow_file"), "file"))[0]]
"""The cases that have any."""


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
@pytest.mark.parametrize("case", NUMERIC, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_the_numbers_of_every_golden_case_pass_as_tensors(convert_on_cuda, tmp_path, case, via):
    source, target = case.with_name(case.name + ".arrow_file"), tmp_path / "out.arrow"
    schema, batches = read(source, "file")
    names, wanted = of_numbers(schema, batches)
    convert_on_cuda(source, target, "--via", via, "--nulls", "mask", "--columns", ",".join(names))
    got_schema, got = read(target, "file")
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    assert_equal((schema, wanted), (got_schema, got))


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_comes_back_from_a_device_as_it_went_in(convert_on_cuda, tmp_path, name, form, via):
    round_trip(convert_on_cuda, tmp_path, *make(name), form, OTHER_FORM[form], *VIAS[via])


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_read_and_written_compressed(convert_on_cuda, tmp_path, name, form, compression):
    other = {"lz4": "zstd", "zstd": "lz4"}[compression]
    flags = ("--compression", other, "--via", "arrow-c-device")
    round_trip(convert_on_cuda, tmp_path, *make(name), form, form, *flags, compression=compression)


def test_numbers_pass_through_every_carrier_in_turn(convert_on_cuda, tmp_path):
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


def test_a_device_that_is_not_there_is_named(cuda, run, sample, tmp_path):
    done = run("convert", sample, tmp_path / "out.arrow", "--device", "cuda:63", "--quiet")
    assert done.returncode == 1 and b"cuda:63" in done.stderr and not (tmp_path / "out.arrow").exists()
