"""Tests the build backend without building a wheel. `cargo xtask test` builds and installs a wheel."""

import base64
import csv
import hashlib
import json
import sys
import tomllib
import zipfile

import crossdock as cd
import pytest
from conftest import ROOT

pytest.importorskip("maturin")
FOLDER = ROOT / "python" / "build_backend"
if not FOLDER.is_dir():
    pytest.skip("the sources of the package are not installed", allow_module_level=True)
sys.path.insert(0, str(FOLDER))

import crossdock_build as backend  # noqa: E402
import crossdock_sdist as sdist  # noqa: E402


def test_project_file_of_a_source_distribution_names_existing_files():
    project = tomllib.loads(sdist._project((ROOT / "python" / "pyproject.toml").read_text()))
    maturin, (folder,) = project["tool"]["maturin"], project["build-system"]["backend-path"]
    assert (ROOT / folder / f"{project['build-system']['build-backend']}.py").is_file()
    assert (ROOT / project["project"]["readme"]).is_file()
    assert (ROOT / maturin["python-source"] / "crossdock/__init__.py").is_file()
    assert (ROOT / maturin["manifest-path"]).is_file()
    with pytest.raises(RuntimeError, match="expected one line"):
        sdist._project("")


def test_crates_for_other_systems_are_reduced_to_their_manifests(tmp_path):
    folder = tmp_path / "a-1.0.0"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "lib.rs").write_text("pub mod a;")
    (folder / "Cargo.toml").write_text("[package]")
    (folder / ".cargo-checksum.json").write_text('{"files": {"src/lib.rs": "1"}, "package": "2"}')
    names = {f"a-1.0.0/{name}" for name in ("src/lib.rs", "Cargo.toml", ".cargo-checksum.json")}
    complete, reduced = (dict(sdist._crate(folder, needed)) for needed in (True, False))
    assert set(complete) == set(reduced) == names
    assert complete["a-1.0.0/src/lib.rs"] == b"pub mod a;" and reduced["a-1.0.0/src/lib.rs"] == b""
    assert json.loads(reduced["a-1.0.0/.cargo-checksum.json"]) == {"files": {}, "package": "2"}


def test_source_distribution_needs_a_repository(tmp_path):
    with pytest.raises(RuntimeError, match="built from a checkout of the repository with git"):
        sdist._tracked(tmp_path)


def test_cargo_profile_defaults_to_release_and_invalid_names_are_rejected():
    assert backend._profile(None) == backend._profile({}) == "release"
    assert backend._profile({"profile": "dev"}) == "dev"
    for wrong in ("", "--config=x", ["dev", "dev"], "a b"):
        with pytest.raises(ValueError, match="expected the name of a Cargo profile"):
            backend._profile({"profile": wrong})


def test_error_without_cargo_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("CARGO", "/no/such/cargo")
    with pytest.raises(RuntimeError, match="cannot find /no/such/cargo: the build needs Rust's cargo on the PATH"):
        backend._build("dev")


def test_wheel_tag_has_the_oldest_sufficient_glibc_version(tmp_path):
    libraries = [tmp_path / name for name in ("a.so", "b.so")]
    libraries[0].write_bytes(b"\0GLIBC_2.17\0GLIBC_2.34\0")
    libraries[1].write_bytes(b"\0GLIBC_2.2.5\0GLIBC_2.9\0")
    wheel = "Wheel-Version: 1.0\nTag: cp311-abi3-linux_x86_64\n"
    assert backend._tag(wheel, libraries) == "cp311-abi3-manylinux_2_34_x86_64"
    assert backend._tag(wheel, libraries[1:]) == "cp311-abi3-manylinux_2_9_x86_64"
    assert backend._tag(wheel, []) == "cp311-abi3-linux_x86_64"


def test_wheel_is_recorded_and_reproducible(tmp_path):
    members = {"crossdock/_native.abi3.so": b"module", "x-1.dist-info/METADATA": b"m"}
    for name in ("one.whl", "two.whl"):
        backend._write(tmp_path / name, dict(members), "x-1.dist-info/RECORD")
    assert (tmp_path / "one.whl").read_bytes() == (tmp_path / "two.whl").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.whl") as archive:
        rows = list(csv.reader(archive.read("x-1.dist-info/RECORD").decode().splitlines()))
        assert {row[0] for row in rows} == {*members, "x-1.dist-info/RECORD"} == set(archive.namelist())
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={expected}", len(content))
        assert archive.getinfo("crossdock/_native.abi3.so").external_attr >> 16 == 0o100755
        assert rows[-1] == ["x-1.dist-info/RECORD", "", ""]


def test_sources_exclude_build_results():
    names = {path.relative_to(ROOT / "python").as_posix() for path in backend._sources()}
    assert {"crossdock/__init__.py", "crossdock/py.typed"} <= names
    assert not [name for name in names if not name.endswith((".py", ".pyi", "py.typed"))]


def test_pinned_maturin_satisfies_the_requirement():
    """The test that builds a wheel uses no build isolation, so it builds with the pinned version."""
    packaging = pytest.importorskip("packaging.requirements")
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())
    (requirement,) = map(packaging.Requirement, project["build-system"]["requires"])
    pins = (ROOT / "tests" / "python" / "requirements.txt").read_text().splitlines()
    (pinned,) = (line.partition("==")[2] for line in pins if line.startswith("maturin=="))
    assert requirement.name == "maturin" and requirement.specifier.contains(pinned)


def test_metadata_has_workspace_version_and_no_dependencies():
    project = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"] and "version" not in project and not project.get("dependencies")
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert (cd.__version__, project["license"]) == (workspace["version"], workspace["license"])
