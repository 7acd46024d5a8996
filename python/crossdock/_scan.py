"""Finds the files of a scan, and opens pickled scans."""

import os

from ._session import session_with

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ._native import Scan


def files(source: "Any") -> list[str] | None:
    """Returns the files of a path, a folder, a pattern, or a list of these. None if `source` is something else.

    A folder stands for all files in it and in its subfolders, ordered by path, except names that begin with '.' or
    '_'. A path that does not exist and contains '*', '?' or '[' is a pattern; '**' matches any number of folders.
    A URI stands for itself.
    """
    if isinstance(source, (list, tuple)):
        return [file for item in source for file in _files_of(os.fsdecode(item))]
    if isinstance(source, (str, os.PathLike)):
        return _files_of(os.fsdecode(source))
    return None


def _files_of(path: str) -> list[str]:
    if _is_uri(path):
        return [path]
    if os.path.isdir(path):
        return _files_in(path)
    if any(character in path for character in "*?[") and not os.path.exists(path):
        # Imported here, because it takes as long as the import of this package.
        import glob

        found = [name for name in sorted(glob.glob(path, recursive=True)) if os.path.isfile(name)]
        if not found:
            raise FileNotFoundError(2, "no file matches the pattern", path)
        return found
    return [path]


def _is_uri(path: str) -> bool:
    """Whether a path begins as a URI, as in the host. Only the host knows whether a plugin opens the scheme."""
    scheme, separator, _ = path.partition("://")
    characters = scheme.replace("+", "").replace(".", "").replace("-", "")
    return separator != "" and scheme[:1].isalpha() and characters.isalnum() and scheme.isascii()


def _files_in(folder: str) -> list[str]:
    found: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        found += [os.path.join(parent, name) for name in names if not name.startswith((".", "_"))]
    if not found:
        raise FileNotFoundError(2, "the folder contains no files", folder)
    return sorted(found)


def unpickle(settings: "tuple[Any, ...]", source: list[str], arguments: "Mapping[str, Any]") -> "Scan":
    """Opens a pickled scan in this process's session with these settings."""
    return session_with(*settings).scan(source, **arguments)
