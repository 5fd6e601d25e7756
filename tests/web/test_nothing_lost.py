"""Decisions in the browser: none that nobody took, and none that is lost; typed captions and answers outlive stops."""

import json
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
from web_helpers import N, painted, press, settle, wait_for, watched

from pairsift.marker import write_marker
from pairsift.review import Decision, Decisions

pytestmark = pytest.mark.slow

PAINTED = 0.12  # seconds that a pair is seen before it can be decided on


@pytest.fixture
def journal(folder):
    return Decisions(folder, np.arange(N))


@pytest.fixture
def quiet_page(browser, address):
    """A page whose console may tell of requests that fail."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(address)
    painted(page, 0)
    yield page
    context.close()


def valid(journal):
    return {row["pair"]: row["decision"] for row in journal.table().to_pylist()}


def decided_grid(page, journal):
    """A grid of all pairs, of which three are kept and three have a new caption."""
    journal.decide([Decision(pair, "keep") for pair in (1, 2, 3)])
    journal.decide([Decision(pair, "replace", "a new caption") for pair in (5, 6, 7)])
    page.select_option("[name=decision]", "")
    page.wait_for_selector(f"#progress:has-text(' {N} in this filter')")
    page.evaluate("document.activeElement.blur()")
    press(page, "g", "grid")
    return valid(journal)


def test_a_page_of_the_grid_selects_what_is_undecided(page, journal):
    before = decided_grid(page, journal)
    page.keyboard.press("a")
    page.wait_for_selector("#selected:has-text('44 selected')")
    page.keyboard.press("d")
    wait_for(lambda: len(valid(journal)) == 50)
    assert before.items() <= valid(journal).items() and list(valid(journal).values()).count("drop") == 44
    painted(page, "grid")
    page.keyboard.press("u")
    wait_for(lambda: valid(journal) == before)


@pytest.mark.parametrize("way", ["keys", "clicks"])
def test_a_bar_asks_before_decided_pairs_are_decided_anew(page, journal, way):
    before = decided_grid(page, journal)
    if way == "keys":
        page.keyboard.press("Shift+A")
    else:
        page.click("#cells li:nth-child(1) button")
        page.click("#cells li:nth-child(50) button", modifiers=["Shift"])
    page.wait_for_selector("#selected:has-text('50 selected')")
    page.keyboard.press("d")
    page.wait_for_selector("#asked-text:has-text('6 of 50 are decided: 3 keep, 3 replace')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#asked", state="hidden")
    page.keyboard.press("d")
    page.wait_for_selector("#asked-others:has-text('Drop the 44 others d')")
    assert valid(journal) == before
    page.keyboard.press("d") if way == "keys" else page.click("#asked-others")
    wait_for(lambda: len(valid(journal)) == 50)
    assert before.items() <= valid(journal).items()
    painted(page, "grid")
    page.keyboard.press("Shift+A")
    page.keyboard.press("k")
    page.wait_for_selector("#asked-text:has-text('50 of 50 are decided: 3 keep, 44 drop, 3 replace')")
    assert not page.is_visible("#asked-others")
    page.keyboard.press("k")  # there are no others
    assert page.is_visible("#asked")
    page.click("#asked-all")
    wait_for(lambda: list(valid(journal).values()) == ["keep"] * 50)
    painted(page, "grid")
    page.keyboard.press("u")
    wait_for(lambda: list(valid(journal).values()).count("drop") == 44)
    assert before.items() <= valid(journal).items()


def test_a_bar_whose_pairs_others_decide_meanwhile_records_nothing(quiet_page, journal):
    before = decided_grid(quiet_page, journal)
    quiet_page.keyboard.press("Shift+A")
    quiet_page.keyboard.press("d")
    quiet_page.wait_for_selector("#asked:visible")
    journal.decide([Decision(9, "keep")], "bob")
    quiet_page.keyboard.press("d")
    quiet_page.wait_for_selector("#message:has-text('pair 9 was decided meanwhile: nothing was recorded')")
    assert valid(journal) == before | {9: "keep"}


def test_the_dialog_of_a_filter_does_nothing_by_default(page, journal):
    before = decided_grid(page, journal)
    for key in ("Enter", "Escape", "Space"):
        page.click("[data-grid=drop-all]")
        page.wait_for_selector("#sure[open]")
        text = page.inner_text("#sure-text")
        assert f"Drop all {N} pairs of this filter? 6 of them are decided: 3 keep, 3 replace." in text
        page.keyboard.press(key)
        page.wait_for_selector("#sure", state="hidden")
        painted(page, "grid")
    assert valid(journal) == before
    page.click("[data-grid=drop-all]")
    page.click("#sure button:has-text('Drop the 114 undecided')")
    wait_for(lambda: len(valid(journal)) == N)
    assert before.items() <= valid(journal).items()
    painted(page, "grid")
    page.keyboard.press("u")
    wait_for(lambda: valid(journal) == before)
    painted(page, "grid")
    page.click("[data-grid=keep-all]")
    page.click(f"#sure button:has-text('Keep all {N}')")
    wait_for(lambda: list(valid(journal).values()) == ["keep"] * N)
    painted(page, "grid")
    page.keyboard.press("u")
    wait_for(lambda: valid(journal) == before)


def test_the_dialog_of_a_filter_in_which_others_decide_records_nothing(quiet_page, journal):
    before = decided_grid(quiet_page, journal)
    quiet_page.click("[data-grid=drop-all]")
    quiet_page.wait_for_selector("#sure[open]")
    journal.decide([Decision(9, "keep")], "bob")
    quiet_page.click(f"#sure button:has-text('Drop all {N}')")
    quiet_page.wait_for_selector("#message:has-text('decided meanwhile: nothing was recorded')")
    assert valid(journal) == before | {9: "keep"}


def test_keys_that_come_before_a_pair_is_painted_decide_nothing(page, journal):
    painted(page, 0)
    for _ in range(3):
        page.keyboard.press("d")
    painted(page, 1)
    assert valid(journal) == {0: "drop"}
    for keys in ("ArrowRight d", "ArrowRight k 1", "u d"):  # a key that moves, and another at once
        for key in keys.split():
            page.keyboard.press(key)
        settle(page)
    assert valid(journal) == {} and page.inner_text("#place").split("pair ")[1].startswith("0 ")


def test_a_pair_is_seen_for_a_while_before_it_can_be_decided_on(page, journal):
    painted(page, 0)
    page.evaluate("""() => {
        window.seen = [];
        const note = () => {
            const facts = [find("given").textContent, document.body.dataset.ready ?? null, find("image").complete];
            seen.push([performance.now(), ...facts]);
            requestAnimationFrame(note);
        };
        note();
    }""")
    for pair in range(1, 6):
        press(page, "d", pair)
    shown, ready = {}, {}
    for when, caption, pair, complete in page.evaluate("seen"):
        if complete and pair is None:
            shown.setdefault(caption, when)
        elif pair is not None:
            ready.setdefault(caption, when)
    waits = [ready[caption] - when for caption, when in list(shown.items())[1:] if caption in ready]
    assert len(waits) >= 5 and min(waits) >= 1000 * PAINTED - 20


def test_a_pair_whose_image_is_not_there_yet_cannot_be_decided_on(browser, address, journal):
    with watched(browser, address) as page:
        painted(page, 0)
        held = []
        page.route("**/image/3?*", lambda route: held.append(route))  # noqa: PLW0108
        for pair in (1, 2):
            press(page, "k", pair)
        page.keyboard.press("k")
        page.wait_for_selector("#place:has-text('pair 3 ')")
        page.keyboard.press("d")
        page.clock.install()
        page.clock.run_for(60_000)  # however long it takes
        page.keyboard.press("d")
        page.evaluate("last")
        page.clock.resume()
        assert held and valid(journal) == dict.fromkeys(range(3), "keep")
        for route in held:
            route.continue_()
        painted(page, 3)
        press(page, "d", 4)
        assert valid(journal)[3] == "drop"


def hold(page, key):
    """Hold a key: it repeats at once, and again whenever what it leaves can be decided on."""
    for _ in range(4):
        for _ in range(3):
            page.keyboard.down(key)
        settle(page)
    page.keyboard.up(key)


def test_a_held_key_and_a_button_that_was_clicked_decide_once(page, journal):
    painted(page, 0)
    page.click("[data-key=d]")
    painted(page, 1)
    hold(page, "Enter")
    page.keyboard.press("Space")
    settle(page)
    assert valid(journal) == {0: "drop"}
    page.focus("[data-key=d]")  # by Tab
    hold(page, "Enter")
    assert valid(journal) == {0: "drop", 1: "drop"}
    painted(page, 2)
    for key in ("d", "ArrowRight"):
        hold(page, key)
    assert valid(journal) == dict.fromkeys(range(3), "drop")
    painted(page, 4)
    page.dblclick("[data-key=k]")
    painted(page)
    assert len(valid(journal)) == 4


TYPED = "two lines of work\nthat took a minute"


def test_a_caption_that_is_being_typed_outlives_all_but_saving_and_discarding(browser, folder, tmp_path, journal):
    context = browser.new_context()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def open_field(page):
        painted(page, 0)
        page.keyboard.press("t")
        page.wait_for_selector("#typing[open]")
        return page.input_value("#typed")

    with serving(folder, port) as address:
        page = context.new_page()
        page.goto(address)
        assert open_field(page) != TYPED and not page.is_visible("#typed-note")
        page.fill("#typed", TYPED)
        assert page.is_visible("#typed-note")
        page.keyboard.press("Escape")
        painted(page, 0)
        assert page.inner_text("#draft-text") == TYPED and page.is_visible("#draft")
        assert page.inner_text("#kept-captions") == "Typed and not saved: pair 0"
        for leave in (page.reload, lambda: (page.goto(f"{address}overview"), page.go_back())):
            leave()
            assert open_field(page) == TYPED and page.is_visible("#typed-note")
        page.close()  # with the field open
        page = context.new_page()
        page.goto(f"{address}?pair=7")
        painted(page, 7)
        page.click("#kept-captions a")
        assert open_field(page) == TYPED
        page.keyboard.press("Escape")
    with serving(folder, port) as address:  # the server was stopped
        page.goto(address)
        assert open_field(page) == TYPED
        page.click("#typed-discard")
        assert page.input_value("#typed") != TYPED and not page.is_visible("#typed-note")
        page.fill("#typed", TYPED)
        page.keyboard.press("Control+Enter")
        painted(page, 1)
        assert not page.is_visible("#kept") and valid(journal) == {0: "replace"}
        page.keyboard.press("ArrowLeft")
        painted(page, 0)
        assert not page.is_visible("#draft")
    context.close()


@contextmanager
def serving(folder, port):
    """Serve a run by a process of its own, which is killed at the end."""
    words = [sys.executable, "-m", "pairsift.cli", "serve", str(folder), "--port", str(port)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert "reviewing" in child.stdout.readline()
        yield f"http://127.0.0.1:{port}/"
    finally:
        child.kill()
        child.communicate()


def test_answers_that_a_killed_server_did_not_get_are_kept_and_sent(browser, folder, journal):
    context = browser.new_context()
    page = context.new_page()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(folder, port) as address:
        page.goto(address)
        painted(page, 0)
        press(page, "k", 1)
    press(page, "d", 2)
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved: pairsift serve does not answer')")
    page.keyboard.press("t")
    page.fill("#typed", TYPED)
    page.keyboard.press("Control+Enter")
    painted(page, 3)
    press(page, "ArrowLeft", 2)
    assert page.inner_text("#decided").endswith("not saved yet")
    press(page, "ArrowLeft", 1)
    press(page, "k", 2)  # another answer to a pair whose first answer is still here
    page.wait_for_selector("#kept-answers:has-text('3 answers are not saved')")
    press(page, "u", 2)
    assert page.inner_text("#message").startswith("wait until your answers are saved") and valid(journal) == {0: "keep"}
    page.close()
    with serving(folder, port) as address:
        page = context.new_page()
        page.goto(f"{address}?decision=")
        wait_for(lambda: valid(journal) == {0: "keep", 1: "keep", 2: "replace"})
        page.wait_for_selector("#kept", state="hidden")
        press(page, "ArrowRight", 1)
        page.wait_for_function("() => document.getElementById('decided').innerText === 'kept by reviewer'")
        press(page, "u")
        assert valid(journal) == {0: "keep", 1: "drop", 2: "replace"}
    assert [event.kind for event in journal.history()] == ["undo", "decide", "decide", "decide", "decide"]
    context.close()


@pytest.mark.parametrize("failure", ["aborted", "after", "full"])
def test_an_answer_is_recorded_once_whatever_was_lost_of_it(quiet_page, journal, failure):
    page, tries = quiet_page, []

    def fail(route):
        tries.append(json.loads(route.request.post_data)["key"])
        if len(tries) > 2:
            route.continue_()
        elif failure == "full":
            route.fulfill(status=503, json={"detail": "decisions.sqlite: cannot be opened or written (disk full)"})
        else:
            if failure == "after":
                route.fetch()  # it reached the server, and the answer was lost
            route.abort()

    page.route("**/api/decisions", fail)
    press(page, "d", 1)
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved')")
    assert (failure == "full") == ("disk full" in page.inner_text("#kept-answers"))
    wait_for(lambda: len(tries) >= 3, page)
    page.wait_for_selector("#kept", state="hidden")
    assert valid(journal) == {0: "drop"} and len(journal.history()) == 1 and len(set(tries)) == 1


@pytest.mark.parametrize(
    ("status", "kind", "body", "told"),
    [
        (200, "text/html", "<h1>Log in</h1>", "200: a proxy answers"),  # after a session has ended
        (404, "text/html", "<h1>Nothing here</h1>", "404: a proxy answers"),
        (404, "application/json", '{"status": 404, "message": "Not Found"}', "404: a proxy answers"),
        (404, "text/plain; charset=utf-8", "404 page not found", "404 page not found"),
        (403, "text/plain; charset=utf-8", "requests of other sites are refused", "are refused"),
    ],
)
def test_an_answer_of_a_proxy_is_none_of_the_server(quiet_page, journal, status, kind, body, told):
    page = quiet_page
    page.route("**/api/decisions", lambda route: route.fulfill(status=status, content_type=kind, body=body))
    press(page, "d", 1)
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved')")
    assert told in page.inner_text("#kept-answers") and page.text_content("#kept-refused") == ""
    page.unroute("**/api/decisions")
    page.wait_for_selector("#kept", state="hidden")
    assert valid(journal) == {0: "drop"}


def test_a_full_disk_is_told_with_a_status_that_says_later(folder, monkeypatch):
    from fastapi.testclient import TestClient

    from pairsift.errors import WriteError
    from pairsift.web.app import create_app

    client = TestClient(create_app(folder), base_url="http://127.0.0.1:1")

    def full(*args, **kwargs):
        raise WriteError("decisions.sqlite: cannot be opened or written (database or disk is full)")

    monkeypatch.setattr("pairsift.review.journal.Journal.decide", full)
    answer = client.post("/api/decisions", json={"decisions": [{"pair": 1, "choice": "drop"}]})
    assert answer.status_code == 503 and "disk is full" in answer.json()["detail"]


def test_a_kept_answer_to_a_pair_that_others_decided_is_shown_and_not_recorded(quiet_page, journal):
    page = quiet_page
    page.route("**/api/decisions", lambda route: route.abort())
    page.keyboard.press("t")
    page.fill("#typed", TYPED)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved')")
    painted(page, 1)
    press(page, "ArrowLeft", 0)
    press(page, "k", 1)
    journal.decide([Decision(0, "drop")], "bob")
    page.unroute("**/api/decisions")
    page.wait_for_selector("#kept-refused:has-text('keep of pair 0')")
    assert f"new caption “{TYPED}” of pair 0 (pair 0 was decided meanwhile" in page.text_content("#kept-refused")
    assert valid(journal) == {0: "drop"}
    page.click("#kept-dismiss")
    assert not page.is_visible("#kept-refused")
    press(page, "ArrowLeft", 0)
    assert page.inner_text("#decided") == "dropped by bob"
    assert page.inner_text("#draft-text") == TYPED  # what was typed is still there


def test_a_refused_caption_takes_no_newer_text_away(quiet_page, journal):
    page = quiet_page
    page.route("**/api/decisions", lambda route: route.abort())
    for text, key in (("the first text", "Control+Enter"), ("a second, longer text", "Escape")):
        page.keyboard.press("t")
        page.fill("#typed", text)
        press_in_field(page, key)
        if key == "Control+Enter":
            press(page, "ArrowLeft", 0)
    journal.decide([Decision(0, "drop")], "bob")
    page.unroute("**/api/decisions")
    page.wait_for_selector("#kept-refused:has-text('the first text')")
    painted(page, 0)
    assert page.text_content("#draft-text") == "a second, longer text" and valid(journal) == {0: "drop"}


def press_in_field(page, key):
    page.keyboard.press(key)
    page.wait_for_selector("#typing", state="hidden")
    painted(page)


def test_pairs_that_were_read_before_a_kept_answer_was_recorded_are_read_again(quiet_page, address, journal):
    page, read = quiet_page, []
    page.route("**/api/decisions", lambda route: route.continue_() if read else route.abort())
    page.route("**/api/pairs?*", lambda route: route.continue_() if read else read.append((route, route.fetch())))
    press(page, "k", 1)
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved')")
    page.goto(f"{address}?decision=")
    wait_for(lambda: valid(journal) == {0: "keep"}, page)
    page.wait_for_function("() => !outbox.length && !sending")
    for route, response in read:
        route.fulfill(response=response)
    painted(page, 0)
    assert page.inner_text("#decided") == "kept by reviewer"


def test_an_answer_on_its_way_outlives_its_tab(browser, folder, journal):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = browser.new_context()
    page = context.new_page()
    with serving(folder, port) as address:
        page.goto(address)
        painted(page, 0)
        page.route("**/api/decisions", lambda route: None)  # as if the server stood still
        page.keyboard.press("k")
        page.wait_for_function("() => outbox.length === 1")
        page.close()
        page = context.new_page()
        page.goto(address)
        wait_for(lambda: valid(journal) == {0: "keep"})
        painted(page)
        assert page.evaluate("outbox.length") == 0 and len(journal.history()) == 1
    context.close()


def test_an_answer_in_sight_of_a_refused_one_is_refused(quiet_page, journal):
    page = quiet_page
    page.route("**/api/decisions", lambda route: route.abort())
    press(page, "k", 1)  # recorded once the server answers
    press(page, "g", "grid")
    page.keyboard.press("Shift+A")
    page.keyboard.press("d")
    page.click("#asked-all")  # refused, since one of the pairs is decided meanwhile
    painted(page, "grid")
    press(page, "g", 0)
    press(page, "k", 1)  # in sight of the refused one
    page.wait_for_selector("#kept-answers:has-text('3 answers are not saved')")
    journal.decide([Decision(40, "keep")], "bob")
    page.unroute("**/api/decisions")
    page.wait_for_function("() => !outbox.length && !sending")
    assert page.evaluate("store.all('refused').length") == 51
    assert valid(journal) == {0: "keep", 40: "keep"} and len(journal.history()) == 2


def test_a_lost_question_after_a_refusal_stops_no_later_answer(quiet_page, journal):
    page = quiet_page
    page.route("**/api/decisions", lambda route: route.abort())
    press(page, "k", 1)
    press(page, "k", 2)
    journal.decide([Decision(0, "drop")], "bob")
    page.route("**/api/pairs/0", lambda route: route.abort())
    page.unroute("**/api/decisions")
    wait_for(lambda: valid(journal) == {0: "drop", 1: "keep"}, page)
    page.wait_for_function("() => !outbox.length && !sending")  # the page draws after each answer
    press(page, "d", 3)
    assert valid(journal) == {0: "drop", 1: "keep", 2: "drop"}


def test_leaving_decided_pairs_alone_holds_while_others_decide(folder, journal, monkeypatch):
    from fastapi.testclient import TestClient

    from pairsift.review.journal import Journal
    from pairsift.web.app import create_app

    client = TestClient(create_app(folder), base_url="http://127.0.0.1:1")
    decide = Journal.decide

    def late(self, *args):  # between the filter and the entry
        monkeypatch.setattr(Journal, "decide", decide)
        journal.decide([Decision(5, "replace", "anna's")], "anna")
        return self.decide(*args)

    for body in ({"decided": "leave"}, {"decided": "change"}):
        monkeypatch.setattr(Journal, "decide", late)
        answer = client.post("/api/decisions/filter", json={"filter": {"high": 0.1}, "choice": "drop", **body})
        assert valid(journal)[5] == "replace"
        assert answer.status_code == (200 if body["decided"] == "leave" else 409)
        assert list(valid(journal).values()).count("drop") == 11


def test_a_page_of_another_run_decides_nothing(quiet_page, folder, journal):
    page = quiet_page
    press(page, "k", 1)
    kept = valid(journal)
    shutil.move(folder / "decisions.sqlite", folder / "old.sqlite")
    write_marker(folder, "run")  # another run has taken its place
    press(page, "d", 2)
    page.wait_for_selector("#kept-answers:has-text('1 answer is not saved')")
    assert "holds another run by now" in page.inner_text("#kept-answers")
    assert kept == {0: "keep"} and not (folder / "decisions.sqlite").exists()


def test_a_pair_whose_caption_was_mended_meanwhile_is_looked_at_again(quiet_page, folder, journal, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    page = quiet_page
    table = pyarrow.parquet.read_table(folder / "pairs.parquet")
    captions = [
        "mended" if pair == 0 else text
        for pair, text in zip(table["pair"].to_pylist(), table["given_caption"].to_pylist(), strict=True)
    ]
    place = table.column_names.index("given_caption")
    pyarrow.parquet.write_table(table.set_column(place, "given_caption", pa.array(captions)), folder / "pairs.parquet")
    page.keyboard.press("k")
    page.wait_for_selector("#message:has-text('pair 0 was given another caption meanwhile: nothing was recorded')")
    painted(page, 0)
    assert page.inner_text("#given") == "mended" and valid(journal) == {}
    press(page, "k", 1)
    assert valid(journal) == {0: "keep"}
