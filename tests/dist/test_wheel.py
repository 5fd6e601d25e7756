"""The wheel that people install: all files of the package are in it, and it works where nothing of the checkout is."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy, so that the checkout stays clean."""
    place = tmp_path_factory.mktemp("dist")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, place / name)
    shutil.rmtree(place / "src" / "pairsift.egg-info", ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "out", "."], cwd=place, check=True)
    [file] = (place / "out").glob("*.whl")
    return file


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install it without its dependencies, which this environment has, into a folder of its own."""
    place = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", place, wheel], check=True)
    return place


def said(installed, folder, *words):
    """Run a command in an empty folder, with the installed wheel before all else."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_all_files_of_the_package_are_in_the_wheel_and_nothing_else(wheel):
    files = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / "pairsift").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    assert {"pairsift/report/templates/report.html", "pairsift/report/static/style.css", "pairsift/py.typed"} < files
    within = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in within if not name.startswith("pairsift-")} == files
    assert any(name.endswith("licenses/LICENSE") for name in within)


def test_the_installed_wheel_says_its_version_and_lists_methods(installed, tmp_path):
    where = said(installed, tmp_path, sys.executable, "-c", "import pairsift; print(pairsift.__file__)")
    assert Path(where).is_relative_to(installed)
    [about] = installed.glob("pairsift-*.dist-info")
    version = about.name.removeprefix("pairsift-").removesuffix(".dist-info")
    assert said(installed, tmp_path, sys.executable, "-m", "pairsift.cli", "--version") == f"pairsift {version}"
    listed = said(installed, tmp_path, str(installed / "bin" / "pairsift"), "list", "methods")
    assert listed.startswith("methods\n") and "crossfit" in listed and "npc" in listed
    assert list(tmp_path.iterdir()) == []
