"""The search page in a real browser: texts, images like a result's, an uploaded image, and how the page looks."""

import pytest
from web_helpers import MARKUP, N, served, watched

import pairsift

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(searchable):
    with served(searchable) as first_page:
        yield first_page


@pytest.fixture
def page(browser, address):
    with watched(browser, address) as opened:
        opened.click("nav >> text=Search")
        opened.wait_for_selector("#text")
        yield opened


def ask(page, text):
    page.fill("#text", text)
    page.keyboard.press("Enter")
    results(page, f"images for “{text}”")


def results(page, title):
    page.wait_for_function(
        "said => /^\\d/.test(document.getElementById('status').innerText) && "
        "document.getElementById('status').innerText.endsWith(said)",
        arg=title,
    )


def captions(page):
    return page.eval_on_selector_all("#results .caption", "found => found.map(one => one.textContent)")


def test_a_text_finds_images_and_each_leads_to_more_and_to_its_review(page, address, searchable):
    run = pairsift.open_run(searchable, progress=False)
    ask(page, "something red")
    expected = run._search.by_text("something red", 24)
    assert captions(page) == [hit.caption for hit in expected]
    page.wait_for_function("() => document.querySelector('#results img').naturalWidth > 0")
    pair = expected[1].pair
    page.click("#results li:nth-child(2) button")
    results(page, f"images like the image of pair {pair}")
    assert captions(page) == [hit.caption for hit in run.images_like(pair, 24)] and f"like={pair}" in page.url
    assert page.is_visible("#query img")
    page.go_back()
    results(page, "images for “something red”")
    assert page.input_value("#text") == "something red" and not page.is_visible("#query img")
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('#results li').length == 40")
    assert not page.is_visible("#more")
    page.click(f"text=Review pair {pair}")
    page.wait_for_selector(f"#place:has-text('pair {pair} ')")


@pytest.fixture
def slow_page(browser):
    """A page whose script waits until it is let go, and the function that lets it go."""
    context = browser.new_context()
    page, waiting = context.new_page(), []

    def hold(route):
        waiting.append(route)

    def let_go():
        waiting[-1].continue_()

    page.route("**/static/search.js", hold)
    yield page, let_go
    context.close()


def test_a_search_before_the_script_is_loaded_is_made(slow_page, address):
    page, let_go = slow_page
    page.goto(f"{address}search", wait_until="commit")
    page.fill("#text", "something red")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search?text=something+red", wait_until="commit")
    page.wait_for_selector("#text")
    let_go()
    results(page, "images for “something red”")
    assert len(captions(page)) == 24


def test_a_text_typed_before_the_script_is_loaded_is_kept(slow_page, address):
    page, let_go = slow_page
    page.goto(f"{address}search", wait_until="commit")
    page.fill("#text", "something r")
    let_go()
    page.wait_for_load_state()
    assert page.input_value("#text") == "something r"


def test_an_image_chosen_before_the_script_is_loaded_is_sent(slow_page, address, searchable):
    page, let_go = slow_page
    page.goto(f"{address}search", wait_until="commit")
    page.set_input_files("#file", searchable.parent / "data" / "image 30.png")
    let_go()
    results(page, "captions for image 30.png")
    assert len(captions(page)) == 24


def test_an_image_that_is_sent_finds_captions(page, searchable):
    image = searchable.parent / "data" / "image 30.png"
    page.set_input_files("#file", image)
    results(page, "captions for image 30.png")
    expected = pairsift.open_run(searchable, progress=False).captions_for(image, 24)
    assert captions(page) == [hit.caption for hit in expected] and len(expected) == 24
    page.wait_for_selector("#query canvas")
    page.click("#more")
    page.wait_for_function("() => document.querySelectorAll('#results li').length == 48")
    ask(page, "blue")
    assert page.input_value("#file") == ""


def test_an_address_leads_to_a_search_and_captions_stay_text(page, address):
    page.goto(f"{address}search?like=3")
    results(page, "images like the image of pair 3")
    page.click("#more")
    page.wait_for_function(f"() => document.querySelectorAll('#results li').length == {N // 3 - 1}")
    assert MARKUP in captions(page)
    ask(page, MARKUP)


@pytest.mark.parametrize("width", [390, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows(browser, address, width, scheme, searchable):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for path in ("search?text=something+red+" + "a" * 200, "search?like=30", "api", "overview", ""):
        page.goto(address + path)
        if "?" in path:
            page.wait_for_selector("#results li")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


def test_what_is_refused_is_told(browser, address, tmp_path):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}search?like=99999")
    page.wait_for_selector("#message:has-text('no usable pair 99999')")
    (tmp_path / "a.png").write_text("no image")
    page.set_input_files("#file", tmp_path / "a.png")
    page.wait_for_selector("#message:has-text('not an image of a known format')")
    with (tmp_path / "large.png").open("wb") as stream:
        stream.truncate(20_000_001)
    page.set_input_files("#file", tmp_path / "large.png")
    page.wait_for_selector("#message:has-text('more than 20,000,000 bytes')")
    context.close()
