"""The session for those who open none."""

import os
import threading

from ._native import Session

_lock = threading.Lock()
_default: Session | None = None


def default_session() -> Session:
    """The process's own session, opened at the first call: on the device that CROSSDOCK_DEVICE names, else on the cpu."""
    global _default
    with _lock:
        if _default is None:
            _default = Session(os.environ.get("CROSSDOCK_DEVICE", "cpu"))
        return _default


def _forget_after_fork() -> None:
    # A driver's state does not survive a fork, nor do threads of the parent: the child opens its own.
    global _default, _lock
    _default, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_after_fork)
