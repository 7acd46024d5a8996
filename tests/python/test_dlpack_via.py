"""Conversions through DLPack. Errors name the columns that DLPack does not support. All other columns and the
metadata are unchanged."""

import numpy as np
import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, read, write
from tensors import sample


def batch_of(**columns):
    return pa.record_batch(list(columns.values()), names=list(columns))


def numeric(nulls=False):
    """A table that must pass through DLPack unchanged, with metadata and extension types."""
    n = 131
    tensor = pa.fixed_shape_tensor(pa.int16(), [2, 3], dim_names=["y", "x"], permutation=[1, 0])
    columns = {
        "symbol": (pa.array(sample("uint32", n)), {"xlog.symbol": "true"}),
        "f16": (pa.array(sample("float16", n)), {"unit": "K"}),
        "f64": (pa.array(sample("float64", n)), None),
        "bits": (pa.array(sample("bool", n)), {"xlog.type": "bool"}),
        "bytes": (pa.ExtensionArray.from_storage(pa.bool8(), pa.array(sample("bool", n).view(np.int8))), None),
        "list": (pa.FixedSizeListArray.from_arrays(pa.array(sample("uint8", n * 4)), 4), None),
        "tensor": (
            pa.ExtensionArray.from_storage(
                tensor, pa.FixedSizeListArray.from_arrays(pa.array(sample("int16", n * 6)), 6)
            ),
            {"k": "v"},
        ),
    }
    if nulls:
        columns["i64"] = (pa.array(sample("int64", n), mask=sample("bool", n)), {"nulls": "some"})
        columns["b"] = (pa.array(sample("bool", n), mask=sample("bool", n)[::-1].copy()), None)
    fields = [pa.field(name, array.type, metadata=meta) for name, (array, meta) in columns.items()]
    schema = pa.schema(fields, metadata={"xlog.relation": "r", "é": "ü"})
    batch = pa.record_batch([array for array, _ in columns.values()], schema=schema)
    return schema, [batch, batch.slice(3, 40), batch.slice(0, 0), batch.slice(100)]


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_and_metadata_pass_through_dlpack(convert, tmp_path, form, via):
    source, target = tmp_path / f"in{FORMS[form]}", tmp_path / f"out{FORMS[form]}"
    write(source, form, *numeric())
    convert(source, target, "--via", via)
    assert_equal(read(source, form), read(target, form))


@pytest.mark.parametrize("via", ["dlpack", "dlpack-legacy"])
def test_columns_with_nulls_convert_only_with_mask_option(run, convert, tmp_path, via):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    write(source, "file", *numeric(nulls=True))
    done = run("convert", source, target, "--via", via, "--quiet")
    assert done.returncode != 0
    assert b"column 'i64'" in done.stderr and b"nulls=mask" in done.stderr
    assert not target.exists()
    convert(source, target, "--via", via, "--nulls", "mask")
    assert_equal(read(source, "file"), read(target, "file"))


def test_error_names_unsupported_column_and_conversion_works_without_it(run, convert, tmp_path):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    batch = batch_of(name=pa.array(["a", "b"]), n=pa.array([1, 2]))
    write(source, "file", batch.schema, [batch])
    done = run("convert", source, target, "--via", "dlpack", "--quiet")
    assert done.returncode != 0 and b"column 'name'" in done.stderr and b"leave it out" in done.stderr
    convert(source, target, "--via", "dlpack", "--columns", "n")
    assert read(target, "file")[1][0].to_pydict() == {"n": [1, 2]}


@pytest.mark.parametrize("arrow", ["arrow-c-device", "arrow-c-stream", "arrow-c-data"])
def test_dlpack_and_arrow_interfaces_can_be_combined(convert, tmp_path, arrow):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    write(source, "file", *numeric())
    convert(source, target, "--via", "dlpack", "--via", arrow, "--via", "dlpack-legacy")
    assert_equal(read(source, "file"), read(target, "file"))


@pytest.mark.parametrize("via", [(), ("--via", "dlpack")])
def test_metadata_of_batches_passes_through_dlpack(convert, tmp_path, via):
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    batch = batch_of(n=pa.array([1, 2]))
    with pa.ipc.new_file(source, batch.schema) as out:
        out.write_batch(batch, custom_metadata={"part": "one"})
    convert(source, target, *via)
    got, metadata = pa.ipc.open_file(target).get_batch_with_custom_metadata(0)
    assert got.equals(batch)
    assert dict(metadata or {}) == {b"part": b"one"}
