"""The command line: what it prints, and that what cannot be used ends in one line and code 2 before any work."""

import json

import pytest

import pairsift
from pairsift.cli import main
from pairsift.cli.fit import FitCommand
from pairsift.cli.summary import KEYS, print_summary
from pairsift.errors import InputError


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("pairsift: ") and err.count("\n") == 1, err
    return err


MESSAGES = [  # one for each message, in full or up to the names that grow with the package
    (["fix"], "there is no command 'fix'; did you mean fit?"),
    (["fit"], "give a source: a file or a folder of image-caption pairs"),
    (["fit", "nowhere.csv"], "there is nothing at nowhere.csv: give a file or a folder of image-caption pairs"),
    (["fit", "SCENES", "--method", "foo"], "there is no method 'foo'; choose from crossfit, sift, plain, oracle, ncr"),
    (["fit", "SCENES", "--preset", "foo"], "sift has no preset 'foo'; it has: paper, two_tower, clip"),
    (["fit", "SCENES", "--metod", "ncr"], "there is no option --metod: did you mean --method?"),
    (["fit", "SCENES", "--zz=1"], "there is no option --zz: see `pairsift fit --help-all`"),
    (["fit", "SCENES", "OTHER"], "there is nothing at OTHER: give a file or a folder of image-caption pairs"),
    (
        ["fit", "SCENES", "--hinge.margin", "3"],
        "--hinge.margin is an option of --loss hinge, which this run does not have",
    ),
    (["fit", "SCENES", "--seed=-1"], "--seed is '-1'; it must be a whole number from 0 to 4294967295"),
    (["fit", "SCENES", "--precision", "fp16"], "--precision is 'fp16'; choose from auto, fp32, bf16"),
    (
        ["fit", "SCENES", "--loss", "hinge", "--hinge.negatives", "half"],
        "--hinge.negatives is 'half'; choose from mean, hardest or a whole number, at least 1",
    ),
    (
        ["fit", "SCENES", "--method", "oracle"],
        "oracle needs to know the truth: give --noise or --noise-index, or another method",
    ),
    (
        ["fit", "SCENES", "--noise", "0.2", "--noise-index", "x.npy"],
        "--noise and --noise-index exclude each other: give one of them",
    ),
    (
        ["fit", "SCENES", "--text-encoder", "words"],
        "matcher two_tower cannot read the text encoder words; it takes muse, minilm, wordllama, ngrams",
    ),
    (
        ["fit", "SCENES", "--matcher", "vse", "--text-encoder", "wordllama"],
        "matcher vse cannot read the text encoder wordllama; it takes words, bpe or ids, which it learns",
    ),
    (["fit", "SCENES", "--device", "cuda:77"], "device 'cuda:77' is not available here; use auto or cpu"),
    (["fit", "SCENES", "--config", "nowhere.yaml"], "there is no configuration file nowhere.yaml"),
    (
        ["evaluate", "nowhere"],
        "nowhere holds no run: there is no pairsift.json; make a run with `pairsift check` or `pairsift fit`",
    ),
    (["audit"], "Missing argument 'RUN'."),
    (["demo", "--images", "3"], "3 scenes with seed 1: needs at least 10 images and a seed of 0 or above"),
    (["demo", "--noise", "1.5"], "Invalid value for '--noise': 1.5 is not in the range 0<=x<=1."),
]
REFUSED = [  # the same messages about other options, which are named
    ["fit", "SCENES", "--matcher", "foo"],
    ["fit", "SCENES", "--loss", "foo"],
    ["fit", "SCENES", "--reader", "foo"],
    ["fit", "SCENES", "--image-encoder", "foo"],
    ["fit", "SCENES", "--noise-index", "x.npy"],
    ["fit", "SCENES", "--nois", "0.4"],
    ["fit", "SCENES", "--noise", "lots"],
    ["fit", "SCENES", "--noise", "1.5"],
    ["fit", "SCENES", "--seed", "4294967296"],
    ["fit", "SCENES", "--batch-size", "1"],
    ["fit", "SCENES", "--infonce.base", "1e400"],
    ["fit", "SCENES", "--method", "pc2", "--pc2.classifier.classes", "1"],
    ["fit", "SCENES", "--method", "pc2", "--pc2.captions.search", "web"],
    ["fit", "SCENES", "--loss", "hinge", "--hinge.negatives", "-1"],
    ["fit", "SCENES", "--method", "pcsr", "--pcsr.noisy.train", "some"],
    ["search", "nowhere", "a dog"],
]


def words_of(words, scenes, place, quick):
    """Return a command line on the scenes whose run would lie in a folder of the test."""
    words = [str(scenes) if word == "SCENES" else word for word in words]
    return [
        *words,
        *[f"--out={place / 'refused'}"] * (words[0] in ("fit", "demo")),
        *[f"--cache={quick['cache']}"] * (words[0] == "fit"),
    ]


@pytest.mark.parametrize(("words", "message"), MESSAGES)
def test_one_line_and_code_2(capsys, scenes, place, words, message, quick):
    assert refused(capsys, *words_of(words, scenes, place, quick)).startswith(f"pairsift: {message}")
    assert not (place / "refused").exists()


def test_a_number_for_a_name_in_a_file_is_one_line(capsys, scenes, place, quick):
    (place / "x.yaml").write_text("loss: 3\n")
    words = words_of(["fit", "SCENES", "--config", str(place / "x.yaml")], scenes, place, quick)
    assert "there is no loss '3'" in refused(capsys, *words)


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_used_is_named(capsys, scenes, place, words, quick):
    line = refused(capsys, *words_of(words, scenes, place, quick))
    assert words[-1] in line or words[-2] in line
    assert not (place / "refused").exists()


