"""The loop's optimizer step: what a method's terms add up to, how far they reach, and that it was foreseen."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from train_helpers import make_job

from pairsift.errors import InputError
from pairsift.steps import Step, Term
from pairsift.train.loop import Trainer

PART = "matcher.image_head.project.2.weight"
WEIGHTS = {"summed": (0.5, "sum"), "averaged": (3.0, "mean"), "shown": (0.0, "mean")}


def trainer_of(folder, max_norm: float) -> Trainer:
    job = make_job(folder, "npc", n_images=20)
    trainer = Trainer(replace(job, options=job.options.replaced(max_norm=max_norm)))
    trainer.position.sums = [{}, {}]
    return trainer


def factors(seed: int) -> dict[str, torch.Tensor]:
    """What each term multiplies the weights of PART by, a block for each of four, five and six pairs."""
    torch.manual_seed(seed)
    return {name: torch.randn(n, 16, 20) for n, name in enumerate(WEIGHTS, 4)}


def terms_of(trainer: Trainer, k: int, blocks: dict[str, torch.Tensor]) -> list[Term]:
    """Terms whose gradients are known: one linear in PART for every block."""
    weight = dict(trainer.networks[k].named_parameters())[PART]
    return [Term(name, (block * weight).sum((1, 2)), *WEIGHTS[name]) for name, block in blocks.items()]


def by_hand(blocks: dict[str, torch.Tensor]) -> torch.Tensor:
    return 0.5 * blocks["summed"].sum(0) + 3.0 * blocks["averaged"].sum(0) / 5


@pytest.mark.parametrize("max_norm", [0.0, 0.25, 1e6])
def test_gradients_are_those_of_the_weighted_sum_clipped_to_the_largest_norm(tmp_path, max_norm):
    trainer, blocks = trainer_of(tmp_path, max_norm), factors(0)
    expected = by_hand(blocks)
    norm = expected.square().sum().sqrt()
    assert 0.25 < norm < 1e6
    if max_norm == 0.25:
        expected = expected * (max_norm / norm)
    before = {name: value.clone() for name, value in trainer.networks[0].state_dict().items()}
    trainer._descend(1, terms_of(trainer, 1, blocks))
    for name, parameter in trainer.networks[1].named_parameters():
        if name == PART:
            torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-6)
        else:
            assert parameter.grad is None
    torch.testing.assert_close(trainer.networks[0].state_dict(), before, rtol=0, atol=0)


def test_a_step_forgets_the_gradients_of_the_one_before(tmp_path):
    trainer = trainer_of(tmp_path, 0.0)
    for seed in range(2):
        trainer._descend(0, terms_of(trainer, 0, factors(seed)))
    found = dict(trainer.networks[0].named_parameters())[PART].grad
    torch.testing.assert_close(found, by_hand(factors(1)), rtol=1e-4, atol=1e-5)


def test_the_log_sums_up_the_terms_as_reduced_and_without_their_weights(tmp_path):
    trainer, expected = trainer_of(tmp_path, 0.0), dict.fromkeys(WEIGHTS, 0.0)
    for seed in range(3):
        terms = terms_of(trainer, 1, factors(seed))
        for term, reduce in zip(terms, (np.sum, np.mean, np.mean), strict=True):
            expected[term.name] += float(reduce(term.values.detach().numpy()))
        trainer._descend(1, terms)
    assert trainer.position.sums == [{}, pytest.approx(expected, rel=1e-4)]


def test_a_step_of_several_losses_takes_an_optimizer_step_on_each_before_the_next_is_made(tmp_path):
    seen, made = [], {}

    def updates(method, _, step):
        weight = dict(step.network.named_parameters())[PART]
        for name, block in factors(0).items():
            seen.append(weight.detach().clone())
            made[name] = block
            yield [Term(name, (block * weight).sum((1, 2)))]

    job = make_job(tmp_path, "npc", n_images=20, hooks={"updates": updates})
    trainer = Trainer(replace(job, options=job.options.replaced(max_norm=0.0)))
    trainer.position.sums = [{}, {}]
    twin = dict(trainer.networks[1].named_parameters())[PART].detach().clone().requires_grad_()
    optimizer = torch.optim.AdamW([twin], job.options.lr, weight_decay=job.options.weight_decay)
    trainer._take(Step(trainer.networks, 1, {}, trainer.phases[0]))
    for block, before in zip(made.values(), seen, strict=True):
        torch.testing.assert_close(before, twin.detach())
        optimizer.zero_grad()
        (block * twin).sum((1, 2)).mean().backward()
        optimizer.step()
    torch.testing.assert_close(dict(trainer.networks[1].named_parameters())[PART].detach(), twin.detach())
    assert trainer.position.sums[1]["steps"] == 1 and set(trainer.position.sums[1]) == {*WEIGHTS, "steps"}


@pytest.mark.parametrize("max_norm", [0.0, 0.25])
def test_a_network_foresees_the_step_that_the_loop_takes(tmp_path, max_norm):
    trainer = trainer_of(tmp_path, max_norm)
    for seed in range(3):
        for k in range(2):
            trainer._descend(k, terms_of(trainer, k, factors(10 * k + seed)))
    for group in trainer.optimizers[1].param_groups:
        group["lr"] = 0.01
    terms = terms_of(trainer, 1, factors(20))
    parameters = dict(trainer.networks[1].named_parameters())
    before = parameters[PART].detach().clone()
    loss = sum(term.weight * term.reduced() for term in terms)
    (gradient,) = torch.autograd.grad(loss, [parameters[PART]], retain_graph=True)
    foreseen = trainer.method.setting.after_step(1, {PART: gradient}, True)
    trainer._descend(1, terms)
    assert foreseen.keys() == parameters.keys()
    for name, parameter in parameters.items():
        torch.testing.assert_close(foreseen[name], parameter.detach(), rtol=0, atol=1e-7)
    assert (parameters[PART] - before).abs().max() > 1e-3


def test_two_terms_of_one_name_are_refused(tmp_path):
    trainer = trainer_of(tmp_path, 0.0)
    terms = terms_of(trainer, 1, factors(0))
    with pytest.raises(InputError, match="two terms of a step have one name: summed, summed"):
        trainer._descend(1, [terms[0], terms[0]])
