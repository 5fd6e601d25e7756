"""Search by requests: the results of the run, uploads that are refused, and a model that is loaded once and late."""

import io
import select
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from web_helpers import MARKUP, N, served

import pairsift
import pairsift.runs.search
from pairsift.review import Decision, Decisions
from pairsift.web import search as page_search
from pairsift.web.app import create_app

HOST = "127.0.0.1:8765"


def client(folder, **more):
    return TestClient(create_app(folder, **more), base_url=f"http://{HOST}", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def browser(searchable):
    return client(searchable)


@pytest.fixture(scope="module")
def run(searchable):
    return pairsift.open_run(searchable, progress=False)


def found(answer):
    assert answer.status_code == 200, answer.text
    return [(row["pair"], row["caption"], pytest.approx(row["score"], abs=1e-5)) for row in answer.json()["results"]]


def hits(results):
    return [(hit.pair, hit.caption, hit.score) for hit in results]


def test_the_answers_are_those_of_the_run(browser, run, searchable):
    answer = browser.get("/api/search", params={"text": "something red", "k": 5})
    assert hits(run._search.by_text("something red", 5)) == found(answer)
    assert answer.json()["recall"] == ""
    row = answer.json()["results"][0]
    assert row["image"] == f"image {row['pair'] // 3}.png" and row["judged"] and row["decision"] is None
    assert row["match_probability"] == pytest.approx((row["pair"] + 0.5) / N)
    assert hits(run.images_like(30, 4)) == found(browser.get("/api/like/30", params={"k": 4}))
    image = searchable.parent / "data" / "image 9.png"
    answer = browser.post("/api/search/image", params={"k": 6}, content=image.read_bytes())
    assert hits(run.captions_for(image, 6)) == found(answer)


def test_images_like_a_pairs_are_its_neighbours_in_colour(browser):
    rows = browser.get("/api/like/60", params={"k": 4}).json()["results"]
    assert len(rows) == 4 and all(0 < abs(row["pair"] // 3 - 20) < 8 for row in rows)


def test_decisions_are_shown_with_the_results(browser, searchable):
    Decisions(searchable, range(N)).decide([Decision(33, "drop")], "ana")
    rows = browser.get("/api/like/30", params={"k": 200}).json()["results"]
    assert len(rows) == N // 3 - 1
    assert {row["pair"]: row["decision"] for row in rows}[33] == "drop"


def test_a_hostile_caption_stays_text(browser):
    rows = browser.get("/api/like/3", params={"k": 200}).json()["results"]
    assert MARKUP in [row["caption"] for row in rows]
    page = browser.get("/search", params={"text": MARKUP})
    assert "<script>alert" not in page.text and "unsafe" not in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "code", "message"),
    [
        ("/api/search", 422, "Field required"),
        ("/api/search?text=%20", 422, "the query is empty"),
        ("/api/search?text=" + "a" * 1001, 422, "at most 1000 characters"),
        ("/api/search?text=a&k=0", 422, "greater than or equal to 1"),
        ("/api/search?text=a&k=201", 422, "less than or equal to 200"),
        ("/api/like/999", 422, "the run has no usable pair 999"),
        (f"/api/like/{10**30}", 422, "less than"),
        ("/api/like/-1", 422, "greater than"),
    ],
)
def test_a_question_without_answer_is_refused_with_the_reason(browser, path, code, message):
    answer = browser.get(path)
    assert answer.status_code == code and message in answer.text


def test_an_upload_that_is_no_image_is_refused(browser, monkeypatch):
    stream = io.BytesIO()
    Image.new("RGB", (400, 300), "red").save(stream, "PNG")
    for content in (b"", b"no image", stream.getvalue()[:200]):
        answer = browser.post("/api/search/image", content=content)
        assert answer.status_code == 422 and "image" in answer.json()["detail"]
    monkeypatch.setattr("pairsift.encode.decode.LARGE", 100_000)
    answer = browser.post("/api/search/image", content=stream.getvalue())
    assert answer.status_code == 422 and "decompression bomb" in answer.json()["detail"]
    monkeypatch.setattr(page_search, "MAX_UPLOAD", 1000)
    answer = browser.post("/api/search/image", content=stream.getvalue())
    assert answer.status_code == 413 and "the image has more than 1,000 bytes" in answer.json()["detail"]


def reply_to(address, head, parts):
    """Send a request part by part until the server answers; return the answer and the number of parts that left."""
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(f"POST /api/search/image HTTP/1.1\r\nHost: {host}:{port}\r\n{head}\r\n\r\n".encode())
        sent = 0
        for part in parts:
            if select.select([connection], [], [], 0)[0]:
                break
            with suppress(ConnectionError):
                connection.sendall(part)
            sent += 1
        return connection.recv(4000).decode(), sent


def test_a_long_upload_is_refused_while_it_comes_in(searchable, monkeypatch):
    monkeypatch.setattr(page_search, "MAX_UPLOAD", 3_000_000)
    part = b"f4240\r\n" + bytes(1_000_000) + b"\r\n"
    with served(searchable) as address:
        answer, sent = reply_to(address, "Transfer-Encoding: chunked", (part for _ in range(100)))
        assert " 413 " in answer and 3 < sent < 50
        answer, _ = reply_to(address, "Content-Length: 1000000000000", [])
        assert " 413 " in answer


def test_other_sites_cannot_search(browser):
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert browser.post("/api/search/image", content=b"x", headers=headers).status_code == 403
        assert browser.get("/api/search?text=a", headers=headers).status_code == 403


def test_many_first_questions_load_the_model_once(searchable, monkeypatch):
    opened, together = [], Barrier(8, timeout=60)
    really = pairsift.runs.search.open_search

    def counted(*arguments):
        opened.append(arguments)
        return really(*arguments)

    monkeypatch.setattr(pairsift.runs.search, "open_search", counted)
    browser = client(searchable)

    def like(k):
        together.wait()
        return found(browser.get(f"/api/like/{3 * k}?k=3"))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(like, range(8)))
    assert len(opened) == 1 and all(len(rows) == 3 for rows in answers)


