"""Settings that all tests share."""

import os

import pytest
from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # every core has a process: threads would only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without bfloat16 units, so that trainings end with the same weights on all processors, in other processes too.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# Machines are noisy: a slow example is no failure. `--hypothesis-profile long` takes several times as many examples.
settings.register_profile("pairsift", deadline=None)
settings.register_profile("long", deadline=None, max_examples=1000, stateful_step_count=350)
settings.load_profile("pairsift")


def pytest_collection_modifyitems(items):
    """Begin with what is slow, so that workers end with something short; busy machines may take their time."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
