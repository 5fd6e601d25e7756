"""Settings that all tests share."""

import os

from hypothesis import settings

if "PYTEST_XDIST_WORKER" in os.environ:  # every core has a process: threads would only wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("pairsift", deadline=None)  # machines are noisy: a slow example is no failure
settings.load_profile("pairsift")
