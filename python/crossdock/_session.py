"""The default session."""

import os

# The import of threading takes as long as all other imports of this package.
from _thread import allocate_lock

from ._native import Session

_lock = allocate_lock()
_default: Session | None = None
_by_device: dict[str, Session] = {}


def default_session() -> Session:
    """Returns the default session of the process. The first call opens it on the device that the environment
    variable CROSSDOCK_DEVICE names, or on the cpu if the variable is not set."""
    global _default
    with _lock:
        if _default is None:
            _default = Session(os.environ.get("CROSSDOCK_DEVICE", "cpu"))
        return _default


def session_on(device: str) -> Session:
    """Returns a session of the process on `device`: the default session, or one that the first call opens."""
    session = default_session()
    if session.device == device:
        return session
    with _lock:
        if device not in _by_device:
            _by_device[device] = Session(device)
        return _by_device[device]


def _forget_after_fork() -> None:
    # The driver's state and the parent's threads do not exist after a fork. The child opens a new
    # session.
    global _default, _by_device, _lock
    _default, _by_device, _lock = None, {}, allocate_lock()


os.register_at_fork(after_in_child=_forget_after_fork)
