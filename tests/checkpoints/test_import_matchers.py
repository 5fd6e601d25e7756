"""Published checkpoints of SCAN, VSRN, VSE-infinity and IMRAM against their forward passes, and what is refused."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
import torch
from published_matchers import AS_PYTHON2, Imram, Net, Scan, VseInfinity, Vsrn
from refused_import import assert_refused

import pairsift
from pairsift.checkpoints.importing import import_checkpoint
from pairsift.cli import main
from published_layout import IDS, SIZE, WIDTH, write_source
from published_layout import Net as SgrafNet
from published_layout import save as save_sgraf

pytestmark = pytest.mark.slow

ONE_WAY, TWO_LAYERS = {"both": False}, {"layers": 2}
NETS = {
    "vse": lambda: VseInfinity(1),
    "vse-forward": lambda: VseInfinity(1, both=False),
    "vse-two-layers": lambda: VseInfinity(1, layers=2),
    "vsrn-coco": lambda: Vsrn(1, flickr30k=False),
    "vsrn-flickr30k": lambda: Vsrn(2, flickr30k=True),
    "vsrn-two-graphs-two-layers": lambda: Vsrn(3, False, 2, 2),
    "scan-t2i-mean": lambda: Scan(1, "t2i", "Mean"),
    "scan-t2i-lse": lambda: Scan(1, "t2i", "LogSumExp", lambda_lse=6, lambda_softmax=9),
    "scan-i2t-mean": lambda: Scan(1, "i2t", "Mean"),
    "scan-i2t-lse": lambda: Scan(1, "i2t", "LogSumExp"),
    "scan-forward": lambda: Scan(1, "t2i", "Mean", ONE_WAY),
    "scan-two-layers": lambda: Scan(1, "i2t", "Mean", TWO_LAYERS),
    "imram-text": lambda: Imram(1, "text_IMRAM"),
    "imram-image": lambda: Imram(1, "image_IMRAM", lambda_softmax=11),
    "imram-full": lambda: Imram(1, "full_IMRAM", 2),
    "imram-forward-two-layers": lambda: Imram(1, "full_IMRAM", 3, ONE_WAY | TWO_LAYERS),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_source(tmp_path_factory.mktemp("matchers") / "tiny_precomp")


def scores_of(run, split="test"):
    """The run's mean similarities, once opened again, of the images and captions of a split."""
    opened = pairsift.open_run(run.folder, progress=False)
    features, pairs = opened.prepared.features, opened.prepared.pairs
    images, texts = features.images.batch(pairs.images(split)), features.texts.batch(pairs.ids(split))
    with torch.no_grad():
        each = [one.similarity(one.encode_images(images), one.encode_texts(texts)) for one in opened.matchers]
    return (sum(each) / len(each)).numpy()


def imported(source, tmp_path, *files):
    options = {"cache": str(source[0].parent / "cache")}
    return import_checkpoint(files, source[0], tmp_path / "run", options, progress=False)


@pytest.mark.parametrize("name", NETS)
def test_similarities_are_those_of_the_published_forward(source, tmp_path, name):
    net = NETS[name]()
    run = imported(source, tmp_path, net.save(tmp_path / "model_best.pth.tar"))
    assert run.config.matcher.name == name.partition("-")[0]
    expected = net.scores(*source[1]["test"])
    np.testing.assert_allclose(scores_of(run), expected, atol=1e-5, rtol=0)
    assert expected.std() > 1e-2
    recall = run.evaluate()["ensemble"]
    ranks = [min(np.sum(row > row[c]) for c in (2 * i, 2 * i + 1)) for i, row in enumerate(expected)]
    assert recall["i2t_r1"] == pytest.approx(100 * np.mean(np.array(ranks) < 1))


def test_sgraf_with_a_gru_in_one_direction(source, tmp_path):
    net = SgrafNet("SGR", 1)
    text = net.encoders[1]
    text.cap_rnn = torch.nn.GRU(text.cap_rnn.input_size, text.cap_rnn.hidden_size, batch_first=True)
    file = save_sgraf(tmp_path / "sgr.tar", net)

    def states(ids):
        return torch.nn.functional.normalize(text.cap_rnn(text.embed(torch.tensor([ids])))[0][0], dim=-1)

    text.forward = states
    np.testing.assert_allclose(
        scores_of(imported(source, tmp_path, file)), net.scores(*source[1]["test"]), atol=1e-5, rtol=0
    )


