"""PC2 and PCSR as published: batches of 128, few ambiguous pairs, and the rows of Table 3 of PC2."""

import pytest
import torch
from given import B, begun, hardest, mean_hinges, same, total

CLEAN, NOISY = 0, B


def curve(y):
    return [0.2 * (10 ** float(v) - 1) / 9 for v in y]


def logits(job, start, size=B):
    """Class logits of images and of captions, which this matcher codes alike."""
    return job.networks[0].logits(job.networks[0].encode(job.batch(start, size))[0])


def classes(p, q):
    """The two terms of the classifier as printed: the means of Eq. 2 and Eq. 3 of PC2."""
    pseudo = -sum(p[i, q[i].argmax()].log() for i in range(len(p))) / len(p)
    mean = sum(p) / len(p)
    return pseudo + 10 * (mean * mean.log()).sum()


def rematched(job, start, size=B):
    """The similarities of images with the captions of the clean images predicted most alike, and that likeness."""
    own, clean = (logits(job, at, n).detach().double().softmax(1) for at, n in ((start, size), (CLEAN, B)))
    cosine = (own @ clean.T) / own.norm(dim=1)[:, None] / clean.norm(dim=1)
    likeness, j = cosine.max(1)
    block = job.networks[0].matcher.block.detach()[start : start + size][:, j].double()
    return block, likeness, j


def triplets(block, margins, j):
    """The sum of hinges with the hardest negative, where pairs of one caption are no negatives of each other."""
    found = 0.0
    for i in range(len(block)):
        others = [k for k in range(len(block)) if j[k] != j[i]]
        found += (margins[i] + block[i, others].max() - block[i, i]).clamp(min=0)
        found += (margins[i] + block[others, i].max() - block[i, i]).clamp(min=0)
    return found


def prediction(block):
    """NCR's P, by the mean hinge and the highest tenth of a batch."""
    a = (0.2 - mean_hinges(block.detach()) / 2).clamp(0, 0.2)
    top = sorted(a.tolist(), reverse=True)[: B // 10 + 1]
    return (a / (sum(top) / len(top))).clamp(max=1)


def clean_labels(job, rectify=True):
    w = torch.from_numpy(job.method.division.state["clean_probability"][1, :B]).double()
    stable = torch.linspace(0, 1, 4 * B)[:B]
    job.method.stability.state["stability"][1] = torch.linspace(0, 1, 4 * B).numpy()
    return w + (1 - w) * (stable >= 0.5) * stable if rectify else w


@pytest.mark.parametrize("preset", ["paper", "paper_coco", "paper_now"])
def test_a_step_of_pc2_is_equation_10(preset):
    job = begun("pc2", preset)
    clean, noisy = job.batch(CLEAN), job.batch(NOISY)
    y, block = clean_labels(job), job.block(clean)
    terms = job.method.step(job.step("all", clean=clean, noisy=noisy))
    same(job, [terms[0]], clean, hardest(block, curve(y)), block)
    p = logits(job, CLEAN).softmax(1).double()
    assert sum(t.weight * t.reduced() for t in terms[1:3]).item() == pytest.approx(classes(p, p).item(), rel=1e-4)
    mixed, likeness, j = rematched(job, NOISY)
    expected = triplets(mixed, curve(likeness), j)
    assert total([terms[3]]).item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("rectify", [True, False])
def test_table_3_without_pseudo_captions_keeps_noisy_pairs_with_the_soft_margins_of_ncr(rectify):
    job = begun("pc2", noisy_captions="own", stability={"rectify": rectify})
    clean, noisy = job.batch(CLEAN), job.batch(NOISY)
    y, block = clean_labels(job, rectify), job.block(clean)
    terms = job.method.step(job.step("all", clean=clean, noisy=noisy))
    assert [term.name for term in terms] == ["clean", "pseudo", "entropy", "noisy"]
    same(job, [terms[0]], clean, hardest(block, curve(y)), block)
    labels = torch.stack([prediction(job.block(noisy, k)) for k in (0, 1)]).mean(0)
    block = job.block(noisy)
    same(job, [terms[3]], noisy, hardest(block, curve(labels)), block)
    ids = {"clean": clean.ids, "noisy": noisy.ids}
    requests = begun("pc2", captions={"search": "epoch"}, noisy_captions="own").method.requests(ids, 0)
    assert all(request.captions is None for request in requests.values())


@pytest.mark.parametrize("size", [13, 40, B])
def test_ambiguous_pairs_have_the_weights_of_equations_12_and_13_however_few_they_are(size):
    job = begun("pcsr")
    batches = {"clean": job.batch(CLEAN), "ambiguous": job.batch(NOISY, size)}
    terms = {term.name: term for term in job.method.step(job.step("all", **batches))}
    p = logits(job, NOISY, size).double().softmax(1)
    robust = sum(2 * (1 - p[i].max() ** 0.7) / 0.7 for i in range(size)) / size  # both sides are predicted alike here
    found = terms["ambiguous robust"]
    assert (found.weight * found.reduced()).item() == pytest.approx(robust.item(), rel=1e-4)
    mean, found = p.mean(0), terms["ambiguous entropy"]
    expected = 10 * (mean * mean.log()).sum().item()
    assert (found.weight * found.reduced()).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("preset", ["paper", "paper_early", "paper_cc152k"])
def test_every_stage_of_pcsr_competes_for_the_checkpoint_and_of_pc2_the_last_alone(preset):
    assert [phase.competes for phase in begun("pcsr", preset).method.phases()] == [False, True, True, True]
    assert [phase.competes for phase in begun("pc2").method.phases()] == [False, False, True]  # reset at its epoch 25
    for name in ("ncr", "cream"):
        assert [phase.competes for phase in begun(name).method.phases()][:3] == [False, True, True]
