"""Unusual but valid Arrow data is imported unchanged, or rejected with an error that names the column."""

import io
import os
import threading
import warnings

import crossdock as cd
import pyarrow as pa
import pytest


def only(obj, protocol):
    """Returns an object that implements only the given protocol of `obj`."""
    return type("Only", (), {protocol: lambda self, *args, **kwargs: getattr(obj, protocol)(*args, **kwargs)})()


def uuids(count):
    storage = pa.array([bytes([i]) * 16 for i in range(count)], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def encoded():
    return pa.DictionaryArray.from_arrays(pa.array([0, None, 1], pa.int32()), uuids(2))


NESTED = {
    "column": lambda: encoded(),
    "list": lambda: pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), encoded()),
    "struct": lambda: pa.StructArray.from_arrays([encoded()], ["u"]),
}


@pytest.mark.parametrize("where", NESTED)
@pytest.mark.parametrize("form", ["file", "stream"])
def test_keeps_extension_type_of_dictionary_values(session, where, form):
    source = pa.table({"u": NESTED[where]()})
    table = session.from_arrow(source)
    assert table.to_pyarrow().schema == source.schema
    assert table["u"].to_pyarrow().type == source.schema.field("u").type
    out = io.BytesIO()
    table.write_ipc(out, form=form)
    pyarrow_file = io.BytesIO()
    # pyarrow cannot read files with this type, even if it has written them.
    with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(pyarrow_file, source.schema) as writer:
        writer.write_table(source)
    for data in [out, pyarrow_file]:
        assert session.read_ipc(data.getvalue()).to_pyarrow().equals(source)


def test_imports_polars_null_columns(session):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [None, None], "l": [[], [None]], "s": [{"n": None}, {"n": None}]})
    table = session.from_arrow(frame)
    assert table.to_pyarrow().to_pylist() == frame.to_dicts()


def field(name, kind, **options):
    schema = pa.schema([pa.field(name, kind, **options)])
    session = cd.default_session()
    return session.from_arrow(pa.Table.from_batches([], schema)).schema


class IgnoresRequestedSchema:
    """A producer that ignores the requested schema."""

    def __init__(self, obj):
        self.obj = obj

    def __arrow_c_stream__(self, requested_schema=None):
        return self.obj.__arrow_c_stream__()


def test_casts_numbers_to_the_requested_schema(session):
    source = IgnoresRequestedSchema(pa.table({"n": pa.array([1, None, -3], pa.int64())}))
    for kind in [pa.int8(), pa.float32(), pa.float64(), pa.int64()]:
        table = session.from_arrow(source, schema=field("n", kind))
        assert table.to_pyarrow().equals(pa.table({"n": pa.array([1, None, -3], kind)}))


def test_casts_infinities_and_nans(session):
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000000, 0x8000000000000000]
    floats = pa.array(bits, pa.uint64()).view(pa.float64())
    got = session.from_arrow(IgnoresRequestedSchema(pa.table({"n": floats})), schema=field("n", pa.float32()))[
        "n"
    ].to_pyarrow()
    assert str(got.to_pylist()) == "[nan, nan, inf, -0.0]"


@pytest.mark.parametrize(
    ("source", "requested", "texts"),
    [
        (pa.table({"n": [1, 300]}), field("n", pa.int8()), ["'n'", "expected int8, got int64", "300"]),
        (pa.table({"n": [-1]}), field("n", pa.uint64()), ["'n'", "expected uint64", "-1"]),
        (pa.table({"n": [1.5]}), field("n", pa.int32()), ["'n'", "expected int32", "1.5"]),
        (pa.table({"n": [2**53 + 1]}), field("n", pa.float64()), ["'n'", "expected double", "9007199254740993"]),
        (pa.table({"n": ["a"]}), field("n", pa.int8()), ["'n'", "expected int8, got string"]),
        (pa.table({"n": [1, None]}), field("n", pa.int64(), nullable=False), ["'n'", "no nulls, got 1"]),
        (pa.table({"m": [1]}), field("n", pa.int64()), ['"n"', 'got ["m"]']),
        (pa.table({"n": [{"a": 1}]}), field("n", pa.struct([("b", pa.int64())])), ["'n'", "'b'", "'a'"]),
        (pa.table({"n": uuids(1)}), field("n", pa.binary(16)), ["'n'", "extension"]),
    ],
)
def test_error_for_schema_mismatch_names_the_column(session, source, requested, texts):
    with pytest.raises(cd.UsageError) as raised:
        session.from_arrow(IgnoresRequestedSchema(source), schema=requested)
    assert all(text in str(raised.value) for text in texts), raised.value


