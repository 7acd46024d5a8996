"""Generates the reference of the Python package from its sources, without importing it.

Signatures are those of the modules and of the stub `_native.pyi`. The texts are docstrings. The docstrings of the
extension module are the comments of its Rust sources, from which PyO3 takes them.
"""

import ast
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "crossdock"

# The modules of the reference. `crossdock.dask` has functions that only Dask calls.
MODULES = [
    "",
    "compat.xlog",
    "cuda",
    "dask",
    "datafusion",
    "dataset",
    "multiprocessing",
    "polars",
    "ray",
    "spark",
    "torch",
]
# Classes that are defined at their first use, and the classes that have their methods.
LAZY = {"Datasource": "_Methods", "Source": "_Source"}
CALLED_BY_LIBRARIES = {"crossdock.dask.dask_setup", "crossdock.dask.register_sizes"}


def rust_docs():
    """Returns the docstrings of the extension module by (class, method), (class, "") and ("", function)."""
    docs = {}
    for path in sorted((ROOT / "python" / "src").rglob("*.rs")):
        text, attributes, owner = [], [], ""
        for line in path.read_text().splitlines():
            code = line.strip()
            if code.startswith("///"):
                text.append(code.removeprefix("///").removeprefix(" "))
            elif code.startswith("#["):
                attributes.append(code)
            elif code and not code.startswith("//"):
                has = "".join(attributes)
                if match := re.match(r"pub struct (\w+)", code):
                    if "#[pyclass" in has:
                        docs[match[1], ""] = "\n".join(text)
                elif match := re.match(r"impl (\w+) \{", code):
                    owner = match[1] if "#[pymethods]" in has else ""
                elif match := re.match(r"(?:pub )?fn (?:r#)?(\w+)", code):
                    name = "__new__" if "#[new]" in has else match[1]
                    if renamed := re.search(r'name = "(\w+)"', has):
                        name = renamed[1]
                    if owner and line.startswith("    ") or "#[pyfunction]" in has:
                        docs[owner, name] = "\n".join(text)
                text, attributes = [], []
    errors = (ROOT / "python" / "src" / "runtime" / "errors.rs").read_text()
    texts = {name: text for name, text in re.findall(r'"(\w+)": \w+ =\s*"((?:[^"\\]|\\.)*)"', errors, re.DOTALL)}
    texts["Error"] = re.search(r'let all =\s*"((?:[^"\\]|\\.)*)"', errors, re.DOTALL)[1]
    texts["Warning"] = re.search(r'let doc = "(.*)";', errors)[1]
    for name, text in texts.items():
        text = re.sub(r"\\\n\s*", "", text)
        docs[name, ""] = text.replace("\\n", "\n").replace('\\"', '"')
    return docs


def defined_name(node):
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", None)


class Module:
    """A module, whose classes and functions may be defined in private modules of the package."""

    def __init__(self, path):
        self.tree = ast.parse(path.read_text())
        self.is_native = path.suffix == ".pyi"
        self.path = path

    def definition(self, name):
        """Returns the module and the nodes that define the name: one node, or one for each overload."""
        nodes = [node for node in self.tree.body if defined_name(node) in (name, LAZY.get(name, name))]
        if nodes:
            return self, nodes
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names):
                folder = self.path.parent if node.level < 2 else self.path.parent.parent
                return module_at(folder / (node.module or "")).definition(name)
        raise KeyError(f"{self.path}: no definition of {name}")

    def public(self):
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
        return []


def module_at(path):
    for candidate in (path.with_suffix(".py"), path.with_suffix(".pyi"), path / "__init__.py"):
        if candidate.exists():
            return Module(candidate)
    raise FileNotFoundError(path)


def module(name):
    return module_at(PACKAGE / name.replace(".", "/") if name else PACKAGE / "__init__")


DOCS = rust_docs()


def docstring(module, node, owner=""):
    if module.is_native:
        key = (owner, node.name) if owner else (node.name, "") if isinstance(node, ast.ClassDef) else ("", node.name)
        return DOCS.get(key, "")
    return ast.get_docstring(node) or ""


def text_of(annotation):
    """Returns an annotation without quotes and without the name of the private module."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if isinstance(node.slice.value, str) and ast.unparse(node.value) != "Literal":
                node.slice = ast.parse(node.slice.value, mode="eval").body
    text = ast.unparse(annotation).replace("_protocols.", "")
    return text.replace("str | bool | int | float", "_Option")


def alternatives(annotation):
    """Returns the members of a union."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        return alternatives(annotation.left) + alternatives(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return alternatives(ast.parse(annotation.value, mode="eval").body)
    return [text_of(annotation)]


