"""Builds the source distribution: the repository, and the sources of all crates that the wheel needs, so that the build
needs no network."""

import gzip
import io
import json
import pathlib
import subprocess
import tarfile
import tempfile

VENDORED = """
[source.crates-io]
replace-with = "vendored"

[source.vendored]
directory = "vendor"
"""
# The project file is in the folder of the package. A source distribution has it in its root.
MOVED = {
    'backend-path = ["build_backend"]': 'backend-path = ["python/build_backend"]',
    'readme = "README.md"': 'readme = "python/README.md"',
    'python-source = "."': 'python-source = "python"\nmanifest-path = "python/Cargo.toml"',
}
PLATFORMS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


def write(to, root, name, info, selected, cargo):
    """Writes the source distribution `name` of the repository `root`. `selected` are the ids of the packages that are
    built, and `info` is the content of PKG-INFO."""
    files = _tracked(root)
    files["PKG-INFO"] = info
    files["pyproject.toml"] = _project((root / "python/pyproject.toml").read_text()).encode()
    files[".cargo/config.toml"] = files.get(".cargo/config.toml", b"") + VENDORED.encode()
    with tempfile.TemporaryDirectory() as folder:
        command = [cargo, "vendor", "--quiet", "--locked", "--versioned-dirs", folder]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
        needed = _needed(root, selected, cargo)
        for crate in sorted(pathlib.Path(folder).iterdir()):
            files |= {f"vendor/{path}": content for path, content in _crate(crate, crate.name in needed)}
    with open(to, "wb") as file, gzip.GzipFile(fileobj=file, filename="", mode="wb", mtime=0) as compressed:
        with tarfile.open(fileobj=compressed, mode="w") as archive:
            for path, content in sorted(files.items()):
                # Constant times and owners make the archive reproducible.
                entry = tarfile.TarInfo(f"{name}/{path}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))


def _tracked(root):
    """Returns the files that belong to the repository. Links are replaced by their targets."""
    try:
        command = ["git", "ls-files", "-z", "--recurse-submodules"]
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"a source distribution is built from a checkout of the repository with git: {error}"
        ) from error
    return {path: (root / path).read_bytes() for path in listed.split("\0") if path and (root / path).is_file()}


def _project(text):
    for old, new in MOVED.items():
        if text.count(old) != 1:
            raise RuntimeError(f"pyproject.toml: expected one line {old!r}")
        text = text.replace(old, new)
    return text


def _needed(root, selected, cargo):
    """Returns NAME-VERSION of each crate of a registry that the build of the selected packages compiles."""
    command = [cargo, "metadata", "--locked", "--format-version", "1"]
    command += [flag for platform in PLATFORMS for flag in ("--filter-platform", platform)]
    metadata = json.loads(subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE).stdout)
    nodes = {node["id"]: node["deps"] for node in metadata["resolve"]["nodes"]}
    waiting, seen = list(selected), set()
    while waiting:
        package = waiting.pop()
        if package not in seen:
            seen.add(package)
            compiled = (node for node in nodes[package] if any(kind["kind"] != "dev" for kind in node["dep_kinds"]))
            waiting += [node["pkg"] for node in compiled]
    return {f"{package['name']}-{package['version']}" for package in metadata["packages"] if package["id"] in seen}


def _crate(folder, needed):
    """Yields the paths and contents of a vendored crate. Cargo reads the manifest of each crate of the lock file, also
    of crates that it does not compile, such as those for other systems."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or not needed and name not in ("Cargo.toml", ".cargo-checksum.json"):
            continue
        content = path.read_bytes()
        if not needed and name == ".cargo-checksum.json":
            content = json.dumps(json.loads(content) | {"files": {}}).encode()
        yield f"{folder.name}/{name}", content
    if not needed:
        yield f"{folder.name}/src/lib.rs", b""
