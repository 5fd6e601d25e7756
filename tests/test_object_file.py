"""Objects of our data classes in a file."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pairsift import InputError
from pairsift.detect.evidence import Keys, References
from pairsift.detect.options import DetectOptions
from pairsift.object_file import read_object, write_object


@dataclass(frozen=True)
class Foreign:
    """A data class of another package."""

    number: int


def test_an_object_comes_back_as_it_was(tmp_path):
    rows = torch.arange(6.0).reshape(2, 3)
    written = References(rows, rows[:, ::2], np.array([3, 1]))
    write_object(tmp_path / "object", written)
    read = read_object(tmp_path / "object", References)
    assert torch.equal(read.images, rows) and torch.equal(read.captions, rows[:, ::2])
    assert read.groups.dtype == np.int64 and read.groups.tolist() == [3, 1]
    write_object(tmp_path / "object", DetectOptions())
    assert read_object(tmp_path / "object", DetectOptions) == DetectOptions()


def test_an_array_in_several_fields_is_written_once(tmp_path):
    rows = torch.randn(1000, 10)
    write_object(tmp_path / "object", Keys(rows, rows, torch.ones(1)))
    assert (tmp_path / "object").stat().st_size < 1.1 * rows.numel() * 4


def test_only_data_classes_of_the_package_are_made(tmp_path):
    with pytest.raises(TypeError, match="Foreign cannot be written"):
        write_object(tmp_path / "object", Foreign(1))
    for module, name in (("os", "system"), ("pairsift.files", "write_text"), ("pairsift.errors", "InputError")):
        tree = {"class": [module, name], "fields": {"command": "touch done"}}
        save_file({}, tmp_path / "object", {"tree": json.dumps(tree)})
        with pytest.raises(InputError, match="object cannot be read"):
            read_object(tmp_path / "object", DetectOptions)


def test_what_is_no_such_file_ends_in_one_line(tmp_path):
    with pytest.raises(InputError, match="is missing"):
        read_object(tmp_path / "object", References)
    write_object(tmp_path / "object", DetectOptions())
    with pytest.raises(InputError, match="holds no References"):
        read_object(tmp_path / "object", References)
    whole = (tmp_path / "object").read_bytes()
    for cut in (whole[:5], whole[: len(whole) // 2], b"\xff" * 100):
        (tmp_path / "object").write_bytes(cut)
        with pytest.raises(InputError, match="cannot be read") as error:
            read_object(tmp_path / "object", DetectOptions)
        assert "\n" not in str(error.value)
