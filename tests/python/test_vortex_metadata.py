"""The command reads the metadata of Vortex files, and warns of metadata that it leaves out."""

import json

from conftest import ROOT

FILE = ROOT / "tests" / "python" / "vortex" / "metadata.vortex"


def test_metadata_that_is_not_text_is_left_out_with_a_warning(tmp_path, run):
    path = tmp_path / "a.vortex"
    path.write_bytes(FILE.read_bytes().replace(b"onezwei", b"\xff\xfe\xfdzwei"))
    done = run("show", path, "--json")
    assert done.returncode == 0, done.stderr
    assert b"the metadata 'first' is left out: it is not UTF-8" in done.stderr
    shown = json.loads(done.stdout)
    assert shown["metadata"] == {"fir\u00fe": "zwei \u00fc", "empty": ""}
    assert [row["a"] for row in shown["rows"]] == [1, 2, 3]
