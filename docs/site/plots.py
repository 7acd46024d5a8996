"""Draws the plots of figures.toml as SVG: horizontal bars, each with its label and its figure.

Each figure is quoted from docs/benchmarks.md. A quote that is not in the section of the plot is an error, so the plots
cannot differ from the recorded figures.
"""

import re
import tomllib
from functools import cache
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "benchmarks.md"

WIDTH = 480
BAR_HEIGHT = 12
ROW_HEIGHT = 40
CASE_HEIGHT = 26
SERIES = {"ours": "Crossdock", "peer": "another library", "limit": "limit of the hardware"}


def anchor(heading):
    """The anchor of a heading, as MyST and forges derive it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@cache
def recorded():
    """Returns the sections of the recorded figures by their headings, with single spaces."""
    _, *parts = re.split(r"^#{2,3} (.+)$", RECORDED.read_text(), flags=re.MULTILINE)
    return {heading: " ".join(text.split()) for heading, text in zip(parts[::2], parts[1::2])}


@cache
def figures():
    """Returns the plots by their ids.

    Raises ValueError for a section, a quote or a figure that docs/benchmarks.md does not contain.
    """
    plots = tomllib.loads((HERE / "figures.toml").read_text())
    for name, plot in plots.items():
        if plot["section"] not in recorded():
            raise ValueError(f"figures.toml: {name}: docs/benchmarks.md has no section {plot['section']!r}")
        for bar in plot["bars"]:
            if bar["quote"] not in recorded()[plot["section"]]:
                raise ValueError(f"figures.toml: {name}: not in {plot['section']!r}: {bar['quote']!r}")
            if not re.search(rf"(?<![\d.,]){re.escape(bar['figure'])}(?![\d]|[.,]\d)", bar["quote"]):
                raise ValueError(f"figures.toml: {name}: {bar['figure']!r} is not in {bar['quote']!r}")
    return plots


def number(bar):
    return float(bar["figure"].replace(",", ""))


def svg(name):
    return draw(name, figures()[name])


def draw(name, plot):
    """The SVG of a plot: a dict with the title, the unit, and the bars, each with label, figure and series."""
    largest = max(number(bar) for bar in plot["bars"])
    rows, y, case = [], 4, None
    for bar in plot["bars"]:
        if bar.get("case", case) != case:
            case = bar["case"]
            y += CASE_HEIGHT
            rows.append(f'<text class="case" x="0" y="{y - 8}">{escape(case)}</text>')
        length = max(2, round(number(bar) / largest * WIDTH, 1))
        figure = f"{bar['figure']} {plot['unit']}"
        rows += [
            f'<text x="0" y="{y + 14}">{escape(bar["label"])}</text>',
            f'<text class="figure" x="{WIDTH}" y="{y + 14}">{escape(figure)}</text>',
            f'<rect class="{bar["series"]}" x="0.5" y="{y + 20.5}" width="{length - 1}" height="{BAR_HEIGHT}"/>',
        ]
        y += ROW_HEIGHT
    texts = [
        f"{bar['case'] + ', ' if 'case' in bar else ''}{bar['label']}: {bar['figure']} {plot['unit']}"
        for bar in plot["bars"]
    ]
    return "\n".join(
        [
            f'<svg class="plot" role="img" aria-labelledby="{name}-title {name}-desc" viewBox="0 0 {WIDTH} {y}" '
            'xmlns="http://www.w3.org/2000/svg">',
            f'<title id="{name}-title">{escape(plot["title"])}</title>',
            f'<desc id="{name}-desc">{escape("; ".join(texts))}.</desc>',
            *rows,
            "</svg>",
        ]
    )


def plot(name, link="benchmarks.md"):
    """Markdown of a plot, its title and a link to the section with its figures."""
    described = figures()[name]
    better = {"more": "Longer bars are better.", "less": "Shorter bars are better."}[described["better"]]
    section = described["section"]
    return (
        f'```{{raw}} html\n<figure class="plot-frame"><figcaption>{escape(described["title"])}</figcaption>\n'
        f"{svg(name)}\n</figure>\n```\n\n"
        f"{better} {described['note']} Measured: [{section}]({link}#{anchor(section)}).\n"
    )
