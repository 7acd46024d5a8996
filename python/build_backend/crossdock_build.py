"""Builds the wheel from maturin's metadata and one Cargo build of the extension module, the plugins and the
command, which share crates. maturin itself would build the module separately from the plugins.

Settings (`pip install ./python --config-settings KEY=VALUE`):

    profile    Cargo's profile, "release" by default; "dev" builds in less time, and the built code runs slower
    documents  a folder with notices (*.txt), and with lists of components (sboms/*.json), for the wheel's metadata

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
import stat
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

import crossdock_sdist
import maturin

PYTHON = pathlib.Path(__file__).resolve().parents[1]
ROOT = PYTHON.parent
PLUGINS = "crossdock/plugins/"
MODULE_CRATE = "crossdock-python"
# The module uses the stable ABI, and works with CPython 3.11 and newer. The free-threaded build of
# CPython 3.14 has no stable ABI.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
MODULE = "crossdock/_native" + (sysconfig.get_config_var("EXT_SUFFIX") if FREE_THREADED else ".abi3.so")
COMMAND_CRATE = "crossdock-cli"
COMMAND = "crossdock/bin/crossdock"

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel


def get_requires_for_build_editable(config_settings=None):
    """Returns the build requirements, which are the same as for a wheel."""
    return get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """Prepares the metadata, which is the same as for a wheel."""
    return prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel with the plugins in crossdock/plugins/ and the command in crossdock/bin/, and returns its file
    name."""
    profile = _profile(config_settings)
    with tempfile.TemporaryDirectory() as folder:
        module, command, *plugins = [_stripped(file, folder) for file in _build(profile)]
        members = {path.relative_to(PYTHON).as_posix(): path.read_bytes() for path in _sources()}
        members[MODULE] = module.read_bytes()
        members[COMMAND] = command.read_bytes()
        members |= {PLUGINS + plugin.name: plugin.read_bytes() for plugin in plugins}
        info, metadata = _metadata(folder, config_settings)
        metadata |= _documents(config_settings, info, metadata)
        tag = _tag(metadata[f"{info}/WHEEL"].decode(), [module, command, *plugins])
        wheel = metadata[f"{info}/WHEEL"].decode()
        metadata[f"{info}/WHEEL"] = re.sub("^Tag: .*$", f"Tag: {tag}", wheel, flags=re.MULTILINE).encode()
        name = f"{info.removesuffix('.dist-info')}-{tag}.whl"
        _write(pathlib.Path(wheel_directory) / name, members | metadata, f"{info}/RECORD")
        return name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds a wheel that refers to the development layout of `cargo xtask python`. Changes of Python files
    take effect at once, changes of Rust code after the next `cargo xtask python`."""
    flags = ["--release"] if _profile(config_settings) == "release" else []
    layout = _run([_cargo(), "xtask", "python", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        info, members = _metadata(folder, config_settings)
        members["crossdock.pth"] = f"{layout}\n".encode()
        name = f"{info.removesuffix('.dist-info')}-{_tag(members[f'{info}/WHEEL'].decode(), [])}.whl"
        _write(pathlib.Path(wheel_directory) / name, members, f"{info}/RECORD")
        return name


def build_sdist(sdist_directory, config_settings=None):
    """Builds a source distribution, which contains the repository and the sources of all crates that the wheel needs.
    Returns its file name."""
    with tempfile.TemporaryDirectory() as folder:
        info, metadata = _metadata(folder, config_settings)
    name = info.removesuffix(".dist-info")
    to = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
    crossdock_sdist.write(to, ROOT, name, metadata[f"{info}/METADATA"], _packages(), _cargo())
    return to.name


def _profile(config_settings):
    profile = (config_settings or {}).get("profile", "release")
    if not isinstance(profile, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", profile):
        raise ValueError(f"profile={profile!r}: expected the name of a Cargo profile, such as release or dev")
    return profile


def _cargo():
    return os.environ.get("CARGO", "cargo")


def _run(command, **options):
    try:
        return subprocess.run(command, check=True, **options)
    except FileNotFoundError as error:
        raise RuntimeError(f"cannot find {command[0]}: the build needs Rust's cargo on the PATH") from error


def _packages():
    """Returns the ids and names of the packages that the wheel contains."""
    command = [_cargo(), "metadata", "--no-deps", "--format-version", "1"]
    metadata = json.loads(_run(command, cwd=ROOT, stdout=subprocess.PIPE).stdout)
    return {
        package["id"]: package["name"]
        for package in metadata["packages"]
        if package["name"] == COMMAND_CRATE
        or any("cdylib" in target["kind"] for target in package["targets"])
        and (package["name"] == MODULE_CRATE or pathlib.Path(package["manifest_path"]).is_relative_to(ROOT / "plugins"))
    }


def _build(profile):
    """Builds the libraries and the command, and returns their paths: the module, the command, the plugins."""
    packages = _packages()
    selection = [flag for name in packages.values() for flag in ("-p", name)]
    command = [_cargo(), "build", "--profile", profile, "--message-format", "json-render-diagnostics", *selection]
    # Crates that use the stable ABI need no other build for another interpreter.
    environment = os.environ | ({"PYO3_PYTHON": sys.executable} if FREE_THREADED else {})
    output = _run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment).stdout
    libraries = {}
    for message in map(json.loads, output.splitlines()):
        if message["reason"] != "compiler-artifact" or message["package_id"] not in packages:
            continue
        name = packages[message["package_id"]]
        if "cdylib" in message["target"]["kind"]:
            (library,) = (path for path in message["filenames"] if path.endswith(".so"))
            libraries[name] = pathlib.Path(library)
        elif name == COMMAND_CRATE and message["executable"]:
            libraries[name] = pathlib.Path(message["executable"])
    if len(libraries) != len(packages) or not {MODULE_CRATE, COMMAND_CRATE} <= libraries.keys():
        raise RuntimeError(f"expected one file for each of {sorted(packages.values())}, got {libraries}")
    return [libraries.pop(MODULE_CRATE), libraries.pop(COMMAND_CRATE), *sorted(libraries.values())]


def _sources():
    """Returns the source files of the package in the repository."""
    files = (path for path in (PYTHON / "crossdock").rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts and path.suffix != ".so")


def _metadata(folder, config_settings):
    """Returns the name of the metadata folder of the wheel, and the files in that folder."""
    info = prepare_metadata_for_build_wheel(folder, config_settings)
    metadata = pathlib.Path(folder, info)
    files = (path for path in metadata.rglob("*") if path.is_file())
    return info, {f"{info}/{path.relative_to(metadata).as_posix()}": path.read_bytes() for path in files}


def _documents(config_settings, info, metadata):
    """Returns additional files for the metadata folder: notices (PEP 639) and lists of components (PEP 770)."""
    if "documents" not in (config_settings or {}):
        return {}
    folder = pathlib.Path(config_settings["documents"])
    notices = {f"{info}/licenses/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.txt"))}
    sboms = {f"{info}/sboms/{path.name}": path.read_bytes() for path in sorted(folder.glob("sboms/*.json"))}
    if not notices or not sboms:
        raise ValueError(f"documents={folder}: expected notices (*.txt) and lists of components (sboms/*.json)")
    names = "".join(f"License-File: {name.rpartition('/')[2]}\n" for name in notices)
    head, separator, rest = metadata[f"{info}/METADATA"].decode().partition("License-File: ")
    if not separator:
        raise RuntimeError("the metadata has no License-File")
    return {**notices, **sboms, f"{info}/METADATA": (head + names + separator + rest).encode()}


def _stripped(library, folder):
    """Copies a library to the folder. Removes debug information if `strip` is installed, but keeps plugin
    metadata."""
    copy = pathlib.Path(shutil.copy(library, folder))
    if shutil.which("strip"):
        _run(["strip", "--strip-unneeded", copy])
    copy.chmod(0o755)
    return copy


def _tag(wheel, libraries):
    """Returns the tag of maturin's metadata, with the oldest glibc version that the libraries can use (PEP
    600)."""
    (tag,) = re.findall(r"^Tag: (.*)$", wheel, re.MULTILINE)
    needed = [int(minor) for library in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())]
    return re.sub(r"-linux_", f"-manylinux_2_{max(needed)}_", tag) if needed else tag


def _write(to, members, record):
    """Writes a wheel. Its last member is the record, which lists all other members."""
    members.pop(record, None)
    rows = io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([name, f"sha256={digest}", len(content)])
    lines.writerow([record, "", ""])
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, record: rows.getvalue().encode()}.items():
            # Constant times make the wheel reproducible.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            # pip keeps the executable bit only of regular files.
            mode = 0o755 if name.endswith(".so") or name == COMMAND else 0o644
            entry.external_attr = (stat.S_IFREG | mode) << 16
            archive.writestr(entry, content)
