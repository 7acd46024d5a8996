"""Generates pages from the C headers: a heading for each section of a header, followed by its text."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^/\* -{3,} (.+?) --- \*/$", re.MULTILINE)


def sections(path):
    begin, *parts = SECTION.split((ROOT / path).read_text())
    markdown = [f"## Rules\n\n```c\n{begin.strip()}\n```\n"]
    for title, text in zip(parts[::2], parts[1::2]):
        markdown.append(f"## {title[0].upper()}{title[1:]}\n\n```c\n{text.strip()}\n```\n")
    return "\n".join(markdown)
