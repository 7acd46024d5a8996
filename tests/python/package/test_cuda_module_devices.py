"""`crossdock.cuda` on several devices, in a separate process, because the simulated driver reads the number
of devices when it starts."""

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

# To the other device and back. Each copy waits for the previous one on the device, not on the host.
copied = other.new_buffer(len(data))
copied.copy_from_device(one.buffer_from_data(data))
back = one.buffer_from_data(copied, 5, 1000)
assert (copied.context.device_number, back.context.device_number) == (1, 0)
assert back.copy_to_host() == data[5:1005]
assert copied.copy_to_host() == data

# Memory of another device is copied or rejected.
for rejected in (
    lambda: one.buffer_from_object(copied),
    lambda: one.foreign_buffer(copied.address, 10, base=copied),
    lambda: one.buffer_from_object(type("Array", (), {"__cuda_array_interface__": copied.__cuda_array_interface__})()),
    lambda: Context(1, session=one.session),
):
    try:
        rejected()
    except cd.UsageError as error:
        assert "cuda:0" in str(error), error
        assert "cuda:1" in str(error) or "(2, 1)" in str(error) or "device_number=1" in str(error), error
    else:
        raise AssertionError("the call was accepted")

# The source is closed during the copy.
target = one.new_buffer(len(data))
source = other.buffer_from_data(data)
target.copy_from_device(source)
source.close()
assert target.copy_to_host() == data
copied.close()
assert other.bytes_allocated == 0, other.bytes_allocated
print("two")
"""


@pytest.mark.parametrize("peer", ["0", "1"], ids=["no peers", "peers"])
def test_copies_between_devices(cuda, peer):
    environment = {**os.environ, "CROSSDOCK_SIM_CUDA_DEVICES": "2", "CROSSDOCK_SIM_CUDA_PEER": peer}
    # Objects that live until the interpreter exits are no leaks.
    environment["CROSSDOCK_SIM_CUDA_LEAKS"] = "ignore"
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    if done.stdout == "one\n":
        pytest.skip("this machine has one CUDA device")
    assert done.stdout == "two\n"