def union(annotations):
    texts = dict.fromkeys(text for annotation in annotations for text in alternatives(annotation))
    none = texts.pop("None", texts)
    return " | ".join([*texts, *(["None"] if none is None else [])]).replace("str | bool | int | float", "_Option")


def parameters(node, is_method):
    """Yields (name with stars, parameter, default) of each parameter, without `self`. A star alone and a slash have
    no parameter."""
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
    is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in node.decorator_list)
    for i, (parameter, default) in enumerate(zip(positional, defaults)):
        if i > 0 or is_static or not is_method:
            yield parameter.arg, parameter, default
        if i + 1 == len(arguments.posonlyargs) and (i > 0 or not is_method):
            yield "/", None, None
    if arguments.vararg:
        yield f"*{arguments.vararg.arg}", arguments.vararg, None
    elif arguments.kwonlyargs:
        yield "*", None, None
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults):
        yield parameter.arg, parameter, default
    if arguments.kwarg:
        yield f"**{arguments.kwarg.arg}", arguments.kwarg, None


def signature(nodes, is_method):
    """Returns the parameters and the result of a function. Overloads become one signature with unions."""
    found = {}
    for node in nodes:
        for name, parameter, default in parameters(node, is_method):
            known = found.setdefault(name, ([], []))
            if parameter and parameter.annotation:
                known[0].append(parameter.annotation)
            if default:
                known[1].append(ast.unparse(default))
    texts = []
    for name, (annotations, defaults) in found.items():
        text = f"{name}: {union(annotations)}" if annotations else name
        texts.append(text + (f" = {defaults[0]}" if defaults else ""))
    results = [node.returns for node in nodes if node.returns]
    result = union(results) if results and nodes[0].name != "__init__" else ""
    return f"({', '.join(texts)})" + (f" -> {result}" if result else "")


def parameters_of(nodes):
    names = set()
    for node in nodes:
        arguments = node.args
        for argument in [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.kwarg,
            arguments.vararg,
        ]:
            if argument:
                names.add(argument.arg)
    return names


def escape(text):
    """Escapes characters with a meaning in Markdown, except in code."""
    parts = re.split(r"(``[^`]*``|`[^`]*`|\*\*[^*]+\*\*)", text)
    return "".join(part if i % 2 else re.sub(r"([_*<\[{])", r"\\\1", part) for i, part in enumerate(parts))


