"""Every public docstring of the package has an example, which runs as docs/testing.md describes."""

import doctest
import importlib
import inspect
import re
import types

import crossdock as cd
import numpy as np
import pyarrow as pa
import pytest
from crossdock import cuda as cuda_module
from gpu_libraries import library_of

# The modules that need no other library.
MODULES = (
    "crossdock",
    "crossdock.compat",
    "crossdock.compat.xlog",
    "crossdock.cuda",
    "crossdock.multiprocessing",
)
EXCLUDED = {
    # Raised only if another thread closes the session during a call.
    "CancelledError",
    # Issued only by plugins and for conditions of the machine.
    "Warning",
}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MEMBERS = (types.FunctionType, types.MethodDescriptorType, types.GetSetDescriptorType, property)


def documented():
    """Returns the docstring of each public module, class, function, method and property, by its name."""
    found = {}
    for module in map(importlib.import_module, MODULES):
        prefix = module.__name__.partition(".")[2]
        found[prefix or module.__name__] = module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, (type, types.FunctionType)):
                add(found, f"{prefix}.{name}".lstrip("."), value)
    return {name: text for name, text in sorted(found.items()) if name not in EXCLUDED}


def add(found, name, value):
    found[name] = value.__doc__
    for member, of in vars(value).items() if isinstance(value, type) else ():
        of = getattr(of, "__func__", of)
        if not member.startswith("_") and isinstance(of, MEMBERS):
            found[f"{name}.{member}"] = of.__doc__


def case(name, text):
    is_on_cuda = re.search(r"\b(cuda_session|context|cuda\.|cuda:0)", code_of(name, text))
    return pytest.param(name, text, id=name, marks=[pytest.mark.cuda] if is_on_cuda else [])


def code_of(name, text):
    """Returns the code of the examples, without the text and the output."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text or "", name))


CASES = [case(name, text) for name, text in documented().items()]


@pytest.fixture
def namespace(session, tmp_path):
    people = pa.table({"id": [1, 2, 3], "name": ["ann", None, "cy"], "score": [0.5, 1.5, 2.5]})
    table = session.from_arrow(people)
    table.write(tmp_path / "people.arrow")
    return {"cd": cd, "pa": pa, "np": np, "session": session, "table": table, "folder": tmp_path}


@pytest.mark.parametrize(("name", "text"), CASES)
def test_docstring_has_an_example_that_runs(name, text, namespace, request):
    code = code_of(name, text)
    assert code, f"the docstring of {name} has no example"
    if "pandas" in code:
        pytest.importorskip("pandas")
    if "cuda" in [mark.name for mark in request.node.iter_markers()]:
        add_cuda(namespace, code, request)
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), namespace, name, None, None)
    output = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=output.append)
    namespace.clear()
    assert not output, "".join(output)


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
