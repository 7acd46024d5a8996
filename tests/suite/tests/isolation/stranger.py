"""Speaks with a host as the process of a plugin would, and says what no such process says: sys.argv[1] is what."""

import os
import random
import socket
import struct
import sys
import time

control = socket.socket(fileno=0)
# The first message brings a lane, on which the host asks.
_, files, _, _ = socket.recv_fds(control, 8, 4)
lane = socket.socket(fileno=files[0])
question = lane.recv(1 << 16)



def lanes(count):
    """As many more lanes, on which the host answers."""
    pairs = [socket.socketpair() for _ in range(count)]
    socket.send_fds(control, [struct.pack("<II", 0, count)], [theirs.fileno() for _, theirs in pairs])
    return [ours for ours, _ in pairs]


def hoard(message):
    """Sends what begins a message with as many open files as can be, on as many lanes as can be."""
    file = os.open("/dev/full", os.O_RDONLY)
    for one in (held := lanes(70)):
        try:
            socket.send_fds(one, [message], [file] * 250)
        except OSError:
            pass
    return held


what = sys.argv[1]
if what == "part":
    lane.sendall(struct.pack("<II", 1000, 0) + b"x" * 10)
elif what == "head":
    lane.sendall(b"xyz")
elif what == "huge":
    lane.sendall(struct.pack("<II", 0xFFFF_FFFF, 0))
elif what == "files":
    lane.sendall(struct.pack("<II", 0, 5))
elif what == "nothing":
    lane.sendall(struct.pack("<II", 0, 0))
elif what == "echo":
    lane.sendall(question)
elif what == "lanes":
    try:
        while True:
            socket.send_fds(control, [struct.pack("<II", 0, 1)], [socket.socketpair()[0].fileno()])
    except OSError:
        pass
elif what == "files of no head":
    held = hoard(b"x")
elif what == "files of no end":
    held = hoard(struct.pack("<II", 1000, 250) + b"x" * 10)
elif what == "no head of a lane":
    # It gives signs of life all the while, until the host has enough of it.
    [busy] = lanes(1)
    control.sendall(b"xyz")
    control.settimeout(0.01)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        busy.sendall(struct.pack("<II", 0, 0))
        busy.recv(1 << 16)
        try:
            if control.recv(1) == b"":
                os._exit(7)
        except TimeoutError:
            pass
    os._exit(8)
else:
    choices = random.Random(int(what))
    answer = choices.randbytes(choices.randrange(200))
    lane.sendall(struct.pack("<II", len(answer), 0) + answer)
time.sleep(1000)
