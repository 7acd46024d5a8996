"""Selects a sample of repetitive tests for the short tier of `cargo xtask test`. The number in
CROSSDOCK_TEST_SAMPLE selects the sample. Without the variable all tests run."""

import os

import pytest

VARIABLE = "CROSSDOCK_TEST_SAMPLE"

# Only one in n cases of each file or test runs, where n is the number in this table.
ONE_IN = {
    "test_arrow_peers.py": 3,
    "test_cuda_files.py": 5,
    "test_dlpack_leaks.py": 4,
    "test_leaks.py": 4,
    "test_stubs.py::test_recipes_have_no_type_error": 4,
    "test_encoded_bytes.py::test_each_kind_of_array_round_trips_through_bytes_and_files": 4,
    "test_encoded_bytes.py::test_changed_bytes_with_valid_checksum_are_rejected_or_decode": 4,
    "test_vortex_kinds.py::test_decodes_to_the_values_of_vortex": 4,
    "test_vortex_protocol.py::test_memory_stays_flat": 4,
    "test_dlpack_threads.py::test_objects_may_be_released_in_any_order": 4,
    "test_dlpack_malformed.py::test_misaligned_elements_are_read": 4,
}
# Files whose libraries take long to import or build. Only one of these files runs.
HEAVY_PEERS = ["test_dlpack_jax.py", "test_extension.py", "test_third_party.py"]


def number():
    """Returns the number that selects the sample, or None if all tests run."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    if not text.isdecimal():
        raise pytest.UsageError(f"{VARIABLE}={text}: expected a number")
    return int(text)


def is_selected(name, one_in, number):
    """Returns whether a check is in the sample, which is the case for one of `one_in` consecutive sample
    numbers."""
    return (fnv1a(name) + number) % one_in == 0


def fnv1a(text):
    """Returns a hash that is the same in every process, unlike Python's hash()."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value >> 32


def skip_unselected(items):
    """Skips the tests that are not in the sample."""
    sample = number()
    if sample is None:
        return
    heavy = HEAVY_PEERS[sample % len(HEAVY_PEERS)]
    for item in items:
        file = item.path.name
        one_in = ONE_IN.get(file) or ONE_IN.get(f"{file}::{getattr(item, 'originalname', item.name)}")
        is_left_out = file in HEAVY_PEERS and file != heavy
        if is_left_out or (one_in and not is_selected(item.name, one_in, sample)):
            item.add_marker(pytest.mark.skip(reason=f"not in the sample: run it with {VARIABLE} unset"))
