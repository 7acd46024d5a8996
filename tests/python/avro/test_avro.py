"""The plugin of examples/avro-plugin, compared with Polars."""

import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import crossdock as cd

CODECS = ["none", "deflate", "snappy", "zstd", "bzip2", "xz"]


def table(n):
    rng = np.random.default_rng(n)
    numbers = rng.integers(-1000, 1000, n)
    is_null = rng.random(n) < 0.2
    return pa.table(
        {
            "long": pa.array(numbers, mask=is_null),
            "int": pa.array(numbers.astype(np.int32)),
            "double": pa.array(rng.random(n), mask=is_null),
            "bool": pa.array(numbers > 0, mask=is_null),
            "text": pa.array([f"text {i}" for i in numbers], mask=is_null),
            "date": pa.array([datetime.date(2000, 1, 1) + datetime.timedelta(int(i)) for i in numbers]),
            "list": pa.array([[int(i), 2] for i in numbers], pa.list_(pa.int64())),
        }
    )


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("n", [0, 1, 1024, 100_003])
def test_table_is_read_as_it_was_written(session, tmp_path, codec, n):
    path = tmp_path / "a.avro"
    session.write(table(n), path, compression=codec)
    got = session.read(path).to_pyarrow()
    assert got.cast(table(n).schema).equals(table(n))


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "deflate"])
def test_reads_files_of_polars(session, tmp_path, codec):
    path = tmp_path / "a.avro"
    expected = pl.from_arrow(table(5000))
    expected.write_avro(path, compression=codec)
    assert pl.from_arrow(session.read(path).to_pyarrow()).equals(expected)
    assert session.read(path, columns=["text"], rows=slice(10, 20)).to_pyarrow()["text"].to_pylist() == (
        expected["text"][10:20].to_list()
    )


@pytest.mark.parametrize("codec", ["none", "snappy", "deflate"])
def test_polars_reads_files_of_the_plugin(session, tmp_path, codec):
    path = tmp_path / "a.avro"
    session.write(table(5000), path, compression=codec)
    assert pl.read_avro(path).equals(pl.from_arrow(table(5000)))


def test_batches_have_the_requested_number_of_rows(session, tmp_path):
    path = tmp_path / "a.avro"
    session.write(table(1000), path)
    assert [batch.num_rows for batch in session.scan(path, batch_rows=300)] == [300, 300, 300, 100]


def test_damaged_files_are_errors_that_name_them(session, tmp_path):
    path = tmp_path / "a.avro"
    session.write(table(2000), path)
    original = path.read_bytes()
    bad = tmp_path / "bad.avro"
    rng = np.random.default_rng(0)
    n_errors = 0
    for i in range(60):
        damaged = bytearray(original)
        if i % 2:
            del damaged[int(rng.integers(4, len(damaged))) :]
        for at in rng.integers(4, len(damaged), 3):
            damaged[at] = rng.integers(0, 256)
        bad.write_bytes(damaged)
        try:
            session.read(bad).to_pyarrow().validate(full=True)
        except cd.Error as error:
            assert "bad.avro" in str(error)
            n_errors += 1
    assert n_errors > 30


def test_type_that_avro_lacks_is_an_error_that_names_the_column(session, tmp_path):
    path = tmp_path / "a.avro"
    bad = pa.table({"good": [1], "numbers": pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))})
    with pytest.raises(cd.UnsupportedError, match="column 'numbers' is .*string keys"):
        session.write(bad, path)
    assert not path.exists()


def test_types_that_only_arrow_has_are_read_as_they_were_written(session, tmp_path):
    path = tmp_path / "a.avro"
    values = {"nanoseconds": pa.time64("ns"), "duration": pa.duration("us"), "unsigned": pa.uint64()}
    arrow = pa.table({name: pa.array([5, None], data_type) for name, data_type in values.items()})
    session.write(arrow, path)
    assert session.read(path).to_pyarrow().equals(arrow)


def test_unknown_codec_is_an_error_that_lists_the_codecs(session, tmp_path):
    with pytest.raises(cd.UsageError, match="expected none, deflate"):
        session.write(table(1), tmp_path / "a.avro", compression="lzo")


def test_plugin_passes_verification(session, plugin, run, tmp_path):
    session.write(table(1000), tmp_path / "sample.avro")
    done = run("verify", plugin, "--sample", tmp_path / "sample.avro")
    assert done.returncode == 0, done.stdout.decode()


def test_isolated_plugin_reads_the_same_table(plugin, session, run, tmp_path):
    session.write(table(1000), tmp_path / "a.avro")
    done = run("convert", "--isolate=avro", "--plugins", plugin, tmp_path / "a.avro", tmp_path / "b.arrow")
    assert done.returncode == 0, done.stderr.decode()
    with pa.ipc.open_file(tmp_path / "b.arrow") as file:
        assert file.read_all().equals(session.read(tmp_path / "a.avro").to_pyarrow())
