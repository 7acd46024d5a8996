"""Builds the wheel: the plugin's library in the folder of the package `crossdock_parquet`, and an entry point.

Settings (`pip install ./plugins/parquet/python --config-settings KEY=VALUE`):

    profile   Cargo's profile, "release" by default; "dev" builds in less time, and the built code runs slower

CARGO and CARGO_TARGET_DIR are respected. Nothing is written outside Cargo's target folder and pip's folders.
"""

import base64
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
import tempfile
import tomllib
import zipfile

PYTHON = pathlib.Path(__file__).resolve().parents[1]
PLUGIN = PYTHON.parent
PACKAGE = "crossdock_parquet"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel, and returns its file name."""
    with tempfile.TemporaryDirectory() as folder:
        library = _stripped(_build_library(_profile(config_settings)), folder)
        content = library.read_bytes()
    tag = f"py3-none-{_platform(content)}"
    project, version = _project()
    info = f"{PACKAGE}-{version}.dist-info"
    members = {
        path.relative_to(PYTHON).as_posix(): path.read_bytes() for path in sorted((PYTHON / PACKAGE).glob("*.py"))
    }
    members[f"{PACKAGE}/{library.name}"] = content
    members[f"{info}/METADATA"] = _metadata(project, version)
    members[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: {PACKAGE}_build\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    groups = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    members[f"{info}/entry_points.txt"] = "\n".join(groups).encode()
    name = f"{PACKAGE}-{version}-{tag}.whl"
    _write(pathlib.Path(wheel_directory) / name, members, f"{info}/RECORD")
    return name


def build_sdist(sdist_directory, config_settings=None):
    """Raises an error, because the plugin cannot be built without Crossdock's crates."""
    raise NotImplementedError(
        "crossdock-parquet has no source distribution, because the build needs the whole repository: use a wheel, or a "
        "checkout: pip install ./plugins/parquet/python"
    )


def _profile(config_settings):
    profile = (config_settings or {}).get("profile", "release")
    if not isinstance(profile, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", profile):
        raise ValueError(f"profile={profile!r}: expected the name of a Cargo profile, such as release or dev")
    return profile


def _project():
    """Returns the section `project` of pyproject.toml, and the version of the plugin."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    return project, tomllib.loads((PLUGIN / "Cargo.toml").read_text())["package"]["version"]


def _build_library(profile):
    """Builds the plugin, and returns the path of its library."""
    command = [os.environ.get("CARGO", "cargo"), "build", "--locked", "--profile", profile]
    command += ["--message-format", "json-render-diagnostics"]
    try:
        output = subprocess.run(command, cwd=PLUGIN, check=True, stdout=subprocess.PIPE, text=True).stdout
    except FileNotFoundError as error:
        raise RuntimeError(f"cannot find {command[0]}: the build needs Rust's cargo on the PATH") from error
    libraries = [
        path
        for message in map(json.loads, output.splitlines())
        if message["reason"] == "compiler-artifact" and "cdylib" in message["target"]["kind"]
        for path in message["filenames"]
        if path.endswith(".so")
    ]
    if len(libraries) != 1:
        raise RuntimeError(f"expected one library, got {libraries}")
    return libraries[0]


def _stripped(library, folder):
    """Copies a library to the folder. Removes debug information if `strip` is installed, but keeps plugin metadata."""
    copy = pathlib.Path(shutil.copy(library, folder))
    if shutil.which("strip"):
        subprocess.run(["strip", "--strip-unneeded", copy], check=True)
    return copy


def _platform(library):
    """Returns the platform's tag, with the oldest glibc version that the library can use (PEP 600)."""
    machine = sysconfig.get_platform().rpartition("-")[2]
    needed = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)]
    return f"manylinux_2_{max(needed)}_{machine}" if needed else f"linux_{machine}"


def _metadata(project, version):
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {dependency}" for dependency in project["dependencies"]),
        "Description-Content-Type: text/markdown",
        "",
        (PYTHON / project["readme"]).read_text(),
    ]
    return "\n".join(lines).encode()


def _write(to, members, record):
    """Writes a wheel. Its last member is the record, which lists all other members."""
    rows = io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([name, f"sha256={digest}", len(content)])
    lines.writerow([record, "", ""])
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, record: rows.getvalue().encode()}.items():
            # Constant times make the wheel reproducible. Only libraries are executable.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, content)
