"""Generates the reference of the command and of the formats from the built command, and the list of crates.

The command is the file that CROSSDOCK_BIN names, or else target/debug/crossdock. The plugins are next to it.
"""

import json
import os
import re
import subprocess
import textwrap
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = Path(os.environ.get("CROSSDOCK_BIN", ROOT / "target" / "debug" / "crossdock"))

# The number of columns that fit in the page.
WIDTH = 92


@cache
def run(*arguments):
    environment = {**os.environ, "CROSSDOCK_PLUGIN_PATH": "", "COLUMNS": "100"}
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def wrap(text):
    """Wraps long lines. Continuation lines have the indentation of the text, behind the name of an option."""
    lines = []
    for line in text.splitlines():
        indent = re.match(r" *(?:\S.*?\S {2,})?", line).end() if re.match(r" +\S+.* {2,}", line) else 0
        indent = indent if 0 < indent < 40 else len(line) - len(line.lstrip())
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=" " * indent, drop_whitespace=True) or [""]
    return "\n".join(lines)


def escape(text):
    return re.sub(r"([|_*<\[])", r"\\\1", text)


def help_pages():
    """Markdown with the help texts of all subcommands."""
    overview = run("--help")
    (listing,) = re.findall(r"^Commands:\n(.*?)\n\n", overview, re.MULTILINE | re.DOTALL)
    names = [name for name in re.findall(r"^  ([a-z-]+)", listing, re.MULTILINE) if name != "help"]
    parts = [f"```text\n{wrap(overview.strip())}\n```\n"]
    for name in names:
        parts.append(f"## crossdock {name}\n\n```text\n{wrap(run(name, '--help').strip())}\n```\n")
    return "\n".join(parts)


def formats():
    """Markdown with a table of the formats of the plugins in the package, and of their options."""
    rows = ["| format | direction | file extensions | contents | plugin |", "|---|---|---|---|---|"]
    for plugin in json.loads(run("plugins", "--json"))["plugins"]:
        described = {}
        for direction in ("reads", "writes"):
            for format in plugin[direction]:
                described.setdefault(format["name"], {})[direction] = format
        for name, found in described.items():
            format = found.get("reads") or found["writes"]
            directions = " and ".join({"reads": "read", "writes": "written"}[direction] for direction in found)
            extensions = " ".join(f"`{extension}`" for extension in format["extensions"])
            cells = [f"`{name}`", directions, extensions, escape(format["description"])]
            rows.append("| " + " | ".join([*cells, f"`{plugin['metadata']['name']}`"]) + " |")
    return "\n".join(rows) + "\n"


def crates():
    """Markdown with a table of the crates for applications and plugins, with the descriptions of their manifests."""
    rows = ["| crate | folder | contents |", "|---|---|---|"]
    members = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["members"]
    for folder in sorted(members):
        if folder.split("/")[0] not in ("benches", "fuzz", "tests", "xtask"):
            package = tomllib.loads((ROOT / folder / "Cargo.toml").read_text())["package"]
            rows.append(f"| `{package['name']}` | `{folder}` | {escape(package['description'])} |")
    return "\n".join(rows) + "\n"
