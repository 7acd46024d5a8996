"""Speaks with a host as the process of a plugin would, and says what no such process says: sys.argv[1] is what."""

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
else:
    choices = random.Random(int(what))
    answer = choices.randbytes(choices.randrange(200))
    lane.sendall(struct.pack("<II", len(answer), 0) + answer)
time.sleep(1000)