@pytest.mark.slow
def test_only_a_search_imports_torch(searchable):
    code = f"""
import sys
from pathlib import Path
from fastapi.testclient import TestClient
from pairsift.web.app import create_app

browser = TestClient(create_app(Path({str(searchable)!r}), {{"testserver"}}))
for path in ("/", "/search", "/api", "/overview", "/api/pairs", "/openapi.json"):
    assert browser.get(path).status_code == 200, path
print("torch" in sys.modules)
assert len(browser.get("/api/like/3?k=2").json()["results"]) == 2
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.stdout == "False\nTrue\n", done.stderr


def test_a_run_that_cannot_be_searched_is_reviewed_all_the_same(folder):
    browser = client(folder)
    (folder / "source.parquet").unlink()
    answer = browser.get("/api/search?text=a")
    assert answer.status_code == 422 and "source.parquet is missing" in answer.json()["detail"]
    assert browser.get("/api/pairs").json()["total"] == N


def test_the_reference_lists_every_question_with_what_it_takes(browser):
    page = browser.get("/api").text
    paths = browser.get("/openapi.json").json()["paths"]
    for path in paths:
        assert f" {path}</code>" in page
    assert (
        "POST /api/search/image</code>" in page and "image/*" in page and "Find images like the image of a pair" in page
    )
    assert "<td><code>k</code></td><td>query</td><td>a whole number from 1 to 200</td><td>24</td>" in page
    assert "keep, drop, replace, clear" in page and "<code>decisions[].from_pair</code>" in page
    assert "<script" not in page and "http:" not in page and "https:" not in page
    assert '<a href="openapi.json">' in page
