"""Types and shapes that Arrow's golden files lack. pyarrow writes a file, Crossdock converts it, and pyarrow
reads the result."""

import pyarrow as pa
import pytest
from peers import FORMS, assert_equal, read, write
from samples import SAMPLES, make, mixed

VIAS = {"alone": (), "via": ("--via", "arrow-c-device")}
COMPRESSIONS = [None, "lz4", "zstd"]


def round_trip(convert, folder, schema, batches, in_form, out_form, *flags, **options):
    """Writes a file with pyarrow, converts it, and compares the result with the values that pyarrow reads from
    the input."""
    source = folder / f"in{FORMS[in_form]}"
    target = folder / f"out{FORMS[out_form]}"
    write(source, in_form, schema, batches, **options)
    convert(source, target, *flags)
    assert_equal(read(source, in_form), read(target, out_form))
    return source, target


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("out_form", FORMS)
@pytest.mark.parametrize("in_form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_round_trip(convert, tmp_path, name, in_form, out_form, via):
    round_trip(convert, tmp_path, *make(name), in_form, out_form, *VIAS[via])


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_compressed_samples_are_read(convert, tmp_path, name, form, compression, via):
    round_trip(convert, tmp_path, *make(name), form, "file", *VIAS[via], compression=compression)


@pytest.mark.parametrize("compression", COMPRESSIONS[1:])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_written_with_compression(convert, tmp_path, name, form, compression):
    round_trip(convert, tmp_path, *make(name), form, form, "--compression", compression)


@pytest.mark.parametrize("out_compression", COMPRESSIONS)
@pytest.mark.parametrize("in_compression", COMPRESSIONS)
@pytest.mark.parametrize("form", FORMS)
def test_compression_is_applied(convert, tmp_path, form, in_compression, out_compression):
    zeros = pa.record_batch({"zeros": pa.array([0] * 100_000, pa.int64())})
    options = {"compression": in_compression}
    flags = ("--compression", out_compression or "none")
    _, target = round_trip(convert, tmp_path, zeros.schema, [zeros] * 2, form, form, *flags, **options)
    assert (target.stat().st_size < zeros.nbytes // 10) == (out_compression is not None)
    if out_compression:
        # The codec is recognised by the magic number of its frames in pyarrow's file.
        magic = {"lz4": b"\x04\x22\x4d\x18", "zstd": b"\x28\xb5\x2f\xfd"}[out_compression]
        assert magic in target.read_bytes()


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_uncompressed_buffers_in_a_compressed_file_are_read(convert, tmp_path, compression, via):
    """Each buffer of a compressed message may be stored uncompressed."""
    import numpy as np

    noise = pa.record_batch({"noise": np.random.default_rng(7).integers(0, 2**63, 1000), "zeros": np.zeros(1000)})
    round_trip(convert, tmp_path, noise.schema, [noise], "file", "file", *VIAS[via], compression=compression)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("out_form", FORMS)
@pytest.mark.parametrize("deltas", [True, False], ids=["deltas", "replacement"])
def test_stream_with_changing_dictionaries_keeps_its_values(convert, tmp_path, out_form, deltas, via):
    words = [["a", "b"], ["a", "b", "c"], ["a", "b", "c", "d", None], ["x", "a"]]
    batches = []
    for dictionary in words[: 3 if deltas else 4]:
        indices = pa.array([*range(len(dictionary)), None, 0], pa.int16())
        column = pa.DictionaryArray.from_arrays(indices, pa.array(dictionary))
        batches.append(pa.record_batch({"word": column, "n": pa.array(range(len(column)))}))
    flags = VIAS[via]
    round_trip(convert, tmp_path, batches[0].schema, batches, "stream", out_form, *flags, emit_dictionary_deltas=deltas)


@pytest.mark.parametrize("via", VIAS)
def test_file_with_dictionary_deltas_keeps_its_values(convert, tmp_path, via):
    batches = []
    for dictionary in (["a"], ["a", "b"], ["a", "b", "c"]):
        column = pa.DictionaryArray.from_arrays(
            pa.array([0, len(dictionary) - 1, None], pa.int8()), pa.array(dictionary)
        )
        batches.append(pa.record_batch({"word": column}))
    round_trip(convert, tmp_path, batches[0].schema, batches, "file", "file", *VIAS[via], emit_dictionary_deltas=True)


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["floats", "unions", "nested", "dictionaries", "empty_batches_between"])
def test_reads_metadata_version_4_with_the_framing_before_arrow_0_15(convert, tmp_path, name, form, via):
    """Reads the metadata version V4, in which unions have validity bitmaps, with the framing of Arrow before
    0.15."""
    old = {"metadata_version": pa.ipc.MetadataVersion.V4, "use_legacy_format": True}
    round_trip(convert, tmp_path, *make(name), form, "file", *VIAS[via], **old)


@pytest.mark.parametrize("via", VIAS)
def test_sample_round_trips(convert, tmp_path, sample, via):
    target = tmp_path / "flights.arrow"
    convert(sample, target, *VIAS[via])
    assert_equal(read(sample, "file"), read(target, "file"))


@pytest.mark.parametrize("suffix", [".arrow", ".feather", ".ipc", ".arrows"])
def test_file_extension_selects_the_form(convert, tmp_path, suffix):
    batch = mixed()
    source, target = tmp_path / "in.arrow", tmp_path / f"out{suffix}"
    write(source, "file", batch.schema, [batch])
    convert(source, target)
    form = "stream" if suffix == ".arrows" else "file"
    assert_equal(read(source, "file"), read(target, form))


def test_input_is_recognised_by_its_bytes(convert, tmp_path):
    batch = mixed()
    for form in FORMS:
        source, target = tmp_path / f"{form}.bin", tmp_path / f"{form}.arrow"
        write(source, form, batch.schema, [batch, batch])
        convert(source, target)
        assert_equal(read(source, form), read(target, "file"))


@pytest.mark.parametrize("form", FORMS)
def test_reads_and_writes_pipes(convert, tmp_path, form):
    """A file can also be read from a pipe, although its footer is at the end."""
    batch = mixed()
    source = tmp_path / f"in{FORMS[form]}"
    write(source, form, batch.schema, [batch, batch.slice(3, 5)])
    done = convert("-", "-", input=source.read_bytes())
    with pa.ipc.open_stream(pa.py_buffer(done.stdout)) as reader:
        assert_equal(read(source, form), (reader.schema, list(reader)))


@pytest.mark.parametrize("via", VIAS)
def test_columns_are_selected_in_the_requested_order(convert, tmp_path, via):
    batch = mixed()
    source, target = tmp_path / "in.arrow", tmp_path / "out.arrow"
    write(source, "file", batch.schema, [batch])
    convert(source, target, "--columns", "t,n", *VIAS[via])
    assert_equal((batch.select(["t", "n"]).schema, [batch.select(["t", "n"])]), read(target, "file"))
