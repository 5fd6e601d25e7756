"""CLIP goes the whole way, from `fit` to `search`, and needs its checkpoint no more once the run is made."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from flat_options import configured, fit
from safetensors.numpy import load_file
from whole_way import opened_again

from clip_helpers import save_clip, save_siglip
from pairsift.cli import main
from pairsift.methods import METHODS
from pairsift.runs.prepare import matcher_factory
from pairsift.scenes import write_scenes
from pairsift.train.loop import Trainer

pytestmark = pytest.mark.slow

CHOSEN = {"matcher": "clip", "lr": 1e-3, "clip.micro_batch": 24, "batch_size": 48, "threads": 1}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def few(place):
    write_scenes(place / "few-scenes", 40, 6)
    return place / "few-scenes"


@pytest.fixture(scope="module")
def options(quick, checkpoint):
    shared = {name: value for name, value in quick.items() if not name.startswith("pc2")}
    return {**shared, **CHOSEN, "clip.checkpoint": str(checkpoint)}


def test_it_goes_the_whole_way_and_opens_without_its_checkpoint(place, few, options, checkpoint, capsys):
    shutil.copytree(checkpoint, place / "lent")
    shutil.copytree(few, place / "clip-scenes")
    broken = next((place / "clip-scenes" / "images").iterdir())
    broken.write_bytes(broken.read_bytes()[:200])
    chosen = {**options, "out": str(place / "clip"), "clip.checkpoint": str(place / "lent"), "method": "ncr"}
    chosen |= {f"ncr.epochs.{phase}": 1 for phase in ("warmup", "clean", "all")}
    run = fit(place / "clip-scenes", chosen, progress=False)
    shutil.rmtree(place / "lent")
    assert run.config.loss.name == "infonce" and run.config.train.weight_decay == 0.2
    assert run.metrics["versions"]["transformers"]
    assert broken.name in (run.folder / "skipped.csv").read_text()
    opened = opened_again(run, capsys)
    found = opened.search("a large red ball", 4)
    assert len({path for path, _ in found}) == 4 and all(np.isfinite(score) for _, score in found)
    assert all(Path(path).exists() for path, _ in found)
    assert main(["audit", str(run.folder), "--worst", "1"]) == 0
    assert main(["search", str(run.folder), "a red ball", "-k", "2"]) == 0
    scored = opened.score(place / "clip-scenes", place / "scored.parquet")
    assert scored == len(run.pairs()) == len(pq.read_table(place / "scored.parquet"))  # without the broken image


@pytest.mark.parametrize(("head", "loss"), [("none", "sigmoid"), ("gpo", "hinge"), ("pcme", "bce"), ("pcmepp", "bce")])
def test_a_siglip_and_heads_on_tokens_go_the_whole_way(place, few, options, tmp_path, capsys, head, loss):
    more = {"method": "plain", "plain.networks": 1, "plain.epochs.warmup": 1, "plain.epochs.train": 1, "lr": 1e-5}
    more |= {"out": str(place / f"head-{head}"), "clip.head": head}
    if head == "none":
        more["clip.checkpoint"] = str(save_siglip(tmp_path / "siglip"))
    run = fit(few, {**options, **more}, progress=False)
    assert run.config.loss.name == loss
    found = opened_again(run, capsys).search("a large red ball", 4)
    assert len({path for path, _ in found}) == 4 and all(np.isfinite(score) for _, score in found)


def test_it_learns_what_the_images_show(place, scenes, options):
    more = {"out": str(place / "learns"), "method": "plain", "noise": 0.0, "plain.networks": 1, "plain.epochs.train": 4}
    more["precision"] = "bf16"
    run = fit(scenes, {**options, **more}, progress=False)
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"]["network_0"]["correspondence"] for line in lines]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize(("freeze", "held"), [("image", "vision_model."), ("text", "text_model.")])
def test_a_frozen_tower_is_the_checkpoints_to_the_bit_after_training_with_decay(
    place, few, options, checkpoint, freeze, held
):
    more = {"method": "plain", "plain.networks": 1, "plain.epochs.train": 1, "clip.freeze": freeze, "weight_decay": 0.5}
    run = fit(few, {**options, **more, "out": str(place / f"frozen-{freeze}")}, progress=False)
    before, after = load_file(checkpoint / "model.safetensors"), load_file(run.weights(0))
    found = {name.partition("model.")[2]: value for name, value in after.items()}
    assert before.keys() <= found.keys() and any(name.startswith(held) for name in before)
    for name, value in before.items():
        assert np.array_equal(found[name], value) == name.startswith(held), name


@pytest.mark.parametrize(
    ("method", "phases", "trains"),
    [
        ("npc", {"warmup": 1, "train": 2}, {"by_image", "by_text", "weight"}),
        ("gsc", {"warmup": 0, "train": 2}, {"cross_modal", "intra_modal"}),
        ("osa", {"train": 2}, {"correspondence"}),
        ("decl", {"warmup": 1, "train": 1}, {"hinge", "evidence"}),
        ("pcsr", dict.fromkeys(("warmup", "clean", "refine", "all"), 1), {"clean"}),
    ],
)
def test_every_papers_method_trains_it_in_half_precision(place, few, options, method, phases, trains):
    more = {f"{method}.epochs.{name}": value for name, value in phases.items()} | {"precision": "bf16"}
    run = fit(few, {**options, **more, "method": method, "out": str(place / f"clip-{method}")}, progress=False)
    lines = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    assert len(lines) == sum(phases.values())
    assert all(np.isfinite(value) for line in lines for terms in line["loss"].values() for value in terms.values())
    assert any(trains <= terms.keys() for line in lines for terms in line["loss"].values())


def test_a_run_that_stopped_goes_on_to_the_same_weights(place, few, options, monkeypatch):
    more = {f"pc2.epochs.{phase}": 1 for phase in ("warmup", "clean", "all")} | {"clip.freeze": "image"}
    straight = fit(few, {**options, **more, "out": str(place / "straight-clip")}, progress=False)
    finish, out = Trainer._finish, {"out": str(place / "stopped-clip")}

    def stop(self, epoch, *rest):
        finish(self, epoch, *rest)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "_finish", stop)
        fit(few, {**options, **more, **out}, progress=False)
    again = fit(few, {**options, **more, **out, "resume": True}, progress=False)
    for k in range(2):
        a, b = (load_file(one.weights(k)) for one in (straight, again))
        assert a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_without_epochs_it_is_what_the_checkpoint_knows(place, few, options):
    none = {"method": "plain", "plain.epochs.warmup": 0, "plain.epochs.train": 0, "plain.networks": 1}
    given = {name: value for name, value in options.items() if not name.startswith(("ncr", "pc2"))}
    run = fit(few, {**given, **none, "out": str(place / "zero-shot")}, progress=False)
    fresh = matcher_factory(run.config, run.prepared)()
    kept = load_file(run.weights(0))
    assert all(np.array_equal(kept[f"matcher.{name}"], value.numpy()) for name, value in fresh.state_dict().items())
    assert run.metrics["best"]["epoch"] == -1 and run.metrics["test"]["ensemble"]["rsum"] > 0
    assert (run.folder / "report.html").exists() and not (run.folder / "checkpoint.safetensors").exists()


def test_the_preset_suits_fine_tuning_and_every_part_of_it_exists(scenes, checkpoint):
    for name, method in METHODS.items():
        if "clip" not in method.presets:
            continue
        config = configured(
            {"source": str(scenes), "matcher": "clip", "method": name, "clip.checkpoint": str(checkpoint)}
        )
        assert config.loss.name == "infonce" and config.train.lr < 1e-4
        assert sum(phase.epochs for phase in config.method.phases()) <= 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--clip.checkpoint", "./nowhere"], "--clip.checkpoint ./nowhere: there is no such folder"),
        (["--clip.checkpoint", "BERT"], "is a bert and no CLIP"),
        (["--clip.checkpoint", "nobody/nothing"], "--clip.checkpoint nobody/nothing cannot be loaded"),
        (["--clip.checkpoint", "EMPTY"], "has no config.json"),
        (["--image-encoder", "efficientnet-lite0"], "leave --image-encoder out"),
        (["--text-encoder", "words"], "leave --text-encoder out"),
        (["--splitter", "plain"], "has no effect on the text encoder clip"),
        (["--clip.freeze", "all"], "--clip.freeze"),
        (["--clip.micro-batch", "-1"], "--clip.micro-batch is '-1'"),
        (["--clip.pretrained", "false"], "--clip.pretrained"),
    ],
)
def test_what_cannot_be_used_is_one_line(capsys, place, scenes, checkpoint, words, says, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (place / "empty").mkdir(exist_ok=True)
    (place / "bert").mkdir(exist_ok=True)
    (place / "bert" / "config.json").write_text('{"model_type": "bert"}')
    words = [{"BERT": str(place / "bert"), "EMPTY": str(place / "empty")}.get(word, word) for word in words]
    given = [f"--out={place / 'refused-clip'}", "--matcher=clip", f"--clip.checkpoint={checkpoint}", *words]
    assert main(["fit", str(scenes), *given]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("pairsift: ") and err.count("\n") == 1 and says in err, err
    assert not (place / "refused-clip").exists()


def test_without_transformers_it_says_what_to_install(capsys, place, scenes, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    assert main(["fit", str(scenes), f"--out={place / 'refused-clip'}", "--matcher=clip"]) == 2
    assert "pip install 'pairsift[hf]'" in capsys.readouterr().err
    assert not (place / "refused-clip").exists()
