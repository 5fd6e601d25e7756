"""The application by requests: pages of pairs, decisions, images, and what is refused."""

import io
import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from web_helpers import AWKWARD, MARKUP, RENAMED, N, awkward_cell, make_run

from pairsift.cli import main
from pairsift.review import Decisions
from pairsift.web.app import create_app
from pairsift.web.guard import COOKIE, host_name, is_loopback
from pairsift.web.prefix import below

PORT = 8765
HOST = f"127.0.0.1:{PORT}"


def client(folder, **more):
    return TestClient(create_app(folder, **more), base_url=f"http://{HOST}", raise_server_exceptions=False)


@pytest.fixture
def browser(folder):
    return client(folder)


def choose(*pairs, choice="drop", **more):
    return {"decisions": [{"pair": pair, "choice": choice, **more} for pair in pairs]}


def test_pages_are_parts_of_what_a_filter_selects(browser):
    found = browser.get("/api/pairs", params={"limit": 10}).json()
    assert found["total"] == N and [row["pair"] for row in found["pairs"]] == list(range(10))
    rest = browser.get("/api/pairs", params={"offset": 115, "limit": 10}).json()
    assert [row["pair"] for row in rest["pairs"]] == list(range(115, 120))
    wanted = {"verdict": "mismatched", "text": "BLUE", "column": "shop=shop 1", "order": "best"}
    found = browser.get("/api/pairs", params=wanted).json()
    expected = [pair for pair in range(1, 30, 3) if pair % 4 == 1]
    assert [row["pair"] for row in found["pairs"]] == expected[::-1] and found["total"] == len(expected)


@pytest.mark.parametrize("order", ["worst", "best", "random", "source"])
def test_pages_behind_a_pair_pass_over_nothing_that_others_left_undecided(browser, order):
    wanted = {"order": order, "decision": "undecided", "limit": 50, "seed": 4}
    whole = [row["pair"] for row in browser.get("/api/pairs", params=wanted | {"limit": 200}).json()["pairs"]]
    first = browser.get("/api/pairs", params=wanted).json()["pairs"]
    browser.post("/api/decisions", json=choose(*whole[:20], *whole[45:60]))  # also the last pair of the page
    found = browser.get("/api/pairs", params=wanted | {"after": first[-1]["pair"]}).json()
    assert [row["pair"] for row in found["pairs"]] == whole[60:110] and found["total"] == N - 35
    rest = browser.get("/api/pairs", params=wanted | {"after": whole[109]}).json()["pairs"]
    assert [row["pair"] for row in rest] == whole[110:]
    assert browser.get("/api/pairs", params=wanted | {"after": whole[-1]}).json()["pairs"] == []
    refused = browser.get("/api/pairs", params=wanted | {"after": 9999})
    assert refused.status_code == 422 and "no judged pair 9999" in refused.json()["detail"]


def test_a_pair_that_was_decided_meanwhile_is_refused_and_shown(browser, folder):
    mine = browser.post("/api/decisions", json=choose(3, seen=None) | {"reviewer": "ana"}).json()
    assert mine["time"] == browser.get("/api/pairs/3").json()["time"]
    both = {"decisions": [{"pair": pair, "choice": "keep", "seen": None} for pair in (3, 4)], "key": "once"}
    refused = browser.post("/api/decisions", json=both)
    assert refused.status_code == 409 and "pair 3 was decided meanwhile" in refused.json()["detail"]
    assert [(row["pair"], row["decision"], row["reviewer"]) for row in refused.json()["pairs"]] == [(3, "drop", "ana")]
    assert len(Decisions(folder, np.arange(N)).table()) == 1
    both["decisions"][0]["seen"] = mine["time"]
    assert browser.post("/api/decisions", json=both).json()["counts"]["keep"] == 2
    assert browser.post("/api/decisions", json=both).status_code == 200  # the same request once more
    browser.post("/api/undo", json={})
    seen = choose(3, choice="keep", seen=mine["time"])
    assert browser.post("/api/decisions", json=seen).json()["counts"]["keep"] == 1  # ana's is valid again
    assert browser.post("/api/decisions", json=choose(3)).status_code == 200  # a script that does not say what it saw