def test_error_for_cast_that_fails_in_producer_names_the_column(session):
    with pytest.raises(cd.UsageError, match="'n'.*expected int8, got int64.*300") as raised:
        session.from_arrow(pa.table({"n": [1, 300]}), schema=field("n", pa.int8()))
    assert "300 not in range" in str(raised.value.__cause__)
    with pytest.raises(cd.UsageError, match="'n'.*expected binary, got list"):
        session.from_arrow(pa.table({"n": [[1]]}), schema=field("n", pa.binary()))
    # A reader is not exported a second time, because its rows may have been consumed.
    with pytest.raises(cd.DataError, match="300 not in range"):
        session.from_arrow(pa.table({"n": [1, 300]}).to_reader(), schema=field("n", pa.int8()))


def test_schema_argument_of_type_field_makes_a_column(session):
    requested = field("n", pa.int8())[0]
    column = session.from_arrow(IgnoresRequestedSchema(pa.chunked_array([[1], [2]])), schema=requested)
    assert (column.name, column.type, column.to_pyarrow().to_pylist()) == ("n", "int8", [1, 2])
    with pytest.raises(cd.UsageError, match="expected structs for a table, got int64"):
        session.from_arrow(IgnoresRequestedSchema(pa.chunked_array([[1]])), schema=field("n", pa.int8()))
    with pytest.raises(cd.UsageError, match="as_column"):
        session.from_arrow(IgnoresRequestedSchema(pa.chunked_array([[1]])), schema=requested, as_column=False)
    with pytest.raises(TypeError, match="expected a crossdock.Schema or crossdock.Field"):
        session.from_arrow(pa.table({"n": [1]}), schema="int8")


STRUCTS = pa.array([{"a": 1}, None, {"a": 3}])
WHOLE = pa.array([{"a": 1}, {"a": 2}])


def test_struct_arrays_become_columns(session):
    for source in [STRUCTS, STRUCTS[1:], WHOLE, pa.chunked_array([WHOLE, STRUCTS]), pa.chunked_array([WHOLE])]:
        column = session.from_arrow(source)
        assert isinstance(column, cd.Column)
        assert column.to_pyarrow().to_pylist() == source.to_pylist()
        again = cd.Session().from_arrow(column)
        assert isinstance(again, cd.Column) and again.to_pyarrow().to_pylist() == source.to_pylist()


def test_struct_column_stays_a_column_in_other_libraries(session):
    whole = pa.table([WHOLE], schema=pa.schema([pa.field("s", WHOLE.type, nullable=False)]))
    column = cd.Session().from_arrow(session.from_arrow(whole)["s"])
    assert (type(column), column.name) == (cd.Column, "s")


def test_polars_struct_series_become_columns(session):
    pl = pytest.importorskip("polars")
    for values in [[{"a": 1}, None], [{"a": 1}]]:
        for name in ["s", ""]:
            column = session.from_arrow(pl.Series(name, values))
            assert (column.name, column.to_pyarrow().to_pylist()) == (name, values)


@pytest.mark.parametrize("protocol", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_structs_with_nulls_become_a_column(session, protocol):
    wrap = pa.chunked_array if protocol == "__arrow_c_stream__" else (lambda chunks: pa.concat_arrays(chunks))
    column = session.from_arrow(only(wrap([WHOLE, STRUCTS]), protocol))
    assert column.to_pyarrow().to_pylist() == WHOLE.to_pylist() + STRUCTS.to_pylist()
    table = session.from_arrow(only(wrap([WHOLE]), protocol))
    assert isinstance(table, cd.Table) and table.to_pyarrow().to_pylist() == WHOLE.to_pylist()
    assert isinstance(session.from_arrow(only(wrap([WHOLE]), protocol), as_column=True), cd.Column)
    with pytest.raises(cd.Error, match="null rows"):
        session.from_arrow(only(wrap([STRUCTS]), protocol), as_column=False)


def test_tables_become_struct_columns_only_on_request(session):
    whole = pa.table({"a": [1, 2]})
    for source in [whole, whole.to_batches()[0], whole.to_reader()]:
        assert isinstance(session.from_arrow(source), cd.Table)
    column = session.from_arrow(whole, as_column=True)
    assert column.to_pyarrow().to_pylist() == [{"a": 1}, {"a": 2}]
    capsules = STRUCTS.__arrow_c_array__()
    assert isinstance(session.from_capsules(*capsules), cd.Column)
    assert isinstance(session.from_capsules(*WHOLE.__arrow_c_array__()), cd.Table)
    assert isinstance(session.from_capsules(*WHOLE.__arrow_c_array__(), as_column=True), cd.Column)


METADATA = {b"k": b"\xff\x00", b"\xfe": b"v", b"plain": b"text"}


def test_keeps_metadata_that_is_not_utf8(session):
    schema = pa.schema([pa.field("a", pa.int64(), metadata=METADATA)], metadata=METADATA)
    source = pa.table({"a": [1]}, schema=schema)
    table = session.from_arrow(source)
    assert table.to_pyarrow().schema.equals(schema, check_metadata=True)
    assert {os.fsencode(key): os.fsencode(value) for key, value in table.schema.metadata.items()} == METADATA
    assert table.schema["a"].metadata == table.schema.metadata
    for form in ["file", "stream"]:
        out, pyarrow_file = io.BytesIO(), io.BytesIO()
        table.write_ipc(out, form=form)
        reader = pa.ipc.open_file if form == "file" else pa.ipc.open_stream
        assert reader(out.getvalue()).schema.equals(schema, check_metadata=True)
        with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(pyarrow_file, schema) as writer:
            writer.write_table(source)
        for data in [out, pyarrow_file]:
            assert session.read_ipc(data.getvalue()).to_pyarrow().schema.equals(schema, check_metadata=True)


def test_keeps_repeated_and_reserved_metadata_keys(session):
    for pairs in [
        [("k", "1"), ("k", "2"), ("a", "3")],
        [("crossdock.metadata:extra_pairs", "a=b"), ("crossdock.metadata:dictionary_values", "x")],
    ]:
        schema = pa.schema([("a", pa.int64())], metadata=pa.KeyValueMetadata(pairs))
        back = pa.schema(session.from_arrow(pa.table({"a": [1]}, schema=schema)))
        assert back.equals(schema, check_metadata=True), back


def test_rejects_name_that_is_not_utf8(session):
    source = pa.table({b"caf\xe9": [1]})
    with pytest.raises(cd.DataError, match="caf.*not UTF-8.*rename"):
        session.from_arrow(pa.RecordBatchReader.from_batches(source.schema, []))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, source.schema) as writer:
        writer.write_table(source)
    with pytest.raises(cd.DataError, match="caf.*not UTF-8"):
        session.read_ipc(out.getvalue())


