"""The meta gradient of MSCN at the size of a real step, and with a matcher that computes its forward pass again."""

import numpy as np
import pytest
import torch
from method_helpers import Tiny
from torch.func import functional_call

from clip_helpers import SIDE, save_clip
from pairsift.encode.features import Items
from pairsift.loss.ranking import Hinge, InfoNCE
from pairsift.match.clip import Clip, ClipOptions
from pairsift.methods.mscn import MSCN, correspondence
from pairsift.methods.parts.meta import meta_loss, meta_of, partial_products
from pairsift.steps import Batch, Network, Setting, Step, not_negatives

RATE = 0.01
N = 64  # pairs of the step; as many are verified


def begun(matcher, ranking, pairs, **meta):
    method = MSCN(meta=meta)
    torch.manual_seed(3)
    network = Network(matcher, method.head(matcher.dim)).train()
    torch.nn.init.normal_(meta_of(network).out.weight, std=0.1)
    ids = np.arange(2 * pairs)
    method = method.begin(Setting(ids, ids, len(ids), None, ranking, 0, verified=ids[pairs:]))
    return method, network


def batch_of(rows, images, texts):
    return Batch(rows.numpy(), rows, rows, Items(images[rows]), Items(texts[rows]))


def meta_term(method, network, clean, verified):
    torch.manual_seed(5)
    phase = {phase.name: phase for phase in method.phases()}["meta"]
    terms = method.step(Step([network, network], 0, {"clean": clean, "verified": verified}, phase))
    return torch.autograd.grad(terms[1].reduced(), list(meta_of(network).parameters()))


@pytest.mark.parametrize("ranking", [InfoNCE(base=1.0), Hinge(base=1.0), Hinge(base=1.0, negatives="mean")])
def test_the_part_through_the_virtual_step_is_exact_for_every_parameter(ranking):
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(2 * N, width, generator=generator) for width in (8, 6))
    clean, verified = (batch_of(torch.arange(start, start + N), images, texts) for start in (0, N))
    method, network = begun(Tiny(), ranking, N, groups=4, hidden=64, rate=RATE)
    found = meta_term(method, network, clean, verified)
    without, _ = begun(network.matcher, ranking, N, groups=4, hidden=64, rate=0.0)
    direct = meta_term(without, network, clean, verified)

    network.double()
    theta = {n: p.detach().requires_grad_() for n, p in network.matcher.named_parameters()}

    def logits(parameters, batch):
        left = functional_call(Side(network.matcher, "encode_images"), wrapped(parameters), (batch.images,))
        right = functional_call(Side(network.matcher, "encode_texts"), wrapped(parameters), (batch.texts,))
        return meta_of(network)(left.vectors @ right.vectors.T, partial_products(left, right, 4))

    clean, verified = (batch_of(torch.arange(s, s + N), images.double(), texts.double()) for s in (0, N))
    inner = logits(theta, clean)
    scale = network.matcher.scale().double()
    loss = ranking(inner.sigmoid(), scale, correspondence(inner), not_negatives(clean)).sum()
    step = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    after = {n: p - RATE * g for (n, p), g in zip(theta.items(), step, strict=True)}
    meta = list(meta_of(network).parameters())
    exact = torch.autograd.grad(
        meta_loss(logits(after, verified), not_negatives(verified)).mean(), meta, retain_graph=True
    )
    stopped = {n: p.detach() for n, p in after.items()}
    at_step = torch.autograd.grad(meta_loss(logits(stopped, verified), not_negatives(verified)).mean(), meta)
    for got, whole, here in zip(found, exact, at_step, strict=True):
        through = whole - here
        assert ((got.double() - here) - through).norm() < 0.01 * through.norm() + 1e-6 * whole.norm()
    assert max((whole - here).norm() / whole.norm() for whole, here in zip(exact, at_step, strict=True)) > 0.05
    assert any(not torch.allclose(a, b) for a, b in zip(found, direct, strict=True))


def wrapped(parameters):
    return {f"matcher.{name}": value for name, value in parameters.items()}


class Side(torch.nn.Module):
    """One encoder of a matcher, to which parameters can be lent."""

    def __init__(self, matcher, name):
        super().__init__()
        self.matcher, self.name = matcher, name

    def forward(self, items):
        return getattr(self.matcher, self.name)(items)


@pytest.mark.parametrize("size", [3, 4])
def test_clip_in_parts_has_the_meta_gradient_of_the_whole(tmp_path, size):
    checkpoint, pairs = str(save_clip(tmp_path / "clip")), 8
    generator = torch.Generator().manual_seed(1)
    pixels = torch.randint(0, 255, (2 * pairs, 3, SIDE, SIDE), generator=generator, dtype=torch.uint8)
    words = torch.randint(5, 100, (2 * pairs, 8), generator=generator)
    found = []
    for micro_batch in (0, size):
        matcher = Clip(ClipOptions(checkpoint=checkpoint, micro_batch=micro_batch))
        words[:, -1] = matcher.model.config.text_config.eos_token_id
        method, network = begun(matcher, InfoNCE(base=1.0), pairs, rate=2e-3)
        clean, verified = (batch_of(torch.arange(s, s + pairs), pixels, words) for s in (0, pairs))
        found.append(torch.cat([g.flatten() for g in meta_term(method, network, clean, verified)]))
    assert (found[1] - found[0]).norm() < 2e-3 * found[0].norm()
