"""Decoding of encoded arrays on a CUDA device: malformed trees are rejected as on the host, and valid trees
decode."""

import crossdock as cd
import pyarrow as pa
import pytest
import reference
import trees
from capsules import Exporter, on_the_device_of
from test_vortex_changed import SMALL, parts
from test_vortex_malformed import CASES, MALFORMED, VALID, assert_decodes, assert_rejected, validities
from test_vortex_kinds import assert_decoded, whole
from vortex_nodes import with_validity


@pytest.mark.parametrize("kind", validities())
def test_validity_may_have_any_encoding(cuda_session, kind):
    assert cuda_session.from_vortex(Exporter(with_validity(validities()[kind]))).to_pyarrow().to_pylist() == [
        97,
        None,
        99,
    ]


@pytest.mark.parametrize("group, name", CASES, ids=lambda part: part)
def test_malformed_tree_is_rejected(cuda_session, group, name):
    assert_rejected(cuda_session, MALFORMED[group][name])


@pytest.mark.parametrize("name", VALID)
def test_valid_tree_decodes(cuda_session, name):
    assert_decodes(cuda_session, *VALID[name])


def outcome(session, tree):
    """Returns the decoded values, or None if the tree is rejected."""
    try:
        return whole(session.from_vortex(Exporter(tree)).to_pyarrow())
    except (cd.DataError, cd.UnsupportedError, cd.OutOfMemoryError):
        return None


@pytest.mark.parametrize("kind", SMALL)
def test_changed_bytes_have_the_same_outcome_as_on_the_host(cuda_session, session, kind):
    for tree in SMALL[kind][:2]:
        for part in parts(tree):
            whole, buffers = part.metadata, list(part.buffers)
            for at in range(len(whole)):
                part.metadata = whole[:at] + bytes([whole[at] ^ 0x15]) + whole[at + 1 :]
                same(outcome(session, tree), outcome(cuda_session, tree), (tree.ids(), part.id, "metadata", at))
            part.metadata = whole
            for i, buffer in enumerate(buffers):
                bytes_of = bytes(buffer)
                for at in {0, len(bytes_of) // 2, len(bytes_of) - 1} & set(range(len(bytes_of))):
                    part.buffers[i] = bytes_of[:at] + bytes([bytes_of[at] ^ 0x95]) + bytes_of[at + 1 :]
                    same(outcome(session, tree), outcome(cuda_session, tree), (tree.ids(), part.id, "buffer", i, at))
                part.buffers[i] = buffer


def same(host, device, what):
    assert (host is None) == (device is None), what
    if host is None:
        return
    assert host.type == device.type, what
    try:
        host.validate(full=True)
    except pa.ArrowInvalid:
        # The decoder does not reject all values that are invalid for their type. Such values are
        # not compared.
        return
    assert reference.same(host, device), what


@pytest.mark.parametrize("kind", SMALL)
def test_device_buffers_decode_on_device_and_host(cuda_session, session, kind):
    for tree in SMALL[kind]:
        expected = outcome(session, tree)
        for decoder in (cuda_session, session):
            column = decoder.from_vortex(Exporter(tree, on_the_device_of(cuda_session)))
            assert column.device == decoder.device or not column.nbytes, tree.ids()
            same(expected, whole(column.to_pyarrow()), tree.ids())


@pytest.mark.parametrize("group, name", CASES, ids=lambda part: part)
def test_device_buffers_are_validated_on_the_host(cuda_session, session, group, name):
    """The host validates device buffers through copies in host memory."""
    tree = MALFORMED[group][name]
    assert_rejected(session, tree, on_the_device_of(cuda_session))


def test_flights_data_set_decodes_on_a_device_to_the_values_of_vortex(cuda_session, flights_of):
    columns = dict(trees.of_table(pa.ipc.open_file(flights_of).read_all()))
    assert len(columns) >= 30
    for name, array in columns.items():
        column = cuda_session.from_vortex(array)
        assert column.device == "cuda:0", name
        assert_decoded(cuda_session, name, array)
