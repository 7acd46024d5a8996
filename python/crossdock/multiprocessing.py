"""Tables on GPUs for the queues, pipes and processes of multiprocessing.

    import crossdock.multiprocessing  # in the process that sends

After this import, `multiprocessing` passes tables and columns on a CUDA device through device memory: one copy on the
device, which the other process uses in place. Without it, they are copied to host memory and back. The other process
must run on the same host, as the same user, and must receive the table while this process still runs.

>>> import crossdock.multiprocessing
>>> crossdock.multiprocessing.plan(table)
'host: the table is on cpu'
"""

from multiprocessing.reduction import ForkingPickler

from ._native import Column, DeviceError, Table, UnsupportedError
from ._session import shared_session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["plan"]

# The version of pickle's protocol in which multiprocessing pickles.
_PROTOCOL = 4


def plan(table: "Table | Column") -> str:
    """How `multiprocessing` passes a table or a column to another process: "device", or "host: " and the reason.

    >>> from crossdock.multiprocessing import plan
    >>> plan(table)
    'host: the table is on cpu'
    """
    if not table.device.startswith("cuda"):
        # Bytes are in the pipe, so the sender may end before the other process receives them.
        return f"host: the table is on {table.device}"
    obstacle = table._sharing_obstacle
    return "device" if obstacle is None else f"host: {obstacle}"


def _reduce(table: "Table | Column") -> "tuple[Any, ...]":
    if table.device.startswith("cuda"):
        try:
            return _open, (table._share_once(),)
        except (DeviceError, UnsupportedError):
            # For example, memory is exhausted. Copies to host memory are slower, so they must have
            # a reason.
            if table._sharing_obstacle is None:
                raise
    return table.__reduce_ex__(_PROTOCOL)


def _open(description: bytes) -> "Table | Column":
    return shared_session(description).open_shared(description)


for _type in (Table, Column):
    ForkingPickler.register(_type, _reduce)
