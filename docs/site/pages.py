"""Prepares the text of pages: includes, generated parts, links between files of the repository, and drawings.

The pages are ordinary Markdown, whose relative links work in the repository. On the site,
- `{include}` of a Markdown file outside of docs/ is replaced by the text of that file,
- `{generated} KIND ARGUMENT ...` is replaced by Markdown that a generator in this folder returns,
- a link to a file that has a page becomes a link to that page, and a link to another file of the repository becomes
  the name of the file, because the repository has no public address,
- a drawing is a part of its page, so that it has the colours of the theme.
"""

import os
import re
from pathlib import Path

import command_reference
import headers
import plots
import python_reference
from docutils import nodes
from sphinx.util import logging

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent
ROOT = DOCS.parent

# Files outside of docs/ that have a page, and their pages.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "capi/README.md": "capi.md",
    "capi": "capi.md",
    "docs/decisions": "decisions/README.md",
    "capi/include/crossdock-host.h": "reference/crossdock-host-h.md",
    "plugin-api/include/crossdock.h": "reference/crossdock-h.md",
}
# Pages that the search leaves out, because they contain almost every word. Other pages link to
# them.
NOT_SEARCHED = ("benchmarks", "changelog", "contributing", "decisions/", "parity")
GENERATORS = {
    "command": command_reference.help_pages,
    "crates": command_reference.crates,
    "formats": command_reference.formats,
    "header": headers.sections,
    "plot": plots.plot,
    "python": python_reference.reference,
    "types": python_reference.types,
}

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^```\{(include|generated)\} (.*)\n```$", re.MULTILINE)
LABELLED = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")

log = logging.getLogger(__name__)


def outside_fences(text, change):
    """Applies `change` to the parts of the text that are not code."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence.group()]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def relocate(text, source, docname):
    """Rewrites the links of the file `source` (relative to the root) for the page `docname`."""
    page_folder = os.path.dirname(docname)

    def replace(match):
        label, path, anchor = match.group(1), match.group(2), match.group(3) or ""
        target = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which does not exist", source, target, location=docname)
            return label
        page = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if page is None or not page.endswith(".md"):
            return label if "`" in label else f"`{label}`" if label == target else label
        return f"[{label}]({os.path.relpath(page, page_folder or '.')}{anchor})"

    return outside_fences(text, lambda part: LABELLED.sub(replace, part))


def prepare(app, docname, content):
    """Replaces the text of a page before Sphinx parses it."""

    def replace(match):
        kind, argument = match.groups()
        if kind == "include":
            path = os.path.normpath(os.path.join("docs", os.path.dirname(docname), argument))
            app.env.note_dependency(ROOT / path)
            return relocate((ROOT / path).read_text(), path, docname)
        name, *arguments = argument.split()
        return GENERATORS[name](*arguments)

    text = relocate(content[0], f"docs/{docname}.md", docname)
    begin = "---\nnosearch: true\n---\n" if docname.startswith(NOT_SEARCHED) else ""
    content[0] = begin + DIRECTIVE.sub(replace, text)


def inline_drawings(app, doctree):
    """Replaces images of drawings by their SVG elements."""
    for image in list(doctree.findall(nodes.image)):
        path = Path(os.path.normpath(DOCS / os.path.dirname(app.env.docname) / image["uri"]))
        if path.parent == HERE / "drawings":
            app.env.note_dependency(path)
            html = f'<figure class="drawing-frame">{path.read_text()}</figure>'
            target = image.parent if len(image.parent) == 1 and isinstance(image.parent, nodes.paragraph) else image
            target.replace_self(nodes.raw("", html, format="html"))


def check_names(app, error):
    """Warns of public names of the Python package that no page documents."""
    if error is None:
        for name in python_reference.missing():
            log.warning("no page of the reference documents %s", name)


def setup(app):
    app.connect("source-read", prepare)
    # Before Sphinx collects images.
    app.connect("doctree-read", inline_drawings, priority=100)
    app.connect("build-finished", check_names)
    return {"version": "1", "parallel_read_safe": False}