def test_several_files_are_one_ensemble(source, tmp_path):
    nets = [Vsrn(seed, flickr30k=True) for seed in range(2)]
    run = imported(source, tmp_path, *(net.save(tmp_path / f"{k}.tar") for k, net in enumerate(nets)))
    expected = sum(net.scores(*source[1]["dev"]) for net in nets) / 2
    np.testing.assert_allclose(scores_of(run, "dev"), expected, atol=1e-5, rtol=0)


def test_a_batch_norm_of_an_old_torch_has_no_counter(source, tmp_path):
    """Torch 0.3 on Python 2, which VSRN was trained with, wrote no `num_batches_tracked`, and no zip files."""
    net = Vsrn(1, flickr30k=True)
    model = [{name: value for name, value in one.items() if "num_batches" not in name} for one in net.model("module.")]
    raw = {"epoch": 3, "best_rsum": 1.5, "opt": argparse.Namespace(**net.opt), "model": model}
    how = {"pickle_module": AS_PYTHON2, "pickle_protocol": 2, "_use_new_zipfile_serialization": False}
    torch.save(raw, tmp_path / "old.tar", **how)
    assert b"U\x05epoch" in (tmp_path / "old.tar").read_bytes()
    run = imported(source, tmp_path, tmp_path / "old.tar")
    np.testing.assert_allclose(scores_of(run), net.scores(*source[1]["test"]), atol=1e-5, rtol=0)


def test_the_word_that_masks_others_in_training_is_left_out(source, tmp_path):
    """VSE-infinity's training puts `<mask>` behind the vocabulary; it is in no file and no caption."""
    net = VseInfinity(1, words=SIZE + 1)
    run = imported(source, tmp_path, net.save(tmp_path / "vse.pth"))
    np.testing.assert_allclose(scores_of(run), net.scores(*source[1]["test"]), atol=1e-5, rtol=0)
    assert run.matchers[0].words.vectors.num_embeddings == SIZE == max(IDS.values()) + 1


def test_the_verb_names_the_matcher(source, tmp_path, capsys):
    file = Scan(1, "i2t", "LogSumExp").save(tmp_path / "model.tar")
    words = ["import-checkpoint", str(file), "--data", str(source[0]), "--out", str(tmp_path / "run")]
    assert main([*words, "--cache", str(tmp_path / "cache")]) == 0
    out = capsys.readouterr().out
    assert "model.tar: scan (epoch 17, best rSum 480.5, as stated in the file)" in out and "1 network of scan" in out
    kept = pairsift.open_run(tmp_path / "run").config.matcher_options
    assert (kept.direction, kept.pooling, kept.lambda_i2t, kept.lse_i2t) == ("i2t", "lse", 4.0, 5.0)


def changed(net: Net, **opt: object) -> dict:
    return {"model": net.model(), "opt": argparse.Namespace(**{**net.opt, **opt})}


def without(net: Net, *names: str) -> dict:
    return {"model": net.model(), "opt": argparse.Namespace(**{k: v for k, v in net.opt.items() if k not in names})}


def with_one(net: Net, encoder: int, name: str) -> dict:
    model = net.model()
    model[encoder][name] = torch.zeros(2)
    return {"model": model, "opt": argparse.Namespace(**net.opt)}


