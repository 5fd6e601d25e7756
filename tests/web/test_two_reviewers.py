"""Random actions of two reviewers in two browsers, one of which may lose its server, against a plain model."""

import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from web_helpers import N, make_run, painted, served

from pairsift.review import Decisions

NAMES = ("ana", "bo")
UNKNOWN = "unknown"
EXAMPLES = 4
SENT = ("**/api/decisions", "**/api/undo", "**/api/redo")
CHOICES = {"k": "keep", "d": "drop"}
who = st.sampled_from(NAMES)


class Entry:
    """A request of a reviewer: decisions by pair and what was seen of each, or an undo or a redo."""

    def __init__(self, kind, by, decisions=None, seen=None):
        self.kind, self.by, self.decisions, self.seen = kind, by, decisions or {}, seen or {}
        self.place = self.time = self.key = None


class Model:
    """The journal as a plain list, gone through from its beginning for every question."""

    def __init__(self):
        self.entries, self.undone, self.ticks = [], {name: [] for name in NAMES}, 0

    def valid(self):
        """The entry that is valid on each pair, with its decision."""
        found = {}
        for entry in sorted((one for one in self.entries if one.place is not None), key=lambda one: one.place):
            found |= {pair: (decision, entry.time) for pair, decision in entry.decisions.items()}
        return found

    def accepts(self, entry):
        """Whether what a reviewer saw of the pairs of a request is what is valid."""
        valid = self.valid()
        return all(seen == valid.get(pair, (None, None))[1] for pair, seen in entry.seen.items())

    def record(self, entry, now):
        self.ticks += 1
        mine = [one for one in self.entries if one.by == entry.by and one.place is not None]
        if entry.kind == "decide":
            entry.place, entry.time = self.ticks, now
            self.entries.append(entry)
            self.undone[entry.by] = []
        elif entry.kind == "undo" and mine:
            last = max(mine, key=lambda one: one.place)
            last.place = None
            self.undone[entry.by].append(last)
        elif entry.kind == "redo" and self.undone[entry.by]:
            self.undone[entry.by].pop().place = self.ticks


