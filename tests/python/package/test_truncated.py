"""Another program truncates a mapped file. The call that reads the file raises, and never returns zeros
instead of the data."""

import signal
import subprocess
import sys
import textwrap

import pytest

ROWS = 300_000

PRELUDE = f"""
import io, os, sys
import pyarrow as pa
import crossdock

def table(path, rows={ROWS}):
    values = pa.array([None if i % 7 == 0 else i for i in range(rows)], pa.int64())
    texts = pa.array([str(i) for i in range(rows)], pa.string())
    batch = pa.record_batch([values, texts, values], ["n", "text", "last"])
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)

path = sys.argv[1]
table(path)
session = crossdock.Session(sys.argv[2])
"""

OPERATIONS = {
    "write_ipc to an object": "t.write_ipc(io.BytesIO())",
    "write_ipc to a file": "t.write_ipc(path + '.copy')",
    "combine_batches": "t.combine_batches()",
    "sliced and compact": "t.slice(5).compact()",
    "combine_chunks of a column": "t['last'].combine_chunks()",
    "validate": "crossdock.Session('cpu', validate='full').from_arrow(t)",
}


def run(code, *arguments):
    code = PRELUDE + textwrap.dedent(code)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_truncated_file_raises_in_the_reading_call(tmp_path, operation):
    code = f"""
    t = session.read_ipc(path)
    before = os.path.getsize(path)
    os.truncate(path, 8192)
    for _ in range(2):
        try:
            {OPERATIONS[operation]}
        except (crossdock.DataError, OSError) as error:
            print(type(error).__name__, error)
        else:
            print("nothing was raised")
    os.truncate(path, before)
    print("alive", file=sys.stderr)
    """
    out = run(code, tmp_path / "a.arrow", "cpu")
    lines = out.stdout.splitlines()
    assert (out.returncode, len(lines)) == (0, 2), (out.stdout, out.stderr)
    for line in lines:
        # If a large buffer is written, the kernel reads the page, and not this process. The
        # kernel's error is reported as "cut short".
        assert "was truncated while it was mapped" in line or "cut short" in line, line


def test_error_names_the_file_the_sizes_and_the_remedy(tmp_path):
    path = tmp_path / "named.arrow"
    code = """
    t = session.read_ipc(path)
    size = os.path.getsize(path)
    os.truncate(path, 4096)
    try:
        t.combine_batches()
    except OSError as error:
        print(size)
        print(error)
    """
    out = run(code, path, "cpu")
    size, message = out.stdout.splitlines()
    for part in (str(path), f"expected {size} bytes", "got 4096", "turn memory mapping off"):
        assert part in message, message


def test_read_of_truncated_mapping_outside_a_crossdock_call_gets_sigbus(tmp_path):
    code = """
    import pyarrow.compute as pc
    t = session.read_ipc(path)
    column = pa.chunked_array(t["last"])
    os.truncate(path, 4096)
    try:
        t.combine_batches()
    except OSError:
        print("raised", flush=True)
    print(pc.sum(column))
    """
    out = run(code, tmp_path / "b.arrow", "cpu")
    assert (out.returncode, out.stdout) == (-signal.SIGBUS, "raised\n"), (out.stdout, out.stderr)


def test_earlier_sigbus_handler_receives_signals_for_other_files(tmp_path):
    code = """
    import faulthandler, mmap
    faulthandler.enable()
    t = session.read_ipc(path)
    other = path + ".other"
    with open(other, "wb") as file:
        file.write(bytes(100_000))
    file = open(other, "r+b")
    mapped = mmap.mmap(file.fileno(), 0)
    os.truncate(other, 0)
    print(mapped[50_000])
    """
    out = run(code, tmp_path / "c.arrow", "cpu")
    assert out.returncode == -signal.SIGBUS, (out.stdout, out.stderr)
    assert "Fatal Python error: Bus error" in out.stderr


def test_table_read_without_mapping_survives_truncation(tmp_path):
    code = """
    t = session.read_ipc(path, map=False)
    os.truncate(path, 4096)
    print(pa.table(t.combine_batches())["last"].null_count)
    """
    out = run(code, tmp_path / "d.arrow", "cpu")
    assert (out.returncode, out.stdout) == (0, f"{2 * -(-ROWS // 7)}\n"), (out.stdout, out.stderr)
