"""Grids of runs: the same source with methods, matchers, noise and seeds, measured and put into tables."""