class TwoReviewers(RuleBasedStateMachine):
    """Two browsers on one run. A request that the server does not get waits in the browser."""

    browser = place = None
    done = 0

    def __init__(self):
        super().__init__()
        cls = type(self)
        cls.number = getattr(cls, "number", 0) + 1
        self.folder = make_run(cls.place / str(cls.number))
        self.journal, self.model = Decisions(self.folder, np.arange(N)), Model()
        self.waiting, self.offline = {name: [] for name in NAMES}, set()
        self.serving = served(self.folder)
        self.address = self.serving.__enter__()
        self.contexts = {name: cls.browser.new_context(viewport={"width": 1200, "height": 800}) for name in NAMES}
        self.pages = {}
        for context in self.contexts.values():
            context.set_default_timeout(10_000)

    @initialize(start=st.sampled_from(["", "?decision=&order=source"]))
    def open(self, start):
        for name, context in self.contexts.items():
            page = self.pages[name] = context.new_page()
            page.goto(self.address + start)
            painted(page)
            page.fill("#reviewer", name)
            page.evaluate("document.activeElement.blur()")

    def teardown(self):
        if self.pages and sys.exc_info()[0] is None:  # else what failed before is told, not what follows from it
            for name in NAMES:
                self.back(name)
            self.check()
        for context in self.contexts.values():
            context.close()
        self.serving.__exit__(None, None, None)

    def shown(self, name):
        """The pair that a page shows and what it says of it; None in a grid or where no pair is left."""
        return self.pages[name].evaluate(
            "() => { const item = !state.grid && state.ready && shownItem(); return item ? { ...item } : null; }"
        )

    def view(self, name, grid):
        """Change to the grid or to single pairs, and return whether there is anything to decide on."""
        if self.pages[name].evaluate("state.grid") != grid:
            self.act(name, lambda page: page.keyboard.press("g"))
        return self.pages[name].evaluate("state.ready")

    def act(self, name, work):
        """Do something on a page, and wait until it is painted, or all pairs are gone."""
        page = self.pages[name]
        view = page.evaluate("state.view")
        work(page)
        page.wait_for_function(
            "view => state.view > view && (state.ready || !state.items.length) && !sending", arg=view, polling=20
        )
        type(self).done += 1

    def sent(self, entry):
        """Note a request of a page. It is recorded, refused in words, or waits in the browser and says so."""
        page = self.pages[entry.by]
        if entry.by in self.offline:
            for pair in entry.seen:
                if any(pair in one.decisions for one in self.waiting[entry.by]):
                    entry.seen[pair] = UNKNOWN
            self.waiting[entry.by].append(entry)
            entry.key = page.evaluate("outbox.at(-1).key")
            assert page.evaluate("outbox.length") == len(self.waiting[entry.by])
            assert f"{len(self.waiting[entry.by])} answer" in page.inner_text("#kept-answers")
            return
        assert page.evaluate("outbox.length") == 0
        assert self.applied(entry) == (not page.inner_text("#message").endswith("look again and repeat it"))
        for pair, decision in entry.decisions.items() if entry.time else ():
            item = page.evaluate("pair => state.items.find((item) => item.pair === pair)", pair)
            assert item is None or ((item["decision"], item["new_caption"]) == decision and not item.get("unsent"))
        self.check()

    def applied(self, entry):
        """Record a request in the model as far as it is accepted."""
        self.take_over()
        if entry.kind == "decide" and not self.model.accepts(entry):
            return False
        [last] = self.journal.history(1) or [None]
        self.model.record(entry, last.time if last and entry.kind == "decide" else None)
        return True

    def check(self):
        """Compare what is valid with the model."""
        self.take_over()
        table = {row["pair"]: (row["decision"], row["new_caption"]) for row in self.journal.table().to_pylist()}
        assert table == {pair: decision for pair, (decision, _) in self.model.valid().items()}

    @rule(name=who, key=st.sampled_from("kkkddd1"))
    def answer(self, name, key):
        item = self.shown(name) if self.view(name, grid=False) else None
        if item is None or (key == "1" and not item["captions"]):
            return
        decision = ("replace", item["captions"][0]["caption"]) if key == "1" else (CHOICES[key], None)
        self.act(name, lambda page: page.keyboard.press(key))
        self.sent(Entry("decide", name, {item["pair"]: decision}, {item["pair"]: item["time"]}))

    @rule(name=who, save=st.booleans(), text=st.sampled_from(["a cat", "two  dogs \n\nin snow ", "=1+1", "<b>é</b>"]))
    def type_caption(self, name, save, text):
        if not self.view(name, grid=False):
            return
        item, page = self.shown(name), self.pages[name]
        page.keyboard.press("t")
        page.wait_for_selector("#typing[open]")
        page.fill("#typed", text)
        self.act(name, lambda page: page.keyboard.press("Control+Enter" if save else "Escape"))
        if save:
            decision = ("replace", text.strip())
            self.sent(Entry("decide", name, {item["pair"]: decision}, {item["pair"]: item["time"]}))
        elif item["pair"] == (self.shown(name) or {}).get("pair"):
            assert page.text_content("#draft-text") == ("" if text == item["new_caption"] else text)

    @rule(name=who, key=st.sampled_from(["ArrowRight", "ArrowLeft", "ArrowRight", "g"]))
    def move(self, name, key):
        self.act(name, lambda page: page.keyboard.press(key))

    @rule(name=who, kind=st.sampled_from(["undo", "undo", "redo"]))
    def take_back(self, name, kind):
        if name in self.offline and not self.waiting[name]:
            return
        self.act(name, lambda page: page.keyboard.press(kind[0]))
        if name in self.offline:
            assert self.pages[name].inner_text("#message").startswith("wait until your answers are saved")
            return
        self.sent(Entry(kind, name))

    @rule(name=who, key=st.sampled_from("kd"), everything=st.booleans(), others=st.booleans())
    def decide_page(self, name, key, everything, others):
        page = self.pages[name]
        if not self.view(name, grid=True):
            return
        page.keyboard.press("Shift+A" if everything else "a")
        items = page.evaluate("state.items.filter((item) => state.selected.has(item.pair))")
        known = [item for item in items if item["decision"]]
        if not items:
            return
        if not known:
            self.act(name, lambda page: page.keyboard.press(key))
        else:
            page.keyboard.press(key)
            assert f"{len(known)} of {len(items)} " in page.inner_text("#asked-text")
            if others and len(known) == len(items):
                page.keyboard.press("Escape")
                page.keyboard.press("n")
                return
            self.act(name, lambda page: page.click("#asked-others" if others else "#asked-all"))
            items = [item for item in items if not item["decision"]] if others else items
        decisions = {item["pair"]: (CHOICES[key], None) for item in items}
        self.sent(Entry("decide", name, decisions, {item["pair"]: item["time"] for item in items}))

    @rule(name=who)
    def reload(self, name):
        page = self.pages[name]
        page.reload()
        page.wait_for_function("() => document.body.dataset.ready || !find('empty').hidden", polling=20)
        type(self).done += 1
        if name not in self.offline:
            return
        kept = {pair: decision for entry in self.waiting[name] for pair, decision in entry.decisions.items()}
        for item in page.evaluate("state.items"):
            assert item["pair"] not in kept or (item["decision"], item["new_caption"]) == kept[item["pair"]]

    @precondition(lambda self: len(self.offline) < len(NAMES))
    @rule(name=who)
    def lose_server(self, name):
        if name not in self.offline:
            self.offline.add(name)
            type(self).done += 1
            for path in SENT:
                self.contexts[name].route(path, lambda route: route.abort())

    @precondition(lambda self: self.offline)
    @rule(name=who)
    def find_server(self, name):
        if name in self.offline:
            self.back(name)

    def back(self, name):
        """Let the requests of a page through, and wait until the last one that waited is recorded or refused."""
        page, waiting = self.pages[name], self.waiting[name]
        if name in self.offline:
            for path in SENT:
                self.contexts[name].unroute(path)
            self.offline.remove(name)
        if not waiting:
            return
        page.evaluate("flush()")
        page.wait_for_function("() => !outbox.length && !sending", polling=20)
        painted(page) if page.evaluate("state.items.length") else None
        self.take_over(name)
        waiting.clear()
        self.check()

    def take_over(self, back=None):
        """Record in the model what the server has of the requests that wait. Of the one who is back it has seen all.

        It may have one of a page that has no server: a browser lets a request go on that a reload interrupts, and the
        page does not hear of it. It is then sent again, and known by its key.
        """
        for name in NAMES:
            times = {}
            for entry in self.waiting[name]:
                event = self.journal.entry_of(entry.key)
                if event is None and name != back:
                    break
                for pair, seen in entry.seen.items():
                    entry.seen[pair] = times.get(pair, seen) if seen == UNKNOWN else seen
                if entry.place is None:
                    assert self.model.accepts(entry) == (event is not None)
                    if event is not None:
                        self.model.record(entry, self.journal.time_of(event))
                times |= dict.fromkeys(entry.decisions, entry.time or UNKNOWN)


@pytest.mark.slow
@pytest.mark.timeout(3600)  # for the long profile
def test_what_was_shown_as_taken_is_in_the_export_and_nothing_else(browser, tmp_path):
    TwoReviewers.browser, TwoReviewers.place = browser, tmp_path
    steps = settings.default.stateful_step_count
    several = settings(
        max_examples=EXAMPLES,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    run_state_machine_as_test(TwoReviewers, settings=several)
    assert TwoReviewers.done >= EXAMPLES * steps / 3  # many steps find nothing to do
