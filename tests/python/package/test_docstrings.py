"""Every public docstring of the package has an example, which runs as docs/testing.md describes."""

import importlib.util
import re

import crossdock as cd
import docstrings
import pytest
from crossdock import cuda as cuda_module
from gpu_libraries import library_of

MODULES = [
    "crossdock",
    "crossdock.compat",
    "crossdock.compat.xlog",
    "crossdock.cuda",
    "crossdock.multiprocessing",
]
# Modules for a library: tests/python/engines tests the others.
OF_LIBRARIES = {"crossdock.dataset": "duckdb", "crossdock.polars": "polars"}
EXCLUDED = {
    # Raised only if another thread closes the session during a call.
    "CancelledError",
    # Issued only by plugins and for conditions of the machine.
    "Warning",
}


def case(name, text):
    is_on_cuda = re.search(r"\b(cuda_session|context|cuda\.|cuda:0)", docstrings.code_of(name, text))
    return pytest.param(name, text, id=name, marks=[pytest.mark.cuda] if is_on_cuda else [])


def cases():
    missing = [module for module, library in OF_LIBRARIES.items() if importlib.util.find_spec(library) is None]
    found = docstrings.documented([*MODULES, *(module for module in OF_LIBRARIES if module not in missing)])
    skipped = [
        pytest.param(module, None, id=module, marks=pytest.mark.skip(f"{OF_LIBRARIES[module]} is not installed"))
        for module in missing
    ]
    return [case(name, text) for name, text in found.items() if name not in EXCLUDED] + skipped


@pytest.fixture
def namespace(session, tmp_path):
    return docstrings.namespace(session, tmp_path)


@pytest.mark.parametrize(("name", "text"), cases())
def test_docstring_has_an_example_that_runs(name, text, namespace, request):
    code = docstrings.code_of(name, text)
    assert code, f"the docstring of {name} has no example"
    if "pandas" in code:
        pytest.importorskip("pandas")
    if "cuda" in [mark.name for mark in request.node.iter_markers()]:
        add_cuda(namespace, code, request)
    docstrings.run(name, text, namespace)


def add_cuda(namespace, code, request):
    """Adds the names for examples on CUDA devices. Skips the test if something that they need is missing."""
    if "numba" in code:
        request.getfixturevalue("gpu")
        namespace["numba"] = library_of("numba").module
    session = request.getfixturevalue("cuda_session")
    context = cuda_module.Context(session=session)
    namespace |= {"cuda": cuda_module, "cuda_session": session, "context": context}
    if "export_for_ipc" in code:
        try:
            context.new_buffer(8).export_for_ipc()
        except cd.DeviceError as error:
            if "(801)" in str(error):
                pytest.skip(f"the driver shares no memory between processes: {error}")
            raise
