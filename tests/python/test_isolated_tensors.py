"""The plugin `tensors` reads and writes the same files in a process of its own."""

import numpy as np
import pytest


@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
def test_isolated_plugin_reads_and_writes_the_same_tables(run, tmp_path, save):
    source = tmp_path / ("x.npy" if save is np.save else "x.npz")
    values = np.arange(60_000, dtype=">i4").reshape(20_000, 3)
    save(source, *[values, values[:, 0].astype("M8[D]")][: 1 if save is np.save else 2])
    results = []
    for name, arguments in (("alone", []), ("isolated", ["--isolate=tensors"])):
        table, tensors = tmp_path / f"{name}.arrow", tmp_path / f"{name}{source.suffix}"
        for target in (table, tensors):
            done = run("convert", source, target, "--quiet", *arguments)
            if b"this system cannot" in done.stderr:
                pytest.skip(done.stderr.decode().strip())
            assert done.returncode == 0, done.stderr
        results.append((table.read_bytes(), tensors.read_bytes()))
    assert results[0] == results[1]
