"""What holds of every finished run, whatever its matcher."""

import pytest

import pairsift
from pairsift.cli import main


def opened_again(run, capsys):
    """Open a finished run: its recall, on the console too, and its table are those of the fit."""
    recall = run.metrics["test"]["ensemble"]
    assert main(["evaluate", str(run.folder)]) == 0
    assert f"{recall['rsum']:.1f}" in capsys.readouterr().out
    opened = pairsift.open_run(run.folder, progress=False)
    assert opened.evaluate("test")["ensemble"] == pytest.approx(recall)
    before = run.pairs()
    assert len(before) == len(run.prepared.pairs.ids()) and opened.audit().equals(before)
    return opened
