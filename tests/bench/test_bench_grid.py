"""A grid's YAML: its cells, the options that each gets, and one clear line for whatever is wrong in it."""

import sys
import textwrap

import pytest

from pairsift.bench.grid import read_grid
from pairsift.cli import main
from pairsift.errors import InputError
from pairsift.marker import write_marker


@pytest.fixture
def grid(tmp_path):
    """A function that reads a grid from text; `SOURCE` stands for a folder that exists."""

    def read(text):
        path = tmp_path / "grid.yaml"
        path.write_text(textwrap.dedent(text).replace("SOURCE", str(tmp_path)))
        return read_grid(path)

    return read


def test_every_method_meets_every_matcher_noise_and_seed(grid):
    read = grid(
        """
        source: SOURCE
        methods: [plain, oracle, ncr]
        matchers: [two_tower, {matcher: vse, label: small, dim: 32, vse: {dim: 64}}]
        noise: [0, 0.4]
        noise_kind: [random, vague]
        seeds: [1, 2]
        """.replace("dim: 32, ", "")
    )
    places = [(cell.matcher, cell.kind, cell.noise, cell.seed, cell.method) for cell in read.cells]
    expected = [
        (matcher, kind, noise, seed, method)
        for matcher in ("two_tower", "small")
        for kind, noise in ((None, 0.0), ("random", 0.4), ("vague", 0.4))
        for seed in (1, 2)
        for method in ("plain", "oracle", "ncr")
        if noise or method != "oracle"  # which needs to know the truth
    ]
    assert places == expected
    assert len({cell.id for cell in read.cells}) == len(read.cells)
    assert len({cell.group for cell in read.cells}) == 2 * 3 * 2
    assert all((cell.config.data.noise_seed, cell.config.train.seed) == (cell.seed,) * 2 for cell in read.cells)
    assert {cell.config.data.noise_kind for cell in read.cells if cell.noise} == {"random", "vague"}
    assert {cell.config.matcher_options.model_dump()["dim"] for cell in read.cells if cell.matcher == "small"} == {64}
    assert read.without_truth == {"plain", "ncr"}


def test_options_reach_the_cells_that_have_them(grid):
    read = grid("""
        source: SOURCE
        out: rows
        methods:
          - plain
          - {method: ncr, label: late, lr: 0.5, ncr: {division: {threshold: 0.7}}, loss: hinge}
        options: {lr: 0.25, batch_size: 8, ncr: {networks: 1}, plain: {networks: 2}, hinge: {negatives: mean}}
        """)
    plain, late = (cell.config for cell in read.cells)
    assert str(read.out) == "rows" and [cell.method for cell in read.cells] == ["plain", "late"]
    assert (plain.train.lr, plain.train.batch_size, plain.method.networks) == (0.25, 8, 2)
    assert (late.train.lr, late.train.batch_size, late.method.networks) == (0.5, 8, 1)
    assert late.method.division.threshold == 0.7 and (late.loss.name, late.loss.negatives) == ("hinge", "mean")


def test_options_may_have_all_names_in_one_as_on_the_command_line(grid):
    text = """
        source: SOURCE
        methods: [{method: ncr, %s}]
        options: {%s}
        """
    entries = "ncr: {division: {threshold: 0.7}, epochs: {all: 4}}", "ncr.division.threshold: 0.7, ncr.epochs: {all: 4}"
    commons = "ncr: {epochs: {warmup: 3}}, batch_size: 8", "ncr.epochs.warmup: 3, batch-size: 8"
    [nested], [in_one], [mixed] = (
        grid(text % given).cells for given in (*zip(entries, commons, strict=True), (entries[1], commons[0]))
    )
    assert nested.config == in_one.config == mixed.config
    assert (nested.config.method.division.threshold, nested.config.method.epochs.warmup) == (0.7, 3)
    assert (nested.config.method.epochs.all, nested.config.train.batch_size) == (4, 8)


def test_what_does_not_decide_about_numbers_makes_no_other_cell(grid):
    text = "{source: SOURCE, methods: plain, options: {checkpoint_minutes: %s, lr: %s, cache: %s}}"
    [first], [same], [other] = (grid(text % values).cells for values in ((1, 0.1, "a"), (2, 0.1, "b"), (1, 0.2, "a")))
    assert first.id == same.id != other.id and first.group == same.group == other.group


