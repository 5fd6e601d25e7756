"""The benchmark's arithmetic: recovery and means over seeds."""

import sys
from pathlib import Path

import pytest
from typed_options import typed

from benchmark_rows import row

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import flickr8k
from option_names import flag

ROWS = [row("plain", 1, 200), row("oracle", 1, 250), row("pc2", 1, 240), row("plain", 2, 210), row("oracle", 2, 250)]


def test_recovery_compares_with_plain_and_oracle_of_the_same_seeds_and_noise():
    assert flickr8k.recovery(ROWS, ROWS[2:3]) == pytest.approx(0.8)
    both = [ROWS[2], row("pc2", 2, 230)]
    assert flickr8k.recovery(ROWS, both) == pytest.approx((40 + 20) / (50 + 40))
    assert flickr8k.recovery(ROWS, [*both, row("pc2", 3, 999)]) == pytest.approx((40 + 20) / (50 + 40))
    assert flickr8k.recovery(ROWS, [row("pc2", 3, 240)]) is None
    assert flickr8k.recovery(ROWS, [row("pc2", 1, 240, noise=0.6)]) is None


def test_a_single_network_is_compared_with_single_networks():
    alone = row("npc", 1, 215) | {"rsum_single": 215, "networks": 1}
    assert flickr8k.recovery(ROWS, [alone]) == pytest.approx((215 - 195) / 50)
    clean = row("plain", 1, 280, noise=0.0)
    assert flickr8k.lost([*ROWS, clean], [alone]) == pytest.approx(275 - 215)
    assert flickr8k.lost([*ROWS, clean], [ROWS[2]]) == pytest.approx(280 - 240)
    assert flickr8k.lost(ROWS, [ROWS[2]]) is None


def test_the_table_holds_means_and_spreads():
    table = flickr8k.table([*ROWS, row("pc2", 2, 240)])
    line = next(line for line in table.splitlines() if "| pc2 |" in line)
    assert "240.0 (0.0; 2 seeds)" in line and "| 0.78 |" in line  # (40 + 30) / (50 + 40)
    plain = next(line for line in table.splitlines() if "| plain |" in line)
    assert "205.0 (10.0; 2 seeds)" in plain and "| 200.0 | 206.0 |" in plain
    other = flickr8k.table([row("pc2", 1, 240) | {"options": ["pc2.classifier.classes=64"]}])
    assert "two_tower, wordllama, pc2.classifier.classes=64" in other


@pytest.mark.parametrize("matcher", ["vse", "sgr"])
@pytest.mark.parametrize("loss", ["infonce", "hinge"])
def test_reduced_options_are_options_of_a_fit(matcher, loss):
    for method in (*flickr8k.METHODS, *flickr8k.VARIANTS):
        name, more = flickr8k.VARIANTS.get(method, (method, []))
        options = flickr8k.reduced(matcher, method, loss)
        words = [f"--matcher={matcher}", f"--method={name}", f"--loss={loss}", *map(flag, [*more, *options])]
        config = typed(words)
        assert config.matcher_options.dim == 128 and config.train.batch_size == 64
        assert sum(phase.epochs for phase in config.method.phases()) == 10
        assert (
            flickr8k.own_options(
                row(method, 1, 200) | {"matcher": matcher, "loss": loss, "images": 1000, "options": options}
            )
            == []
        )


def test_rows_from_before_options_had_groups_are_rows_of_today():
    few = {"matcher": "vse", "images": flickr8k.REDUCED_IMAGES}
    old = ["vse.dim=128", "vse.word_dim=64", "batch_size=64", "lr=0.001", "schedule=one_cycle"]
    phases = ["ncr.warmup_epochs=2", "ncr.clean_epochs=4", "ncr.all_epochs=4"]
    assert flickr8k.own_options(row("ncr", 1, 200) | few | {"options": [*old, *phases]}) == []
    other = row("oracle", 1, 200) | few | {"options": [*old, "oracle.warmup_epochs=1", "oracle.epochs=7"]}
    assert flickr8k.own_options(other) == ["oracle.epochs.warmup=1"]


def test_the_summary_has_a_row_for_each_method_and_a_column_for_each_noise():
    lines = flickr8k.two_towers([*ROWS, row("plain", 1, 280, noise=0.0)]).splitlines()
    assert lines[0] == "| | 0% | 40% |"
    assert "| `plain` | 280.0 | 205.0, 0.900 |" in lines and "| `pc2` |  | 240.0 (0.80), 0.900 |" in lines
    assert lines[-1].startswith("| `oracle` |")


def test_the_pages_tables_are_written_between_their_marks(tmp_path):
    page = tmp_path / "page.md"
    head, small = flickr8k.PAGE
    page.write_text(f"a\n{head}\nold\n{flickr8k.END}\nb\n{small}\nold\n{flickr8k.END}\nc\n")
    few = {"matcher": "sgr", "images": flickr8k.REDUCED_IMAGES, "options": ["batch_size=64"]}
    flickr8k.show(page, [*ROWS, row("oracle", 1, 170, noise=0.6) | few, row("gsc", 1, 150, noise=0.6) | few])
    lines = page.read_text().splitlines()
    assert [lines[0], lines[-1]] == ["a", "c"] and "old" not in lines and "b" in lines
    assert "| | 40% |" in lines and "| | `sgr`, infonce, 60% |" in lines
    assert "| `gsc` | 150.0, 0.900 |" in lines  # and no recovery, since there is no plain
    page.write_text("nothing to fill\n")
    flickr8k.show(page, ROWS)
    assert page.read_text() == "nothing to fill\n"
