"""Small trees of every kind with truncated and changed types and metadata, and with wrong children."""

import crossdock as cd
import dtypes
import pyarrow as pa
import pytest
import trees
from capsules import Exporter
from flat import Tree
from test_vortex_kinds import NOT_YET
from vortex_nodes import MOST, NULL, node, number


def small_trees():
    """Returns a few small trees of each kind."""
    trees_of_kind = {}
    for kind in trees.KINDS:
        if (kind, "") in NOT_YET:
            continue
        for array in [array for _, array in trees.arrays(kind, (40, 1030))][
            :: 40 if "bitpacked" in kind or "alp" in kind else 12
        ]:
            tree = Tree.of(array)
            trees_of_kind.setdefault(kind, []).append(tree)
    return trees_of_kind


SMALL = small_trees()


def parts(tree):
    """Returns all nodes, the root first."""
    nodes_of_tree = [tree]
    for part in nodes_of_tree:
        nodes_of_tree.extend(part.children)
    return nodes_of_tree


def outcome(session, tree):
    """Returns whether the tree decodes. It must decode to a valid array, or raise an error of the package."""
    try:
        column = session.from_vortex(Exporter(tree))
    except (cd.DataError, cd.UnsupportedError, cd.OutOfMemoryError) as error:
        assert "vortex." in str(error) or "fastlanes." in str(error) or "node " in str(error), error
        return False
    assert len(column) == tree.length
    try:
        column.to_pyarrow().validate(full=True)
    except pa.ArrowInvalid as error:
        # The decoder does not check that decimals fit their precision. Only pyarrow's validation
        # reports them.
        assert "does not fit in precision" in str(error)
    return True


@pytest.mark.parametrize("kind", SMALL)
def test_truncated_types_are_rejected_or_decode(session, kind):
    """A type without its last bytes may still be valid, because they may be padding or the end of a text."""
    for tree in SMALL[kind][:2]:
        for part in parts(tree):
            whole = part.dtype
            for end in range(len(whole)):
                part.dtype = whole[:end]
                assert not outcome(session, tree) or end > len(whole) - 8, (tree.ids(), whole.hex(), end)
            part.dtype = whole
        assert outcome(session, tree)


@pytest.mark.parametrize("kind", SMALL)
def test_changed_types_are_rejected_or_decode(session, kind):
    for tree in SMALL[kind][:1]:
        for part in parts(tree)[:3]:
            whole = part.dtype
            for at in range(len(whole)):
                for byte in (0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 4):
                    part.dtype = whole[:at] + bytes([byte]) + whole[at + 1 :]
                    outcome(session, tree)
            part.dtype = whole


@pytest.mark.parametrize("kind", SMALL)
def test_changed_metadata_is_rejected_or_decodes(session, kind):
    for tree in SMALL[kind]:
        for part in parts(tree)[:4]:
            whole = part.metadata
            for at in range(len(whole)):
                part.metadata = whole[:at]
                outcome(session, tree)
                for byte in (0, 1, 0x7F, 0x80, 0xFF, *(whole[at] ^ 1 << bit for bit in range(8))):
                    part.metadata = whole[:at] + bytes([byte]) + whole[at + 1 :]
                    outcome(session, tree)
            part.metadata = whole
        assert outcome(session, tree)


@pytest.mark.parametrize("kind", SMALL)
def test_rejects_children_of_another_length_or_type(session, kind):
    """Replaces each child in turn by a valid constant."""
    for tree in SMALL[kind]:
        for part in parts(tree):
            for index, child in enumerate(part.children):
                type = dtypes.read(child.dtype)
                scalar = NULL if type.nullable else b"\x10\x01" if type.kind == dtypes.BOOL else b"\x20\x01"
                for length in (child.length + 1, child.length - 1, 0, 1 << 20, 1 << 62, 1 << 63, MOST):
                    if length >= 0 and length != child.length:
                        part.children[index] = node("vortex.constant", child.dtype, length, b"", [scalar])
                        assert not outcome(session, tree), (tree.ids(), part.id, index, length)
                other_type = dtypes.binary() if type.kind != dtypes.BINARY else number("f2")
                scalar = b"\x42\x01a" if type.kind != dtypes.BINARY else b"\x50\x01"
                part.children[index] = node("vortex.constant", other_type, child.length, b"", [scalar])
                assert not outcome(session, tree), (tree.ids(), part.id, index, "another type")
                part.children[index] = child
            children = part.children
            for replacement in [children[1:], children[:-1], [*children, *children[-1:]], children * 2]:
                if children and part.id != "vortex.chunked":
                    part.children = replacement
                    outcome(session, tree)
            part.children = children
        assert outcome(session, tree)


WITHOUT_METADATA = [
    "primitive",
    "null",
    "constant",
    "struct",
    "ext",
    "chunked",
    "zigzag",
    "bytebool",
    "masked",
    "varbinview",
]


@pytest.mark.parametrize("kind", [*WITHOUT_METADATA, "fixed_size_list", "map"])
@pytest.mark.parametrize("meta", [b"\0", b"\x08\1"], ids=bytes.hex)
def test_rejects_unexpected_metadata(session, kind, meta):
    """The metadata may be of a later version."""
    tree = next(tree for tree in SMALL[f"vortex.{kind}"] if tree.id == f"vortex.{kind}")
    before, tree.metadata = tree.metadata, meta
    with pytest.raises(cd.DataError, match=f"vortex.{kind}: {len(meta)} bytes of metadata, expected none"):
        session.from_vortex(Exporter(tree))
    tree.metadata = before
    assert outcome(session, tree)
