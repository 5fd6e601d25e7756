"""The benchmark's arithmetic: recovery and means over seeds."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "flickr8k.py"
spec = importlib.util.spec_from_file_location("flickr8k", PATH)
assert spec is not None and spec.loader is not None
flickr8k = importlib.util.module_from_spec(spec)
spec.loader.exec_module(flickr8k)


def row(method: str, seed: int, rsum: float, noise: float = 0.4) -> dict:
    return {
        "matcher": "two_tower",
        "method": method,
        "loss": "infonce",
        "text_encoder": "wordllama",
        "noise": noise,
        "seed": seed,
        "rsum": rsum,
        "rsum_single": rsum - 5,
        "networks": 2,
        "auroc": 0.9,
        "noise_rate": {"estimated": 0.41, "true": 0.4},
        "seconds": 10.0,
    }


ROWS = [row("plain", 1, 200), row("oracle", 1, 250), row("pc2", 1, 240), row("plain", 2, 210), row("oracle", 2, 250)]


def test_recovery_compares_with_plain_and_oracle_of_the_same_seed_and_noise():
    assert flickr8k.recovery(ROWS, ROWS[2]) == pytest.approx(0.8)
    assert flickr8k.recovery(ROWS, row("pc2", 2, 240)) == pytest.approx(0.75)
    assert flickr8k.recovery(ROWS, row("pc2", 3, 240)) is None
    assert flickr8k.recovery(ROWS, row("pc2", 1, 240, noise=0.6)) is None


def test_a_single_network_is_compared_with_single_networks():
    alone = row("npc", 1, 215) | {"rsum_single": 215, "networks": 1}
    assert flickr8k.recovery(ROWS, alone) == pytest.approx((215 - 195) / 50)


def test_the_table_holds_means_and_spreads():
    table = flickr8k.table([*ROWS, row("pc2", 2, 240)])
    line = next(line for line in table.splitlines() if "| pc2 |" in line)
    assert "240.0 (0.0; 2 seeds)" in line and "| 0.78 |" in line  # (0.8 + 0.75) / 2, rounded to even
    plain = next(line for line in table.splitlines() if "| plain |" in line)
    assert "205.0 (10.0; 2 seeds)" in plain and "| 200.0 |" in plain