@pytest.mark.parametrize("protocol", ["stream", "array", "capsules"])
def test_replaces_invalid_bytes_of_names_on_request(session, protocol):
    source = pa.record_batch({b"caf\xe9": [1], "plain": [2]})

    def import_batch(names):
        if protocol == "capsules":
            return session.from_capsules(*source.__arrow_c_array__(), names=names)
        reader = pa.RecordBatchReader.from_batches(source.schema, [source])
        return session.from_arrow(reader if protocol == "stream" else source, names=names)

    with pytest.warns(cd.Warning, match="column 'caf\ufffd': the name is not UTF-8") as caught:
        table = import_batch("replace")
    assert len(caught) == 1
    assert table.column_names == ["caf\ufffd", "plain"]
    assert pa.table(table).to_pydict() == {"caf\ufffd": [1], "plain": [2]}
    with pytest.raises(cd.DataError, match="caf.*not UTF-8.*names=.replace"):
        import_batch("strict")
    with pytest.raises(cd.UsageError, match='names="lenient": expected'):
        import_batch("lenient")


def test_warning_names_the_path_of_a_nested_field(session):
    inner = pa.StructArray.from_arrays([pa.array([1])], names=[b"\xff"])
    with pytest.warns(cd.Warning, match="column 'outer.\ufffd'"):
        column = session.from_arrow(pa.record_batch({"outer": inner}), names="replace")["outer"]
    assert column.to_pyarrow().to_pylist() == [{"\ufffd": 1}]


def test_combines_chunks_with_different_dictionaries(session):
    chunks = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None, "c"]).dictionary_encode()]
    column = session.from_arrow(pa.chunked_array(chunks)).combine_chunks()
    (one,) = column.to_pyarrow().chunks
    assert one.to_pylist() == ["a", "b", "b", None, "c"]
    assert one.dictionary.to_pylist() == ["a", "b", "c"]


def with_footer_metadata(tmp_path):
    out = io.BytesIO()
    batch = pa.record_batch({"a": [1]})
    with pa.ipc.new_file(out, batch.schema, metadata={"k": "v"}) as writer:
        writer.write_batch(batch)
    pipe = tmp_path / "pipe.arrow"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=lambda: pipe.write_bytes(out.getvalue()))
    feeder.start()
    return pipe, feeder


def test_plugin_warnings_become_python_warnings(session, tmp_path):
    pipe, feeder = with_footer_metadata(tmp_path)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        assert session.read(pipe).num_rows == 1
    feeder.join()
    assert [(w.category, w.filename) for w in raised] == [(cd.Warning, __file__)]
    assert "arrow-ipc: " in str(raised[0].message) and "footer" in str(raised[0].message)


def test_warning_filter_error_raises_the_warning(session, tmp_path):
    pipe, feeder = with_footer_metadata(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cd.Warning)
        with pytest.raises(cd.Warning, match="footer"):
            session.read(pipe)
    feeder.join()
