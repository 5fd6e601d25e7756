"""Files that cannot be written: one line that names the file, the reason and what to do."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors import SafetensorError

from pairsift.errors import InputError, WriteError, writing
from pairsift.pairs.pairs import Pairs
from pairsift.report.report import write_report
from pairsift.table import pair_table, write_tables
from pairsift.train import checkpoint

CHILD = """
import resource, sys
from pathlib import Path
import torch
from pairsift.errors import WriteError
from pairsift.train.checkpoint import write_tensors
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    write_tensors(folder / "w.safetensors", {"x": torch.zeros(1_000_000)})
except WriteError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device"), "No space left on device); free space or make it writable"),
        (PermissionError(13, "Permission denied"), "Permission denied); free space or make it writable"),
        (SafetensorError("Error: I/O error: (os error 28)"), "No space left on device); free space or"),
        (pa.ArrowInvalid("[Errno 28] Error writing"), "No space left on device); free space or"),
        (OSError("odd"), "odd); free space or make it writable"),
    ],
)
def test_errors_of_the_system_are_one_line(error, says):
    with pytest.raises(WriteError) as caught, writing(Path("run/x")):
        raise error
    assert str(caught.value).startswith("run/x: cannot be written (") and says in str(caught.value)
    assert "--resume" in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value, InputError)


def test_other_errors_pass():
    with pytest.raises(KeyError), writing(Path("x")):
        raise KeyError("a bug")


@pytest.mark.slow
def test_a_file_that_grows_too_large_in_a_real_process(tmp_path):
    done = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{tmp_path / 'w.safetensors'}: cannot be written (File too large)")
    assert list(tmp_path.iterdir()) == []
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100_000


def test_what_was_there_stays(tmp_path, monkeypatch):
    path = tmp_path / "w.safetensors"
    checkpoint.write_tensors(path, {"x": torch.ones(3)})

    def full(tensors, file, facts):
        Path(file).write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(WriteError, match="No space left"):
        checkpoint.write_tensors(path, {"x": torch.zeros(3)})
    assert [file.name for file in tmp_path.iterdir()] == ["w.safetensors"]
    assert checkpoint.read_tensors(path)[0]["x"].tolist() == [1, 1, 1]


def test_the_table_and_the_report(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    names, split = ["a.png"], np.array(["train"])
    pairs = Pairs("source", names, [tmp_path.parent / "a.png"], ["caption"], np.zeros(1, np.int64), split)
    table = pair_table(pairs, pairs.ids(), np.array([0.1]), np.array([True]), ["mismatched"], np.array([-1]))
    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(WriteError, match=r"pairs.parquet: cannot be written \(No space left"):
        write_tables(table, tmp_path)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(WriteError, match=r"report.html: cannot be written \(No space left"):
        write_report(tmp_path / "report.html", pairs, table, {}, [], {})
    assert list(tmp_path.iterdir()) == []
