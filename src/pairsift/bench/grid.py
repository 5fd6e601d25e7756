"""A grid of runs from YAML: every method with every matcher, noise and seed is a cell, with the options of `fit`."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, get_args

from pairsift.errors import InputError, similar
from pairsift.loss import RANKING_LOSSES
from pairsift.match import MATCHER, MATCHERS
from pairsift.methods import METHODS
from pairsift.pairs.options import DataOptions
from pairsift.runs.claim import MAY_DIFFER
from pairsift.runs.config import Choices, Config, from_tree, put_over, read_yaml
from pairsift.runs.prepare import require_possible
from pairsift.source_path import require_source

KEYS = ("source", "out", "methods", "matchers", "noise", "noise_kind", "seeds", "folds", "options")
FIXED = {  # options of `fit` that a key of the grid says
    "source": "source",
    "out": "out",
    "method": "methods",
    "matcher": "matchers",
    "noise": "noise",
    "noise_kind": "noise_kind",
    "noise_seed": "seeds",
    "seed": "seeds",
}
KINDS: tuple[str, ...] = get_args(DataOptions.model_fields["noise_kind"].annotation)

Tree = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A method or a matcher of a grid, with its label and its own options."""

    label: str
    options: Tree


@dataclass(frozen=True)
class Cell:
    """One training of a grid.

    Attributes:
        method: The label of the method.
        matcher: The label of the matcher.
        noise: Share of the training captions with planted noise.
        kind: Kind of the noise; None where there is none.
        seed: Seed of the noise and of the training.
        tree: The options as `fit` reads them.
        config: The same options as objects.
        folds: Parts of the test images that are ranked separately; the recall is their mean.
    """

    method: str
    matcher: str
    noise: float
    kind: str | None
    seed: int
    tree: Tree
    config: Config
    folds: int = 1

    @cached_property
    def id(self) -> str:
        """A hash of the options that decide about the numbers, and of the files of classes from outside pairsift."""
        kept = {name: value for name, value in self.config.tree().items() if name not in MAY_DIFFER}
        method, matcher = METHODS.spec(type(self.config.method)), MATCHERS.spec(self.config.matcher)
        kept |= _code_hashes({method: type(self.config.method), matcher: self.config.matcher})
        kept |= {"folds": self.folds} if self.folds > 1 else {}
        return _hash(kept | _list_hashes(self.config.data))

    @cached_property
    def group(self) -> str:
        """A hash of the options that decide about pairs, features and held-out evidence."""
        config = self.config
        matcher = MATCHERS.spec(config.matcher)
        kept: Tree = {"source": config.source, "matcher": matcher} | _code_hashes({matcher: config.matcher})
        kept |= _list_hashes(config.data)
        kept |= config.data.model_dump() | config.encode.model_dump() | config.matcher_options.model_dump()
        kept |= {name: getattr(config.train, name) for name in ("seed", "precision")}
        if changes := config.detect.changes():
            kept["detect"] = changes
        return _hash({name: value for name, value in kept.items() if name not in MAY_DIFFER})

    @property
    def place(self) -> Tree:
        """Where the cell lies in the grid."""
        names = {"method": self.method, "matcher": self.matcher, "noise": self.noise}
        return names | {"noise_kind": self.kind, "seed": self.seed}

    def __str__(self) -> str:
        """Return the cell's place as words."""
        kind = "" if self.kind in (None, "random") else f" {self.kind}"
        return f"{self.method}, {self.matcher}, {self.noise:.0%}{kind}, seed {self.seed}"


@dataclass(frozen=True)
class Grid:
    """The cells of a grid.

    Attributes:
        cells: All cells, by matcher, kind of noise, noise, seed and method.
        out: The folder that the grid names; None where it names none.
    """

    cells: tuple[Cell, ...]
    out: Path | None

    @property
    def without_truth(self) -> frozenset[str]:
        """The labels of the methods that can run where nobody knows which pairs are mismatched."""
        return frozenset(cell.method for cell in self.cells if not cell.config.method.needs_truth)


def read_grid(path: Path, source: Path | None = None) -> Grid:
    """Read a grid, and check the options of all its cells.

    Args:
        path: The YAML file.
        source: The pairs to take instead of the grid's source.

    Raises:
        InputError: The file cannot be read, or a key or an option of it cannot be used; the line names it.
    """
    tree = read_yaml(path, "`source: mine.csv` and `methods: [plain, sift]`")
    with _errors_of(str(path)):
        return _grid(tree if source is None else tree | {"source": str(source)})


