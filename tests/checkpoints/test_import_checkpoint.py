"""Published checkpoints against the forward pass of their layout, as runs; and what is refused, and never run."""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from refused_import import assert_refused

import pairsift
from pairsift.checkpoints.importing import import_checkpoint
from pairsift.cli import main
from published_layout import SIZE, WIDTH, Net, save, write_source

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_source(tmp_path_factory.mktemp("published") / "tiny_precomp")


@pytest.fixture
def made(source, tmp_path):
    """Imports files into a run."""

    def run_of(*files, **options):
        options = {"cache": str(source[0].parent / "cache"), **options}
        return import_checkpoint(
            files, source[0], tmp_path / "run", options, options.pop("overwrite", False), progress=False
        )

    return run_of


def scores_of(run, split="test"):
    """The run's mean similarities, once opened again, of the images and captions of a split."""
    opened = pairsift.open_run(run.folder, progress=False)
    features, ids, rows = (
        opened.prepared.features,
        opened.prepared.pairs.ids(split),
        opened.prepared.pairs.images(split),
    )
    images, texts = features.images.batch(rows), features.texts.batch(ids)
    with torch.no_grad():
        each = [one.similarity(one.encode_images(images), one.encode_texts(texts)) for one in opened.matchers]
    return (sum(each) / len(each)).numpy()


