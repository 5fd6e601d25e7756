"""A run that another command changes while it is served."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fastapi.testclient import TestClient

from pairsift.run_folder import CHECKPOINT
from pairsift.web.app import create_app
from pairsift.web.current import CurrentRun

HOST = "127.0.0.1:8765"


def client(folder):
    return TestClient(CurrentRun(folder, lambda: create_app(folder)), base_url=f"http://{HOST}")


def rewrite(folder, change):
    table = pq.read_table(folder / "pairs.parquet")
    probability = pa.array(change(table["match_probability"].to_numpy()))
    place = table.column_names.index("match_probability")
    pq.write_table(table.set_column(place, "match_probability", probability), folder / "new.parquet")
    (folder / "new.parquet").replace(folder / "pairs.parquet")


def test_pages_show_new_probabilities_and_keep_decisions(folder):
    browser = client(folder)
    before = browser.get("/api/pairs/3").json()["match_probability"]
    browser.post("/api/decisions", json={"decisions": [{"pair": 3, "choice": "drop"}]})
    rewrite(folder, np.sqrt)
    metrics = json.loads((folder / "metrics.json").read_text()) | {"noise_rate": {"estimated": 0.125}}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    after = browser.get("/api/pairs/3").json()
    assert (after["match_probability"], after["decision"]) == (np.sqrt(before), "drop")
    overview = browser.get("/api/overview").json()
    assert overview["noise_rate"]["estimated"] == 0.125 and overview["counts"]["drop"] == 1
    assert len(browser.post("/api/undo", json={}).json()["pairs"]) == 1


def test_a_run_that_is_unfinished_is_served_as_it_was(folder):
    browser = client(folder)
    before = browser.get("/api/pairs/3").json()["match_probability"]
    (folder / CHECKPOINT).touch()
    rewrite(folder, np.square)
    assert browser.get("/api/pairs/3").json()["match_probability"] == before
    (folder / CHECKPOINT).unlink()
    assert browser.get("/api/pairs/3").json()["match_probability"] == before**2
