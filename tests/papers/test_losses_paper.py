"""CRCL, RCL, DECL and OSA as published: batches of 128 beside the papers' equations with their reductions."""

import numpy as np
import pytest
import torch
from given import PAIRS, B, begun, same, softmaxes
from torch.distributions import Dirichlet, kl_divergence

from pairsift.methods.osa import OSA
from pairsift.steps import Observation


@pytest.mark.parametrize("preset", ["paper", "paper_coco"])
def test_crcl_adds_five_complementary_losses_to_the_active_one_as_means(preset):
    job = begun("crcl", preset)
    y = torch.from_numpy(np.random.default_rng(5).random(PAIRS))
    job.method.correspondence.state["correspondence"][0] = y.numpy()
    batch = job.batch(0)
    terms = job.method.step(job.step("last", all=batch))
    block, loss = job.block(batch), 0.0
    for p in softmaxes(block, 0.05):
        for i in range(B):
            tangents = [torch.tan(v) for v in p[i]]
            negatives, whole = sum(t for j, t in enumerate(tangents) if j != i), sum(tangents)
            loss = loss - y[i] * p[i, i].log() + 5 * negatives / whole ** (1 - y[i])
    same(job, terms, batch, loss / B, block)


@pytest.mark.parametrize("preset", ["paper", "paper_coco"])
def test_rcl_is_the_mean_of_log_losses_of_negatives(preset):
    job = begun("rcl", preset)
    batch = job.batch(0)
    terms = job.method.step(job.step("train", all=batch))
    block, loss = job.block(batch), 0.0
    for p in softmaxes(block, 0.05):
        loss = loss - torch.log(1 - p).sum() + torch.log(1 - p.diagonal()).sum()
    same(job, terms, batch, loss / (2 * B), block)  # the mean of both directions; the authors' is their sum


@pytest.mark.parametrize("steps", [0, 40, 5000])
def test_decl_adds_four_fifths_of_the_sum_of_hinges_to_the_mean_evidential_loss(steps):
    job = begun("decl")
    believed = np.random.default_rng(5).random(PAIRS) > 0.4
    job.method.state["believed"][0] = believed
    job.method.state["steps"][0] = steps
    batch = job.batch(0)
    terms = job.method.step(job.step("train", all=batch))
    block = job.block(batch)
    t, y = block.tanh(), torch.from_numpy(believed[:B]).double()
    hinges, evidential, count = 0.0, 0.0, max(int(B - 0.025 * (steps + 1)), 5)
    assert count == {0: 127, 40: 126, 5000: 5}[steps]  # in the authors' 41st step there are 126
    for side in (t, t.T):
        for i in range(B):
            costs = torch.relu(0.2 + side[i] - side[i, i])[[j for j in range(B) if j != i]]
            hinges = hinges + y[i] * costs.sort(descending=True).values[:count].mean()
            a = (side[i] / 0.1).exp() + 1
            strength, target = a.sum(), torch.eye(B, dtype=torch.float64)[i] * y[i]
            error = ((target - a / strength) ** 2).sum() + (a * (strength - a)).sum() / (strength**2 * (strength + 1))
            others = Dirichlet(target + (1 - target) * a, validate_args=False)
            evidential = evidential + error + 0.1 * kl_divergence(others, Dirichlet(torch.ones(B).double()))
    same(job, terms, batch, 0.8 * hinges + evidential / B, block)


def test_osa_weighs_by_the_printed_polynomial_and_takes_the_mean():
    job = begun("osa", matcher="clip")
    batch = job.batch(0, PAIRS)
    network = job.networks[0].eval()
    with torch.no_grad():
        notes = job.method.observe(Observation.make(network, 0, batch))
    job.method.update([{name: value.numpy() for name, value in notes.items()}], 0)
    s = job.block(batch).detach().numpy()
    unrelated = (s.sum() - np.trace(s)) / (PAIRS * (PAIRS - 1))
    x = np.maximum(s.diagonal() - unrelated, 0)
    x = x / x.max()
    weight = x**2 - x**4
    assert job.method.state["weight"][0].tolist() == pytest.approx(weight.tolist(), abs=1e-5)
    assert weight.max() <= 0.25 and weight[x.argmax()] == 0
    part = job.batch(0)
    (term,) = job.method.step(job.step("train", all=part))
    block, loss = job.block(part), 0.0
    for p in softmaxes(block, 0.07):
        loss = loss - (torch.from_numpy(weight[:B]) * p.diagonal().log()).mean() / 2
    same(job, [term], part, loss, block)
    assert OSA().printed is False