def test_a_changed_file_of_a_method_of_ones_own_makes_other_cells(grid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "own_loss", raising=False)
    text = "from pairsift.methods.plain import Plain\nclass OwnLoss(Plain):\n    name = 'own_loss'\n"
    (tmp_path / "own_loss.py").write_text(text)
    found = []
    for more in ("", "# the same\n"):
        (tmp_path / "own_loss.py").write_text(text + more)
        cells = grid("{source: SOURCE, methods: ['own_loss:OwnLoss', plain]}").cells
        found.append([(cell.id, cell.group) for cell in cells])
    (own, plain), (changed, same) = found
    assert own[0] != changed[0] and plain == same and own[1] == changed[1]


def test_the_contents_of_listed_pairs_count(grid, tmp_path):
    text, names = "{source: SOURCE, methods: plain, options: {verified: SOURCE/ids.txt}}", []
    for ids in ("1", "2", "2"):
        (tmp_path / "ids.txt").write_text(ids)
        names += [(cell.id, cell.group) for cell in grid(text).cells]
    first, second, third = names
    assert second == third and first[0] != second[0] and first[1] != second[1]


def test_a_mapping_may_be_merged_into_others(grid):
    text = """
        source: SOURCE
        methods:
          - &short {method: plain, label: a, lr: 0.1}
          - {<<: *short, label: b, lr: 0.2}
        options: {two_tower: &towers {dim: 64}, plain: {epochs: {warmup: 0}}}
        matchers: {matcher: two_tower, two_tower: {<<: *towers, dim: 32}}
    """
    assert [(cell.method, cell.config.train.lr, cell.config.matcher_options.dim) for cell in grid(text).cells] == [
        ("a", 0.1, 32),
        ("b", 0.2, 32),
    ]


def test_a_source_may_take_the_place_of_the_grids(grid, tmp_path):
    (tmp_path / "other").mkdir()
    grid("{source: SOURCE, methods: plain}")
    [cell] = read_grid(tmp_path / "grid.yaml", tmp_path / "other").cells
    assert cell.config.source == str(tmp_path / "other")
    with pytest.raises(InputError, match="there is nothing at"):
        read_grid(tmp_path / "grid.yaml", tmp_path / "nowhere")


def test_rows_of_folds_are_rows_of_their_own(grid):
    ids = {folds: grid(f"{{source: SOURCE, methods: plain, folds: {folds}}}").cells[0].id for folds in (1, 5)}
    assert ids[1] == grid("{source: SOURCE, methods: plain}").cells[0].id != ids[5]


