"""`repr` and HTML of tables, columns and schemas."""

import html.parser

import pyarrow as pa

HOSTILE = "<script>alert('1')</script> & \"two\""


class Cells(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.cells = [], [], []

    def handle_starttag(self, tag, attrs):
        alignments = ([], [("style", "text-align: left")], [("style", "text-align: right")])
        assert attrs in (alignments if tag in ("th", "td") else ([],)), f"<{tag} {attrs}>"
        self.tags.append(tag)
        self.attributes.append(attrs)

    def handle_data(self, data):
        if self.tags[-1] in ("th", "td") and data != "\n":
            self.cells.append(data)


def test_table_shows_first_rows_of_all_batches(session):
    batch = pa.record_batch({"a": [1, 2, 3], "text": ["x", None, "z"]})
    lines = repr(session.from_arrow(pa.Table.from_batches([batch] * 5))).splitlines()
    assert lines[0] == "crossdock.Table: 15 rows, 2 columns on cpu"
    assert [line.split() for line in lines[1:3]] == [["a", "text"], ["int64", "string"]]
    rows = [line.split() for line in lines[3:13]]
    assert rows == [["1", "x"], ["2", "null"], ["3", "z"]] * 3 + [["1", "x"]]
    assert lines[13:] == ["... 5 more rows"]


def test_small_and_empty_tables_are_shown_completely(session):
    assert repr(session.from_arrow(pa.table({"a": [7]}))).splitlines()[1:] == ["a", "int64", "7"]
    assert repr(session.from_arrow(pa.table({"a": pa.array([], pa.int8())}))).splitlines()[1:] == ["a", "int8"]
    without = pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([])))
    assert repr(session.from_arrow(without)) == "crossdock.Table: 3 rows, 0 columns on cpu\n"


def test_column_repr_has_one_header(session):
    table = session.from_arrow(pa.table({"day": pa.array(range(12), pa.int8())}))
    first, *rows = repr(table["day"]).splitlines()
    assert first == 'crossdock.Column "day": int8, 12 values on cpu'
    assert rows == [*map(str, range(10)), "... 2 more values"]


def test_html_is_escaped(session):
    table = session.from_arrow(pa.table({HOSTILE: [HOSTILE, "b"] * 6, "n": range(12)}))
    html = table._repr_html_()
    cells = Cells()
    cells.feed(html)
    assert set(cells.tags) <= {"div", "p", "table", "tr", "th", "td"}
    assert cells.cells[:6] == [HOSTILE, "n", "string", "int64", HOSTILE, "0"]
    assert len(cells.cells) == 2 * 12
    assert "12 rows, 2 columns on cpu" in html and "... 2 more rows" in html


def parsed(html):
    cells = Cells()
    cells.feed(html)
    return cells


def test_html_aligns_numbers_to_the_right(session):
    table = session.from_arrow(pa.table({"n": [1], "text": ["x"], "f": [0.5], "flag": [True]}))
    cells = parsed(table._repr_html_())
    sides = [attributes[0][1].split()[-1] for attributes in cells.attributes if attributes]
    assert sides == ["right", "left", "right", "left"] * 3


def test_html_leaves_out_the_middle_columns_of_wide_tables(session):
    table = session.from_arrow(pa.table({f"c{i}": [i] for i in range(25)}))
    html = table._repr_html_()
    names = parsed(html).cells[:21]
    assert names == [*(f"c{i}" for i in range(10)), "…", *(f"c{i}" for i in range(15, 25))]
    assert "1 rows, 25 columns on cpu" in html and "... 5 more columns between these" in html
    exactly = session.from_arrow(pa.table({f"c{i}": [i] for i in range(20)}))._repr_html_()
    assert parsed(exactly).cells[:20] == [f"c{i}" for i in range(20)] and "…" not in exactly


def test_columns_schemas_and_plans_have_html(session):
    table = session.from_arrow(pa.table({HOSTILE: range(12), "text": [HOSTILE] * 12}))
    column = table[HOSTILE]._repr_html_()
    assert parsed(column).cells == [HOSTILE, "int64", *map(str, range(10))]
    assert "crossdock.Column: int64, 12 values on cpu" in column and "... 2 more values" in column
    schema = table.schema._repr_html_()
    assert parsed(schema).cells == ["column", "type", "nulls", HOSTILE, "int64", "yes", "text", "string", "yes"]
    plan = table.plan("dlpack")
    assert isinstance(plan, list) and [row["verdict"] for row in plan] == ["zero-copy", "unsupported"]
    cells = parsed(plan._repr_html_()).cells
    assert cells[:4] == ["name", "verdict", "device", "reason"] and cells[4:7] == [HOSTILE, "zero-copy", "cpu"]
    assert len(cells) == 12


def test_schema_and_field_show_types_and_nullability(session):
    schema = session.from_arrow(
        pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.string())]).empty_table()
    ).schema
    assert repr(schema) == "a: int8 not null\nb: string" and repr(schema[1]) == "b: string"
    assert (schema[0].name, schema[0].type, schema[0].nullable) == ("a", "int8", False)
