"""The refusal of checkpoints, for tests of imports."""

import torch

from pairsift.cli import main


def assert_refused(content, says, data, place, capsys):
    """Check that a checkpoint is refused in one line that says why, and that nothing is written."""
    torch.save(content, place / "bad.tar")
    words = ["import-checkpoint", str(place / "bad.tar"), "--data", str(data), "--out", str(place / "run")]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err and "bad.tar" in err, err
    assert not (place / "run").exists()
