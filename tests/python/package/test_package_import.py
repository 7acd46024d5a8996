"""The effects of `import crossdock`, and the public names of the package."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import crossdock as cd

REPORT = """
import json, os, sys
before = set(sys.modules)
import crossdock
maps = open("/proc/self/maps").read()
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")),
    "plugins": maps.count("_plugin.so"),
    "driver": maps.count("libcuda"),
    "native": maps.count("_native") > 0,
    "modules": sorted({name.partition(".")[0] for name in set(sys.modules) - before}),
    "files": sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
                    and os.path.exists(f"/proc/self/fd/{fd}")),
}))
"""


def child(code, **environment):
    """Runs code in a separate process, and returns its output. stderr must be empty."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_package_import_starts_no_threads_and_loads_no_plugins_or_driver():
    report = json.loads(child(REPORT))
    assert report["threads"] == 1, "a thread was started"
    assert report["plugins"] == 0, "a plugin was loaded"
    assert report["driver"] == 0, "the CUDA driver was loaded"
    assert report["files"] == []
    heavy = {"pyarrow", "numpy", "torch", "cupy", "asyncio", "concurrent", "multiprocessing"}
    assert not heavy & set(report["modules"]), report["modules"]


def test_cpu_session_loads_no_driver():
    code = REPORT.replace("import crossdock\n", "import crossdock\ncrossdock.Session().read_ipc\n")
    assert json.loads(child(code))["driver"] == 0


def test_no_public_name_releases_capsules():
    """No public function releases a C struct, because a program could call the function too early."""
    modules = [cd, cd.cuda, cd.compat, cd.compat.xlog, cd._native]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    classes = [value for value in classes if value.__module__.startswith("crossdock")]
    assert cd.Column in classes and cd.EncodedArray in classes and cd.cuda.Buffer in classes
    functions = [name for module in modules for name in getattr(module, "__all__", dir(module))]
    names = functions + [name for value in classes for name in dir(value)]
    # The interpreter checks arguments of this method of the buffer protocol.
    names = [name for name in names if name != "__release_buffer__"]
    assert not [name for name in names if "release" in name.lower()]


def test_public_names_exist_in_the_package():
    for name in cd.__all__:
        value = getattr(cd, name)
        module = getattr(value, "__module__", getattr(value, "__name__", ""))
        assert name == "__version__" or module.startswith("crossdock"), (name, module)
        assert name == "__version__" or value.__doc__, f"{name} has no docstring"


def test_public_methods_have_docstrings():
    for of in (cd.Session, cd.Table, cd.Column, cd.EncodedArray, cd.Schema, cd.Field):
        for name in dir(of):
            if not name.startswith("_"):
                assert getattr(of, name).__doc__, f"{of.__name__}.{name} has no docstring"


def test_plugins_are_in_the_package():
    folder = pathlib.Path(cd.__file__).parent / "plugins"
    assert {"arrow-ipc", "arrow-c-device", "dlpack"} <= set(cd.Session().plugins)
    assert len(list(folder.glob("*_plugin.so"))) == 7


def test_entry_points_provide_plugins(tmp_path):
    """The code of the package does not run, so a package whose import raises still provides its plugin."""
    plugin = next((pathlib.Path(cd.__file__).parent / "plugins").glob("*arrow_ipc*"))
    package, info = tmp_path / "other_package", tmp_path / "other_package-1.0.dist-info"
    (package / "inner").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "inner" / "other.so").write_bytes(plugin.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[crossdock.plugins]\nother = other_package.inner\nmissing = no_such_package\n"
    )
    # Removes the folder of the package itself, so that only the folder of the other package
    # remains.
    code = """
import crossdock._plugins as plugins, crossdock
_, *others = plugins.folders()
plugins.folders = lambda: others
print(others, crossdock.Session().plugins)
"""
    output = child(code, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    assert output == f"['{package / 'inner'}'] ['arrow-ipc']"


def write_info(folder, text):
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {folder.stem.partition('-')[0]}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(text)


def values_of_entry_points(*paths):
    code = """
import crossdock._plugins as plugins, sys
from importlib import metadata
found = list(plugins._entry_points())
has_metadata = [entry.value for entry in metadata.entry_points(group=plugins.GROUP)]
print(found == has_metadata, found)
"""
    return child(code, PYTHONPATH=os.pathsep.join([*map(str, paths), *filter(None, sys.path)]))


def test_entry_points_are_those_of_importlib_metadata(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    write_info(first / "Some.Name-1.0.dist-info", "[crossdock.plugins]\na = one\n\n[other]\nb = two\n")
    write_info(second / "some_name-2.0.dist-info", "[crossdock.plugins]\na = hidden\n")
    write_info(second / "none-1.0.dist-info", "[other]\nb = two\n")
    write_info(second / "old.egg-info", "[console_scripts]\nx = y\n[crossdock.plugins]\n# text\n c=three.four\n")
    (second / "empty-1.0.dist-info").mkdir()
    missing = tmp_path / "missing"
    assert values_of_entry_points(first, missing, second) == "True ['one', 'three.four']"


def test_entry_points_of_packages_in_a_zip_file(tmp_path):
    path = tmp_path / "packages.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("zipped-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: zipped\nVersion: 1.0\n")
        file.writestr("zipped-1.0.dist-info/entry_points.txt", "[crossdock.plugins]\nz = zipped.plugins\n")
    assert values_of_entry_points(path) == "True ['zipped.plugins']"


def test_package_version_equals_metadata_version():
    assert cd.__version__.count(".") == 2
    try:
        assert importlib.metadata.version("crossdock") == cd.__version__
    except importlib.metadata.PackageNotFoundError:
        pass  # In this case the package runs from the development layout.
