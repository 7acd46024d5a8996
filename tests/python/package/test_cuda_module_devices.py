"""`crossdock.cuda` on several devices: in a process of its own, since a simulated driver is told at its start how many it has."""

import os
import subprocess
import sys

import pytest

CODE = """
import sys
import crossdock as cd
from crossdock.cuda import Context, get_num_devices

if get_num_devices() < 2:
    print("one")
    sys.exit()

one, other = Context(0), Context(1)
assert (one.device_number, other.device_number) == (0, 1)
assert one.session is not other.session
data = bytes(i % 251 for i in range(100_000))

# To the other device and back, each copy after the one before, which nobody waits for.
there = other.new_buffer(len(data))
there.copy_from_device(one.buffer_from_data(data))
back = one.buffer_from_data(there, 5, 1000)
assert (there.context.device_number, back.context.device_number) == (1, 0)
assert back.copy_to_host() == data[5:1005]
assert there.copy_to_host() == data

# What lies on another device is copied or refused, and not taken for one's own.
for refused in (
    lambda: one.buffer_from_object(there),
    lambda: one.foreign_buffer(there.address, 10, base=there),
    lambda: one.buffer_from_object(type("Array", (), {"__cuda_array_interface__": there.__cuda_array_interface__})()),
    lambda: Context(1, session=one.session),
):
    try:
        refused()
    except cd.UsageError as error:
        assert "cuda:0" in str(error), error
        assert "cuda:1" in str(error) or "(2, 1)" in str(error) or "device_number=1" in str(error), error
    else:
        raise AssertionError("it was taken")

# The source goes while it is still being read.
target = one.new_buffer(len(data))
source = other.buffer_from_data(data)
target.copy_from_device(source)
source.close()
assert target.copy_to_host() == data
there.close()
assert other.bytes_allocated == 0, other.bytes_allocated
print("two")
"""


@pytest.mark.parametrize("peer", ["0", "1"], ids=["apart", "peers"])
def test_buffers_go_from_device_to_device(cuda, peer):
    environment = {**os.environ, "CROSSDOCK_SIM_CUDA_DEVICES": "2", "CROSSDOCK_SIM_CUDA_PEER": peer}
    # What the interpreter's end leaves to the system is no leak.
    environment["CROSSDOCK_SIM_CUDA_LEAKS"] = "ignore"
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    if done.stdout == "one\n":
        pytest.skip("this machine has one CUDA device")
    assert done.stdout == "two\n"
