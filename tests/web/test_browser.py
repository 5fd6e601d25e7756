"""A review in a real browser: keys, reload, undo, grid, filters, and how the page looks."""

import json

import numpy as np
import pytest
from web_helpers import (
    AWKWARD,
    MARKUP,
    RENAMED,
    N,
    awkward_cell,
    make_run,
    painted,
    press,
    served,
    wait_for,
    watched,
)

from pairsift.review import Decision, Decisions

pytestmark = pytest.mark.slow


def decided(folder):
    return {row["pair"]: row["decision"] for row in Decisions(folder, np.arange(N)).table().to_pylist()}


def test_thirty_pairs_by_keyboard_a_reload_and_twenty_undone(page, folder):
    assert page.inner_text("#given") == MARKUP.replace("  ", " ")
    pairs = []
    for k in range(30):
        pairs.append(int(page.inner_text("#place").split("pair ")[1].split(" ")[0]))
        press(page, "1" if page.is_visible("#suggestions button") and k % 3 == 0 else "kd"[k % 2])
    assert pairs == list(range(30))
    assert [decided(folder)[pair] for pair in (1, 2, 4)] == ["drop", "keep", "keep"]
    assert decided(folder)[6] == "replace"
    page.reload()
    page.wait_for_selector("#given:not(:empty)")
    assert "pair 30 " in page.inner_text("#place") and "30 decided" in page.inner_text("#progress")
    for k in range(20):
        page.keyboard.press("u")
        wait_for(lambda left=29 - k: len(decided(folder)) == left)
    assert sorted(decided(folder)) == list(range(10))
    page.keyboard.press("r")
    wait_for(lambda: len(decided(folder)) == 11)


def test_the_overview_follows_the_decisions(browser, address, folder):
    with watched(browser, address) as page:
        page.goto(f"{address}overview")
        page.evaluate("setInterval(update, 100)")
        page.wait_for_selector(".legend li.drop:has-text('0 drop')")
        Decisions(folder, np.arange(N)).decide([Decision(pair, "drop") for pair in range(7)])
        page.wait_for_selector(".legend li.drop:has-text('7 drop')")
        assert page.locator("rect.drop").count() >= 1


def test_a_typed_caption_a_reason_and_a_name(page, folder):
    page.fill("#reviewer", "ana")
    page.select_option("#reason", "wrong detail")
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    painted(page, 0)
    page.keyboard.press("t")
    page.wait_for_selector("#typing[open]")
    page.fill("#typed", MARKUP)
    page.keyboard.press("Control+Enter")
    wait_for(lambda: decided(folder) == {0: "replace"})
    [row] = Decisions(folder, np.arange(N)).table().to_pylist()
    assert (row["new_caption"], row["reason"], row["reviewer"]) == (MARKUP, "wrong detail", "ana")
    page.wait_for_selector("#place:has-text('pair 1 ')")
    press(page, "ArrowLeft")
    assert MARKUP in page.inner_text("#decided")
    page.reload()
    page.wait_for_selector("#given:not(:empty)")
    assert page.input_value("#reviewer") == "ana"


