"""Arrow's golden files through `crossdock convert`: the result equals the values that pyarrow reads from the
input, and the values in the JSON of the case."""

import pytest
from conftest import golden_cases
from peers import FORMS, assert_equal, read
from truth import truth, with_substitutes

GOLDEN_SUFFIXES = {"file": ".arrow_file", "stream": ".stream"}
VIAS = {
    "alone": (),
    "via": ("--via", "arrow-c-device"),
    # This device has memory that the host must not access.
    "untouchable": ("--device", "untouchable", "--via", "arrow-c-device"),
}
CASES = golden_cases()


def test_golden_cases_exist_in_both_forms(golden):
    """This test is skipped if the golden files are missing. The tests of golden cases then have no cases to
    run."""
    for case in CASES:
        for suffix in GOLDEN_SUFFIXES.values():
            assert case.with_name(case.name + suffix).is_file(), f"{case}{suffix} is not in {golden}"


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("out_form", FORMS)
@pytest.mark.parametrize("in_form", GOLDEN_SUFFIXES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_golden_cases_convert_to_the_values_of_their_json(convert, tmp_path, case, in_form, out_form, via):
    source = case.with_name(case.name + GOLDEN_SUFFIXES[in_form])
    target = tmp_path / f"out{FORMS[out_form]}"
    convert(source, target, *VIAS[via])
    got = read(target, out_form)
    assert_equal(read(source, in_form), got)
    assert_equal(truth(case), with_substitutes(got))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_pyarrow_reads_the_values_of_the_json(case):
    """Checks pyarrow alone: if this test passes, a failure of
    `test_golden_cases_convert_to_the_values_of_their_json` is a fault of Crossdock."""
    expected = truth(case)
    for form, suffix in GOLDEN_SUFFIXES.items():
        assert_equal(expected, with_substitutes(read(case.with_name(case.name + suffix), form)))
