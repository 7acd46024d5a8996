"""Sampling of tests in the short tier: consecutive samples cover all tests."""

from pathlib import Path

import pytest
import sampling

FOLDER = Path(__file__).parent


@pytest.mark.parametrize("one_in", [1, 3, 5])
def test_consecutive_numbers_select_every_check_once(one_in):
    for name in ["", "test_a", "test_a[1-x]"]:
        assert sum(sampling.is_selected(name, one_in, number) for number in range(one_in)) == 1


def test_sample_has_about_the_declared_size():
    names = [f"test_a[{n}]" for n in range(1000)]
    assert 150 < sum(sampling.is_selected(name, 5, 3) for name in names) < 250


@pytest.mark.parametrize("key", [*sampling.ONE_IN, *sampling.HEAVY_PEERS])
def test_each_sampling_key_names_an_existing_test(key):
    file, _, test = key.partition("::")
    (path,) = FOLDER.rglob(file)
    assert f"def {test or 'test_'}" in path.read_text()


def test_rejects_variable_that_is_not_a_number(monkeypatch):
    monkeypatch.setenv(sampling.VARIABLE, "x")
    with pytest.raises(pytest.UsageError, match="expected a number"):
        sampling.number()
    monkeypatch.delenv(sampling.VARIABLE)
    assert sampling.number() is None
