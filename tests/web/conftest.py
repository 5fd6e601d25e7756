"""The folder of a finished run, and of a run that can be searched, and a browser."""

import shutil

import pytest
from web_helpers import add_networks, make_run, served, watched


@pytest.fixture
def folder(tmp_path):
    return make_run(tmp_path)


@pytest.fixture(scope="module")
def searchable(tmp_path_factory):
    """A run with networks, the features of whose images are in a cache of its own."""
    place = tmp_path_factory.mktemp("searchable")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield add_networks(make_run(place))


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright, a dependency for tests")
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for path in map(shutil.which, names) if path), None)
    if program is None:
        pytest.skip("needs chromium: apt install chromium")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def address(folder):
    with served(folder) as first_page:
        yield first_page


@pytest.fixture
def page(browser, address):
    with watched(browser, address) as opened:
        opened.wait_for_selector("#given:not(:empty)")
        yield opened
