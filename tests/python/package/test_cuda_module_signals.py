"""`crossdock.cuda`: a signal ends a long copy between two pieces of the copy."""

import ctypes
import gc
import operator
import signal
from functools import partial

import pytest
from crossdock.cuda import Context

PIECE = 256 << 20
BYTES = PIECE + 1000


def ones():
    return b"\1" * BYTES


class StoppedError(Exception):
    pass


@pytest.fixture
def handler():
    def stop(*_):
        raise StoppedError

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


def signalled(call):
    """Calls the function with a pending signal. No Python code runs in between."""
    raise_signal = partial(ctypes.CDLL(None)["raise"], signal.SIGUSR1)
    list(map(operator.call, [raise_signal, call]))


@pytest.fixture
def buffer(cuda_session, handler):
    context = Context(session=cuda_session)
    with context.buffer_from_data(ones()) as buffer:
        yield buffer
    gc.collect()
    assert context.bytes_allocated == 0


def test_signal_ends_copy_to_host_between_pieces(buffer):
    host = bytearray(BYTES)
    with pytest.raises(StoppedError):
        signalled(partial(buffer._memory.read_into, 0, BYTES, host))
    assert host[:PIECE].count(1) == PIECE and not any(host[PIECE:])
    with pytest.raises(StoppedError):
        signalled(partial(buffer._memory.read, 0, BYTES))
    assert buffer.copy_to_host() == ones()


def test_signal_ends_copy_from_host_between_pieces(buffer):
    twos = b"\2" * BYTES
    with pytest.raises(StoppedError):
        signalled(partial(buffer._memory.write, 0, BYTES, memoryview(twos)))
    assert buffer.copy_to_host(PIECE - 1, 2) == b"\2\1"
    assert buffer.copy_from_host(twos) == BYTES and buffer.copy_to_host() == twos


def test_copy_of_one_piece_completes(buffer):
    """The signal's handler runs only after the copy has ended."""
    host = bytearray(PIECE)
    with pytest.raises(StoppedError):
        signalled(partial(buffer._memory.read_into, 0, PIECE, host))
    assert host.count(1) == PIECE
