"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("pairsift", deadline=None)  # machines are noisy: a slow example is no failure
settings.load_profile("pairsift")
