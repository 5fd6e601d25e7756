"""The command line: what it prints, and that what cannot be used ends in one line and code 2 before any work."""

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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fix"], "no verb 'fix'"),
        (["fit"], "give a source"),
        (["fit", "nowhere.csv"], "nowhere.csv: give a file or a folder"),
        (["fit", "SCENES", "--method", "foo"], "no method 'foo'; choose from crossfit, sift, plain, oracle, ncr"),
        (["fit", "SCENES", "--matcher", "foo"], "no matcher 'foo'"),
        (["fit", "SCENES", "--loss", "foo"], "no loss 'foo'"),
        (["fit", "SCENES", "--preset", "foo"], "sift has no preset 'foo'; it has: paper"),
        (["fit", "SCENES", "--nois", "0.4"], "--nois"),
        (["fit", "SCENES", "--metod", "ncr"], "there is no option --metod: did you mean --method?"),
        (["fit", "SCENES", "--zz=1"], "there is no option --zz: see `pairsift fit --help-all`"),
        (
            ["fit", "SCENES", "--method=pc2", "--pc2.klasses=1"],
            "there is no option --pc2.klasses: did you mean --pc2.classifier.classes?",
        ),
        (["fit", "SCENES", "OTHER"], "give only one source; 'OTHER' is a second one"),
        (
            ["fit", "SCENES", "--method", "ncr", "--pc2.classifier.classes", "3"],
            "--pc2.classifier.classes is an option of --method pc2",
        ),
        (["fit", "SCENES", "--hinge.margin", "3"], "--hinge.margin is an option of --loss hinge"),
        (["fit", "SCENES", "--noise", "lots"], "--noise is 'lots'; it must be a number from 0 to 1"),
        (["fit", "SCENES", "--min-count", "few"], "--min-count is 'few'; it must be a whole number, at least 1\n"),
        (["fit", "SCENES", "--splitter", "foo"], "--splitter is 'foo'; choose from plain, treebank, jieba\n"),
        (["fit", "SCENES", "--precision", "fp16"], "--precision is 'fp16'; choose from auto, fp32, bf16\n"),
        (["fit", "SCENES", "--seed=-1"], "--seed is '-1'; it must be a whole number from 0 to 4294967295"),
        (["fit", "SCENES", "--seed", "4294967296"], "--seed is '4294967296'"),
        (["fit", "SCENES", "--noise", "1.5"], "1.5"),
        (["fit", "SCENES", "--method", "pc2", "--pc2.captions.search", "web"], "--pc2.captions.search"),
        (["fit", "SCENES", "--method", "oracle"], "needs to know the truth"),
        (["fit", "SCENES", "--noise", "0.2", "--noise-index", "x.npy"], "exclude each other"),
        (["fit", "SCENES", "--noise-index", "x.npy"], "x.npy"),
        (["fit", "SCENES", "--reader", "foo"], "foo"),
        (["fit", "SCENES", "--image-encoder", "foo"], "no image encoder"),
        (["fit", "SCENES", "--text-encoder", "words"], "two_tower"),
        (["fit", "SCENES", "--matcher", "vse", "--text-encoder", "wordllama"], "vse"),
        (["fit", "SCENES", "--batch-size", "1"], "--batch-size is '1'; it must be a whole number, at least 2"),
        (["fit", "SCENES", "--device", "cuda:77"], "cuda:77"),
        (["fit", "SCENES", "--resume"], "no run to resume"),
        (["fit", "SCENES", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["fit", "SCENES", "--method", "pc2", "--pc2.classifier.classes", "1"], "classes"),
        (["fit", "SCENES", "--infonce.base", "1e400"], "--infonce.base is '1e400'; it must be a number, at least 1"),
        (["fit", "SCENES", "--method", "pcsr", "--pcsr.consistency.start", "half"], "choose from quantile or a number"),
        (["fit", "SCENES", "--method", "pcsr", "--pcsr.consistency.start=-1"], "--pcsr.consistency.start is '-1'"),
        (
            ["fit", "SCENES", "--method", "pcsr", "--pcsr.noisy.train", "some"],
            "--pcsr.noisy.train is 'some'; choose from all",
        ),
        (["evaluate", "nowhere"], "holds no run"),
        (["search", "nowhere", "a dog"], "holds no run"),
        (["audit"], "run"),
        (["demo", "--images", "3"], "3"),
        (["demo", "--noise", "1.5"], "'--noise': 1.5 is not in the range"),
    ],
)
def test_one_line_and_code_2(capsys, scenes, place, words, says, quick):
    words = [str(scenes) if word == "SCENES" else word for word in words]
    if words[0] == "fit":
        words += [f"--out={place / 'refused'}", f"--cache={quick['cache']}"]
    if words[0] == "demo":
        words += [f"--out={place / 'refused'}"]
    assert says in refused(capsys, *words)
    assert not (place / "refused").exists()


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
def test_verbs_print_what_they_found(capsys, run):
    assert main(["evaluate", str(run.folder), "--split", "dev"]) == 0
    assert "dev ensemble" in capsys.readouterr().out
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
