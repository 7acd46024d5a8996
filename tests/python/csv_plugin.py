"""The plugin in plain C, examples/c-plugin, built as its users build it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "c-plugin"


def built_csv_plugin(folder):
    """Its file, in this folder."""
    if not shutil.which("make") or not (SOURCE.parents[1] / "plugin-api").exists():
        pytest.skip("there is no make to build examples/c-plugin with, or no checkout around it")
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--silent", "--directory", SOURCE, f"OUT={folder}"]
    subprocess.run(command, check=True, env=environment)
    return folder / "libcrossdock_csv_plugin.so"
