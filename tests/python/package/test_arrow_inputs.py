"""What producers of Arrow data give that is unusual and sound: taken and kept, or refused by the column's name, never changed."""

import io
import os
import threading
import warnings

import crossdock as cd
import pyarrow as pa
import pytest


def only(obj, protocol):
    """An object that speaks one of the protocols of another one."""
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
def test_an_extension_type_of_a_dictionarys_values_is_kept(session, where, form):
    given = pa.table({"u": NESTED[where]()})
    table = session.from_arrow(given)
    assert table.to_pyarrow().schema == given.schema
    assert table["u"].to_pyarrow().type == given.schema.field("u").type
    out = io.BytesIO()
    table.write_ipc(out, form=form)
    theirs = io.BytesIO()
    # pyarrow itself does not read what it writes of these.
    with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(theirs, given.schema) as writer:
        writer.write_table(given)
    for data in [out, theirs]:
        assert session.read_ipc(data.getvalue()).to_pyarrow().equals(given)


def test_polars_columns_of_nulls_are_taken(session):
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"x": [None, None], "l": [[], [None]], "s": [{"n": None}, {"n": None}]})
    table = session.from_arrow(frame)
    assert table.to_pyarrow().to_pylist() == frame.to_dicts()


def field(name, kind, **options):
    schema = pa.schema([pa.field(name, kind, **options)])
    session = cd.default_session()
    return session.from_arrow(pa.Table.from_batches([], schema)).schema


class Deaf:
    """A producer that does not look at what it is asked for."""

    def __init__(self, obj):
        self.obj = obj

    def __arrow_c_stream__(self, requested_schema=None):
        return self.obj.__arrow_c_stream__()


def test_numbers_are_cast_to_the_schema_that_is_asked_for(session):
    given = Deaf(pa.table({"n": pa.array([1, None, -3], pa.int64())}))
    for kind in [pa.int8(), pa.float32(), pa.float64(), pa.int64()]:
        table = session.from_arrow(given, schema=field("n", kind))
        assert table.to_pyarrow().equals(pa.table({"n": pa.array([1, None, -3], kind)}))


def test_infinities_and_any_nan_are_cast(session):
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000000, 0x8000000000000000]
    floats = pa.array(bits, pa.uint64()).view(pa.float64())
    got = session.from_arrow(Deaf(pa.table({"n": floats})), schema=field("n", pa.float32()))["n"].to_pyarrow()
    assert str(got.to_pylist()) == "[nan, nan, inf, -0.0]"


@pytest.mark.parametrize(
    ("given", "wanted", "words"),
    [
        (pa.table({"n": [1, 300]}), field("n", pa.int8()), ["'n'", "expected Int8, got Int64", "300"]),
        (pa.table({"n": [-1]}), field("n", pa.uint64()), ["'n'", "expected UInt64", "-1"]),
        (pa.table({"n": [1.5]}), field("n", pa.int32()), ["'n'", "expected Int32", "1.5"]),
        (pa.table({"n": [2**53 + 1]}), field("n", pa.float64()), ["'n'", "expected Float64", "9007199254740993"]),
        (pa.table({"n": ["a"]}), field("n", pa.int8()), ["'n'", "expected Int8, got Utf8"]),
        (pa.table({"n": [1, None]}), field("n", pa.int64(), nullable=False), ["'n'", "no nulls, got 1"]),
        (pa.table({"m": [1]}), field("n", pa.int64()), ['"n"', 'got ["m"]']),
        (pa.table({"n": [{"a": 1}]}), field("n", pa.struct([("b", pa.int64())])), ["'n'", "'b'", "'a'"]),
        (pa.table({"n": uuids(1)}), field("n", pa.binary(16)), ["'n'", "extension"]),
    ],
)
def test_a_schema_that_cannot_be_met_is_refused_by_the_columns_name(session, given, wanted, words):
    with pytest.raises(cd.UsageError) as refused:
        session.from_arrow(Deaf(given), schema=wanted)
    assert all(word in str(refused.value) for word in words), refused.value


def test_what_a_producer_cannot_cast_is_refused_by_the_columns_name(session):
    with pytest.raises(cd.UsageError, match="'n'.*expected Int8, got Int64.*300") as refused:
        session.from_arrow(pa.table({"n": [1, 300]}), schema=field("n", pa.int8()))
    assert "300 not in range" in str(refused.value.__cause__)
    with pytest.raises(cd.UsageError, match="'n'.*expected Binary, got List"):
        session.from_arrow(pa.table({"n": [[1]]}), schema=field("n", pa.binary()))
    # What is read once is not asked again, for rows of it may be gone.
    with pytest.raises(cd.DataError, match="300 not in range"):
        session.from_arrow(pa.table({"n": [1, 300]}).to_reader(), schema=field("n", pa.int8()))