def markdown(text, parameters=()):
    """Converts a docstring: its texts, its lines `parameter: text`, and its examples."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text).strip()):
        lines = block.split("\n")
        if lines[0].lstrip().startswith(">>>"):
            blocks.append("```pycon\n" + "\n".join(lines) + "\n```")
            continue
        out = []
        for line in lines:
            match = re.match(r"(\w+): (.*)", line)
            if match and match[1] in parameters:
                out.append(f":param {match[1]}: {escape(match[2])}")
            elif out and out[-1].startswith((":param", "  ")):
                out.append("  " + escape(line))
            else:
                out.append(escape(line))
        blocks.append("\n".join(out))
    # Examples that follow each other are one example.
    return "\n\n".join(blocks).replace("\n```\n\n```pycon\n", "\n\n")


def directive(kind, head, body, depth, options=()):
    fence = ":" * (7 - 2 * depth)
    return "\n".join([f"{fence}{{py:{kind}}} {head}", *options, "", body, fence, ""])


def members(module, node):
    """The members of a class by name: for each, the nodes of its overloads. Bases in the package count."""
    found = {}
    for base in getattr(node, "bases", []):
        name = ast.unparse(base)
        if name in ("BatchLoader",):
            home, (base_node,) = module.definition(name)
            found.update(members(home, base_node))
    for member in node.body:
        if isinstance(member, ast.FunctionDef):
            is_overload = any(ast.unparse(decorator) == "overload" for decorator in member.decorator_list)
            known = found.get(member.name, (module, []))[1]
            if (
                is_overload
                or not known
                or not any("overload" in ast.unparse(d) for n in known for d in n.decorator_list)
            ):
                found[member.name] = (module, [*known, member] if is_overload else [member])
            else:
                # The implementation of overloads has the docstring.
                known[-1].implementation = member
        elif isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            found[ast.unparse(member.target)] = (module, [member])
    return found


def of_class(home, name, node):
    body = [markdown(docstring(home, node))]
    found = members(home, node)
    constructor = found.pop("__new__", None) or found.pop("__init__", None)
    title = name
    if constructor:
        owner, (method,) = constructor
        text = docstring(owner, method, node.name)
        body += [markdown(text, parameters_of([method]))] if text else []
        title += signature([method], True).split(" -> ")[0]
    special = []
    for member, (owner, nodes) in found.items():
        first = nodes[0]
        if member.startswith("__"):
            special.append(f"`{member}`")
        elif member.startswith("_"):
            continue
        elif isinstance(first, ast.AnnAssign):
            body.append(directive("attribute", member, "", 1, [f":type: {text_of(first.annotation)}"]))
        elif any("property" in ast.unparse(decorator) for decorator in first.decorator_list):
            options = [f":type: {text_of(first.returns)}"] if first.returns else []
            text = markdown(docstring(owner, first, node.name))
            body.append(directive("property", member, text, 1, options))
        else:
            documented = getattr(nodes[-1], "implementation", first)
            text = markdown(docstring(owner, documented, node.name), parameters_of(nodes))
            head = member + signature(nodes, True)
            static = any(ast.unparse(d) in ("staticmethod", "classmethod") for d in first.decorator_list)
            body.append(directive("staticmethod" if static else "method", head, text, 1))
    if special:
        body.append("Special methods: " + ", ".join(sorted(set(special))) + ".\n")
    kind = (
        "exception"
        if any(
            "Error" in ast.unparse(b) or "Exception" in ast.unparse(b) or "Warning" in ast.unparse(b)
            for b in node.bases
        )
        else "class"
    )
    if kind == "exception":
        body.insert(0, "Bases: " + ", ".join(f"`{ast.unparse(base)}`" for base in node.bases) + ".\n")
    return directive(kind, title, "\n\n".join(body), 0)


def entry(name, home, nodes):
    if isinstance(nodes[0], ast.ClassDef):
        return of_class(home, name, nodes[0])
    if isinstance(nodes[0], ast.Assign):
        return directive("data", name, "", 0, [f":value: {ast.unparse(nodes[0].value)}"])
    text = markdown(docstring(home, nodes[-1]), parameters_of(nodes))
    return directive("function", name + signature(nodes, False), text, 0)


def reference(module_name, *names):
    """Markdown of a module: its docstring, if no names are given, and its names (all names if none are given)."""
    short = module_name.removeprefix("crossdock").removeprefix(".")
    described = module(short)
    parts = [f"```{{py:currentmodule}} {module_name}\n```\n"]
    if not names:
        parts = [f"```{{py:module}} {module_name}\n```\n", markdown(ast.get_docstring(described.tree) or "") + "\n"]
    for name in names or described.public():
        if f"{module_name}.{name}" in CALLED_BY_LIBRARIES:
            continue
        home, nodes = described.definition(name)
        parts.append(entry(name, home, nodes))
    return "\n".join(parts)


def types():
    """Markdown of a table of the types in signatures that are neither classes of the package nor of Python."""
    rows = ["| name | meaning |", "|---|---|", "| `_Option` | `str \\| bool \\| int \\| float` |"]
    for path in (PACKAGE / "_native.pyi", PACKAGE / "_protocols.py"):
        for node in Module(path).tree.body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases):
                names = [f"`{member.name}`" for member in node.body if isinstance(member, ast.FunctionDef)]
                rows.append(f"| `{node.name}` | an object with {' and '.join(names)} |")
            elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value:
                target = ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
                value = ast.unparse(node.value).replace("_protocols.", "").replace("|", "\\|")
                if target not in ("__all__", "__version__"):
                    rows.append(f"| `{target}` | `{value}` |")
    return "\n".join(rows) + "\n"


def missing():
    """Public names that no page of the reference contains."""
    every = {f"{name}.{public}".lstrip(".") for name in MODULES for public in module(name).public()}
    for page in (ROOT / "docs" / "reference").rglob("*.md"):
        for module_name, names in re.findall(
            r"^```\{generated\} python crossdock\.?(\S*)(.*)$", page.read_text(), re.MULTILINE
        ):
            every -= {f"{module_name}.{name}".lstrip(".") for name in names.split() or module(module_name).public()}
    return sorted(every - set(MODULES) - {"compat"})
