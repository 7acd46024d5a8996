"""What `import crossdock` does and does not do, and what the package has in it."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import crossdock as cd

LOOK = """
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
    """What Python code prints in a process of its own, with nothing on stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


def test_importing_starts_nothing():
    seen = json.loads(child(LOOK))
    assert seen["threads"] == 1, "a thread was started"
    assert seen["plugins"] == 0, "a plugin was loaded"
    assert seen["driver"] == 0, "the CUDA driver was loaded"
    assert seen["files"] == []
    heavy = {"pyarrow", "numpy", "torch", "cupy", "asyncio", "concurrent", "multiprocessing"}
    assert not heavy & set(seen["modules"]), seen["modules"]


def test_a_session_on_the_cpu_looks_for_no_driver():
    code = LOOK.replace("import crossdock\n", "import crossdock\ncrossdock.Session().read_ipc\n")
    assert json.loads(child(code))["driver"] == 0


def test_nothing_public_releases_what_a_capsule_holds():
    """Structs of C are released by whoever has them last: there is no function for it that a program could call too early."""
    modules = [cd, cd.cuda, cd.compat, cd.compat.xlog, cd._native]
    owned = [thing for module in modules for thing in vars(module).values() if isinstance(thing, type)]
    owned = [thing for thing in owned if thing.__module__.startswith("crossdock")]
    assert cd.Column in owned and cd.EncodedArray in owned and cd.cuda.Buffer in owned
    functions = [name for module in modules for name in getattr(module, "__all__", dir(module))]
    names = functions + [name for thing in owned for name in dir(thing)]
    # Python's own for whoever has a buffer: the interpreter looks whether it is theirs.
    names = [name for name in names if name != "__release_buffer__"]
    assert not [name for name in names if "release" in name.lower()]


def test_everything_public_is_there_and_comes_from_the_package():
    for name in cd.__all__:
        there = getattr(cd, name)
        module = getattr(there, "__module__", getattr(there, "__name__", ""))
        assert name == "__version__" or module.startswith("crossdock"), (name, module)
        assert name == "__version__" or there.__doc__, f"{name} has no docstring"


def test_every_public_method_says_what_it_does():
    for of in (cd.Session, cd.Table, cd.Column, cd.EncodedArray, cd.Schema, cd.Field):
        for name in dir(of):
            if not name.startswith("_"):
                assert getattr(of, name).__doc__, f"{of.__name__}.{name} has no docstring"


def test_the_plugins_lie_in_the_package():
    folder = pathlib.Path(cd.__file__).parent / "plugins"
    assert {"arrow-ipc", "arrow-c-device", "dlpack"} <= set(cd.Session().plugins)
    assert len(list(folder.glob("*_plugin.so"))) == 4


def test_other_packages_bring_plugins_by_an_entry_point(tmp_path):
    """Nothing of theirs is run: a package that would raise brings its plugin all the same."""
    ours = next((pathlib.Path(cd.__file__).parent / "plugins").glob("*arrow_ipc*"))
    package, info = tmp_path / "their_package", tmp_path / "their_package-1.0.dist-info"
    (package / "inner").mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('nobody should import this')")
    (package / "inner" / "theirs.so").write_bytes(ours.read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[crossdock.plugins]\ntheirs = their_package.inner\nmissing = no_such_package\n"
    )
    # Without the package's own folder theirs is the only one.
    code = """
import crossdock._plugins as plugins, crossdock
own, *others = plugins.folders()
plugins.folders = lambda: others
print(others, crossdock.Session().plugins)
"""
    told = child(code, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    assert told == f"['{package / 'inner'}'] ['arrow-ipc']"


def test_the_version_is_one():
    assert cd.__version__.count(".") == 2
    try:
        assert importlib.metadata.version("crossdock") == cd.__version__
    except importlib.metadata.PackageNotFoundError:
        pass  # It runs from the development layout.
