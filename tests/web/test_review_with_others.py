"""A review beside other reviewers, and one in which something goes wrong."""

import re

import numpy as np
import pytest
from web_helpers import N, make_run, painted, press, served, settle

from pairsift.review import Decision, Decisions

pytestmark = pytest.mark.slow


@pytest.fixture
def others(folder):
    return Decisions(folder, np.arange(N))


def shown(page):
    return int(re.search(r"pair (\d+) ", page.inner_text("#place"))[1])


def go_to(page, key, pair):
    press(page, key, pair)


def valid(others):
    return {row["pair"]: (row["decision"], row["reviewer"], row["reason"]) for row in others.table().to_pylist()}


def test_what_others_decide_makes_no_pair_be_passed_over(page, others):
    others.decide([Decision(pair, "drop") for pair in range(50)], "bob")
    seen = [shown(page)]
    while len(seen) < N:
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "before => !document.getElementById('place').innerText.includes(`pair ${before} `)", arg=seen[-1]
        )
        seen.append(shown(page))
    assert seen == list(range(N))
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#message:has-text('the last pair of the filter; 70 in it are left')")


def test_a_decision_of_others_is_shown_before_it_can_be_changed(browser, address, others):
    context = browser.new_context()  # its console tells of the refusal
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#given:not(:empty)")
    painted(page, 0)
    others.decide([Decision(0, "drop")], "bob")
    page.keyboard.press("k")
    page.wait_for_selector("#message:has-text('pair 0 was decided meanwhile')")
    assert page.inner_text("#decided") == "dropped by bob" and shown(page) == 0
    assert valid(others) == {0: ("drop", "bob", None)}
    painted(page, 0)
    page.keyboard.press("k")
    page.wait_for_selector("#place:has-text('pair 1 ')")
    assert valid(others)[0] == ("keep", "reviewer", None)
    context.close()


def test_a_reason_is_that_of_one_decision(page, others):
    page.select_option("#reason", "too vague")
    go_to(page, "d", 1)
    assert page.input_value("#reason") == ""
    go_to(page, "d", 2)
    assert valid(others) == {0: ("drop", "reviewer", "too vague"), 1: ("drop", "reviewer", None)}
    go_to(page, "ArrowLeft", 1)
    go_to(page, "ArrowLeft", 0)
    assert page.input_value("#reason") == "too vague"


def test_all_of_a_filter_can_be_undone_where_no_pair_is_left(page, others):
    page.click("#grid-toggle")
    painted(page, "grid")
    page.click("[data-grid=drop-all]")
    page.click("#sure button[value=leave]")
    page.wait_for_selector("#empty:visible")
    assert len(valid(others)) == N
    page.click("#empty [data-key=u]")
    page.wait_for_function("() => document.getElementById('progress').innerText.startsWith('0 decided')")
    assert valid(others) == {}


def test_the_address_keeps_a_decision_that_is_left_open(page, others):
    others.decide([Decision(0, "drop")])
    page.select_option("[name=decision]", "")
    page.wait_for_selector(f"#progress:has-text(' {N} in this filter')")
    go_to(page, "ArrowRight", 1)
    assert "decision=&" in page.url
    page.reload()
    page.wait_for_selector(f"#progress:has-text(' {N} in this filter')")
    assert page.input_value("[name=decision]") == "" and shown(page) == 1


def test_letters_in_a_list_decide_nothing(page, others):
    page.focus("#reviewer")
    page.keyboard.press("Tab")  # by keys
    page.focus("[name=verdict]")
    page.keyboard.press("c")
    page.wait_for_selector("#progress:has-text(' 90 in this filter')")  # those with the verdict clean
    page.keyboard.press("k")
    page.keyboard.press("d")
    page.focus("#reviewer")
    settle(page)
    assert page.input_value("[name=verdict]") == "clean" and valid(others) == {}


def select_a_page(page):
    """Change to the grid, and select the 50 pairs that it shows."""
    press(page, "g", "grid")
    page.keyboard.press("a")
    page.wait_for_selector("#selected:has-text('50 selected')")


def test_pairs_out_of_sight_are_not_selected(page, others):
    select_a_page(page)
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#cells img[src^='image/50?']")
    page.wait_for_selector("#selected:has-text('0 selected')")
    assert page.locator("#cells button[aria-pressed=true]").count() == 0 and valid(others) == {}


def test_pairs_that_were_selected_before_moving_in_the_single_view_are_not_decided(page, others):
    select_a_page(page)
    press(page, "g", 0)
    go_to(page, "ArrowRight", 1)
    press(page, "g", "grid")
    page.wait_for_selector("#selected:has-text('0 selected')")
    page.keyboard.press("k")
    page.wait_for_selector("#message:has-text('no pair is selected')")
    assert valid(others) == {}


def test_a_filter_that_cannot_be_loaded_leaves_nothing_to_decide(browser, address, others):
    context = browser.new_context()  # its console tells of the request that fails
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#given:not(:empty)")
    page.fill("[name=low]", "2")
    page.keyboard.press("Tab")
    page.wait_for_selector("#message:has-text('low: Input should be less than or equal to 1')")
    page.wait_for_selector("#empty:visible")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("k")
    settle(page)
    assert valid(others) == {}
    context.close()


def test_a_lost_image_is_told_and_a_long_word_stays_in_its_cell(browser, tmp_path):
    folder = make_run(tmp_path)
    (folder.parent / "data" / "image 0.png").unlink()
    with served(folder) as address:
        context = browser.new_context(viewport={"width": 1000, "height": 800})
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("#lost:visible")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#place:has-text('pair 3 ')")
        page.wait_for_selector("#lost", state="hidden")
        page.evaluate("state.items.slice(0, 3).forEach((item) => { item.given_caption = 'long'.repeat(300); })")
        page.keyboard.press("g")
        page.wait_for_selector("#cells button")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1000
        assert page.evaluate("Math.max(...[...document.querySelectorAll('.caption')].map((e) => e.clientHeight))") < 250
        context.close()
