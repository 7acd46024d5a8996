"""Arrow's own golden files through `crossdock convert`: what comes out, read by pyarrow, is what pyarrow reads in the
input, and what the JSON beside it says."""

import pytest
from conftest import golden_cases
from peers import FORMS, assert_equal, read
from truth import truth, with_stand_ins

GOLDEN_ENDINGS = {"file": ".arrow_file", "stream": ".stream"}
VIAS = {
    "alone": (),
    "via": ("--via", "arrow-c-device"),
    # The same on memory that the host may not touch.
    "untouchable": ("--device", "untouchable", "--via", "arrow-c-device"),
}
CASES = golden_cases()


def test_every_golden_case_is_there_in_both_forms(golden):
    """Skipped, with the reason, where there are no golden files: the cases below are then none."""
    for case in CASES:
        for ending in GOLDEN_ENDINGS.values():
            assert case.with_name(case.name + ending).is_file(), f"{case}{ending} is not in {golden}"


@pytest.mark.parametrize("via", VIAS)
@pytest.mark.parametrize("out_form", FORMS)
@pytest.mark.parametrize("in_form", GOLDEN_ENDINGS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_every_golden_case_comes_out_as_its_json_says(convert, tmp_path, case, in_form, out_form, via):
    source = case.with_name(case.name + GOLDEN_ENDINGS[in_form])
    target = tmp_path / f"out{FORMS[out_form]}"
    convert(source, target, *VIAS[via])
    got = read(target, out_form)
    assert_equal(read(source, in_form), got)
    assert_equal(truth(case), with_stand_ins(got))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_pyarrow_reads_in_each_golden_case_what_its_json_says(case):
    """So that a failure above is ours."""
    expected = truth(case)
    for form, ending in GOLDEN_ENDINGS.items():
        assert_equal(expected, with_stand_ins(read(case.with_name(case.name + ending), form)))
