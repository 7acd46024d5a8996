"""What the short tier of `cargo xtask test` leaves out: of tests that do the same work over and over, a part runs, selected by
the number in CROSSDOCK_TEST_SAMPLE. Without the variable everything runs."""

import os

import pytest

VARIABLE = "CROSSDOCK_TEST_SAMPLE"

# Files, and tests of files, of which one in so many runs; a file that is one check, such as a build, runs whole or not at all.
ONE_IN = {
    "test_arrow_peers.py": 3,
    "test_cuda_files.py": 5,
    "test_dlpack_leaks.py": 4,
    "test_leaks.py": 4,
    "test_encoded_bytes.py::test_every_kind_goes_through_bytes_and_files": 4,
    "test_encoded_bytes.py::test_whatever_was_changed_and_signed_it_is_an_error_or_a_column": 4,
    "test_vortex_kinds.py::test_decoded_as_vortex_decodes_it": 4,
    "test_vortex_protocol.py::test_memory_stays_flat": 4,
    "test_dlpack_threads.py::test_everything_may_go_in_any_order": 4,
    "test_dlpack_hostile.py::test_misaligned_elements_have_their_values": 4,
}
# Peers that take long to import or to build: one of these files runs.
HEAVY_PEERS = ["test_dlpack_jax.py", "test_extension.py", "test_third_party.py"]


def number():
    """The number that selects, or None where everything runs."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    if not text.isdecimal():
        raise pytest.UsageError(f"{VARIABLE}={text}: expected a number")
    return int(text)


def is_selected(name, one_in, number):
    """Whether the check of this name is among the one in so many: once in as many consecutive numbers."""
    return (fnv1a(name) + number) % one_in == 0


def fnv1a(text):
    """The same in every process, unlike Python's own hash."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value >> 32


def skip_unselected(items):
    """Marks what is not selected as skipped, with how to run it."""
    sample = number()
    if sample is None:
        return
    heavy = HEAVY_PEERS[sample % len(HEAVY_PEERS)]
    for item in items:
        file = item.path.name
        one_in = ONE_IN.get(file) or ONE_IN.get(f"{file}::{getattr(item, 'originalname', item.name)}")
        left_out = file in HEAVY_PEERS and file != heavy
        if left_out or (one_in and not is_selected(item.name, one_in, sample)):
            item.add_marker(pytest.mark.skip(reason=f"not in the sample: run it with {VARIABLE} unset"))