def test_a_field_asks_for_a_column(session):
    wanted = field("n", pa.int8())[0]
    column = session.from_arrow(Deaf(pa.chunked_array([[1], [2]])), schema=wanted)
    assert (column.name, column.type, column.to_pyarrow().to_pylist()) == ("n", "Int8", [1, 2])
    with pytest.raises(cd.UsageError, match="expected a table, got a column of Int64"):
        session.from_arrow(Deaf(pa.chunked_array([[1]])), schema=field("n", pa.int8()))
    with pytest.raises(cd.UsageError, match="as_column"):
        session.from_arrow(Deaf(pa.chunked_array([[1]])), schema=wanted, as_column=False)
    with pytest.raises(TypeError, match="expected a crossdock.Schema or Field"):
        session.from_arrow(pa.table({"n": [1]}), schema="int8")


STRUCTS = pa.array([{"a": 1}, None, {"a": 3}])
WHOLE = pa.array([{"a": 1}, {"a": 2}])


def test_arrays_of_structs_are_columns(session):
    for given in [STRUCTS, STRUCTS[1:], WHOLE, pa.chunked_array([WHOLE, STRUCTS]), pa.chunked_array([WHOLE])]:
        column = session.from_arrow(given)
        assert isinstance(column, cd.Column)
        assert column.to_pyarrow().to_pylist() == given.to_pylist()
        again = cd.Session().from_arrow(column)
        assert isinstance(again, cd.Column) and again.to_pyarrow().to_pylist() == given.to_pylist()


def test_a_struct_column_of_a_table_is_a_column_elsewhere(session):
    whole = pa.table([WHOLE], schema=pa.schema([pa.field("s", WHOLE.type, nullable=False)]))
    column = cd.Session().from_arrow(session.from_arrow(whole)["s"])
    assert (type(column), column.name) == (cd.Column, "s")


def test_polars_series_of_structs_are_columns(session):
    pl = pytest.importorskip("polars")
    for values in [[{"a": 1}, None], [{"a": 1}]]:
        for name in ["s", ""]:
            column = session.from_arrow(pl.Series(name, values))
            assert (column.name, column.to_pyarrow().to_pylist()) == (name, values)