@contextmanager
def _errors_of(where: str) -> Iterator[None]:
    """Begin the messages of errors with the place in the grid."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _require_measurable(config: Config) -> None:
    """Raise an error for a run that is impossible, or that has no recall.

    Raises:
        InputError: It cannot be measured.
    """
    require_possible(config)
    if not config.has_recall:
        raise InputError("it trains nothing and has no recall: leave it out")


def _grid(tree: Tree) -> Grid:
    for name in tree:
        if name not in KEYS:
            raise InputError(f"there is no key `{name}`; {similar(str(name), KEYS)}")
    source, out, options = tree.get("source"), tree.get("out"), tree.get("options") or {}
    if not isinstance(source, str):
        raise InputError(f"`source` is {source!r}; give the path of a file or a folder of image-caption pairs")
    with _errors_of("`source`"):
        require_source(Path(source).expanduser())
    if out is not None and not isinstance(out, str):
        raise InputError(f"`out` is {out!r}; it must be a path")
    _check_options("options", options)
    methods = _entries("methods", tree.get("methods"), "method")
    matchers = _entries("matchers", tree.get("matchers", MATCHER), "matcher")
    noises, seeds = _listed("noise", tree.get("noise", 0.0)), _listed("seeds", tree.get("seeds", 1))
    kinds = [_kind(value) for value in _listed("noise_kind", tree.get("noise_kind", KINDS[0]))]
    folds = tree.get("folds", 1)
    if type(folds) is not int or folds < 1:
        raise InputError(f"`folds` is {folds!r}; it must be a whole number, at least 1 (5 for COCO-1K)")
    cells: list[Cell] = []
    used: set[str] = set()
    for matcher, (kind, noise), seed, method in product(matchers, _noises(kinds, noises), seeds, methods):
        place = (method.label, matcher.label, noise, kind, seed)
        cell, parts = _cell(source, place, put_over(put_over(options, matcher.options), method.options))
        used |= parts
        if noise or cell.config.data.noise_index or not cell.config.method.needs_truth:
            cells.append(replace(cell, folds=folds))
    for where, given in [("options", options), *((entry.label, entry.options) for entry in (*matchers, *methods))]:
        for name in given:
            if name not in used and _is_part(str(name)):
                raise InputError(f"`{where}`: no cell has the method, matcher or loss `{name}`: leave `{name}` out")
    if not cells:
        raise InputError("`noise` is 0, where `methods` has none that can run without the truth: give another noise")
    for cell in cells:
        with _errors_of(f"`{cell.method}` on `{cell.matcher}`"):
            _require_measurable(cell.config)
    return Grid(tuple(cells), None if out is None else Path(out).expanduser())


def _noises(kinds: Sequence[str], noises: Sequence[object]) -> Iterator[tuple[str | None, object]]:
    """Yield the kinds and ratios of noise. Without noise, all kinds are one."""
    if 0 in noises:
        yield None, 0
    yield from ((kind, noise) for kind in kinds for noise in noises if noise)


def _cell(source: str, place: tuple[str, str, object, str | None, object], options: Tree) -> tuple[Cell, set[str]]:
    """Return a cell and the names of its parts. Options of other parts are left out."""
    method, matcher, noise, kind, seed = place
    with _errors_of(f"`{method}` on `{matcher}`"):
        names = [str(options[name]) for name in ("method", "matcher")]
        choices = Choices.make(names[0], names[1], options.get("loss"), options.get("preset"), options)
        parts = {choices.method.name, choices.matcher.name, choices.loss.name}
        tree = {name: value for name, value in options.items() if name in parts or not _is_part(str(name))}
        tree |= {"source": source, "noise": noise, "noise_seed": seed, "seed": seed}
        tree |= {} if kind is None else {"noise_kind": kind}
        config = from_tree(tree)
        return Cell(method, matcher, config.data.noise, kind, config.train.seed, tree, config), parts


def _entries(key: str, value: object, kind: str) -> list[Entry]:
    """Return the entries of `methods` or `matchers`: names, or mappings with a name and options."""
    entries = []
    for number, item in enumerate(_listed(key, value), 1):
        where = f"{key}[{number}]"
        given: Tree = {kind: item} if isinstance(item, str) else item  # type: ignore[assignment]
        if not isinstance(given, dict) or not isinstance(given.get(kind), str):
            raise InputError(f"`{where}` is {item!r}; it must be a name, or a mapping with `{kind}` and options of fit")
        with _errors_of(f"`{where}`"):
            (METHODS if kind == "method" else MATCHERS).find(given[kind])
        own = {name: option for name, option in given.items() if name not in ("label", kind)}
        _check_options(where, own)
        label = given.get("label", given[kind])
        if not isinstance(label, str) or not label.strip():
            raise InputError(f"`{where}.label` is {label!r}; it must be text")
        entries.append(Entry(" ".join(label.split()), own | {kind: given[kind]}))
    labels = [entry.label for entry in entries]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"`{key}` has {label!r} twice: give each entry a `label` of its own")
    return entries


def _check_options(where: str, options: object) -> None:
    """Raise an error for options that are no mapping, or that the grid itself sets."""
    if not isinstance(options, dict):
        raise InputError(f"`{where}` is {options!r}; it must be a mapping of options of fit")
    for name in options:
        if name in FIXED:
            raise InputError(f"`{where}.{name}` is what the key `{FIXED[name]}` of the grid says: leave it out")


def _listed(key: str, value: object) -> list[object]:
    """Return a value, or the values of a list."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not values:
        raise InputError(f"`{key}` is empty: give one value or a list")
    for item in values:
        if values.count(item) > 1:
            raise InputError(f"`{key}` has {item!r} twice: leave one out")
    return values


def _kind(value: object) -> str:
    if value not in KINDS:
        raise InputError(f"`noise_kind` has {value!r}; {similar(str(value), KINDS)}")
    return str(value)


def _is_part(name: str) -> bool:
    return any(name in registry for registry in (METHODS, MATCHERS, RANKING_LOSSES))


def _list_hashes(data: DataOptions) -> Tree:
    """Return hashes of the files that list verified pairs and planted noise, by the names of their options."""
    files = {name: getattr(data, name) for name in ("verified", "noise_index")}
    paths = {name: Path(file) for name, file in files.items() if file and Path(file).is_file()}
    return {f"{name} file": hashlib.sha256(file.read_bytes()).hexdigest() for name, file in paths.items()}


def _code_hashes(classes: Mapping[str, type]) -> Tree:
    """Return hashes of the files of classes from outside pairsift, by their names `module:attribute`."""
    hashes = {}
    for name, kind in classes.items():
        with suppress(TypeError, OSError):  # a class that was typed in has no file
            if ":" in name and (file := inspect.getsourcefile(kind)):
                hashes[name] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return hashes


def _hash(tree: Tree) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True, default=str).encode()).hexdigest()[:16]
