"""The generators of the documentation site: the reference has the docstrings of the built package, and each plotted
figure is recorded in docs/benchmarks.md."""

import inspect
import re
import sys

import pytest
from conftest import ROOT
from crossdock import _native

SITE = ROOT / "docs" / "site"
if not SITE.exists() or not (ROOT / "python" / "src").exists():
    pytest.skip("this copy of the tests lacks the documentation site or its sources", allow_module_level=True)
sys.path.insert(0, str(SITE))

import plots  # noqa: E402
import python_reference  # noqa: E402


def test_reference_has_the_docstrings_of_the_extension_module():
    documented = {}
    for name in _native.__all__:
        value = getattr(_native, name)
        if inspect.isclass(value):
            documented[name, ""] = value
            members = {} if issubclass(value, BaseException) else vars(value)
            documented |= {(name, member): members[member] for member in members if not member.startswith("_")}
        elif callable(value):
            documented["", name] = value
    documented = {key: inspect.getdoc(value) for key, value in documented.items() if value.__doc__}
    assert len(documented) > 100
    assert {key: inspect.cleandoc(python_reference.DOCS.get(key, "")) for key in documented} == documented


def test_reference_has_each_public_name():
    assert python_reference.missing() == []


def test_plotted_figures_are_recorded():
    assert len(plots.figures()) > 10


def test_figures_of_the_readme_are_plotted():
    plotted = {f"{bar['figure']} {plot['unit']}" for plot in plots.figures().values() for bar in plot["bars"]}
    shown = re.findall(r"[\d.,]*\d (?:GB/s|ms|ns)", (ROOT / "README.md").read_text())
    assert len(shown) >= 8 and set(shown) <= plotted


@pytest.mark.parametrize("key", ["quote", "figure", "section"])
def test_rejects_figures_that_are_not_recorded(key, monkeypatch, tmp_path):
    plot = {"section": "The H200 machine", "quote": "libcudf copies to the device at 6.7 GB/s", "figure": "6.7"}
    plot[key] = "not recorded"
    text = (
        f'[a]\nsection = "{plot["section"]}"\nbars = [{{ figure = "{plot["figure"]}", quote = "{plot["quote"]}" }}]\n'
    )
    (tmp_path / "figures.toml").write_text(text)
    monkeypatch.setattr(plots, "HERE", tmp_path)
    with pytest.raises(ValueError, match="not recorded"):
        plots.figures.__wrapped__()
