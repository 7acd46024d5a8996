"""pyarrow as the peer: reading and writing the two forms, and what equal means."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

FORMS = {"file": ".arrow", "stream": ".arrows"}


def read(path, form):
    """(schema, batches) of an IPC file or stream."""
    if form == "file":
        with ipc.open_file(pa.memory_map(str(path))) as reader:
            return reader.schema, [reader.get_batch(i) for i in range(reader.num_record_batches)]
    with ipc.open_stream(pa.OSFile(str(path))) as reader:
        return reader.schema, list(reader)


def write(path, form, schema, batches, **options):
    """Writes batches as they are; `options` are those of IpcWriteOptions."""
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(str(path), schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def assert_equal(expected, got):
    """Schema with all metadata, batches, every value; what comes from a valid batch must also be valid all through."""
    (schema, batches), (got_schema, got_batches) = expected, got
    assert got_schema.equals(schema, check_metadata=True), (
        f"schema: expected\n{schema.to_string(show_field_metadata=True)}\n"
        f"got\n{got_schema.to_string(show_field_metadata=True)}"
    )
    assert [b.num_rows for b in got_batches] == [b.num_rows for b in batches], "rows of each batch"
    for number, (want, have) in enumerate(zip(batches, got_batches)):
        if _is_valid(want):
            have.validate(full=True)
        # First as a whole: pyarrow has no Python class for Arrow's two older interval types, only this comparison.
        if want.equals(have):
            continue
        # By position: names may be there twice.
        for index, field in enumerate(schema):
            difference = differs(want.column(index), have.column(index))
            assert difference is None, f"batch {number}, column {index} ({field.name}): {difference}"


def _is_valid(batch):
    """Arrow's golden files hold days with hours and decimals beyond their precision, which pyarrow calls invalid."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def differs(a, b):
    """None if two arrays hold the same values, else what differs. Dictionaries are compared by what they stand
    for, floats by their bits."""
    if a.type != b.type:
        return f"type: expected {a.type}, got {b.type}"
    if len(a) != len(b):
        return f"length: expected {len(a)}, got {len(b)}"
    if a.equals(b):
        return None
    return _look_inside(a, b)


def _look_inside(a, b):
    kind = a.type
    if isinstance(kind, pa.BaseExtensionType):
        return differs(a.storage, b.storage)
    if pa.types.is_run_end_encoded(kind):
        return differs(pc.run_end_decode(a), pc.run_end_decode(b))
    if pa.types.is_union(kind):
        return _union_differs(a, b)
    if not a.is_null().equals(b.is_null()):
        return f"nulls: expected {a.is_null()}, got {b.is_null()}"
    if pa.types.is_dictionary(kind):
        return differs(a.dictionary.take(a.indices), b.dictionary.take(b.indices))
    if pa.types.is_struct(kind):
        inside = (differs(x, y) for x, y in zip(a.flatten(), b.flatten()))
        return next((d for d in inside if d), None)
    if pa.types.is_map(kind):
        as_list = pa.list_(pa.struct([kind.key_field, kind.item_field]))
        return differs(a.cast(as_list), b.cast(as_list))
    if pa.types.is_nested(kind):
        if not pc.list_value_length(a).equals(pc.list_value_length(b)):
            return f"lengths of lists: expected {pc.list_value_length(a)}, got {pc.list_value_length(b)}"
        return differs(_elements(a), _elements(b))
    if pa.types.is_floating(kind):
        bits = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width]
        same = a.drop_null().view(bits).equals(b.drop_null().view(bits))
        return None if same else f"expected {a}, got {b}"
    return f"expected {a}, got {b}"


def _elements(a):
    """The elements of the lists that are not null, in order."""
    return a.drop_null().flatten()


def _union_differs(a, b):
    if not a.type_codes.equals(b.type_codes):
        return f"type codes: expected {a.type_codes}, got {b.type_codes}"
    for index, code in enumerate(a.type.type_codes):
        chosen = pc.equal(a.type_codes, pa.scalar(code, pa.int8()))
        difference = differs(_member(a, index, chosen), _member(b, index, chosen))
        if difference:
            return f"member {index}: {difference}"
    return None


def _member(a, index, chosen):
    if a.type.mode == "dense":
        return a.field(index).take(a.offsets.filter(chosen))
    return a.field(index).filter(chosen)
