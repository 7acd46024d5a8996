"""Sessions of the process: the default session, and sessions for objects that are unpickled."""

import os

# The imports of threading and contextvars take as long as all other imports of this package.
from _contextvars import ContextVar
from _thread import allocate_lock
from _weakref import ref

from ._native import DeviceError, Session, UsageError
from ._native import rebuild as _rebuild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextvars import Token
    from typing import Any

    from ._native import Column, EncodedArray, Field, Schema, Table

_lock = allocate_lock()
_default: Session | None = None
_by_device: dict[str, Session] = {}
_by_settings: "dict[tuple[Any, ...], ref[Session]]" = {}
_unpickle_device: "ContextVar[str | None]" = ContextVar("crossdock_unpickle_device", default=None)

_VARIABLE = "CROSSDOCK_UNPICKLE_DEVICE"


def default_session() -> Session:
    """Returns the default session of the process. The first call opens it on the device that the environment
    variable CROSSDOCK_DEVICE names, or on the cpu if the variable is not set.

    >>> cd.default_session() is cd.default_session()
    True
    """
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


def session_with(
    device: str, memory: int | None, plugins: tuple[str, ...] | None, validate: "Any", threads: int | None
) -> Session:
    """Returns a session with these settings, which pickled objects of such a session use. Objects that are pickled
    one by one share it."""
    device = _chosen(device)
    if (memory, plugins, validate, threads) == (None, None, None, None):
        return _opened(device, lambda: session_on(device))
    key = (device, memory, plugins, validate, threads)
    with _lock:
        known = _by_settings.get(key)
        session = known() if known is not None else None
        if session is None or not session._is_open:
            paths = None if plugins is None else list(plugins)
            session = _opened(
                device,
                lambda: Session(device, memory=memory, plugins=paths, validate=validate, threads=threads),
            )
            _by_settings[key] = ref(session)
        return session


def rebuild(header: bytes, *buffers: "Any") -> "Table | Column | Schema | Field | EncodedArray":
    """Rebuilds a pickled object in a session of this process on the object's device."""
    return _rebuild(header, buffers, _session_for)


def shared_session(description: bytes) -> Session:
    """Returns the session of this process in which a table that another process shares is opened."""
    device = _unpickle_device.get() or os.environ.get(_VARIABLE) or default_session()._device_of_shared(description)
    session: Session = _opened(device, lambda: session_on(device))
    return session


class unpickle_on:
    """A context manager. Objects that this thread unpickles within it arrive on `device`.

    Outside of it, they arrive on the device that the environment variable CROSSDOCK_UNPICKLE_DEVICE names, or on the
    device on which they were pickled if the variable is not set.

    >>> import pickle
    >>> data = pickle.dumps(table)
    >>> with cd.unpickle_on("cpu"):
    ...     pickle.loads(data).device
    'cpu'
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(_unpickle_device.set(self._device))

    def __exit__(self, *_: object) -> None:
        _unpickle_device.reset(self._tokens.pop())


def _chosen(device: str) -> str:
    return _unpickle_device.get() or os.environ.get(_VARIABLE) or device


def _session_for(device: str) -> Session:
    chosen = _chosen(device)
    return _opened(chosen, lambda: session_on(chosen))


def _opened(device: str, open_session: "Any") -> "Any":
    try:
        return open_session()
    except (DeviceError, UsageError) as error:
        if device == "cpu":
            raise
        raise type(error)(
            f"cannot unpickle on {device}: {error}. To choose another device, set the environment variable {_VARIABLE}, "
            'or unpickle within `with crossdock.unpickle_on("cpu"):`'
        ) from error


def _forget_after_fork() -> None:
    # The driver's state and the parent's threads do not exist after a fork. The child opens a new
    # session.
    global _default, _by_device, _by_settings, _lock
    _default, _by_device, _by_settings, _lock = None, {}, {}, allocate_lock()


os.register_at_fork(after_in_child=_forget_after_fork)