SCAN, IMRAM, VSRN, VSE = Scan(1, "t2i", "Mean"), Imram(1, "full_IMRAM"), Vsrn(1, False), VseInfinity(1)
REFUSED = {
    "image norm": (changed(SCAN, no_imgnorm=True), "was trained with no_imgnorm, so its codes do not have unit length"),
    "text norm": (changed(IMRAM, no_txtnorm=True), "was trained with no_txtnorm, so its codes do not have unit length"),
    "vse norm": (changed(VSE, no_txtnorm=True), "was trained with no_txtnorm, so its codes do not have unit length"),
    "vsrn norm": (changed(VSRN, no_imgnorm=True), "was trained with no_imgnorm"),
    "order": (changed(VSRN, measure="order"), "was trained for order embeddings"),
    "absolute": (changed(VSRN, use_abs=True), "was trained for order embeddings"),
    "affinity": (changed(SCAN, raw_feature_norm="softmax"), "raw_feature_norm softmax; supported: clipped_l2norm"),
    "affinity of imram": (changed(IMRAM, raw_feature_norm="l1norm"), "raw_feature_norm l1norm; supported"),
    "pooling": (changed(SCAN, agg_func="Max"), "was trained with agg_func Max; supported: Mean, LogSumExp"),
    "direction": (without(SCAN, "cross_attn"), "it states no option cross_attn"),
    "no options": ({"model": SCAN.model()}, "it states no option cross_attn"),
    "sharpness": (without(SCAN, "lambda_softmax"), "states no number lambda_softmax"),
    "relevances": (without(Scan(1, "t2i", "LogSumExp"), "lambda_lse"), "states no number lambda_lse"),
    "queries": (changed(IMRAM, no_IMRAM_norm=False), "its queries are normalised in every round"),
    "mode": (changed(IMRAM, model_mode="vse"), "model_mode vse; supported: full_IMRAM, text_IMRAM, image_IMRAM"),
    "rounds": (without(IMRAM, "iteration_step"), "states no number iteration_step"),
    "bert": (with_one(VSE, 1, "bert.pooler.dense.bias"), "its text encoder is a BERT"),
    "pixels": (with_one(VSE, 0, "backbone.top.0.conv1.weight"), "reads pixels by a CNN"),
    "weight norm": (with_one(SCAN, 0, "fc.weight_g"), "its image encoder has weight normalisation"),
    "backward vsrn": (with_one(VSRN, 1, "rnn.weight_ih_l0_reverse"), "unknown parameter txt_enc.rnn.weight_ih_l0_rev"),
    "unknown": (with_one(VSE, 1, "gpool.linear.bias"), "has an unknown parameter txt_enc.gpool.linear.bias"),
    "gates": (
        {"model": {k: v for k, v in IMRAM.model().items() if "gate_i2t.b" not in k}, "opt": IMRAM.opt},
        "has no parameter gate_i2t.bias",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_refused_in_one_line(source, tmp_path, capsys, name):
    content, says = REFUSED[name]
    assert_refused(content, says, source[0], tmp_path, capsys)


def test_ensembles_and_data_that_do_not_fit(source, tmp_path, capsys):
    files = {
        "t2i": Scan(1, "t2i", "Mean").save(tmp_path / "t2i.tar"),
        "i2t": Scan(1, "i2t", "Mean").save(tmp_path / "i2t.tar"),
        "vsrn": VSRN.save(tmp_path / "vsrn.tar"),
        "mask": VseInfinity(1, words=SIZE + 2).save(tmp_path / "mask.tar"),
        "word": Scan(1, "t2i", "Mean", {"words": SIZE + 1}).save(tmp_path / "word.tar"),
    }
    narrow, held = write_source(tmp_path / "narrow")
    for stem, (images, _) in held.items():
        np.save(narrow / f"{stem}_ims.npy", images[:, :, 1:])
    cases = {
        ("t2i", "i2t"): (source[0], "i2t.tar: has direction i2t where"),
        ("t2i", "vsrn"): (source[0], "vsrn.tar: is a vsrn where"),
        ("mask",): (source[0], f"gives ids below {SIZE}; the networks know {SIZE + 2} words"),
        ("word",): (source[0], f"gives ids below {SIZE}; the networks know {SIZE + 1} words"),
        ("vsrn",): (narrow, f"a row is 4 x {WIDTH - 1}; the networks take regions x {WIDTH}"),
    }
    for names, (data, says) in cases.items():
        words = ["import-checkpoint", *(str(files[name]) for name in names), "--data", str(data)]
        assert main([*words, "--out", str(tmp_path / "run")]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and says in err, err
        assert not (tmp_path / "run").exists()


def test_options_as_a_plain_mapping_are_read_too(source, tmp_path):
    raw = {"model": SCAN.model(), "opt": SCAN.opt}
    torch.save(raw, tmp_path / "scan.tar")
    run = imported(source, tmp_path, tmp_path / "scan.tar")
    np.testing.assert_allclose(scores_of(run), SCAN.scores(*source[1]["test"]), atol=1e-5, rtol=0)
    log = json.loads((run.folder / "log.jsonl").read_text().splitlines()[0])
    assert log["files"][0]["matcher"] == "scan" and log["files"][0]["epoch"] is None
