"""Builds the plugin in C, examples/c-plugin, as its users do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "examples" / "c-plugin"


def built_csv_plugin(folder):
    """Builds the plugin in this folder, and returns its path."""
    if not shutil.which("make") or not (SOURCE.parents[1] / "plugin-api").exists():
        pytest.skip("building examples/c-plugin needs make and a checkout of the repository")
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL")}
    command = ["make", "--silent", "--directory", SOURCE, f"OUT={folder}"]
    subprocess.run(command, check=True, env=environment)
    return folder / "libcrossdock_csv_plugin.so"
