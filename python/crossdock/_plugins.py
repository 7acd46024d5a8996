"""Finds the folders of installed plugins: of this package, and of packages with an entry point."""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP = "crossdock.plugins"


def folders() -> list[str]:
    """Returns the plugin folder of this package, then the folders that the entry points of the group
    crossdock.plugins name. The entry point `name = "some_package.plugins"` names a folder with `*.so` files.
    Does not run code of the packages."""
    paths = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "plugins")]
    for value in _entry_points():
        package, *inner = value.partition("[")[0].partition(":")[0].strip().split(".")
        # The search for a subpackage would import its parent packages.
        spec = _find_spec(package)
        locations = spec.submodule_search_locations if spec else None
        paths.extend(os.path.join(location, *inner) for location in locations or [])
    return paths


def _find_spec(package: str) -> ModuleSpec | None:
    """What `importlib.util.find_spec` finds, without the import of that module."""
    specs = (finder.find_spec(package, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return next(filter(None, specs), None)


def _entry_points() -> "Iterator[str]":
    """The values of the installed entry points. `importlib.metadata` finds the same, but its import takes
    seven times as long as that of this package. It is not imported here either, because a process that is
    forked meanwhile would wait forever for the lock of the import."""
    if any(_needs_metadata(finder) for finder in sys.meta_path) or any(map(os.path.isfile, sys.path)):
        from importlib import metadata

        yield from (entry.value for entry in metadata.entry_points(group=GROUP))
        return
    found = set()
    for folder in sys.path:
        for name, path in _distributions(folder or os.curdir):
            # Python imports the first of two installed versions.
            if name not in found:
                found.add(name)
                yield from _values(os.path.join(path, "entry_points.txt"))


def _needs_metadata(finder: object) -> bool:
    """Whether an import hook finds packages that are not in the folders of sys.path."""
    return finder is not PathFinder and hasattr(finder, "find_distributions")


def _distributions(folder: str) -> "Iterator[tuple[str, str]]":
    """The normalised names of the packages that are installed in a folder, and their metadata folders."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return
    for entry in entries:
        stem, extension = os.path.splitext(entry)
        if entry.upper() == "EGG-INFO":
            stem = os.path.basename(folder)
        elif extension.lower() not in (".dist-info", ".egg-info"):
            continue
        name = stem.partition("-")[0].lower().replace(".", "_")
        yield name, os.path.join(folder, entry)


def _values(path: str) -> "Iterator[str]":
    """The values of the group in a file in the format of entry_points.txt."""
    try:
        # Another package's file may be malformed.
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    is_in_group = False
    for line in map(str.strip, lines):
        if line.startswith("["):
            is_in_group = line == f"[{GROUP}]"
        elif is_in_group and line and not line.startswith("#"):
            yield line.partition("=")[2].strip()
