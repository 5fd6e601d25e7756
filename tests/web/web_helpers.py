"""A finished run's folder as far as a review needs it, made without training; and a server on it."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from PIL import Image

import pairsift
from pairsift.marker import write_marker
from pairsift.pairs.changes import write_stored_pairs
from pairsift.runs.config import configure
from pairsift.suggest.suggest import Suggestions
from pairsift.suggest.table import SUGGESTIONS_FILE, suggestion_table
from pairsift.table import pair_table, write_tables

MARKUP = '<script>alert(1)</script><img src=x onerror=alert(2)> "quoted" & =1+1'
N = 120
# Names of columns that a filter, an address or a page may take for something else, and what the table calls them.
AWKWARD = (
    *("a", "a=b", "a=b=", "=", "%3D", "100%", "%25", "&x=1", "a,b:c;d", "two  blanks", "line\r\nbreak", "tab\there"),
    *(
        "Größe 狗",
        'say "it\'s"',
        "<b>&amp;</b>",
        "a+b",
        "#",
        "?",
        "/",
        "__proto__",
        "columns",
        "match_probability=",
        "0",
    ),
)
RENAMED = {"pair": "pair_given", "verdict": "verdict_given", "decision": "decision_given", "Reason": "Reason_given"}


def awkward_cell(name, record):
    """Return what a record has in a column of `make_run`, on one line as a field of a page is."""
    return f"{' '.join(name.split())} {record % 5}"


def make_run(place, names=()):
    """Write a run on 40 small images with three captions each, one of them hostile, and return its folder.

    Each of `names` is a column of its own.
    """
    (place / "data").mkdir(parents=True)
    rows = []
    for k in range(N // 3):
        Image.new("RGB", (60, 40), (5 * k, 90, 255 - 5 * k)).save(place / "data" / f"image {k}.png")
        rows += [{"image": f"image {k}.png", "caption": f"caption {k} {word}"} for word in ("red", "blue", "green")]
    rows[0]["caption"] = MARKUP
    table = pa.Table.from_pylist([{**row, "shop": MARKUP if n == 0 else f"shop {n % 4}"} for n, row in enumerate(rows)])
    for name in names:
        table = table.append_column(name, pa.array([awkward_cell(name, record) for record in range(N)]))
    pyarrow.parquet.write_table(table, place / "data" / "mine.parquet")
    pairs = pairsift.load(place / "data" / "mine.parquet")
    folder = place / "run"
    folder.mkdir()
    write_marker(folder, "run")
    (folder / "config.yaml").write_text(configure(place / "data" / "mine.parquet", out=folder).text())
    metrics = {"verdicts_given": True, "noise_rate": {"estimated": 0.25}, "noise": None, "data": {"hash": pairs.hash()}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    write_stored_pairs(pairs, pairs.split, folder / "source.parquet")
    ids = pairs.ids()
    probability = (np.arange(len(ids)) + 0.5) / len(ids)
    flag = probability < 0.25
    suggested = np.where(flag & (ids % 2 == 0), (ids + 50) % N, -1)
    verdicts = np.where(flag, "mismatched", "clean").tolist()
    copies = pa.array([pair // 3 if pair < 6 else None for pair in ids.tolist()], pa.int64())
    extra = {"image_duplicates": copies, "caption_duplicates": pa.nulls(len(ids), pa.int64())}
    write_tables(pair_table(pairs, ids, probability, flag, verdicts, suggested, extra), folder)
    places = np.flatnonzero(suggested >= 0)
    others = (suggested[places, None] + np.arange(5)) % N
    chance = np.tile([0.5, 0.2, 0.1, 0.05, 0.0], (len(places), 1))
    rows = suggestion_table(Suggestions(places, others, chance, others // 3, chance, places >= 0), ids, pairs.image_of)
    pa.parquet.write_table(rows, folder / SUGGESTIONS_FILE)
    return folder


def add_networks(folder):
    """Give a run untrained networks: they take similar images for similar, and know nothing of captions."""
    import torch

    from pairsift.run_folder import weights
    from pairsift.runs.prepare import matcher_factory
    from pairsift.train.checkpoint import write_tensors

    run = pairsift.open_run(folder, progress=False)
    make = matcher_factory(run.config, run.prepared)
    (folder / "model").mkdir()
    torch.manual_seed(0)
    for k in range(run.config.method.networks):
        write_tensors(weights(folder, k), {f"matcher.{name}": value for name, value in make().state_dict().items()})
    return folder


@contextmanager
def served(folder, prefix=""):
    """Serve a run, perhaps below a path, and yield the address of its first page."""
    import uvicorn

    from pairsift.web.app import create_app
    from pairsift.web.current import CurrentRun
    from pairsift.web.prefix import below

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    host = f"127.0.0.1:{listening.getsockname()[1]}"
    app = below(prefix, CurrentRun(folder, lambda: create_app(folder)))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://{host}{prefix}/"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def watched(browser, address):
    """Open a page, and check at the end that it complained of nothing and asked nobody else."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page, problems = context.new_page(), []
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
    page.on("request", lambda request: request.url.startswith(address) or problems.append(request.url))
    page.goto(address)
    yield page
    context.close()
    assert not problems, problems


def painted(page, what=None):
    """Wait until what the page shows can be decided on: a pair by its id, `grid`, or None for either."""
    page.wait_for_selector("body[data-ready]" if what is None else f"body[data-ready='{what}']")


def press(page, key, pair=None):
    """Press a key once the page can be decided on, and wait until what it leaves, perhaps a pair by its id, can."""
    painted(page)
    view = page.evaluate("state.view")
    page.keyboard.press(key)
    page.wait_for_function("view => state.view > view && document.body.dataset.ready", arg=view)
    if pair is not None:
        assert page.evaluate("document.body.dataset.ready") == str(pair)


def wait_for(condition, page=None):
    """Wait until something is true; a page given, while its requests are answered."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not become true within a minute"
        page.wait_for_timeout(20) if page else time.sleep(0.02)


def settle(page):
    """Wait until the page has done all that keys and clicks asked for, and can be decided on if a pair is left."""
    page.evaluate("async () => { while (state.acting) await last; }")
    page.wait_for_function("() => (state.ready || !state.items.length) && !sending")
