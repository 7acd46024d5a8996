"""Columnar tables that every GPU library can take: Arrow IPC, Arrow C Device and DLPack, with no copy where none is needed.

    import crossdock as cd

    table = cd.default_session().read_ipc("flights.arrow")
    table["distance"].to_pyarrow()

A session has a device, a budget of memory and plugins; tables and columns live in one and speak Arrow's and DLPack's
protocols, so that other libraries take them as they are.
"""

from . import compat, cuda
from ._native import (
    CancelledError,
    Column,
    DataError,
    DeviceError,
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
    __version__,
)
from ._session import default_session

__all__ = [
    "CancelledError",
    "Column",
    "DataError",
    "DeviceError",
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
    "__version__",
    "compat",
    "cuda",
    "default_session",
]