def naive_recall(scores, k):
    """Recall at k in percent, images to texts and texts to images, where image i has the captions 2i and 2i + 1."""
    images = [any(c // 2 == i for c in np.argsort(-row)[:k]) for i, row in enumerate(scores)]
    texts = [c // 2 in np.argsort(-scores[:, c])[:k] for c in range(scores.shape[1])]
    return 100 * np.mean(images), 100 * np.mean(texts)


@pytest.mark.parametrize("module", ["SGR", "SAF"])
def test_similarities_and_recall_are_those_of_the_published_forward(source, made, tmp_path, capsys, module):
    net = Net(module, 1)
    run = made(save(tmp_path / "model_best.pth.tar", net))
    expected = net.scores(*source[1]["test"])
    np.testing.assert_allclose(scores_of(run), expected, atol=1e-6)
    assert expected.std() > 1e-3
    assert main(["evaluate", str(run.folder), "--json", str(tmp_path / "recall.json")]) == 0
    found = json.loads((tmp_path / "recall.json").read_text())["test"]["ensemble"]
    for k in (1, 5, 10):
        assert (found[f"i2t_r{k}"], found[f"t2i_r{k}"]) == pytest.approx(naive_recall(expected, k))
    assert 0 < found["rsum"] < 600
    capsys.readouterr()


def test_two_networks_are_averaged_and_what_follows_the_encoders_is_not_read(source, made, tmp_path, caplog):
    nets, extra = [Net("SGR", 1), Net("SGR", 2)], [{"weight": torch.zeros(3)}]
    states = {f"model_{name}": net.states() + extra for name, net in zip("AB", nets, strict=True)}
    run = made(save(tmp_path / "two.tar", *nets, **states))
    assert "encoders ignored: 1" in caplog.text
    each = [net.scores(*source[1]["test"]) for net in nets]
    np.testing.assert_allclose(scores_of(run), sum(each) / 2, atol=1e-6)
    recall = run.evaluate()
    assert set(recall) == {"ensemble", "network_0", "network_1"}
    assert recall["network_1"]["t2i_r1"] == pytest.approx(naive_recall(each[1], 1)[1])


def test_sgr_and_saf_make_sgraf(source, made, tmp_path):
    sgr, saf = [Net("SGR", 1), Net("SGR", 2)], [Net("SAF", 3), Net("SAF", 4)]
    run = made(save(tmp_path / "saf.tar", *saf), save(tmp_path / "sgr.tar", *sgr))
    assert run.config.matcher.name == "sgraf"
    expected = sum(net.scores(*source[1]["test"]) for net in sgr + saf) / 4
    np.testing.assert_allclose(scores_of(run), expected, atol=1e-6)


def test_files_of_one_kind_are_one_ensemble(source, made, tmp_path):
    nets = [Net("SAF", seed) for seed in range(3)]
    run = made(save(tmp_path / "one.tar", nets[0]), save(tmp_path / "two.tar", *nets[1:]))
    expected = sum(net.scores(*source[1]["dev"]) for net in nets) / 3
    np.testing.assert_allclose(scores_of(run, "dev"), expected, atol=1e-6)


@pytest.mark.parametrize("zipped", [True, False])
def test_prefix_of_data_parallel_and_numbers_of_numpy(source, made, tmp_path, zipped):
    net, path = Net("SGR", 5), tmp_path / "model.tar"
    raw = {"model": net.states("module."), "epoch": 3, "best_rsum": np.float64(480.5), "Eiters": np.int64(7)}
    torch.save(raw, path, _use_new_zipfile_serialization=zipped)
    run = made(path)
    np.testing.assert_allclose(scores_of(run), net.scores(*source[1]["test"]), atol=1e-6)
    assert (run.metrics["imported"][0]["epoch"], run.metrics["imported"][0]["best_rsum"]) == (3, None)


def test_the_verbs_and_what_the_folder_says(source, tmp_path, capsys):
    folder, run = source[0], tmp_path / "run"
    shuffled = np.array([1, 0, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5])
    np.save(tmp_path / "index.npy", np.repeat(shuffled[:6], 2))
    file = save(tmp_path / "model.tar", Net("SGR", 1))
    words = ["import-checkpoint", str(file), "--data", str(folder), "--out", str(run), "--cache", str(tmp_path)]
    assert main([*words, "--noise-index", str(tmp_path / "index.npy")]) == 0
    out = capsys.readouterr().out
    assert "model.tar: sgr (epoch 17, best rSum 480.5, as stated in the file)" in out and "1 network of sgr" in out
    kept, metrics = yaml.safe_load((run / "config.yaml").read_text()), json.loads((run / "metrics.json").read_text())
    assert (
        kept["plain"] == {"networks": 1, "evidence": False, "epochs": {"warmup": 0, "train": 0}}
        and kept["sgr"]["steps"] == 2
    )
    assert metrics["data"]["hash"] == pairsift.load(folder).hash() and "test" not in metrics
    assert len(metrics["imported"][0]["sha256"]) == 64
    with pytest.raises(pairsift.InputError, match="pairsift audit"):
        pairsift.open_run(run).pairs()
    with pytest.raises(pairsift.InputError, match="pairsift audit"):
        pairsift.open_run(run).suspects()
    assert main(["search", str(run), "a red dog", "-k", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # twelve pairs make a poor mixture
        assert main(["audit", str(run), "--worst", "1"]) == 0
    table = pairsift.open_run(run).pairs()
    assert len(table) == 34 and sum(table["truly_mismatched"].to_pylist()) == 4
    assert (run / "report.html").exists() and "test" not in json.loads((run / "metrics.json").read_text())
    assert main([*words]) == 2
    assert "holds a finished run" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0
    assert not (run / "pairs.parquet").exists()


class Evil:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("where", ["top", "opt", "state"])
def test_nothing_of_a_file_is_run(source, tmp_path, capsys, zipped, where):
    net, marker, path = Net("SGR", 1), tmp_path / "was-run", tmp_path / "evil.tar"
    states, evil = net.states(), Evil(marker)
    raw = {"top": evil, "opt": {"model": states, "opt": evil}, "state": {"model": [*states[:2], {"fc.weight": evil}]}}
    torch.save(raw[where], path, _use_new_zipfile_serialization=zipped)
    words = ["import-checkpoint", str(path), "--data", str(source[0]), "--out", str(tmp_path / "run")]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "holds posix.system, which is neither a tensor" in err
    assert not marker.exists() and not (tmp_path / "run").exists()
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
    torch.load(path, weights_only=False)  # what it would have done
    assert marker.exists()


def without(net: Net, name: str) -> list[dict]:
    return [{key: value for key, value in state.items() if key != name} for state in net.states()]


def with_one(net: Net, name: str, value: object) -> list[dict]:
    states = net.states()
    next((state for state in states if name in state), states[2])[name] = value
    return states


NET = Net("SGR", 1)
BAD = {
    "missing": (
        {"model": without(NET, "cap_rnn.bias_hh_l0_reverse")},
        "has no parameter txt_enc.cap_rnn.bias_hh_l0_reverse",
    ),
    "no size": ({"model": without(NET, "fc.weight")}, "has no parameter img_enc.fc.weight"),
    "extra": (
        {"model": with_one(NET, "SAF_module.bn.bias", torch.zeros(1))},
        "has an unknown parameter sim_enc.SAF_module.bn.bias",
    ),
    "step": ({"model": with_one(NET, "SGR_module.7.sim_graph_w.bias", torch.zeros(7))}, "SGR_module.7.sim_graph_w"),
    "shape": (
        {"model": with_one(NET, "sim_tranloc_w.weight", torch.zeros(7, 9))},
        "sim_tranloc_w.weight has the shape",
    ),
    "flat": ({"model": with_one(NET, "embed.weight", torch.zeros(9))}, "embed.weight has the shape (9,)"),
    "no tensor": ({"model": with_one(NET, "fc.bias", 3)}, "its fc.bias is of type int, not a tensor"),
    "other": ({"state_dict": {}}, "holds state_dict; a published checkpoint has `model`"),
    "list": ([1], "holds list; a published checkpoint"),
    "half": ({"model_A": NET.states()}, "holds model_A; a published checkpoint"),
    "one": ({"model": NET.states()[:1]}, "neither a network's state nor a list of the states of its encoders"),
    "two": ({"model": NET.states()[:2]}, "fit none of SGRAF, SCAN, VSRN, VSE-infinity, IMRAM or NPC"),
    "none": ({"model": [*NET.states()[:2], {}]}, "fit none of SGRAF, SCAN"),
}


@pytest.mark.parametrize("name", BAD)
def test_parameters_that_do_not_fit_are_named(source, tmp_path, capsys, name):
    content, says = BAD[name]
    assert_refused(content, says, source[0], tmp_path, capsys)


def refused(capsys, tmp_path, data, *files, more=()):
    words = ["import-checkpoint", *map(str, files), "--data", str(data), "--out", str(tmp_path / "run"), *more]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, err
    assert not (tmp_path / "run").exists()
    return err


def test_files_that_are_no_checkpoints(source, tmp_path, capsys):
    file = save(tmp_path / "good.tar", NET)
    (tmp_path / "cut.tar").write_bytes(file.read_bytes()[:2000])
    (tmp_path / "empty.tar").write_bytes(b"")
    (tmp_path / "text.tar").write_text("hello, this is no checkpoint")
    for name in ("cut", "empty", "text"):
        err = refused(capsys, tmp_path, source[0], tmp_path / f"{name}.tar")
        assert f"{name}.tar: is no " in err
    assert "cannot be read: No such file" in refused(capsys, tmp_path, source[0], tmp_path / "nowhere.tar")
    assert "cannot be read: Is a dir" in refused(capsys, tmp_path, source[0], tmp_path)


def test_networks_without_unit_codes_and_ensembles_that_do_not_fit(source, tmp_path, capsys):
    raw = torch.load(save(tmp_path / "raw.tar", NET), weights_only=False)
    raw["opt"].no_txtnorm = True
    torch.save(raw, tmp_path / "raw.tar")
    assert "trained with no_txtnorm" in refused(capsys, tmp_path, source[0], tmp_path / "raw.tar")
    sgr, saf = save(tmp_path / "sgr.tar", NET), save(tmp_path / "saf.tar", Net("SAF", 1), Net("SAF", 2))
    assert "1 networks of SGR and 2 of SAF" in refused(capsys, tmp_path, source[0], sgr, saf)
    wide = with_one(Net("SAF", 1), "embed.weight", torch.zeros(SIZE + 2, 5))
    torch.save({"model": wide}, tmp_path / "wide.tar")
    err = refused(capsys, tmp_path, source[0], sgr, tmp_path / "wide.tar")
    assert f"has vocabulary_size {SIZE + 2} where" in err


def test_data_and_vocabularies_that_do_not_fit(source, scenes, tmp_path, capsys):
    file = save(tmp_path / "model.tar", NET)
    vocabulary = tmp_path / "small.json"
    vocabulary.write_text(json.dumps({"word2idx": {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 4}}))
    err = refused(capsys, tmp_path, source[0], file, more=["--vocabulary", str(vocabulary)])
    assert f"small.json: gives ids below 5; the networks know {SIZE} words" in err
    err = refused(capsys, tmp_path, source[0], file, more=["--vocabulary", "nowhere.json"])
    assert "there is no vocabulary file" in err
    bare, held = write_source(tmp_path / "bare")
    (bare / "vocab.json").unlink()
    assert "there is no vocabulary beside the data" in refused(capsys, tmp_path, bare, file)
    for stem, (images, _) in held.items():
        np.save(bare / f"{stem}_ims.npy", images[:, :3])
    assert f"a row is 3 x {WIDTH}; the networks take 4 x {WIDTH}" in refused(capsys, tmp_path, bare, file)
    assert "there is nothing at" in refused(capsys, tmp_path, tmp_path / "nothing", file)
    assert "has no precomputed features" in refused(capsys, tmp_path, scenes, file)