def escaped(name):
    return name.replace("%", "%25").replace("=", "%3D")


def test_columns_of_any_name_are_filters(tmp_path):
    folder = make_run(tmp_path, [*AWKWARD, *RENAMED])
    browser = client(folder)
    names = {name: name for name in AWKWARD} | RENAMED
    for given, name in names.items():
        params = {"column": [f"{escaped(name)}={awkward_cell(given, 3)}", "shop=shop 1"], "order": "source"}
        found = browser.get("/api/pairs", params=params).json()
        assert [row["pair"] for row in found["pairs"]] == list(range(13, N, 20)), name
        assert {row["columns"][name] for row in found["pairs"]} == {awkward_cell(given, 3)}
    wanted = {"filter": {"column": [f"{escaped('a=b=')}=a=b= 2"]}, "choice": "drop"}
    assert browser.post("/api/decisions/filter", json=wanted).json()["decided"] == N // 5
    assert browser.get("/api/pairs", params={"column": "pair=7"}).json()["total"] == 1  # ours
    assert browser.get("/api/pairs", params={"column": "100%=100% 3"}).json()["total"] == N // 5  # as people type it
    refused = browser.get("/api/pairs", params={"column": "none=such=1"})
    assert refused.status_code == 422 and "no column 'none'" in refused.json()["detail"]


def test_decisions_are_recorded_counted_undone_and_redone(browser, folder):
    answer = browser.post("/api/decisions", json=choose(3, 4) | {"reviewer": "ana"})
    assert answer.json()["counts"] == {"undecided": N - 2, "keep": 0, "drop": 2, "replace": 0}
    browser.post("/api/decisions", json=choose(3, choice="replace", caption="new", from_pair=9, reason="other"))
    row = browser.get("/api/pairs/3").json()
    assert (row["decision"], row["new_caption"], row["from_pair"], row["reason"]) == ("replace", "new", 9, "other")
    undecided = browser.get("/api/pairs", params={"decision": "undecided", "limit": 200}).json()
    assert undecided["total"] == N - 2 == len(undecided["pairs"])
    undone = browser.post("/api/undo", json={}).json()
    assert undone == {"total": 1, "pairs": [browser.get("/api/pairs/3").json()], "counts": answer.json()["counts"]}
    assert undone["pairs"][0]["decision"] == "drop"  # as ana left it
    redone = browser.post("/api/redo", json={}).json()
    assert redone["counts"]["replace"] == 1 and redone["pairs"][0]["new_caption"] == "new"
    assert browser.post("/api/undo", json={"reviewer": "nobody"}).json()["total"] == 0
    table = Decisions(folder, np.arange(N)).table().to_pylist()
    assert [(row["pair"], row["decision"], row["reviewer"]) for row in table] == [
        (3, "replace", "reviewer"),
        (4, "drop", "ana"),
    ]


def test_all_of_a_filter_is_one_entry(browser, monkeypatch):
    body = {"filter": {"high": 0.25, "text": "red"}, "choice": "drop", "reviewer": "ana"}
    answer = browser.post("/api/decisions/filter", json=body).json()
    assert answer["decided"] == answer["counts"]["drop"] == 9  # of ten images, the first of which has another caption
    monkeypatch.setattr("pairsift.web.app.MAX_PAIRS", 4)
    undone = browser.post("/api/undo", json={"reviewer": "ana"}).json()
    assert undone["total"] == 9 and len(undone["pairs"]) == 4
    assert {row["decision"] for row in undone["pairs"]} == {None} and undone["counts"]["undecided"] == N
    nothing = browser.post("/api/decisions/filter", json=body | {"filter": {"text": "nowhere"}}).json()
    assert nothing["decided"] == 0 and nothing["event"] is None


