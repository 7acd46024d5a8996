"""Reads and writes Arrow IPC files and streams with pyarrow, and compares tables."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

FORMS = {"file": ".arrow", "stream": ".arrows"}


def read(path, form):
    """Returns (schema, batches) of an IPC file or stream."""
    if form == "file":
        with ipc.open_file(pa.memory_map(str(path))) as reader:
            return reader.schema, [reader.get_batch(i) for i in range(reader.num_record_batches)]
    with ipc.open_stream(pa.OSFile(str(path))) as reader:
        return reader.schema, list(reader)


def write(path, form, schema, batches, **options):
    """Writes batches unchanged. `options` are arguments of IpcWriteOptions."""
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(str(path), schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)


def assert_equal(expected, actual):
    """Compares schemas with metadata, the number of rows of each batch, and all values. The actual batch must
    be valid if the expected batch is valid."""
    (schema, batches), (actual_schema, actual_batches) = expected, actual
    assert actual_schema.equals(schema, check_metadata=True), (
        f"schema: expected\n{schema.to_string(show_field_metadata=True)}\n"
        f"got\n{actual_schema.to_string(show_field_metadata=True)}"
    )
    assert [b.num_rows for b in actual_batches] == [b.num_rows for b in batches], "rows of each batch"
    for number, (expected_batch, actual_batch) in enumerate(zip(batches, actual_batches)):
        if _is_valid(expected_batch):
            actual_batch.validate(full=True)
        # Whole batches are compared first, because pyarrow has no Python class for Arrow's two
        # older interval types, and can compare these types only in whole batches.
        if expected_batch.equals(actual_batch):
            continue
        # Columns are compared by position, because names may be repeated.
        for index, field in enumerate(schema):
            difference = differs(expected_batch.column(index), actual_batch.column(index))
            assert difference is None, f"batch {number}, column {index} ({field.name}): {difference}"


def _is_valid(batch):
    """Returns whether pyarrow accepts the batch. It rejects some of Arrow's golden files, which have dates
    with hours, and decimals with more digits than their precision."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def differs(a, b):
    """Returns a description of the first difference between two arrays, or None. Compares the decoded values
    of dictionaries, and the bits of floats."""
    if a.type != b.type:
        return f"type: expected {a.type}, got {b.type}"
    if len(a) != len(b):
        return f"length: expected {len(a)}, got {len(b)}"
    if a.equals(b):
        return None
    return _difference_of_values(a, b)


def _difference_of_values(a, b):
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
        differences = (differs(x, y) for x, y in zip(a.flatten(), b.flatten()))
        return next((difference for difference in differences if difference), None)
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
    """Returns the elements of all lists that are not null, in order."""
    return a.drop_null().flatten()


def _union_differs(a, b):
    if not a.type_codes.equals(b.type_codes):
        return f"type codes: expected {a.type_codes}, got {b.type_codes}"
    for index, code in enumerate(a.type.type_codes):
        is_member = pc.equal(a.type_codes, pa.scalar(code, pa.int8()))
        difference = differs(_member(a, index, is_member), _member(b, index, is_member))
        if difference:
            return f"member {index}: {difference}"
    return None


def _member(a, index, is_member):
    if a.type.mode == "dense":
        return a.field(index).take(a.offsets.filter(is_member))
    return a.field(index).filter(is_member)
