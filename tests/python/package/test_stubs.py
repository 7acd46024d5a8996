"""Type stubs: correct programs and those of the documentation have no type error, and each misuse has one.
`cargo xtask test` compares the stubs with the module, using mypy's stubtest."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import crossdock as cd
import pytest
from test_package_docs import ALL, BEGIN, START_ON_CPU, START_ON_GPU

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
    table = table.filter([("a", ">", 1), (["b", "c"], "==", "x")]).filter([True, None]).filter(table["a"])
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

# Libraries of which each has stubs that declare the methods of the protocols.
EXCHANGE = """
from typing import assert_type

import arro3.core as arro3
import crossdock as cd
import numpy as np

class Series:
    dtype = "int64"
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Unknown:
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def exports(table: cd.Table, column: cd.Column, scan: cd.Scan) -> None:
    arro3.Table.from_arrow(table)
    arro3.RecordBatchReader.from_arrow(scan)
    arro3.Array.from_arrow(column)
    np.from_dlpack(column)
    np.asarray(column)

def tensors(session: cd.Session, column: cd.Column) -> None:
    assert_type(session.from_dlpack(np.arange(3)), cd.Column)
    assert_type(session.from_dlpack({"a": np.from_dlpack(column), "b": np.zeros(3, bool)}), cd.Table)

def tables(
    session: cd.Session, table: cd.Table, scan: cd.Scan, other: arro3.Table, batch: arro3.RecordBatch,
    reader: arro3.RecordBatchReader,
) -> None:
    assert_type(session.from_arrow(table), cd.Table)
    assert_type(session.from_arrow(scan), cd.Table)
    assert_type(session.from_arrow(other), cd.Table)
    assert_type(session.from_arrow(batch), cd.Table)
    assert_type(session.from_arrow(reader), cd.Table)
    assert_type(session.from_arrow(table, as_column=True), cd.Column)

def columns(session: cd.Session, column: cd.Column, array: arro3.Array, chunks: arro3.ChunkedArray) -> None:
    assert_type(session.from_arrow(column), cd.Column)
    assert_type(session.from_arrow(array), cd.Column)
    assert_type(session.from_arrow(chunks), cd.Column)
    assert_type(session.from_arrow(Series()), cd.Column)
    assert_type(session.from_arrow(Unknown()), cd.Table | cd.Column)
    assert_type(session.from_capsules(*column.__arrow_c_array__()), cd.Table | cd.Column)
    assert_type(session.from_capsules(*column.__arrow_c_array__(), as_column=True), cd.Column)
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
    'table.filter([("a", "~", 1)])',
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


# The folder of the package.
PACKAGES = str(pathlib.Path(cd.__file__).parents[1])
# pyarrow has no stubs, and other libraries need not be installed.
LENIENT = ["--disable-error-code=import-untyped", "--disable-error-code=import-not-found"]


def write_programs(folder):
    wrong = HEAD + "".join(f"    {line}\n" for line in WRONG)
    programs = {
        "good": GOOD,
        "exchange": EXCHANGE,
        "start_cpu": START_ON_CPU,
        "start_gpu": START_ON_GPU,
        "wrong": wrong,
    }
    for name, program in programs.items():
        (folder / f"{name}.py").write_text(program)


def mypy(folder, *options):
    """Returns the messages about the programs in the folder, as lines of "program: line: text"."""
    environment = os.environ | {"PYTHONPATH": PACKAGES}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", folder / "cache", *LENIENT, *options]
    command += sorted(file.name for file in folder.glob("*.py"))
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def pyright(folder):
    """Returns the messages in the form of those of mypy. basedpyright is pyright, packaged with Node.js."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed")
    config = {"extraPaths": [PACKAGES], "reportMissingImports": False, "reportMissingModuleSource": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(config | {"typeCheckingMode": "standard"}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    shown = json.loads(done.stdout)["generalDiagnostics"]
    return [
        f"{pathlib.Path(error['file']).name}:{error['range']['start']['line'] + 1}: {error['message']}"
        for error in shown
        if error["severity"] == "error"
    ]


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda check: check.__name__)
def errors(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    write_programs(folder)
    return request.param(folder)


def test_correct_programs_have_no_type_error(errors):
    assert [error for error in errors if not error.startswith("wrong.py")] == []


def test_each_misuse_has_a_type_error(errors):
    lines = {int(error.split(":")[1]) - 4 for error in errors if error.startswith("wrong.py")}
    assert lines == set(range(len(WRONG))), [line for i, line in enumerate(WRONG) if i not in lines]


def recipe(message):
    """The title of the recipe of a message."""
    return ALL[int(message.split(".")[0].split("_")[1])][0]


@pytest.mark.parametrize("check", [mypy, pyright])
def test_recipes_have_no_type_error(check, tmp_path):
    for i, (_, _, program) in enumerate(ALL):
        (tmp_path / f"recipe_{i}.py").write_text(BEGIN + program)
    # Some recipes contain functions without annotations, or a subclass of an untyped class.
    lenient = ["--allow-untyped-defs", "--allow-untyped-calls", "--allow-subclassing-any"]
    errors = mypy(tmp_path, *lenient) if check is mypy else pyright(tmp_path)
    if importlib.util.find_spec("numba") is None:
        # pyright ignores decorators without a type.
        errors = [error for error in errors if "is not subscriptable" not in error]
    assert [f"{recipe(error)}: {error}" for error in errors] == []