@pytest.mark.parametrize("protocol", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_structs_of_unknown_origin_are_a_column_where_one_is_null(session, protocol):
    wrap = pa.chunked_array if protocol == "__arrow_c_stream__" else (lambda chunks: pa.concat_arrays(chunks))
    column = session.from_arrow(only(wrap([WHOLE, STRUCTS]), protocol))
    assert column.to_pyarrow().to_pylist() == WHOLE.to_pylist() + STRUCTS.to_pylist()
    table = session.from_arrow(only(wrap([WHOLE]), protocol))
    assert isinstance(table, cd.Table) and table.to_pyarrow().to_pylist() == WHOLE.to_pylist()
    assert isinstance(session.from_arrow(only(wrap([WHOLE]), protocol), as_column=True), cd.Column)
    with pytest.raises(cd.Error, match="null rows"):
        session.from_arrow(only(wrap([STRUCTS]), protocol), as_column=False)


def test_tables_are_tables_and_columns_of_structs_where_that_is_asked_for(session):
    whole = pa.table({"a": [1, 2]})
    for given in [whole, whole.to_batches()[0], whole.to_reader()]:
        assert isinstance(session.from_arrow(given), cd.Table)
    column = session.from_arrow(whole, as_column=True)
    assert column.to_pyarrow().to_pylist() == [{"a": 1}, {"a": 2}]
    capsules = STRUCTS.__arrow_c_array__()
    assert isinstance(session.from_capsules(*capsules), cd.Column)
    assert isinstance(session.from_capsules(*WHOLE.__arrow_c_array__()), cd.Table)
    assert isinstance(session.from_capsules(*WHOLE.__arrow_c_array__(), as_column=True), cd.Column)


METADATA = {b"k": b"\xff\x00", b"\xfe": b"v", b"plain": b"text"}


def test_metadata_that_is_not_utf8_is_kept(session):
    schema = pa.schema([pa.field("a", pa.int64(), metadata=METADATA)], metadata=METADATA)
    given = pa.table({"a": [1]}, schema=schema)
    table = session.from_arrow(given)
    assert table.to_pyarrow().schema.equals(schema, check_metadata=True)
    assert {os.fsencode(key): os.fsencode(value) for key, value in table.schema.metadata.items()} == METADATA
    assert table.schema["a"].metadata == table.schema.metadata
    for form in ["file", "stream"]:
        out, theirs = io.BytesIO(), io.BytesIO()
        table.write_ipc(out, form=form)
        reader = pa.ipc.open_file if form == "file" else pa.ipc.open_stream
        assert reader(out.getvalue()).schema.equals(schema, check_metadata=True)
        with (pa.ipc.new_file if form == "file" else pa.ipc.new_stream)(theirs, schema) as writer:
            writer.write_table(given)
        for data in [out, theirs]:
            assert session.read_ipc(data.getvalue()).to_pyarrow().schema.equals(schema, check_metadata=True)


def test_metadata_that_repeats_a_key_or_has_a_reserved_one_is_kept(session):
    for pairs in [
        [("k", "1"), ("k", "2"), ("a", "3")],
        [("crossdock.metadata:extra_pairs", "a=b"), ("crossdock.metadata:dictionary_values", "x")],
    ]:
        schema = pa.schema([("a", pa.int64())], metadata=pa.KeyValueMetadata(pairs))
        back = pa.schema(session.from_arrow(pa.table({"a": [1]}, schema=schema)))
        assert back.equals(schema, check_metadata=True), back


def test_a_name_that_is_not_utf8_is_refused_with_what_can_be_read_of_it(session):
    given = pa.table({b"caf\xe9": [1]})
    with pytest.raises(cd.DataError, match="caf.*not UTF-8.*rename"):
        session.from_arrow(pa.RecordBatchReader.from_batches(given.schema, []))
    out = io.BytesIO()
    with pa.ipc.new_stream(out, given.schema) as writer:
        writer.write_table(given)
    with pytest.raises(cd.DataError, match="caf.*not UTF-8"):
        session.read_ipc(out.getvalue())


@pytest.mark.parametrize("protocol", ["stream", "array", "capsules"])
def test_a_name_that_is_not_utf8_is_replaced_where_that_is_asked_for(session, protocol):
    given = pa.record_batch({b"caf\xe9": [1], "plain": [2]})

    def take(names):
        if protocol == "capsules":
            return session.from_capsules(*given.__arrow_c_array__(), names=names)
        reader = pa.RecordBatchReader.from_batches(given.schema, [given])
        return session.from_arrow(reader if protocol == "stream" else given, names=names)

    with pytest.warns(cd.Warning, match="column 'caf\ufffd': its name is not UTF-8") as caught:
        table = take("replace")
    assert len(caught) == 1
    assert table.column_names == ["caf\ufffd", "plain"]
    assert pa.table(table).to_pydict() == {"caf\ufffd": [1], "plain": [2]}
    with pytest.raises(cd.DataError, match="caf.*not UTF-8.*names=.replace"):
        take("strict")
    with pytest.raises(cd.UsageError, match='names="lenient": expected'):
        take("lenient")


def test_a_name_within_a_column_is_told_by_its_path(session):
    inner = pa.StructArray.from_arrays([pa.array([1])], names=[b"\xff"])
    with pytest.warns(cd.Warning, match="column 'outer.\ufffd'"):
        column = session.from_arrow(pa.record_batch({"outer": inner}), names="replace")["outer"]
    assert column.to_pyarrow().to_pylist() == [{"\ufffd": 1}]


def test_chunks_of_different_dictionaries_are_combined_into_one(session):
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


def test_warnings_of_plugins_are_warnings_of_python(session, tmp_path):
    pipe, feeder = with_footer_metadata(tmp_path)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        assert session.read(pipe).num_rows == 1
    feeder.join()
    assert [(w.category, w.filename) for w in raised] == [(cd.Warning, __file__)]
    assert "arrow-ipc: " in str(raised[0].message) and "footer" in str(raised[0].message)


def test_a_warning_that_a_filter_makes_an_error_is_raised(session, tmp_path):
    pipe, feeder = with_footer_metadata(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cd.Warning)
        with pytest.raises(cd.Warning, match="footer"):
            session.read(pipe)
    feeder.join()
