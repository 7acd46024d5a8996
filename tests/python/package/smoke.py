"""Checks an installed package, without other libraries: `python smoke.py SAMPLE.arrow`."""

import io
import pathlib
import subprocess
import sys
import tempfile

import crossdock as cd


def main(sample):
    here = pathlib.Path(cd.__file__).parent
    assert here.is_relative_to(sys.prefix), f"{here} is not what was installed in {sys.prefix}"
    for name in ("py.typed", "_native.pyi"):
        assert (here / name).is_file(), f"{name} is missing"
    with cd.Session() as session:
        assert {"arrow-ipc", "arrow-c-device", "dlpack"} <= set(session.plugins), session.plugins
        mapped = pathlib.Path("/proc/self/maps").read_text()
        table = session.read_ipc(sample)
        assert table.num_rows > 1000 and str(table.num_rows) in repr(table)
        sink = io.BytesIO()
        table.write_ipc(sink, compression="zstd")
        again = session.read_ipc(sink.getvalue())
        assert again.schema == table.schema and again.num_rows == table.num_rows
        for through in ("arrow-c-device", "dlpack"):
            assert table.plan(through)
        numbers = table.select([plan["name"] for plan in table.plan("dlpack") if plan["verdict"] == "zero-copy"])
        assert numbers.num_columns and len(session.from_dlpack(numbers[0].combine_chunks())) == table.num_rows
        assert session.from_arrow(table).schema == table.schema
        with tempfile.TemporaryDirectory() as folder:
            table.write(pathlib.Path(folder, "out.arrows"))
            assert session.read(pathlib.Path(folder, "out.arrows")).num_rows == table.num_rows
    assert f"{here}/plugins/" in pathlib.Path("/proc/self/maps").read_text(), mapped
    command = pathlib.Path(sys.prefix, "bin", "crossdock")
    shown = subprocess.run([command, "show", sample, "--rows", "1"], capture_output=True, text=True, check=True)
    assert shown.stdout, "the command shows nothing"
    print(f"crossdock {cd.__version__} in {here}: works")


if __name__ == "__main__":
    main(sys.argv[1])
