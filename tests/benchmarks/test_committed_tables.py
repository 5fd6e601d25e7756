"""Tables in pages have the numbers of committed rows, and recovery compares what can be compared."""

import json
from pathlib import Path

import pytest

import aligned
import audit
import clip
import constants
import detect
import detection
import endings
import epoch_sgr
import epochs
import gpu
import hub_encoders
import image_encoders
import matchers
import method_tables
import rows as results
import scale
import serve
import text_choice
import verdicts
from benchmark_rows import row

ROOT = Path(__file__).parents[2]
FILES = [  # what a script writes beside its rows
    ("ablations", method_tables.ablations_table),
    ("aligned", aligned.table),
    ("audit", audit.tables),
    ("constants", constants.table),
    ("default_encoder", method_tables.default_encoder),
    ("detect", detect.table),
    ("detection", detection.tables),
    ("endings", endings.table),
    ("epochs", epochs.table),
    ("flickr8k", method_tables.methods_table),
    ("flickr8k_mended", method_tables.methods_table),
    ("hub_encoders", hub_encoders.table),
    ("image_encoders", image_encoders.tables),
    ("partners", method_tables.partners_table),
    ("scale", scale.table),
    ("text_choice", text_choice.table),
    ("variants", method_tables.methods_table),
    ("verdicts", verdicts.tables),
    ("with_evidence", method_tables.evidence_table),
]
PAGES = [
    ("docs/results.md", "flickr8k_mended", "<!-- word vectors table -->", method_tables.two_towers),
    ("docs/verdicts.md", "verdicts", "<!-- verdicts table -->", verdicts.summary),
    ("docs/results.md", "default_encoder", "<!-- default encoder table -->", method_tables.default_encoder),
    ("README.md", "default_encoder", "<!-- sift beside others -->", method_tables.sift_beside_others),
    ("docs/results.md", "with_evidence", "<!-- with evidence table -->", method_tables.evidence_table),
    ("docs/results.md", "flickr8k", "<!-- small matchers table -->", method_tables.small_matchers),
    ("docs/results.md", "endings", "<!-- endings table -->", endings.table),
    ("docs/verdicts.md", "verdicts", "<!-- recall table -->", verdicts.recall_summary),
    ("docs/verdicts.md", "verdicts", "<!-- linear table -->", verdicts.linear_summary),
    ("docs/verdicts.md", "verdicts", "<!-- taught table -->", verdicts.taught_summary),
    ("docs/noise.md", "detection", "<!-- auroc table -->", detection.aurocs),
    ("docs/noise.md", "detection", "<!-- estimates table -->", detection.estimates),
    ("docs/noise.md", "detection", "<!-- near estimates table -->", detection.near_estimates),
    ("docs/matchers.md", "matchers", "<!-- table -->", matchers.table),
    ("docs/matchers.md", "clip", "<!-- clip -->", clip.table),
    ("docs/howto/encoders.md", "image_encoders", "<!-- image encoders table -->", image_encoders.summary),
    ("docs/howto/encoders.md", "text_choice", "<!-- text encoders table -->", text_choice.summary),
    ("docs/scale.md", "scale", "<!-- scale table -->", scale.summary),
    ("docs/howto/machines.md", "gpu", "<!-- gpu -->", gpu.table),
]
ROWS = [row("plain", 1, 200), row("oracle", 1, 250), row("pc2", 1, 240), row("plain", 2, 210), row("oracle", 2, 250)]


@pytest.mark.parametrize(("name", "table"), FILES)
def test_the_table_beside_rows_is_made_of_them(name, table):
    rows = results.read_rows(results.RESULTS / f"{name}.json")
    assert rows and f"\n\n{table(rows)}\n" in (results.RESULTS / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "name", "mark", "table"), PAGES)
def test_the_table_of_a_page_is_made_of_rows(page, name, mark, table):
    rows = results.read_rows(results.RESULTS / f"{name}.json")
    assert rows and f"{mark}\n{table(rows)}\n<!-- end" in (ROOT / page).read_text(encoding="utf-8")


def test_tables_that_need_more_than_rows_are_made_of_their_files():
    names = ("epoch_sgr", "serve", "serve_10m")
    epoch, *served = (json.loads((results.RESULTS / f"{name}.json").read_text()) for name in names)
    page = (ROOT / "docs" / "matchers.md").read_text(encoding="utf-8")
    assert f"<!-- epoch -->\n{epoch_sgr.table(epoch['rows'], epoch['limits'])}\n" in page
    for name, found in zip(names[1:], served, strict=True):
        assert serve.table(found["rows"], found) in (results.RESULTS / f"{name}.md").read_text()


def test_only_a_table_between_its_marks_is_written_anew(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- x -->\nold\n<!-- end -->\nb\n")
    results.write_tables([page], {"<!-- x -->": lambda rows: f"{len(rows)} rows", "<!-- y -->": str}, [{}])
    assert page.read_text() == "a\n<!-- x -->\n1 rows\n<!-- end -->\nb\n"


def test_recovery_compares_with_plain_and_oracle_of_the_same_seeds_and_noise():
    assert method_tables.recovery(ROWS, ROWS[2:3]) == pytest.approx(0.8)
    both = [ROWS[2], row("pc2", 2, 230)]
    assert method_tables.recovery(ROWS, both) == pytest.approx((40 + 20) / (50 + 40))
    assert method_tables.recovery(ROWS, [*both, row("pc2", 3, 999)]) == pytest.approx((40 + 20) / (50 + 40))
    assert method_tables.recovery(ROWS, [row("pc2", 3, 240)]) is None
    assert method_tables.recovery(ROWS, [row("pc2", 1, 240, noise=0.6)]) is None


def test_a_single_network_is_compared_with_single_networks():
    alone = row("npc", 1, 215) | {"rsum_single": 215, "networks": 1}
    assert method_tables.recovery(ROWS, [alone]) == pytest.approx((215 - 195) / 50)
    rows = [*ROWS, row("plain", 1, 280, noise=0.0)]
    assert method_tables.lost(rows, alone) == pytest.approx(275 - 215)
    assert method_tables.lost(rows, ROWS[2]) == pytest.approx(280 - 240)
    assert method_tables.lost(ROWS, ROWS[2]) is None


def test_rows_of_a_grid_make_the_same_tables():
    rows = results.read_rows(results.RESULTS / "noise_kinds.json")
    near = [one for one in rows if one["noise_kind"] == "near"]
    table = method_tables.two_towers([method_tables.row_of_grid(one, Path("runs/near/rows.json")) for one in near])
    rsum = [one["rsum"] for one in near if one["method"] == "sift"]
    assert len(rsum) == 3 and f"| `sift` | {sum(rsum) / 3:.1f} (" in table
