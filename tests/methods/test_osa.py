"""OSA: its weights in plain loops, when they are made, and the matchers that it refuses."""

import numpy as np
import pytest
import torch
from method_helpers import SETTING, Tiny, batch_of, excluded, make_networks, similarities

from pairsift.errors import InputError
from pairsift.loss.ranking import InfoNCE
from pairsift.match import MATCHERS
from pairsift.match.clip import Clip
from pairsift.methods.osa import OSA, weight_of
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import require_possible
from pairsift.steps import Observation, Step

PAPERS = InfoNCE(base=1.0)


class Trained(Tiny):
    """The tiny matcher, as if it knew something before training."""

    starts_trained = True


def begun(**options):
    method = OSA(**options)
    method = method.begin(SETTING(PAPERS, networks=method.networks))
    return method, make_networks(method, Trained)


@pytest.mark.parametrize("printed", [False, True])
def test_a_weight_is_the_polynomial_of_what_a_pair_has_above_unrelated_ones(printed):
    method, networks = begun(printed=printed)
    ids = np.random.default_rng(0).permutation(10)
    with torch.no_grad():
        notes = method.observe(Observation.make(networks[0].eval(), 0, batch_of(ids)))
    order = np.argsort(ids)
    method.update([{name: value.numpy()[order] for name, value in notes.items()}], 0)
    batch = batch_of(np.arange(10))
    s, mask = similarities(networks[0], batch), excluded(batch)
    unrelated = [np.mean([s[i, j] for j in range(10) if not mask[i][j]]) for i in range(10)]
    boundary = sum(unrelated) / 10
    excess = [max(0.0, s[i, i] - boundary) for i in range(10)]
    for i in range(10):
        x = excess[i] / max(excess)
        kept = 4 * (x**2 - x**4) if x < 2**-0.5 else 1.0
        expected = x**2 - x**4 if printed else kept
        assert method.state["weight"][0, i] == pytest.approx(expected, abs=1e-5)
    found = method.state["weight"][0]
    assert 0 < (found[:10] == 0).sum() < 10 and (found[10:] == 1).all()  # dev and test have none
    assert method.facts()["mean_weight"] == pytest.approx(found[:10].mean())


def test_weights_rise_to_1_and_stay_or_fall_as_printed():
    excess = np.array([-3.0, 0.0, 0.5, 2**-0.5, 0.9, 1.0], np.float32)
    assert weight_of(excess).tolist() == pytest.approx([0, 0, 0.75, 1, 1, 1])
    as_printed = [0, 0, 0.25 - 0.0625, 0.25, 0.81 - 0.9**4, 0]
    assert weight_of(excess, printed=True).tolist() == pytest.approx(as_printed, abs=1e-6)
    assert weight_of(7 * excess).tolist() == pytest.approx(weight_of(excess).tolist())  # of any unit


def test_a_step_is_the_ranking_loss_of_each_pair_times_its_weight():
    method, networks = begun()
    method.state["weight"][0] = np.linspace(0, 1, 12)
    batch = batch_of([0, 3, 6, 9])
    (term,) = method.step(Step(networks, 0, {"all": batch}, method.phases()[0]))
    similarity, scale = networks[0](batch)
    loss = PAPERS(similarity, scale, torch.ones(4), torch.from_numpy(excluded(batch)))
    torch.testing.assert_close(term.values, loss * torch.from_numpy(method.state["weight"][0, batch.ids]))


def test_only_the_first_epoch_begins_with_a_pass():
    assert [(p.name, p.epochs, p.observe) for p in OSA().phases()] == [("first", 1, True), ("train", 4, False)]
    assert [p.epochs for p in OSA(epochs={"train": 0}).phases()] == [0, 0]


def test_a_matcher_that_finds_no_pair_alike_is_one_line():
    method, _ = begun()
    flat = {"similarity": np.full(10, 0.2, np.float32), "unrelated": np.full(10, 0.2, np.float32)}
    with pytest.raises(InputError, match=r"^osa: the matcher finds no pair more alike"):
        method.update([flat], 0)
    assert (method.state["weight"] == 1).all()


@pytest.mark.parametrize("name", MATCHERS)
def test_matchers_that_start_untrained_are_refused_before_any_work(name, tmp_path):
    if MATCHERS[name].starts_trained:
        OSA().check(MATCHERS[name], True)
    else:
        with pytest.raises(InputError, match=f"and {name} starts untrained: take --matcher clip"):
            OSA().check(MATCHERS[name], False)
        with pytest.raises(InputError, match="starts untrained"):
            require_possible(from_tree({"source": str(tmp_path), "method": "osa", "matcher": name}))
    assert Clip.starts_trained


@pytest.mark.parametrize("preset", ["paper", "clip"])
def test_clip_is_fine_tuned_as_published(preset):
    config = from_tree({"source": ".", "method": "osa", "matcher": "clip", "preset": preset})
    options = config.train
    assert (config.matcher.adam, options.max_norm) == (((0.9, 0.98), 1e-6), 0)
    assert config.method.printed is (preset == "paper")
    assert (options.lr, options.batch_size, options.weight_decay, options.warmup_steps) == (1e-5, 256, 0.2, 500)
    assert (config.loss, config.method.networks) == (PAPERS, 1)
    assert sum(phase.epochs for phase in config.method.phases()) == 5


@pytest.mark.parametrize("matcher", ["two_tower", "clip"])
def test_a_weight_counts_as_it_is(matcher):
    more = {"aligned": True} if matcher == "two_tower" else {}
    config = from_tree({"source": ".", "method": "osa", "matcher": matcher, **more})
    assert config.loss.name == "infonce" and config.loss.base == 1.0