def test_fifty_clients_lose_and_double_nothing(folder):
    browsers = [client(folder), client(folder)]  # two servers on one run

    def reviewer(number):
        for pair in (number, number + 50):
            body = choose(pair) | {"reviewer": f"r{number}", "key": f"{number} {pair}"}
            answers = {browsers[k].post("/api/decisions", json=body).json()["event"] for k in (0, 1)}
            assert len(answers) == 1

    with ThreadPoolExecutor(50) as pool:
        list(pool.map(reviewer, range(50)))
    for browser in browsers:
        assert browser.get("/api/overview").json()["counts"] == {
            "undecided": N - 100,
            "keep": 0,
            "drop": 100,
            "replace": 0,
        }
    assert len(Decisions(folder, np.arange(N)).history(1000)) == 100


def test_an_export_that_cannot_be_made_says_so_and_leaves_nothing(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    answer = browser.get("/export", params={"kind": "json", "splits": "true", "replace_above": ""})
    assert answer.status_code == 422 and answer.text.startswith("cleaned.json: a .json file has no splits")
    assert not list(tmp_path.glob("pairsift-export-*"))
    for wrong in ({"kind": "fiftyone"}, {"kind": "../x"}, {"drop_below": 2}, {"replace_above": "x"}):
        assert browser.get("/export", params=wrong).status_code == 422


def test_the_overview_says_what_each_threshold_drops(browser):
    overview = browser.get("/api/overview").json()
    row = next(row for row in overview["thresholds"] if row["threshold"] == 0.5)
    assert row["pairs"] == N / 2 and row["expected_matching"] == pytest.approx(N / 2 * 0.25)
    assert overview["noise_rate"] == {"estimated": 0.25}
    page = " ".join(browser.get("/overview").text.split())
    total = sum(1 - one["match_probability"] for one in browser.get("/api/pairs", params={"limit": N}).json()["pairs"])
    assert f"By the probabilities, {total:,.0f} of all {N} judged pairs ({total / N:.1%}) are mismatched." in page
    assert "The estimated rate, 25.0%, is estimated separately: for the training pairs alone" in page


def test_a_spot_check_is_drawn_answered_and_evaluated(browser, folder):
    assert browser.get("/api/spot-check").json() is None
    refused = browser.get("/api/pairs", params={"sample": True})
    assert refused.status_code == 422 and "no spot check" in refused.json()["detail"]
    assert browser.post("/api/spot-check", json={"pairs": 19}).status_code == 422
    assert "Draw a spot check" in browser.get("/spot-check").text
    pairs = browser.post("/api/spot-check", json={"pairs": 30}).json()["pairs"]
    found = browser.get("/api/pairs", params={"sample": True, "limit": 200}).json()
    assert found["total"] == 30 and {row["pair"] for row in found["pairs"]} == set(pairs)
    for k, pair in enumerate(pairs[:25]):
        browser.post("/api/decisions", json=choose(pair, choice="drop" if k % 5 == 0 else "keep"))
    browser.post("/api/decisions/filter", json={"filter": {"decision": ["undecided"]}, "choice": "keep"})
    result = browser.get("/api/spot-check").json()
    assert (result["asked"], result["answered"], result["mismatched"]) == (30, 25, 5)
    assert result["expected"] == pytest.approx(0.5) and result["low"] < result["rate"] < result["high"]
    answer = browser.post("/api/decisions/filter", json={"filter": {"sample": True}, "choice": "keep"})
    assert answer.status_code == 422 and "look at the pairs of a spot check" in json.dumps(answer.json())
    page = browser.get("/spot-check").text
    assert 'id="draw"' in page and "<strong>25 of 30</strong>" in page and f"{result['rate']:.1%}" in page
    assert browser.post("/api/spot-check", json={}).json()["pairs"] != pairs


def test_a_pair_comes_with_what_would_fit_and_copies_can_be_asked_for(browser):
    row = browser.get("/api/pairs/4").json()
    others = [(4 + 50 + k) % N for k in range(5)]
    assert [item["from_pair"] for item in row["captions"]] == others
    assert [item["caption"] for item in row["captions"]] == [
        browser.get(f"/api/pairs/{pair}").json()["given_caption"] for pair in others
    ]
    assert [item["probability"] for item in row["images"]] == pytest.approx([0.5, 0.2, 0.1, 0.05, 0.0])
    copies = browser.get("/api/pairs", params={"duplicates": "image", "order": "source"}).json()
    assert [item["pair"] for item in copies["pairs"]] == list(range(6))
    group = browser.get("/api/pairs", params={"column": "image_duplicates=1", "order": "source"}).json()
    assert [item["pair"] for item in group["pairs"]] == [3, 4, 5]


def test_the_overview_is_a_page_too_and_the_report_has_no_scripts(browser, folder):
    browser.post("/api/decisions", json=choose(1, 2))
    page = browser.get("/overview").text
    assert all(f">{text}</li>" in page for text in ("118 undecided", "0 keep", "2 drop", "0 replace"))
    assert "About 25.0% of the training pairs" in page and "Nobody has checked this yet" in page
    heights = [float(height) for height in re.findall(r'<rect class="drop" .* height="([\d.]+)"', page)]
    assert sum(heights) == pytest.approx(118 * 2 / (N / 40), abs=0.02)  # as many pairs in each of 40 bins
    assert "<td>60</td><td>45</td><td>15</td>" in page  # of 60 pairs below 0.5, a quarter is good in the mean
    assert page.count("<circle") == 1 and "2 decided, 0% kept" in page and "Recall on dev" not in page
    assert 'href="report"' not in page and browser.get("/report").status_code == 404
    card = '<li class="card pair"><a class="thumb" href="images/3.png"></a><a class="path">x</a><b>pair 3</b></li>'
    (folder / "report.html").write_text(f'<header></header><ul>{card}</ul><a href="suspects.csv">all</a>')
    epochs = [{"epoch": k, "dev": {"rsum": rsum}} for k, rsum in enumerate((100.0, 150.0, 140.0))]
    (folder / "log.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in epochs))
    again = client(folder)
    assert 'points="6.0,112.0 200.0,8.0 394.0,28.8 "' in again.get("/overview").text
    assert 'href="report"' in again.get("/overview").text
    report = again.get("/report")
    assert report.text.count('href="./?decision=&amp;pair=3"') == 2 and 'href="images' not in report.text
    assert 'href="overview"' in report.text and "script-src" not in report.headers["content-security-policy"]
    (folder / "suspects.csv").write_text("pair\n3\n")
    assert again.get("/suspects.csv").text == "pair\n3\n"
    assert report.headers["content-security-policy"].startswith("default-src 'none'; img-src data:; ")


def test_a_source_that_has_moved_may_be_named_by_the_folder_of_its_table(folder, tmp_path):
    place = tmp_path / "moved" / "set"
    place.mkdir(parents=True)
    names = [f"image {k}.png" for k in range(N // 3)]
    for name in names:
        Image.new("RGB", (60, 40), (255, 0, 0)).save(place / name)
    (place / "mine.csv").write_text("image,caption\n" + "".join(f"{name},a dog of {name} runs\n" for name in names))
    answer = client(folder, source=str(tmp_path / "moved")).get("/image/31")
    with Image.open(io.BytesIO(answer.content)) as image:
        assert image.getpixel((5, 5))[0] > 240


def test_what_was_skipped_is_counted_by_reason_and_can_be_had(browser, folder):
    assert "What was skipped" not in browser.get("/overview").text and browser.get("/skipped.csv").status_code == 404
    rows = [("x.csv line 2", "the caption is a filler: 'image'"), ("x.csv line 3", "the caption is a filler: 'photo'")]
    lines = [",".join(row) + "," for row in [*rows, ("<b>", "the caption is empty")]]
    (folder / "skipped.csv").write_text("\n".join(["where,reason,pair", *lines]))
    again = client(folder)
    page = again.get("/overview").text
    assert "<td>2</td><td>the caption is a filler: …</td>" in page and "<td>1</td><td>the caption is empty</td>" in page
    assert again.get("/skipped.csv").content == (folder / "skipped.csv").read_bytes()


def test_images_are_those_of_the_pairs_in_two_sizes(browser, folder, tmp_path):
    answer = browser.get("/image/31", params={"size": "small"})
    assert answer.headers["content-type"] == "image/jpeg"
    (tmp_path / "got.jpg").write_bytes(answer.content)
    with Image.open(tmp_path / "got.jpg") as image:
        assert np.abs(np.asarray(image)[20, 30].astype(int) - [50, 90, 205]).max() < 6  # of pair 31, the tenth image
    assert browser.get("/image/9999").status_code == 404
    for path in ("/image/-1", f"/image/{10**30}", f"/api/pairs/{10**30}"):
        assert browser.get(path).status_code == 422
    for path in ("/image/1%2f..%2f..%2fconfig.yaml", "/image/..%2f..%2fetc%2fpasswd", "/image/1?size=huge"):
        assert browser.get(path).status_code in (404, 422)
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        assert browser.get(path).status_code == 404
    (folder.parent / "data" / "image 3.png").write_bytes(b"no picture")
    assert browser.get("/image/9").status_code == 404


def test_text_stays_text(browser):
    page = browser.get("/")
    assert MARKUP not in page.text and "<script>alert" not in page.text
    row = browser.get("/api/pairs/0").json()
    assert row["given_caption"] == row["columns"]["shop"] == MARKUP
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert (
        "unsafe" not in page.headers["content-security-policy"] and page.headers["x-content-type-options"] == "nosniff"
    )


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/decisions", {"decisions": []}, "at least 1 item"),
        ("/api/decisions", choose(9999), "no judged pair 9999"),
        ("/api/decisions", choose(1, choice="delete"), "'keep', 'drop', 'replace' or 'clear'"),
        ("/api/decisions", choose(1, 1), "decided twice"),
        ("/api/decisions", choose(1, choice="replace"), "replace needs a new caption"),
        ("/api/decisions", choose(1) | {"reviewer": ""}, "at least 1 character"),
        ("/api/decisions", choose(1) | {"path": "/etc/passwd"}, "Extra inputs are not permitted"),
        ("/api/decisions/filter", {"filter": {"column": ["nothing=1"]}, "choice": "drop"}, "no column 'nothing'"),
        ("/api/undo", [], "valid dictionary"),
    ],
)
def test_a_request_that_cannot_be_done_is_refused_with_the_reason(browser, path, body, message):
    answer = browser.post(path, json=body)
    assert answer.status_code == 422 and message in json.dumps(answer.json(), ensure_ascii=False)
    assert browser.get("/api/overview").json()["counts"]["undecided"] == N


def test_other_sites_get_nothing(browser):
    for host in (
        "evil.example",
        f"evil.example:{PORT}",
        "localhost.evil.example",
        "127.0.0.1.evil.example:80",
        "0.0.0.0",
        "[::",
        "",
    ):
        assert browser.get("/", headers={"Host": host}).status_code == 421
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert browser.post("/api/decisions", json=choose(1), headers=headers).status_code == 403
        assert browser.get("/image/1", headers=headers).status_code == 403
    assert browser.post("/api/decisions", json=choose(1), headers={"Origin": f"http://{HOST}"}).status_code == 200


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:9000", "[::1]:8765", "LOCALHOST", "127.8.8.8:1"])
def test_a_tunnel_may_end_at_any_port_of_this_computer(browser, host):
    assert browser.get("/", headers={"Host": host}).status_code == 200
    own = {"Host": host, "Origin": f"http://{host}"}
    assert browser.post("/api/decisions", json=choose(1), headers=own).status_code == 200
    for other in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:1"):  # other programs of this computer
        assert browser.post("/api/decisions", json=choose(2), headers=own | {"Origin": other}).status_code == 403
    assert browser.get("/api/overview").json()["counts"]["drop"] == 1


def test_a_refused_name_comes_with_the_option_that_allows_it(folder):
    hub, name = "hub.example.org", "--allow-host hub.example.org"
    refused = client(folder).get("/", headers={"Host": f"{hub}:9000"})
    assert (refused.status_code, refused.text.count("\n")) == (421, 0) and refused.text.endswith(name)
    rewritten = {"Origin": f"https://{hub}"}  # a proxy put its own name into the Host header
    refused = client(folder).post("/api/decisions", json=choose(1), headers=rewritten)
    assert refused.status_code == 403 and refused.text.endswith(name)
    allowed = client(folder, hosts={hub})
    for host in (hub, f"{hub}:9000", "localhost:9000"):
        assert allowed.get("/", headers={"Host": host}).status_code == 200
    assert allowed.post("/api/decisions", json=choose(1), headers=rewritten).status_code == 200
    for headers in ({"Host": "evil.example"}, {"Host": f"evil.{hub}"}, {"Host": f"{hub}.evil.example"}):
        assert allowed.get("/", headers=headers).status_code == 421
    for headers in ({"Origin": "http://evil.example"}, rewritten | {"Sec-Fetch-Site": "same-site"}):
        assert allowed.post("/api/decisions", json=choose(2), headers=headers).status_code == 403


def test_a_page_that_the_browser_calls_its_own_may_ask_behind_a_proxy_that_changes_the_host(browser):
    own = {"Origin": "https://name-8765.example.dev", "Sec-Fetch-Site": "same-origin"}
    assert browser.post("/api/decisions", json=choose(1), headers=own).status_code == 200
    assert browser.get("/", headers=own | {"Host": "name-8765.example.dev"}).status_code == 421  # as after rebinding


@pytest.mark.parametrize(
    ("address", "name"),
    [
        *(("hub.example.org", "hub.example.org"), ("https://Hub.example.org:8000/user/ana/", "hub.example.org")),
        *(("[::1]:80", "::1"), ("10.0.0.7:80", "10.0.0.7"), ("", ""), ("[", ""), ("/path", "")),
    ],
)
def test_the_name_in_an_address(address, name):
    assert host_name(address) == name


@pytest.mark.parametrize("prefix", ["/proxy/absolute/8765", "review/", "/user/a%20b/pairs"])
def test_a_prefix_is_answered_whether_a_proxy_cuts_it_off_or_not(folder, prefix):
    browser = TestClient(below(prefix, create_app(folder, token="s3cret")), base_url=f"http://{HOST}")
    path = f"/{prefix.strip('/')}"
    bare = browser.get(f"{path}?token=s3cret", follow_redirects=False)
    assert bare.headers["location"] == f"{path}/?token=s3cret"
    assert browser.get(f"{path}/?token=s3cret").status_code == 200
    for asked in ("", "search", "static/review.js", "image/1", "api/pairs"):
        assert browser.get(f"{path}/{asked}").status_code == 200
        assert browser.get(f"/{asked}", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    assert browser.get(f"{path}x/api/pairs", headers={"Authorization": "Bearer s3cret"}).status_code == 404


def test_a_link_on_another_site_opens_the_page_and_nothing_else(browser):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert browser.get("/?pair=3", headers=link).status_code == 200
    assert browser.get("/", headers=link | {"Sec-Fetch-Dest": "iframe"}).status_code == 403
    assert browser.get("/image/1", headers=link | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert browser.post("/api/undo", json={}, headers=link).status_code == 403


def test_with_a_token_only_who_has_it_is_answered(folder):
    app = create_app(folder, token="s3cret")
    browser = TestClient(app, base_url="http://archive.example:8765")  # of a host with any name
    for path in ("/", "/api/pairs", "/image/1", "/static/review.js", "/openapi.json", "/?token=wrong"):
        assert browser.get(path).status_code == 401
    assert browser.get("/api/pairs", headers={"Authorization": "Bearer s3cret"}).status_code == 200
    first = browser.get("/?pair=7&token=s3cret&order=best", follow_redirects=False)
    assert first.status_code == 303 and first.headers["location"] == "./?pair=7&order=best"
    assert "HttpOnly" in first.headers["set-cookie"] and "SameSite=lax" in first.headers["set-cookie"]
    assert browser.cookies[COOKIE] == "s3cret" and browser.get("/").status_code == 200


def test_only_this_computer_connects_without_a_token():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "192.168.1.5", "::", "example.org", "localhost.example.org")))


def test_what_cannot_be_served_is_told_in_one_line(folder, tmp_path, capsys):
    assert main(["serve", str(tmp_path / "none")]) == 2
    assert "holds no run" in capsys.readouterr().err
    assert main(["serve", str(folder), "--host", "203.0.113.7", "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("pairsift: 203.0.113.7 port 0: ")
    assert main(["serve", str(folder), "--allow-host", "/", "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("pairsift: --allow-host takes the name of a computer")
    (folder / "source.parquet").unlink()
    assert main(["serve", str(folder), "--port", "0"]) == 2
    assert "source.parquet is missing" in capsys.readouterr().err


def test_a_spot_check_asks_for_every_pair_that_has_no_answer_and_tells_nothing(browser):
    pairs = browser.post("/api/spot-check", json={"pairs": 30}).json()["pairs"]
    browser.post("/api/decisions/filter", json={"filter": {"low": 0.0, "high": 0.9}, "choice": "drop"})
    browser.post("/api/decisions", json=choose(pairs[0], choice="keep"))
    asked = {"sample": True, "decision": "undecided", "limit": 200}
    found = browser.get("/api/pairs", params=asked).json()["pairs"]
    assert {row["pair"] for row in found} == set(pairs[1:]) and {row["decision"] for row in found} == {None}
    low = next(row for row in found if row["match_probability"] <= 0.9)
    answer = browser.post("/api/decisions", json=choose(low["pair"], choice="keep", seen=low["time"]))
    assert answer.status_code == 200  # although the filter had decided
    browser.post("/api/undo", json={})
    order = [row["pair"] for row in found]
    for more in ({"order": "worst"}, {"verdict": "mismatched"}, {"low": 0.5}):
        again = browser.get("/api/pairs", params=asked | more).json()["pairs"]
        assert [row["pair"] for row in again] == order != sorted(order)


def test_images_are_asked_for_again_when_another_server_answers(folder):
    first, second = client(folder), client(folder)
    mark = first.get("/image/3").headers["etag"]
    assert first.get("/image/3", headers={"If-None-Match": mark}).status_code == 304
    assert second.get("/image/3", headers={"If-None-Match": mark}).status_code == 200
    assert first.get("/static/review.js").headers["cache-control"] == "no-cache"


def test_an_image_that_comes_back_or_changes_is_shown_as_it_is(browser, folder):
    file = folder.parent / "data" / "image 3.png"
    away = file.rename(file.with_suffix(".away"))
    assert browser.get("/image/9").status_code == 404
    away.rename(file)
    first = browser.get("/image/9")
    assert first.status_code == 200
    Image.new("RGB", (90, 40), "white").save(file)
    second = browser.get("/image/9", headers={"If-None-Match": first.headers["etag"]})
    assert second.status_code == 200 and second.content != first.content


@pytest.mark.parametrize("body", [choose(1, caption="a\ud800"), choose(1) | {"reviewer": "\ud800"}])
def test_text_that_is_not_unicode_is_refused(browser, body):
    answer = browser.post("/api/decisions", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and "not Unicode" in json.dumps(answer.json())
