"""Builds the wheel: maturin makes the module, and what maturin does not build, the plugins, is put in beside it.

Settings (`pip install ./python --config-settings KEY=VALUE`):

    profile   Cargo's profile: "release" if nothing is said; "dev" builds faster, what runs slower

CARGO and CARGO_TARGET_DIR are honoured, and nothing is written outside of Cargo's target folder and pip's own.
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
import sys
import tempfile
import zipfile

import maturin

PYTHON = pathlib.Path(__file__).resolve().parents[1]
ROOT = PYTHON.parent
PLUGINS = "crossdock/plugins/"
MODULE_CRATE = "crossdock-python"
MODULE = "crossdock/_native.abi3.so"

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel


def get_requires_for_build_editable(config_settings=None):
    """Nothing more than for a wheel."""
    return get_requires_for_build_wheel(config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    """The same as a wheel's."""
    return prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel with the plugins in crossdock/plugins/. Gives the name of the file."""
    profile = _profile(config_settings)
    with tempfile.TemporaryDirectory() as folder:
        plugins = [_stripped(plugin, folder) for plugin in _build_plugins(profile)]
        command = ["maturin", "pep517", "build-wheel", "-i", sys.executable, "--out", folder, "--auditwheel", "check"]
        _run([*command, "--profile", profile], stdout=sys.stderr)
        (wheel,) = pathlib.Path(folder).glob("*.whl")
        _check_tag(wheel.name, plugins)
        members = {PLUGINS + plugin.name: plugin.read_bytes() for plugin in plugins}
        _with_members(wheel, pathlib.Path(wheel_directory) / wheel.name, members)
        return wheel.name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that leads to the development layout of `cargo xtask python`: a change of a Python file is there at once, one
    of Rust after the next `cargo xtask python`."""
    flags = ["--release"] if _profile(config_settings) == "release" else []
    layout = _run([_cargo(), "xtask", "python", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        info = prepare_metadata_for_build_wheel(folder, config_settings)
        there = pathlib.Path(folder, info)
        members = {
            f"{info}/{path.relative_to(there)}": path.read_bytes() for path in there.rglob("*") if path.is_file()
        }
        members["crossdock.pth"] = f"{layout}\n".encode()
        (tag,) = re.findall(r"^Tag: (.*)$", members[f"{info}/WHEEL"].decode(), re.MULTILINE)
        name = f"{info.removesuffix('.dist-info')}-{tag}.whl"
        _write(pathlib.Path(wheel_directory) / name, members, f"{info}/RECORD")
        return name


def build_sdist(sdist_directory, config_settings=None):
    """Refused: the folder is one of a Cargo workspace, and what it holds cannot be built alone."""
    raise NotImplementedError(
        "crossdock has no source distribution: its crates lie in the whole repository. Use a wheel, or a checkout: "
        "pip install ./python"
    )


def _profile(config_settings):
    profile = (config_settings or {}).get("profile", "release")
    if not isinstance(profile, str) or not re.fullmatch(r"[A-Za-z0-9_-]+", profile):
        raise ValueError(f"profile={profile!r}: expected the name of one of Cargo's profiles, such as release or dev")
    return profile


def _cargo():
    return os.environ.get("CARGO", "cargo")


def _run(command, **options):
    try:
        return subprocess.run(command, check=True, **options)
    except FileNotFoundError as error:
        raise RuntimeError(
            f"{command[0]} is not there: crossdock is built with Rust's cargo, which has to be on the PATH"
        ) from error


def _build_plugins(profile):
    """The paths of the plugins' libraries, as Cargo tells them."""
    about = _run([_cargo(), "metadata", "--no-deps", "--format-version", "1"], cwd=ROOT, stdout=subprocess.PIPE).stdout
    under = ROOT / "plugins"
    packages = {
        package["id"]: package["name"]
        for package in json.loads(about)["packages"]
        if pathlib.Path(package["manifest_path"]).is_relative_to(under)
        and any("cdylib" in target["kind"] for target in package["targets"])
    }
    # With the module, so that Cargo settles on the features that maturin's build of it has, and builds little twice.
    chosen = [flag for name in (MODULE_CRATE, *packages.values()) for flag in ("-p", name)]
    command = [_cargo(), "build", "--profile", profile, "--message-format", "json-render-diagnostics", *chosen]
    told = _run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
    libraries = []
    for message in map(json.loads, told.splitlines()):
        of_ours = message["reason"] == "compiler-artifact" and message["package_id"] in packages
        if of_ours and "cdylib" in message["target"]["kind"]:
            libraries += [pathlib.Path(path) for path in message["filenames"] if path.endswith(".so")]
    if len(libraries) != len(packages):
        raise RuntimeError(f"expected a library of each of {sorted(packages.values())}, got {libraries}")
    return sorted(libraries)


def _stripped(library, folder):
    """A copy in the folder, without what only debuggers read where there is a `strip`. The host reads a plugin's metadata
    from what is left."""
    copy = pathlib.Path(shutil.copy(library, folder))
    if shutil.which("strip"):
        _run(["strip", "--strip-unneeded", copy])
    copy.chmod(0o755)
    return copy


def _check_tag(wheel, plugins):
    """maturin has chosen the tag by what the module needs of the C library: no plugin may need more."""
    tagged = re.search(r"manylinux_2_(\d+)_", wheel)
    for plugin in plugins if tagged else ():
        needed = max((int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", plugin.read_bytes())), default=0)
        if needed > int(tagged[1]):
            raise RuntimeError(f"{plugin.name} needs glibc 2.{needed}, and the wheel says 2.{tagged[1]}: {wheel}")


def _with_members(wheel, to, more):
    """Writes a wheel again with more members."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (record,) = (name for name in members if name.endswith(".dist-info/RECORD"))
    if MODULE not in members:
        raise RuntimeError(f"maturin made a wheel without {MODULE}: {sorted(members)}")
    _write(to, members | more, record)


def _write(to, members, record):
    """Writes a wheel, with a record of its members as the last of them."""
    members.pop(record, None)
    rows = io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for name, content in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([name, f"sha256={digest}", len(content)])
    lines.writerow([record, "", ""])
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**members, record: rows.getvalue().encode()}.items():
            # One moment for all, so that the same inputs make the same wheel; only libraries are executable.
            about = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            about.compress_type = zipfile.ZIP_DEFLATED
            about.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(about, content)
