"""NCR and CREAM as published: batches of 128 beside the papers' equations, one optimizer step for each set."""

import numpy as np
import pytest
import torch
from given import B, begun, hardest, mean_hinges, same, softmaxes

from pairsift.methods.cream import mining

SETS = {"clean": 0, "hard": B, "noisy": 2 * B}


def curve(y):
    return [0.2 * (10 ** float(v) - 1) / 9 for v in y]


def prediction(block: torch.Tensor) -> torch.Tensor:
    """NCR's P: how far the mean hinge leaves a pair above its negatives, over the mean of the highest tenth."""
    a = (0.2 - mean_hinges(block.detach()) / 2).clamp(0, 0.2)
    top = sorted(a.tolist(), reverse=True)[: B // 10 + 1]
    return (a / (sum(top) / len(top))).clamp(max=1)


@pytest.mark.parametrize("preset", ["paper", "paper_coco", "paper_cc152k"])
def test_ncr_takes_a_step_on_clean_pairs_and_then_one_on_noisy_pairs_by_labels_from_before_both(preset):
    job = begun("ncr", preset)
    batches = {name: job.batch(SETS[name]) for name in ("clean", "noisy")}
    w = torch.from_numpy(job.method.division.state["clean_probability"][1, :B]).double()
    own = prediction(job.block(batches["clean"]))
    labels = {
        "clean": w + (1 - w) * own,
        "noisy": torch.stack([prediction(job.block(batches["noisy"], k)) for k in (0, 1)]).mean(0),
    }
    assert all(label.std() > 0.1 for label in labels.values())
    updates = job.method.updates(job.step("all", **batches))
    for name, batch in batches.items():
        terms = next(updates)
        assert [term.name for term in terms] == [name]
        block = job.block(batch)
        same(job, terms, batch, hardest(block, curve(labels[name])), block)
        with torch.no_grad():  # as if the optimizer had stepped: the labels of the second set are from before
            job.networks[0].matcher.block.mul_(0.9)
    assert next(updates, None) is None


def probabilities(block: torch.Tensor) -> torch.Tensor:
    rows, columns = softmaxes(block.detach(), 0.07)
    return (rows.diagonal() + columns.diagonal()) / 2


def soft_targets(block: torch.Tensor, y: torch.Tensor, least: float) -> torch.Tensor:
    """The mean InfoNCE with the label at the pair, and parts of the rest that reach a weight, by loops."""
    loss = 0.0
    for p, s in zip(softmaxes(block, 0.07), (block, block.T), strict=True):
        for i in range(B):
            others = [j for j in range(B) if j != i]
            weight = (1 - y[i]) * s[i, others] / s[i, others].sum()
            weight = torch.where(weight >= least, weight, 0.0)
            loss = loss - y[i] * p[i, i].log() - (weight * p[i, others].log()).sum()
    return loss / (2 * B)


@pytest.mark.parametrize("sizes", [(300, 100, 112), (500, 6, 6)])
def test_cream_takes_a_step_on_each_set_by_labels_from_before_all_of_them(sizes):
    job = begun("cream")
    job.method._sizes = dict(zip(SETS, sizes, strict=True))
    batches = {name: job.batch(start) for name, start in SETS.items()}
    state = job.method.division.state["clean_probability"]
    w = {name: torch.from_numpy(state[:, start : start + B]).double() for name, start in SETS.items()}
    c = {name: [probabilities(job.block(batch, k)) for k in (0, 1)] for name, batch in batches.items()}
    labels = {
        "clean": w["clean"][1] + (1 - w["clean"][1]) * c["clean"][0],
        "hard": w["hard"].mean(0) + (1 - w["hard"].mean(0)) * c["hard"][0],
        "noisy": (c["noisy"][0] + c["noisy"][1]) / 2,
    }
    mean = sum(n * label.mean().item() for n, label in zip(sizes, labels.values(), strict=True)) / sum(sizes)
    updates = job.method.updates(job.step("all", **batches))
    for name, batch in batches.items():
        terms = next(updates)
        block = job.block(batch)
        least = 0.0 if sizes[0] > 0.85 * sum(sizes) and name != "noisy" else mean
        same(job, terms, batch, soft_targets(block, labels[name], least), block)
        with torch.no_grad():
            job.networks[0].matcher.block.mul_(0.9)
    assert next(updates, None) is None


def test_creams_mining_begins_with_the_hard_pairs_or_at_once_where_nearly_all_are_clean():
    for sizes, mined in (((300, 100, 112), False), ((500, 6, 6), True)):
        job = begun("cream")
        job.method._sizes = dict(zip(SETS, sizes, strict=True))
        (terms,) = job.method.updates(job.step("clean", clean=job.batch(0)))
        assert [term.name for term in terms] == ["clean", "clean mining"][: 1 + mined]


def test_creams_shares_pass_a_gradient():
    rng = np.random.default_rng(3)
    s = torch.from_numpy(rng.uniform(0.1, 0.9, (12, 12))).requires_grad_()
    y, own = torch.from_numpy(rng.random(12)), torch.eye(12, dtype=torch.bool)
    assert torch.autograd.gradcheck(lambda block: mining(block / 0.07, block, y, own, 0.0), s)
    (whole,) = torch.autograd.grad(mining(s / 0.07, s, y, own, 0.0).mean(), s)
    (detached,) = torch.autograd.grad(mining(s / 0.07, s.detach(), y, own, 0.0).mean(), s)
    assert (whole - detached).norm() > 0.05 * whole.norm()
