"""Examples in the docstrings of the package, as docs/testing.md describes them."""

import doctest
import importlib
import inspect
import types

import crossdock as cd
import numpy as np
import pyarrow as pa

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
MEMBERS = (types.FunctionType, types.MethodDescriptorType, types.GetSetDescriptorType, property)


def documented(modules):
    """Returns the docstring of each public module, class, function, method and property, by its name."""
    found = {}
    for module in map(importlib.import_module, modules):
        prefix = module.__name__.partition(".")[2]
        found[prefix or module.__name__] = module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, (type, types.FunctionType)):
                add(found, f"{prefix}.{name}".lstrip("."), value)
    return dict(sorted(found.items()))


def add(found, name, value):
    found[name] = value.__doc__
    classes = value.__mro__ if isinstance(value, type) else ()
    ours = [one for one in classes if one.__module__.partition(".")[0] == "crossdock"]
    others = [one for one in classes if one not in ours]
    for member, of in {member: of for one in reversed(ours) for member, of in vars(one).items()}.items():
        of = getattr(of, "__func__", of)
        if member.startswith("_") or not isinstance(of, MEMBERS):
            continue
        # Without a docstring, it implements an interface of another library.
        if of.__doc__ is None and any(hasattr(other, member) for other in others):
            continue
        if not getattr(of, "__name__", member).startswith("_"):
            found[f"{name}.{member}"] = of.__doc__


def code_of(name, text):
    """Returns the code of the examples, without the text and the output."""
    return "".join(example.source for example in doctest.DocTestParser().get_examples(text or "", name))


def namespace(session, folder):
    """Returns the names that each example may use."""
    people = pa.table({"id": [1, 2, 3], "name": ["ann", None, "cy"], "score": [0.5, 1.5, 2.5]})
    table = session.from_arrow(people)
    table.write(folder / "people.arrow")
    return {"cd": cd, "crossdock": cd, "pa": pa, "np": np, "session": session, "table": table, "folder": folder}


def run(name, text, names):
    """Runs the examples of a docstring, and frees the objects that they made."""
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), names, name, None, None)
    output = []
    doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=output.append)
    names.clear()
    assert not output, "".join(output)
