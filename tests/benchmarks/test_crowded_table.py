"""The table of crowded fits shows the median ratio of the repeats and its range."""

import sys
from pathlib import Path

from typed_options import typed

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import crowded


def test_a_fit_trains_one_network_for_the_epochs_asked_for():
    config = typed(crowded.options(Path("cache"), 4))
    assert [(phase.name, phase.epochs) for phase in config.method.phases()] == [("warm-up", 0), ("train", 4)]
    assert (config.method.name, config.method.networks, config.cache) == ("plain", 1, Path("cache").resolve())


def test_repeats_are_summed_up_by_others_and_waiting():
    ratios = [(3, "sleep", 4.5), (3, "spin", 30.0), (3, "sleep", 3.9), (0, "sleep", 1.0), (3, "sleep", 4.1)]
    rows = [{"others": others, "waiting": waiting, "ratio": ratio} for others, waiting, ratio in ratios]
    assert crowded.table(rows).splitlines()[2:] == [
        "| 3 | sleep | 4.10 | 3.90 to 4.50 |",
        "| 3 | spin | 30.00 | 30.00 to 30.00 |",
        "| 0 | sleep | 1.00 | 1.00 to 1.00 |",
    ]