def test_a_label_is_one_line(grid):
    [cell] = grid('{source: SOURCE, methods: [{method: plain, label: " a\\n b\\n"}]}').cells
    assert cell.method == "a b"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("method: plain", "there is no key `method`; did you mean methods?"),
        ("methods: plain", "`source` is None; give the path"),
        ("{source: nowhere, methods: plain}", "`source`: there is nothing at nowhere"),
        ("{source: 3, methods: plain}", "`source` is 3; give the path"),
        ("{source: SOURCE, out: [a], methods: plain}", "`out` is ['a']"),
        ("{source: SOURCE}", "`methods` is empty"),
        ("{source: SOURCE, methods: [plain, plane]}", "`methods[2]`: there is no method 'plane'; did you mean plain?"),
        ("{source: SOURCE, methods: [{lr: 1}]}", "`methods[1]` is {'lr': 1}; it must be a name"),
        ("{source: SOURCE, methods: [plain, {method: plain, lr: 1}]}", "`methods` has 'plain' twice"),
        ("{source: SOURCE, methods: [{method: plain, label: 3}]}", "`methods[1].label` is 3"),
        ("{source: SOURCE, methods: [{method: plain, noise: 1}]}", "`methods[1].noise` is what the key `noise`"),
        ("{source: SOURCE, methods: plain, matchers: [vsse]}", "`matchers[1]`: there is no matcher 'vsse'"),
        ("{source: SOURCE, methods: plain, noise: high}", "--noise is 'high'; it must be a number from 0 to 1"),
        ("{source: SOURCE, methods: plain, noise: [0.2, 1.5]}", "--noise is 1.5"),
        ("{source: SOURCE, methods: plain, noise: [0.2, 0.2]}", "`noise` has 0.2 twice"),
        ("{source: SOURCE, methods: plain, noise: []}", "`noise` is empty"),
        ("{source: SOURCE, methods: plain, noise_kind: nera}", "`noise_kind` has 'nera'; did you mean near?"),
        ("{source: SOURCE, methods: plain, seeds: -1}", "seed is -1"),
        ("{source: SOURCE, methods: plain, seeds: 1.5}", "seed is 1.5"),
        ("{source: SOURCE, methods: plain, folds: 0}", "`folds` is 0; it must be a whole number, at least 1"),
        ("{source: SOURCE, methods: plain, folds: five}", "`folds` is 'five'; it must be"),
        ("{source: SOURCE, methods: plain, options: [lr]}", "`options` is ['lr']; it must be a mapping"),
        ("{source: SOURCE, methods: plain, options: {seed: 1}}", "`options.seed` is what the key `seeds`"),
        ("{source: SOURCE, methods: plain, options: {lrr: 1}}", "`plain` on `two_tower`: there is no option --lrr"),
        ("{source: SOURCE, methods: [{method: plain, networks: 1}]}", "no option --networks: did you mean --plain.net"),
        ("{source: SOURCE, methods: plain, seeds: 1, seeds: 2}", "'seeds' is there twice in one mapping"),
        ("{source: SOURCE, methods: plain, options: {text_encoder: wordlama}}", "no text encoder 'wordlama'; did you"),
        ("{source: SOURCE, methods: plain, options: {image_encoder: resnet}}", "there is no image encoder 'resnet'"),
        ("{source: SOURCE, methods: plain, options: {verified: nope}}", "cannot be read: there is no such file"),
        (
            "{source: SOURCE, methods: plain, options: {epochs: {warmup: 1}}}",
            "must be a whole number; for a phase alone",
        ),
        ("{source: SOURCE, methods: plain, options: {epochss: 3}}", "no option --epochss: did you mean --epochs?"),
        ("{source: SOURCE, methods: plain, options: {epochs: 2.7}}", "--epochs is 2.7; it must be a whole number"),
        ("{source: SOURCE, methods: 'pairsift:fit'}", "pairsift:fit is no method: give a subclass of"),
        ("{source: SOURCE, methods: plain, matchers: 'pairsift.methods:METHODS'}", "METHODS is no matcher: give a"),
        ("{source: SOURCE, methods: plain, options: {lr: x}}", "`plain` on `two_tower`: --lr is 'x'"),
        ("{source: SOURCE, methods: plain, options: {ncr: {networks: 1}}}", "`options`: no cell has the method"),
        ("{source: SOURCE, methods: oracle}", "`noise` is 0"),
        ("{source: SOURCE, methods: osa}", "`osa` on `two_tower`: "),
        ("- plain", "holds no options: expected lines such as `source: mine.csv` and `methods"),
        ("", "expected lines such as `source: mine.csv`"),
        ("{", "is not readable as YAML"),
    ],
)
def test_what_is_wrong_gets_one_line_that_names_the_key(grid, text, line):
    with pytest.raises(InputError) as raised:
        grid(text)
    assert line in str(raised.value) and "grid.yaml" in str(raised.value) and "\n" not in str(raised.value)


def test_the_verb_says_the_line_and_nothing_else(tmp_path, capsys):
    assert main(["bench", str(tmp_path / "none.yaml")]) == 2
    assert main(["bench", str(tmp_path / "none.yaml"), "--jobs=0"]) == 2
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["pairsift"] * 2


def test_a_run_of_fit_is_no_folder_for_rows(tmp_path, capsys):
    write_marker(tmp_path, "run")
    (tmp_path / "grid.yaml").write_text(f"{{source: {tmp_path}, methods: plain, out: {tmp_path}}}")
    assert main(["bench", str(tmp_path / "grid.yaml")]) == 2
    assert "holds a run of pairsift, not a grid" in capsys.readouterr().err


def test_a_folder_of_somebody_else_gets_no_rows(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "table.md").write_text("mine")
    (tmp_path / "grid.yaml").write_text(f"{{source: {tmp_path}, methods: plain, out: {tmp_path / 'mine'}}}")
    assert main(["bench", str(tmp_path / "grid.yaml")]) == 2
    assert "holds other files, which pairsift did not write" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["table.md"]
