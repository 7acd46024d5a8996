"""Columnar tables that every GPU library can take: Arrow IPC, Arrow C Device and DLPack, with no copy where none is needed.

    import crossdock as cd

    table = cd.default_session().read_ipc("flights.arrow")
    table["distance"].to_pyarrow()

A session has a device, a budget of memory and plugins; tables and columns live in one and speak Arrow's and DLPack's
protocols, so that other libraries take them as they are.
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
    Schema,
    Session,
    Table,
    UnsupportedError,
    UsageError,
    Warning,
    __version__,
)
from . import _plugins as _plugins  # not on first use: a forked child could wait for another thread's import for ever
from ._session import default_session

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
    "OutOfMemoryError",
    "PluginError",
    "Schema",
    "Session",
    "Table",
    "UnsupportedError",
    "UsageError",
    "Warning",
    "__version__",
    "compat",
    "cuda",
    "default_session",
]


def __getattr__(name: str) -> "ModuleType":
    # Loaded when they are asked for: most programs need neither, and all import this.
    if name in ("compat", "cuda"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
