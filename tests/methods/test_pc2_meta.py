"""PC2 with the meta network of MSCN: its margins, its gradients, and verified pairs."""

import numpy as np
import pytest
import torch
from method_helpers import (
    LINEAR,
    SETTING,
    SHARP,
    TAUGHT,
    VERIFIED,
    Tiny,
    batch_of,
    curve,
    excluded,
    make_networks,
    naive_hinge,
    naive_v,
    rematched,
    similarities,
)

from pairsift.errors import InputError
from pairsift.loss.ranking import Hinge
from pairsift.methods.parts.meta import MetaCorrection, meta_of
from pairsift.methods.pc2 import PC2
from pairsift.methods.pc2_mscn import PC2MSCN
from pairsift.runs.config import from_tree
from pairsift.runs.prepare import require_possible
from pairsift.steps import Step


def test_pc2_takes_corrected_similarities_for_its_margins_of_clean_and_of_noisy_pairs():
    options = {"classifier": {"classes": 5}, "captions": {"search": "batch"}}
    method = PC2MSCN(**options, meta={"groups": 3, "hidden": 5})
    networks = make_networks(method, sharp=SHARP)
    for network in networks:
        torch.nn.init.normal_(meta_of(network).out.weight)
    ranking = Hinge(negatives="mean")
    method = method.begin(SETTING(ranking))
    method.division.state["clean_probability"][1] = np.linspace(0.1, 1, 12)
    clean, noisy = batch_of([0, 3, 5, 7]), batch_of([2, 8])
    batches = {"clean": clean, "noisy": noisy, "verified": batch_of(TAUGHT)}
    assert method.phases()[2].subsets == ("clean", "noisy", "verified") and method.phases()[0].subsets == ("all",)
    terms = {term.name: term for term in method.step(Step(networks, 0, batches, method.phases()[2]))}
    assert set(terms) == {"clean", "pseudo", "entropy", "noisy", "meta"}
    y = method.correspondence(Step(networks, 0, {"clean": clean}, method.phases()[1]))
    images, texts = networks[0].encode(clean)
    v = np.array(naive_v(networks[0], images.vectors, texts.vectors))
    margins = [0.2 * curve(value) for value in y.tolist()]
    expected = naive_hinge(v, margins, excluded(clean), hardest=False)
    assert terms["clean"].values.tolist() == pytest.approx(expected, abs=1e-5)
    assert np.abs(v - similarities(networks[0], clean)).max() > 0.1
    j, alike, _ = rematched(networks[0], noisy, clean)
    others = networks[0].matcher.encode_images(noisy.images).vectors
    v = np.array(naive_v(networks[0], others, texts.vectors[j]))
    rows, owners = noisy.image_rows.tolist(), [int(clean.caption_images[b]) for b in j]
    n = range(2)
    mask = np.array([[rows[a] == rows[b] or owners[a] == owners[b] or rows[a] == owners[b] for b in n] for a in n])
    expected = naive_hinge(v, [0.2 * curve(min(1.0, value)) for value in alike], mask, hardest=False)
    assert terms["noisy"].values.tolist() == pytest.approx(expected, abs=1e-5)
    meta = list(meta_of(networks[0]).parameters())
    for name in ("clean", "noisy", "pseudo"):
        gradients = torch.autograd.grad(terms[name].reduced(), meta, allow_unused=True, retain_graph=True)
        assert all(g is None for g in gradients)
    assert any(g.abs().sum() > 0 for g in torch.autograd.grad(terms["meta"].reduced(), meta))
    for name in ("all", "clean", "noisy"):
        assert not np.isin(VERIFIED, method.subset(name, 0)).any()


class Penalised(Tiny):
    """A matcher with a penalty on its codes."""

    def penalty(self, images, texts, exclude, y):
        return 0.3 * images.vectors[:, 0] ** 2 * y + 0.1 * texts.vectors[:, 1]


@pytest.mark.parametrize("kind", [Tiny, Penalised])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_pc2_moves_by_the_gradients_of_all_its_terms(monkeypatch, kind, reduction):
    """The ranking loss shares its graph with the classifier's terms."""

    def with_graph(part, network, ranking, *args, **kwargs):
        return [ranking, gradients_known(part, network, ranking, *args, **kwargs)[1]]

    gradients_known, found = MetaCorrection.terms, []
    for terms_of in (gradients_known, with_graph):
        monkeypatch.setattr(MetaCorrection, "terms", terms_of)
        options = {"classifier": {"classes": 5}, "captions": {"search": "batch"}}
        method = PC2MSCN(**options, meta={"groups": 3, "hidden": 5})
        torch.manual_seed(3)
        networks = make_networks(method, kind, sharp=SHARP)
        torch.nn.init.normal_(meta_of(networks[0]).out.weight)
        method = method.begin(SETTING(Hinge(negatives="mean", reduction=reduction)))
        method.division.state["clean_probability"][1] = np.linspace(0.1, 1, 12)
        batches = {"clean": batch_of([0, 3, 5, 7]), "noisy": batch_of([2, 8]), "verified": batch_of([1, 4, 6, 9])}
        torch.manual_seed(4)
        terms = method.step(Step(networks, 0, batches, method.phases()[2]))
        sum(term.reduced() * term.weight for term in terms).backward()
        found.append([parameter.grad for parameter in networks[0].parameters()])
    for got, whole in zip(*found, strict=True):
        torch.testing.assert_close(got, whole, rtol=1e-4, atol=1e-6)


def test_a_verified_pair_is_never_noisy_for_pc2():
    method = PC2MSCN()
    method = method.begin(SETTING(LINEAR))
    method.division.state["clean_probability"][1] = np.where(
        np.arange(12) == 4, 0.1, 0.9
    )  # the peer doubts a verified pair alone
    assert 4 in VERIFIED and method.subset("noisy", 0).tolist() == []
    assert method.subset("clean", 0).tolist() == [0, 2, 3, 5, 7, 8]


def test_pc2_needs_verified_pairs_with_a_meta_network_alone(tmp_path):
    with pytest.raises(InputError, match=r"^pc2_mscn learns from pairs that are known to match"):
        require_possible(from_tree({"source": str(tmp_path), "method": "pc2_mscn"}))
    require_possible(from_tree({"source": str(tmp_path), "method": "pc2"}))
    method = PC2()
    method = method.begin(SETTING(LINEAR, verified=np.zeros(0, np.int64)))
    assert method.subset("all", 0).tolist() == list(range(10)) and not hasattr(method.head(4), "meta")