def test_a_grid_with_a_selection_and_with_all_of_a_filter(page, folder):
    press(page, "g", "grid")
    for place in (2, 4):
        page.click(f"#cells li:nth-child({place}) button")
    assert page.inner_text("#selected") == "2 selected"
    page.click("[data-grid=drop]")
    wait_for(lambda: decided(folder) == {1: "drop", 3: "drop"})
    page.fill("[name=text]", "GREEN 1")
    page.keyboard.press("Tab")
    green = [pair for pair in range(2, N, 3) if "1" in str(pair // 3)]
    said = f" {len(green)} in this filter"
    page.wait_for_function("said => document.getElementById('progress').innerText.includes(said)", arg=said)
    painted(page, "grid")
    page.click("[data-grid=drop-all]")
    page.wait_for_selector("#sure[open]")
    assert f"Drop all {len(green)} pairs" in page.inner_text("#sure-text")
    page.click("#sure button[value=leave]")
    wait_for(lambda: len(decided(folder)) == 2 + len(green))
    page.wait_for_selector("#empty:visible")
    page.click("#grid-toggle")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("u")
    wait_for(lambda: len(decided(folder)) == 2)


def test_a_grid_by_keys_and_a_range(page, folder):
    press(page, "g", "grid")
    page.keyboard.press("d")
    page.wait_for_selector("#message:has-text('no pair is selected')")
    page.click("#cells li:nth-child(2) button")
    page.click("#cells li:nth-child(5) button", modifiers=["Shift"])
    assert page.inner_text("#selected") == "4 selected"
    assert page.locator("#cells button[aria-pressed=true]").count() == 4
    page.keyboard.press("d")
    wait_for(lambda: decided(folder) == dict.fromkeys(range(1, 5), "drop"))
    page.wait_for_selector("#selected:has-text('0 selected')")
    page.keyboard.press("u")
    wait_for(lambda: not decided(folder))
    page.click("#grid [data-key=r]")
    wait_for(lambda: len(decided(folder)) == 4)
    page.select_option("[name=decision]", "")
    page.wait_for_selector(f"#progress:has-text(' {N} in this filter')")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#cells img[src^='image/50?']")
    painted(page, "grid")
    page.keyboard.press("a")
    page.wait_for_selector("#selected:has-text('50 selected')")
    page.keyboard.press("n")
    page.wait_for_selector("#selected:has-text('0 selected')")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#cells img[src^='image/0?']")


def type_key(page, key, code, shift=False):
    """Press a key as a keyboard of some layout does: `key` is what it writes, `code` its place."""
    event = {"key": key, "code": code, "shiftKey": shift, "bubbles": True}
    page.evaluate("event => document.body.dispatchEvent(new KeyboardEvent('keydown', event))", event)


def test_keys_are_known_with_caps_lock_and_on_keyboards_of_other_scripts(page, folder):
    keys = [("K", "KeyK", "keep"), ("л", "KeyK", "keep"), ("Л", "KeyK", "keep"), ("κ", "KeyK", "keep")]
    keys += [("в", "KeyD", "drop"), ("ㅇ", "KeyD", "drop"), ("ن", "KeyK", "keep"), ("Process", "KeyK", "keep")]
    keys += [("&", "Digit1", "replace"), ("d", "KeyE", "drop"), ("١", "Digit1", "replace")]  # AZERTY, Dvorak, Arabic
    pairs = range(0, 30, 2)  # which have suggestions
    for pair, (key, code, _) in zip(pairs, keys, strict=False):
        page.goto(f"{page.url.partition('?')[0]}?pair={pair}&decision=")
        painted(page, pair)
        type_key(page, key, code)
        painted(page, pair + 1)
    assert decided(folder) == {pair: choice for pair, (_, _, choice) in zip(pairs, keys, strict=False)}
    type_key(page, "ü", "KeyR")
    type_key(page, "!", "Digit1", shift=True)
    assert page.evaluate("state.acting") == 0  # a Latin letter is itself, wherever it is
    type_key(page, "k", "KeyV")
    painted(page, pair + 2)
    assert decided(folder)[pair + 1] == "keep"
    of_grid = [("G", "KeyG", False, 0), ("Ф", "KeyA", True, 50), ("т", "KeyY", False, 50), ("Т", "KeyN", False, 0)]
    for key, code, shift, n in of_grid:
        type_key(page, key, code, shift)
        painted(page, "grid")
        assert page.inner_text("#selected") == f"{n} selected"
    type_key(page, "ظ", "Slash")
    assert page.evaluate("document.activeElement.name") == "text"


def test_an_undo_of_more_pairs_than_an_answer_holds_clears_every_cell(page, folder, monkeypatch):
    monkeypatch.setattr("pairsift.web.app.MAX_PAIRS", 20)
    page.select_option("[name=decision]", "")
    page.wait_for_selector(f"#progress:has-text(' {N} in this filter')")
    page.click("#grid-toggle")
    painted(page, "grid")
    page.click("[data-grid=drop-all]")
    page.click("#sure button[value=leave]")
    cells = "[...document.querySelectorAll('#cells .small')]"
    page.wait_for_function(f"() => {cells}.every((cell) => cell.innerText.includes('drop'))")
    assert len(decided(folder)) == N
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("u")
    page.wait_for_selector("#progress:has-text('0 decided')")
    page.wait_for_function(f"() => !{cells}.some((cell) => cell.innerText.includes('drop'))")
    assert not decided(folder)


def test_an_action_while_another_loads_is_shown(page):
    waiting = []

    def wait(route):
        waiting.append(route)

    page.route("**/api/pairs?*", wait)
    page.select_option("[name=decision]", "")
    wait_for(lambda: waiting, page)
    page.click("#grid-toggle")
    waiting[0].continue_()
    painted(page, "grid")
    assert page.locator("#cells img").count() > 1 and not page.is_visible("#single")


def test_every_page_works_below_the_path_of_a_proxy(browser, folder):
    with served(folder, "/user/ana/proxy/8765") as address, watched(browser, address) as page:
        press(page, "k", 1)
        assert decided(folder) == {0: "keep"}
        assert page.evaluate("image => image.naturalWidth", page.query_selector("#image"))
        page.click("a:has-text('Overview')")
        page.click("td a:has-text('0.10')")
        painted(page, 11)
        press(page, "ArrowRight", 10)
        page.click("#images a")  # of one with suggestions
        page.wait_for_url(lambda url: "pair=10&" not in url)
        painted(page)
        page.click("a:has-text('Spot check')")
        page.click("#draw button")
        page.wait_for_url(f"{address}?sample=1*")
        painted(page)
        for name in ("Search", "API"):
            page.click(f"nav a:has-text('{name}')")
            page.wait_for_selector(f"nav a[aria-current]:has-text('{name}')")
        assert page.request.get(f"{address}openapi.json").ok
        page.click("nav a:has-text('Overview')")
        assert page.locator("#export form").evaluate("form => form.action") == f"{address}export"  # waits for the page
        page.click("nav a:has-text('Review')")
        painted(page, 1)
        assert page.url.startswith(f"{address}?")


def test_the_cleaned_pairs_are_downloaded(browser, address, folder, tmp_path):
    Decisions(folder, np.arange(N)).decide([Decision(7, "drop"), Decision(8, "replace", "a new caption")])
    with watched(browser, address) as page:
        page.goto(f"{address}overview")
        page.select_option("[name=kind]", "jsonl")
        page.fill("[name=drop_below]", "0.03")
        with page.expect_download(timeout=120_000) as coming:
            page.click("#export button")
        assert coming.value.suggested_filename == "run-cleaned.jsonl"
        coming.value.save_as(tmp_path / "got.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "got.jsonl").read_text().splitlines()]
    assert len(rows) == N - 5 and rows[4 - 1]["caption"] == "a new caption"  # without 0 to 3 and 7


def test_the_next_pair_is_in_view_on_a_phone(browser, address, folder):
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = context.new_page()
    page.goto(address)
    painted(page, 0)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.evaluate("document.querySelector('#single [data-key=d]').click()")
    painted(page, 1)
    box = page.evaluate("document.getElementById('image').getBoundingClientRect().toJSON()")
    assert decided(folder) == {0: "drop"} and 0 <= box["top"] < box["bottom"] < 800
    context.close()


def test_an_address_leads_to_a_pair_and_a_filter(page, address):
    page.goto(f"{address}?pair=77&decision=&order=best&low=0.5")
    page.wait_for_selector("#given:not(:empty)")
    assert "pair 77 " in page.inner_text("#place") and page.input_value("[name=order]") == "best"
    press(page, "ArrowRight")
    assert "pair 76 " in page.inner_text("#place") and "pair=76" in page.url
    assert page.evaluate("document.getElementById('image').naturalWidth") > 0


def test_the_number_of_pairs_in_the_filter_follows_decisions_and_undo(page, address, folder):
    page.goto(f"{address}?pair=100")  # which lies beyond the first page
    page.wait_for_selector("#place:has-text('pair 100 ')")

    def count():
        return int(page.inner_text("#progress").split(" in this filter")[0].split("· ")[1])

    press(page, "k")
    assert "pair 0 " in page.inner_text("#place") and count() == N - 1
    press(page, "d")
    assert count() == N - 2
    page.keyboard.press("u")
    page.wait_for_selector("#place:has-text('pair 0 ')")
    assert count() == N - 1 and decided(folder) == {100: "keep"}
    page.evaluate("() => { crypto.randomUUID = undefined; }")  # as on a page from another computer
    page.keyboard.press("r")
    wait_for(lambda: decided(folder) == {100: "keep", 0: "drop"})


@pytest.mark.parametrize("path", ["", "?decision=&order=source", "overview", "spot-check", "search", "api"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_accessibility_rule_is_broken(browser, address, path, scheme):
    axe = pytest.importorskip("axe_playwright_python.base", reason="needs axe-playwright-python, for tests")
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address + path)
    for key in ("", "g") if path == "" else ("",):  # a pair, then the grid
        if path in ("", "?decision=&order=source"):
            press(page, key, "grid") if key else painted(page, 0)
        page.evaluate(axe.AXE_FILE_PATH.read_text(encoding="utf-8"))
        found = page.evaluate("() => axe.run()")["violations"]
        assert [(rule["id"], [node["html"][:200] for node in rule["nodes"][:3]]) for rule in found] == []
    context.close()


def test_a_spot_check_hides_what_the_run_thinks(page, address, folder):
    page.goto(f"{address}spot-check")
    page.fill("[name=pairs]", "20")
    page.click("#draw button")
    page.wait_for_selector("#given:not(:empty)")
    assert (
        page.is_visible("#sample-note") and not page.is_visible("#probability") and not page.is_visible("#suggestions")
    )
    for k in range(20):
        painted(page)
        page.keyboard.press("dk"[k % 2])
        wait_for(lambda done=k + 1: len(decided(folder)) == done)
    page.goto(f"{address}spot-check")
    assert "20 of 20 pairs are answered; 10 of these" in page.inner_text("main")
    assert "90% interval" in page.inner_text("main")


def test_keys_decide_after_a_reason_is_chosen_and_a_lost_pair_is_told(page, address, folder):
    painted(page, 0)
    page.focus("#reason")
    page.select_option("#reason", "wrong image")
    page.keyboard.press("d")
    wait_for(lambda: decided(folder) == {0: "drop"})
    [row] = Decisions(folder, np.arange(N)).table().to_pylist()
    assert row["reason"] == "wrong image"
    page.wait_for_selector("#place:has-text('pair 1 ')")
    page.select_option("[name=reason]", "wrong image")
    page.wait_for_selector("#progress:has-text(' 1 in this filter')")
    page.wait_for_selector("#place:has-text('pair 0 ')")
    assert page.input_value("[name=decision]") == ""
    page.goto(f"{address}?split=val")
    page.wait_for_selector("#empty:visible")
    assert "0 in this filter" in page.inner_text("#progress")


def test_a_caption_is_taken_from_five_and_columns_filter(page, folder):
    page.wait_for_selector("#suggestions button")
    assert page.locator("#suggestions button").count() == 5 and page.locator("#images img").count() == 5
    press(page, "3")
    [row] = Decisions(folder, np.arange(N)).table().to_pylist()
    assert (row["pair"], row["from_pair"]) == (0, 52) and row["new_caption"].startswith("caption 17")
    page.select_option("#column-name", "shop")
    page.fill("#column-value", "shop 2")
    page.keyboard.press("Tab")
    page.wait_for_selector("#place:has-text('pair 2 ')")
    assert "column=shop%3Dshop+2" in page.url
    page.goto(page.url + "&duplicates=image")
    page.wait_for_selector("#place:has-text('pair 2 ')")
    page.click("#columns a")
    page.wait_for_selector("#place:has-text('pair 0 ')")
    assert page.input_value("#column-value") == "0" and "3 in this filter" in page.inner_text("#progress")


def test_columns_of_any_name_filter_on_the_page(browser, tmp_path):
    names = {name: name for name in AWKWARD} | RENAMED
    with served(make_run(tmp_path, names)) as address, watched(browser, address) as page:
        page.wait_for_selector("#given:not(:empty)")
        for place, (given, name) in enumerate(names.items(), 2):  # behind "any" and "shop"
            page.select_option("#column-name", index=place)
            assert page.evaluate("document.getElementById('column-name').value") == name
            page.fill("#column-value", awkward_cell(given, 3))
            page.keyboard.press("Tab")
            page.wait_for_selector("#progress:has-text('· 24 in this filter')")
            page.reload()
            page.wait_for_selector("#progress:has-text('· 24 in this filter')")
            assert "pair 3 " in page.inner_text("#place")
            chosen = "[...document.querySelectorAll('#column-name option:checked')].map((option) => option.value)"
            assert page.evaluate(chosen) == [name] and page.input_value("#column-value") == awkward_cell(given, 3)
            page.select_option("#column-name", index=0)
            page.wait_for_selector("#progress:has-text('· 120 in this filter')")


@pytest.mark.parametrize("width", [390, 1000, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_and_text_stands_out(browser, address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("#given:not(:empty)")
    for _ in range(2):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("g")
        page.wait_for_function(
            "() => document.getElementById('single').hidden != document.getElementById('grid').hidden"
        )
    ink, paper = (
        page.evaluate(f"getComputedStyle(document.body).{name}").strip("rgb()").split(", ")
        for name in ("color", "backgroundColor")
    )
    assert abs(sum(map(int, ink)) - sum(map(int, paper))) > 500
    context.close()
