"""A matcher that does not factorise goes the whole way, from `fit` to `search`."""

import numpy as np
import pytest
from flat_options import fit
from whole_way import opened_again

from pairsift.cli import main
from pairsift.match import MATCHERS
from token_helpers import Late

pytestmark = pytest.mark.slow


def test_a_matcher_of_tokens_goes_the_whole_way(place, scenes, quick, monkeypatch, capsys):
    monkeypatch.setitem(MATCHERS._loaded, "late", Late)
    chosen = {name: value for name, value in quick.items() if not name.startswith("pc2")}
    chosen |= {"out": str(place / "late"), "matcher": "late", "method": "ncr", "min_count": 1, "lr": 0.003}
    chosen |= {f"ncr.epochs.{phase}": 1 for phase in ("warmup", "clean", "all")}
    run = fit(scenes, chosen, progress=False)
    opened = opened_again(run, capsys)
    assert main(["audit", str(run.folder), "--worst", "1"]) == 0
    assert "AUROC" in capsys.readouterr().out
    found = opened.search("a red ball", 5)
    assert len({path for path, _ in found}) == 5
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert all(np.isfinite(score) for _, score in found)
    assert main(["search", str(run.folder), "a red ball", "-k", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
