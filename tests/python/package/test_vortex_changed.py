"""Small trees of every kind, with types and metadata cut and changed anywhere, and other children than they should have."""

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
    """One or two small trees of each kind."""
    found = {}
    for kind in trees.KINDS:
        if (kind, "") in NOT_YET:
            continue
        for array in [array for _, array in trees.arrays(kind, (40, 1030))][
            :: 40 if "bitpacked" in kind or "alp" in kind else 12
        ]:
            tree = Tree.of(array)
            found.setdefault(kind, []).append(tree)
    return found


SMALL = small_trees()


def parts(tree):
    """All nodes, the root first."""
    found = [tree]
    for part in found:
        found.extend(part.children)
    return found


def outcome(session, tree):
    """Whether it decodes; if not, by an error of the package, and if so, to what pyarrow finds valid."""
    try:
        column = session.from_vortex(Exporter(tree))
    except (cd.DataError, cd.UnsupportedError, cd.OutOfMemoryError) as error:
        assert "vortex." in str(error) or "fastlanes." in str(error) or "node " in str(error), error
        return False
    assert len(column) == tree.length
    try:
        column.to_pyarrow().validate(full=True)
    except pa.ArrowInvalid as error:
        # Decimals beyond their precision are kept as they are.
        assert "does not fit in precision" in str(error)
    return True


@pytest.mark.parametrize("kind", SMALL)
def test_types_are_cut_anywhere(session, kind):
    """The last bytes may be padding, or a text's end; what is left of the others is no type."""
    for tree in SMALL[kind][:2]:
        for part in parts(tree):
            whole = part.dtype
            for end in range(len(whole)):
                part.dtype = whole[:end]
                assert not outcome(session, tree) or end > len(whole) - 8, (tree.ids(), whole.hex(), end)
            part.dtype = whole
        assert outcome(session, tree)


@pytest.mark.parametrize("kind", SMALL)
def test_types_are_changed_anywhere(session, kind):
    for tree in SMALL[kind][:1]:
        for part in parts(tree)[:3]:
            whole = part.dtype
            for at in range(len(whole)):
                for byte in (0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 4):
                    part.dtype = whole[:at] + bytes([byte]) + whole[at + 1 :]
                    outcome(session, tree)
            part.dtype = whole


@pytest.mark.parametrize("kind", SMALL)
def test_metadata_is_cut_and_changed_anywhere(session, kind):
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
def test_children_of_another_length_or_type_are_refused(session, kind):
    """Of each child in turn a constant is made that is sound itself."""
    for tree in SMALL[kind]:
        for part in parts(tree):
            for at, child in enumerate(part.children):
                what = dtypes.read(child.dtype)
                scalar = NULL if what.nullable else b"\x10\x01" if what.kind == dtypes.BOOL else b"\x20\x01"
                for length in (child.length + 1, child.length - 1, 0, 1 << 20, 1 << 62, 1 << 63, MOST):
                    if length >= 0 and length != child.length:
                        part.children[at] = node("vortex.constant", child.dtype, length, b"", [scalar])
                        assert not outcome(session, tree), (tree.ids(), part.id, at, length)
                strange = dtypes.binary() if what.kind != dtypes.BINARY else number("f2")
                scalar = b"\x42\x01a" if what.kind != dtypes.BINARY else b"\x50\x01"
                part.children[at] = node("vortex.constant", strange, child.length, b"", [scalar])
                assert not outcome(session, tree), (tree.ids(), part.id, at, "another type")
                part.children[at] = child
            children = part.children
            for some in [children[1:], children[:-1], [*children, *children[-1:]], children * 2]:
                if children and part.id != "vortex.chunked":
                    part.children = some
                    outcome(session, tree)
            part.children = children
        assert outcome(session, tree)


SAYS_NOTHING = [
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


@pytest.mark.parametrize("kind", [*SAYS_NOTHING, "fixed_size_list", "map"])
@pytest.mark.parametrize("meta", [b"\0", b"\x08\1"], ids=bytes.hex)
def test_metadata_where_there_is_none_is_refused(session, kind, meta):
    """It may be that of a later version."""
    tree = next(tree for tree in SMALL[f"vortex.{kind}"] if tree.id == f"vortex.{kind}")
    before, tree.metadata = tree.metadata, meta
    with pytest.raises(cd.DataError, match=f"vortex.{kind}: {len(meta)} bytes of metadata, expected none"):
        session.from_vortex(Exporter(tree))
    tree.metadata = before
    assert outcome(session, tree)
