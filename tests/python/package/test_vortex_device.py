"""Encoded arrays whose values are wanted on a CUDA device: what lies is refused there as on the host, and what is right decodes."""

import crossdock as cd
import pyarrow as pa
import pytest
import reference
import trees
from capsules import Exporter, on_the_device_of
from test_vortex_changed import SMALL, parts
from test_vortex_hostile import CASES, REFUSED, RIGHT, assert_decodes, assert_refused, validities
from test_vortex_kinds import assert_decoded, whole
from vortex_nodes import with_validity


@pytest.mark.parametrize("kind", validities())
def test_a_validity_may_be_of_any_kind(there, kind):
    assert there.from_vortex(Exporter(with_validity(validities()[kind]))).to_pyarrow().to_pylist() == [97, None, 99]


@pytest.mark.parametrize("group, name", CASES, ids=lambda part: part)
def test_it_is_refused(there, group, name):
    assert_refused(there, REFUSED[group][name])


@pytest.mark.parametrize("name", RIGHT)
def test_it_decodes(there, name):
    assert_decodes(there, *RIGHT[name])


def outcome(session, tree):
    """What it decodes to, None if it is refused."""
    try:
        return whole(session.from_vortex(Exporter(tree)).to_pyarrow())
    except (cd.DataError, cd.UnsupportedError, cd.OutOfMemoryError):
        return None


@pytest.mark.parametrize("kind", SMALL)
def test_with_any_byte_of_a_buffer_or_of_metadata_changed_it_is_what_it_is_on_the_host(there, session, kind):
    for tree in SMALL[kind][:2]:
        for part in parts(tree):
            whole, buffers = part.metadata, list(part.buffers)
            for at in range(len(whole)):
                part.metadata = whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :]
                same(outcome(session, tree), outcome(there, tree), (tree.ids(), part.id, "metadata", at))
            part.metadata = whole
            for i, buffer in enumerate(buffers):
                bytes_of = bytes(buffer)
                for at in {0, len(bytes_of) // 2, len(bytes_of) - 1} & set(range(len(bytes_of))):
                    part.buffers[i] = bytes_of[:at] + bytes([bytes_of[at] ^ 0x95]) + bytes_of[at + 1 :]
                    same(outcome(session, tree), outcome(there, tree), (tree.ids(), part.id, "buffer", i, at))
                part.buffers[i] = buffer


def same(host, device, what):
    assert (host is None) == (device is None), what
    if host is None:
        return
    assert host.type == device.type, what
    try:
        host.validate(full=True)
    except pa.ArrowInvalid:
        # What the host kept though it is no value of its type, the device keeps too.
        return
    assert reference.same(host, device), what


@pytest.mark.parametrize("kind", SMALL)
def test_buffers_on_a_device_decode_there_and_in_a_session_on_the_host(there, session, kind):
    for tree in SMALL[kind]:
        expected = outcome(session, tree)
        for decoder in (there, session):
            column = decoder.from_vortex(Exporter(tree, on_the_device_of(there)))
            assert column.device == decoder.device or not column.nbytes, tree.ids()
            same(expected, whole(column.to_pyarrow()), tree.ids())


@pytest.mark.parametrize("group, name", CASES, ids=lambda part: part)
def test_buffers_on_a_device_are_held_to_the_same_in_a_session_on_the_host(there, session, group, name):
    """What is read of them there is read through a copy, never through their addresses."""
    tree = REFUSED[group][name]
    assert_refused(session, tree, on_the_device_of(there))


def test_flights(there, flights_of):
    columns = dict(trees.of_table(pa.ipc.open_file(flights_of).read_all()))
    assert len(columns) >= 30
    for name, array in columns.items():
        column = there.from_vortex(array)
        assert column.device == "cuda:0", name
        assert_decoded(there, name, array)