def test_the_nearest_option_of_a_part_is_named(capsys, scenes, place, quick):
    words = ["fit", "SCENES", "--method=pc2", "--pc2.klasses=1"]
    line = refused(capsys, *words_of(words, scenes, place, quick))
    assert "did you mean --pc2.classifier.classes?" in line
    words = ["fit", "SCENES", "--method", "ncr", "--pc2.classifier.classes", "3"]
    line = refused(capsys, *words_of(words, scenes, place, quick))
    assert "--pc2.classifier.classes is an option of --method pc2" in line


def test_a_folder_without_a_run_cannot_be_resumed(capsys, scenes, place, quick):
    line = refused(capsys, *words_of(["fit", "SCENES", "--resume"], scenes, place, quick))
    assert line == f"pairsift: {place / 'refused'} holds no run to resume: leave --resume out\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["evaluate", "RUN", "--folds", "99"], "99 folds of"),
        (["search", "RUN", "a dog", "-k", "0"], "k is 0: ask for at least 1"),
    ],
)
def test_one_line_and_code_2_of_a_run(capsys, run, words, says):
    assert main([str(run.folder) if word == "RUN" else word for word in words]) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_fit_alone_tells_its_options(capsys):
    assert main(["fit"]) == 0
    assert "Usage: pairsift fit [OPTIONS] [SOURCE]" in "".join(capsys.readouterr())


@pytest.mark.parametrize("source", [[{"image": "a.jpg", "caption": "a dog"}], 3])
def test_a_source_that_is_no_path_is_one_line(source):
    for call in (pairsift.load, pairsift.fit):
        with pytest.raises(InputError, match=f"a source is the path of a file .*{type(source).__name__}: write"):
            call(source)


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_one_line(capsys, run, place):
    assert main(["evaluate", str(run.folder), "--json", str(place / "none" / "x.json")]) == 2
    assert "x.json: cannot be written (No such file or directory)" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.slow
def test_a_folder_in_use_is_not_overwritten(capsys, scenes, run, place):
    assert "--overwrite" in refused(capsys, "fit", str(scenes), f"--out={run.folder}")
    (place / "full").mkdir()
    (place / "full" / "thesis.tex").write_text("x")
    assert "holds other files" in refused(capsys, "fit", str(scenes), f"--out={place / 'full'}")
    assert "nothing to resume" in refused(
        capsys, "fit", f"--config={run.folder / 'config.yaml'}", f"--out={run.folder}", "--resume"
    )


@pytest.mark.slow
def test_verbs_print_what_they_found(capsys, run, tmp_path):
    assert main(["evaluate", str(run.folder), "--split", "dev"]) == 0
    alone = capsys.readouterr().out
    assert alone.count("dev ensemble") == 2 and "t2i mAP@R" in alone
    pairs = run.prepared.pairs
    own = {
        image: [str(t) for t in pairs.ids("dev") if pairs.names[pairs.image_of[t]] == image] for image in pairs.names
    }
    files = tmp_path / "i2t.json", tmp_path / "t2i.json"
    files[0].write_text(json.dumps(own))
    files[1].write_text(json.dumps({caption: [image] for image, captions in own.items() for caption in captions}))
    given = ["evaluate", str(run.folder), "--split", "dev", "--answers", *map(str, files)]
    assert main(given) == 0
    assert capsys.readouterr().out == alone  # the own captions are the right answers
    assert "leave folds out" in refused(capsys, *given, "--folds", "2")
    assert main(["search", str(run.folder), "a red ball", "-k", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["audit", str(run.folder), "--worst", "1"]) == 0
    out = capsys.readouterr().out
    assert "given:" in out and "AUROC" in out and "report.html" in out
    assert main(["list", "methods"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("crossfit", "plain", "oracle", "ncr", "pc2"))


def test_help_tells_the_verbs_and_a_methods_options(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in ("demo", "fit", "evaluate", "audit", "search", "list"))
    assert main(["fit", "--help"]) == 0
    out = capsys.readouterr().out
    assert "--noise" in out and "--help-all shows" in out and "--sift" not in out and "--decay-factor" not in out
    assert main(["fit", "--method", "ncr", "--help-all"]) == 0
    out = capsys.readouterr().out
    assert (
        "--decay-factor" in out
        and "--ncr.division.threshold" in out
        and "Clean probability above which a pair is clean" in " ".join(out.split())
    )
    assert "--pc2" not in out and "_" not in " ".join(word for word in out.split() if word.startswith("--"))


def test_a_summary_without_flagged_pairs_can_be_printed(capsys, tmp_path):
    recall = {key: 1.0 for key in KEYS}
    found = {"auroc": 0.7, "average_precision": 0.6, "precision": None, "recall": 0.0, "flagged": 0}
    metrics = {"test": {"ensemble": recall}, "noise_rate": {"estimated": 0.01, "true": 0.4}, "detection": found}
    print_summary(tmp_path, metrics)
    assert "mismatched training pairs: 0 flagged, AUROC 0.7000\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "aligned"),
    [
        (["--aligned", "SOURCE"], "true"),
        (["SOURCE", "--aligned", "--method", "plain"], "true"),
        (["SOURCE", "--aligned"], "true"),
        (["SOURCE", "--aligned", "false"], "false"),
        (["--aligned=no", "SOURCE"], "no"),
        (["SOURCE"], None),
    ],
)
def test_a_switch_without_a_value_is_true(tmp_path, words, aligned):
    (tmp_path / "mine.csv").write_text("image,caption\na.jpg,a dog\n")
    source, trees = str(tmp_path / "mine.csv"), []
    command = FitCommand(lambda tree, *_: trees.append(tree))
    command.main([source if word == "SOURCE" else word for word in words], standalone_mode=False)
    assert trees[0].get("aligned") == aligned and trees[0]["source"] == source
