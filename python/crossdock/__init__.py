"""Columnar tables that GPU libraries exchange without copies: Arrow IPC, Arrow C Device and DLPack.

>>> import crossdock as cd
>>> table = cd.read(folder / "people.arrow")
>>> table["score"].to_pylist()
[0.5, 1.5, 2.5]

A session has a device, a memory budget and plugins. Tables and columns belong to a session. They implement
the protocols of Arrow and DLPack, with which other libraries import them.
"""

import importlib

from ._native import (
    CancelledError,
    Column,
    DataError,
    DeviceError,
    EncodedArray,
    Error,
    ExportError,
    Field,
    OutOfMemoryError,
    PluginError,
    Scan,
    Schema,
    Session,
    SharedTable,
    Table,
    UnsupportedError,
    UsageError,
    Warning,
    Writer,
    __version__,
)

# Imported here and not at the first use, because a forked child could wait forever for an import
# that another thread of the parent had begun.
from . import _plugins as _plugins
from . import _scan as _scan
from ._fragments import Fragment
from ._session import default_session, unpickle_on
from ._table import concat, read, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from . import compat as compat
    from . import cuda as cuda

__all__ = [
    "CancelledError",
    "Column",
    "DataError",
    "DeviceError",
    "EncodedArray",
    "Error",
    "ExportError",
    "Field",
    "Fragment",
    "OutOfMemoryError",
    "PluginError",
    "Scan",
    "Schema",
    "Session",
    "SharedTable",
    "Table",
    "UnsupportedError",
    "UsageError",
    "Warning",
    "Writer",
    "__version__",
    "compat",
    "concat",
    "cuda",
    "default_session",
    "read",
    "table",
    "unpickle_on",
]


def __getattr__(name: str) -> "ModuleType":
    # These modules are imported at their first use, because most programs do not need them.
    if name in ("compat", "cuda"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
