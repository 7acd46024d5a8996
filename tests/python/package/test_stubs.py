"""Type stubs: a correct program has no type error, and each misuse has one. `cargo xtask test` compares the
stubs with the module, using mypy's stubtest."""

import os
import pathlib
import subprocess
import sys

import crossdock as cd
import pytest

pytest.importorskip("mypy")

GOOD = """
import io
import pathlib
import crossdock as cd

with cd.Session("cuda:0", memory="32GiB", plugins=[pathlib.Path("a.so")], validate="full", threads=4) as session:
    table: cd.Table = session.read_ipc("flights.arrow")
    table = session.read_ipc(pathlib.Path("flights.arrow"))
    table = session.read_ipc(b"bytes")
    table = session.read_ipc(io.BytesIO(b"bytes"))
    table = session.read("flights.csv", "csv", progress=True, header="yes")
    column: cd.Column = table["distance"]
    column = table[0].slice(3).to("cpu").chunk(0)
    again: cd.Table = session.from_arrow(table.select(["a", 1]).slice(0, 10).to("cpu"))
    again = session.from_arrow(column, schema=table.schema)
    tensor: cd.Column = session.from_dlpack(column)
    tensors: cd.Table = session.from_dlpack({"a": column, "b": column}, bools="bits")
    tensors = session.from_dlpack([column, column], masks=[column, None])
    array: cd.EncodedArray = session.encoded(b"bytes")
    array = session.encoded(session.encoded(array).to_bytes())
    decoded: cd.Column = array.decode() if len(array) else session.from_vortex(array)
    names: list[str] = [array.encoding, array.type]
    names = table.schema.names + [field.name for field in (table.schema[0], table.schema["a"])]
    verdicts: list[str] = [plan["verdict"] for plan in table.plan("dlpack", nulls="mask")]
    table.write_ipc(io.BytesIO(), compression="lz4", form="stream", progress=lambda done, total: None)
    table.write("out.arrow", progress=False)
    used: int = session.memory_used()["arrow-ipc"]["cpu"]
    plugins: list[str] = session.encodings()[array.encoding]
    html: str = table._repr_html_()

error: type[ValueError] = cd.UsageError
default: cd.Session = cd.default_session()
"""

WRONG = [
    "cd.Session(device=0)",
    'cd.Session("cpu", "32GiB")',
    'cd.Session(validate="maybe")',
    "session.read_ipc(7)",
    "session.from_arrow(7)",
    "session.from_dlpack(7)",
    'session.from_dlpack(column, bools="nibbles")',
    "session.encoded(table)",
    "table[1.5]",
    "table.num_rows = 7",
    'table.write_ipc("x", "lz4")',
    'table.write_ipc("x", compression="brotli")',
    "table.write_ipc(7)",
    "table.write('x', progress=7)",
    "session.encodings()[7]",
    "column.name.nothing",
    'table.plan("dlpack")[0]["nothing"]',
]


HEAD = "import crossdock as cd\n\ndef use(session: cd.Session, table: cd.Table, column: cd.Column) -> None:\n"


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """Returns mypy's messages as lines of "program: line: text"."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "good.py").write_text(GOOD)
    (folder / "wrong.py").write_text(HEAD + "".join(f"    {line}\n" for line in WRONG))
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(cd.__file__).parents[1])}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "good.py", "wrong.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def test_correct_program_has_no_type_error(errors):
    assert [error for error in errors if not error.startswith("wrong.py")] == []


def test_each_misuse_has_a_type_error(errors):
    lines = {int(error.split(":")[1]) - 4 for error in errors if error.startswith("wrong.py")}
    assert lines == set(range(len(WRONG))), [line for i, line in enumerate(WRONG) if i not in lines]
