"""Masks of dropout on a GPU, whose operations are recorded without one."""

import inspect

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from pairsift.match import MATCHERS
from pairsift.match.layers import Dropout
from pairsift.match.vsrn import Captioner

SIZES = {"image_dim": 6, "text_dim": 5, "vocabulary_size": 20, "regions": 4}
WITH_DROPOUT = {"two_tower", "pcme", "pcmepp", "pau", "saf", "sgr", "sgraf"}


class Recorder(TorchDispatchMode):
    """Notes the precision in which masks are drawn."""

    def __init__(self):
        super().__init__()
        self.kinds = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.native_dropout.default:
            self.kinds.append(args[0].dtype)
        return func(*args, **(kwargs or {}))


def dropouts(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.modules() if "dropout" in type(part).__name__.lower()]


@pytest.mark.parametrize("name", sorted(set(MATCHERS) - {"clip"}))
def test_every_dropout_of_a_matcher_is_ours(name):
    wanted = inspect.signature(MATCHERS[name]).parameters
    found = dropouts(MATCHERS[name](**{key: value for key, value in SIZES.items() if key in wanted}))
    assert all(type(part) is Dropout for part in found)
    assert any(part.p for part in found) == (name in WITH_DROPOUT)


def test_the_dropout_of_the_caption_loss_is_ours():
    assert {type(part) for part in dropouts(Captioner(8, 20, 4))} == {Dropout}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_masks_are_drawn_in_float32_on_a_gpu_and_as_in_torch_elsewhere(kind):
    x = torch.randn(40, 50).to(kind)
    torch.manual_seed(1)
    ours = Dropout(0.4)(x)
    torch.manual_seed(1)
    assert ours.dtype == kind and torch.equal(ours, nn.Dropout(0.4)(x))
    with FakeTensorMode(), Recorder() as recorder:
        x = torch.empty(40, 50, dtype=kind, device="cuda")
        assert Dropout(0.4)(x).dtype == kind and Dropout(0.4).eval()(x).dtype == kind
        nn.Dropout(0.4)(x)
    assert recorder.kinds == [torch.float32, kind]
