"""Runs instead of a plugin process, and sends malformed messages to the host. sys.argv[1] selects the messages."""

import os
import random
import socket
import struct
import sys
import time

control = socket.socket(fileno=0)
# The first message carries a socket: the channel on which the host sends requests.
_, files, _, _ = socket.recv_fds(control, 8, 4)
channel = socket.socket(fileno=files[0])
request = channel.recv(1 << 16)


def open_channels(count):
    """Opens more channels, on which the host replies to callbacks."""
    pairs = [socket.socketpair() for _ in range(count)]
    socket.send_fds(control, [struct.pack("<II", 0, count)], [host_end.fileno() for _, host_end in pairs])
    return [own_end for own_end, _ in pairs]


def send_files(message):
    """Sends the beginning of a message with as many open files as possible, on as many channels as possible."""
    file = os.open("/dev/full", os.O_RDONLY)
    for one in (channels := open_channels(70)):
        try:
            socket.send_fds(one, [message], [file] * 250)
        except OSError:
            pass
    return channels


what = sys.argv[1]
if what == "part":
    channel.sendall(struct.pack("<II", 1000, 0) + b"x" * 10)
elif what == "head":
    channel.sendall(b"xyz")
elif what == "huge":
    channel.sendall(struct.pack("<II", 0xFFFF_FFFF, 0))
elif what == "files":
    channel.sendall(struct.pack("<II", 0, 5))
elif what == "nothing":
    channel.sendall(struct.pack("<II", 0, 0))
elif what == "echo":
    channel.sendall(request)
elif what == "channels":
    try:
        while True:
            socket.send_fds(control, [struct.pack("<II", 0, 1)], [socket.socketpair()[0].fileno()])
    except OSError:
        pass
elif what == "files without a head":
    channels = send_files(b"x")
elif what == "files without an end":
    channels = send_files(struct.pack("<II", 1000, 250) + b"x" * 10)
elif what == "channel without a head":
    # Sends messages on a second channel until the host closes the connection.
    [busy] = open_channels(1)
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
    response = choices.randbytes(choices.randrange(200))
    channel.sendall(struct.pack("<II", len(response), 0) + response)
time.sleep(1000)
