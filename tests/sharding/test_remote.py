"""Sources at other places: a store in memory and a web server on this machine."""

import io
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pairsift.cli.main import main
from pairsift.web.images import Images
from shard_sources import picture, write_shards


def encode(source, out, *options):
    """The exit code of the command."""
    words = [source] if isinstance(source, str) else [*map(str, source)]
    return main(["encode", *words, "--out", str(out), "--quiet", *options])


def files(out, *kinds):
    """The bytes of the parts, by name."""
    return {str(file.relative_to(out)): file.read_bytes() for kind in kinds for file in sorted((out / kind).iterdir())}


def records(out):
    """The records of all parts."""
    return pa.concat_tables(
        [pq.read_table(file) for file in sorted((out / "metadata").iterdir())], promote_options="default"
    )


class Server(ThreadingHTTPServer):
    """A web server of the files of a folder, which answers to ranges.

    Attributes:
        broken: Names that are answered with an error of the server.
        ranges: Whether it answers to ranges, or with the whole file.
        asked: The names and ranges of all requests.
    """

    def __init__(self, folder):
        self.folder, self.broken, self.asked, self.ranges = folder, set(), [], True
        super().__init__(("127.0.0.1", 0), Answer)

    @property
    def url(self):
        """The address."""
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    """The answer to a request."""

    def do_HEAD(self):
        self.do_GET(body=False)

    def do_GET(self, body=True):
        name, bounds = self.path.strip("/"), re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        self.server.asked.append((name, self.headers.get("Range")))
        path, bounds = self.server.folder / name, bounds if self.server.ranges else None
        if name in self.server.broken or not path.is_file():
            return self.send_error(503 if name in self.server.broken else 404)
        content = whole = path.read_bytes()
        if bounds:
            content = whole[int(bounds[1]) : int(bounds[2] or len(whole)) + 1]
        self.send_response(206 if bounds else 200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Accept-Ranges", "bytes")
        if bounds:
            self.send_header("Content-Range", f"bytes {bounds[1]}-{int(bounds[1]) + len(content) - 1}/{len(whole)}")
        self.end_headers()
        if body:
            self.wfile.write(content)
        return None

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server(tmp_path):
    with Server(write_shards(tmp_path / "shards", 4, 30, shop="a")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def memory(tmp_path):
    place = fsspec.filesystem("memory")
    for file in sorted(write_shards(tmp_path / "shards", 3, 4).iterdir()):
        place.pipe(f"/bucket/shards/{file.name}", file.read_bytes())
    yield place
    place.rm("/bucket", recursive=True)


def test_an_object_store_has_the_vectors_of_local_files(tmp_path, memory):
    assert encode(str(tmp_path / "shards"), tmp_path / "here") == 0
    wanted = files(tmp_path / "here", "img_emb", "text_emb")
    base = "memory://bucket/shards"
    sources = {
        "folder": base,
        "pattern": f"{base}/*.tar",
        "braces": f"{base}/{{00000..00002}}.tar",
        "list": [f"{base}/00000.tar", f"{base}/{{00001,00002}}.tar"],
    }
    for name, source in sources.items():
        out = tmp_path / name
        assert encode(source, out) == 0
        assert files(out, "img_emb", "text_emb") == wanted
        table, here = records(out), records(tmp_path / "here")
        assert table.drop_columns("file") == here.drop_columns("file")
        places = [url.replace(":///", "://") for url in table["file"].to_pylist()]
        assert places == [f"{base}/{name}" for name in here["file"].to_pylist()]


def test_parquet_files_of_an_object_store_are_shards(tmp_path, memory, capsys):
    rows = [{"image": {"bytes": picture(n), "path": f"{n}.jpg"}, "caption": f"a caption {n}"} for n in range(10)]
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[number::2]), path)
        memory.pipe(f"/bucket/tables/{path.name}", path.read_bytes())
    memory.pipe("/bucket/tables/2.parquet", b"PAR1 no more")
    assert encode("memory://bucket/tables", tmp_path / "out") == 0
    assert encode([str(tmp_path / f"{number}.parquet") for number in range(2)], tmp_path / "here") == 0
    kinds = ("img_emb", "text_emb", "metadata")
    there = files(tmp_path / "out", *kinds)
    assert len(there) == 9 and files(tmp_path / "here", *kinds).items() <= there.items()
    problem = records(tmp_path / "out")["problem"].to_pylist()
    assert not any(problem[:10]) and "/bucket/tables/2.parquet: is not a readable" in problem[10]
    capsys.readouterr()
    assert main(["encode", "memory://bucket/tables", "--out", str(tmp_path / "typo"), "--caption-column", "text"]) == 2
    error = capsys.readouterr().err
    assert "/bucket/tables/0.parquet" in error and "'text'" in error and error.count("\n") == 1
    assert not (tmp_path / "typo" / "metadata").exists()
    assert encode("memory://bucket/tables", tmp_path / "typo") == 0  # the folder is free for the right column
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "other.parquet")
    memory.pipe("/bucket/tables/0.parquet", (tmp_path / "other.parquet").read_bytes())
    (tmp_path / "typo" / "metadata" / "metadata_00001.parquet").unlink()
    assert encode("memory://bucket/tables", tmp_path / "typo") == 2
    assert main(["encode", "memory://bucket/tables", "--out", str(tmp_path / "typo"), "--caption-column", "a"]) == 2
    assert "give another --out" in capsys.readouterr().err  # parts are there


def test_a_web_server_that_fails_costs_no_shard_but_its_own(tmp_path, server, capsys):
    source, out = f"{server.url}/{{00000..00004}}.tar", tmp_path / "out"
    server.broken.add("00002.tar")
    assert encode(source, out) == 2
    error = capsys.readouterr().err
    assert f"{server.url}/00002.tar: cannot be read" in error and "503" in error and error.count("\n") == 1
    assert [file.name for file in sorted((out / "metadata").iterdir())] == [f"metadata_0000{n}.parquet" for n in (0, 1)]
    server.broken.clear()
    server.asked.clear()
    assert encode(source, out) == 0
    assert {name for name, _ in server.asked} == {f"0000{n}.tar" for n in (2, 3, 4)}
    table = records(out)
    assert len(table) == 121 and table["shop"].to_pylist() == ["a"] * 120 + [None]
    assert table["problem"].to_pylist() == [""] * 120 + [f"there is nothing at {server.url}/00004.tar"]
    whole = (server.folder / "00000.tar").read_bytes()
    (server.folder / "00004.tar").write_bytes(whole[:2300])
    assert encode(source, out) == 0 and "is cut off" in records(out)["problem"].to_pylist()[-1]
    (server.folder / "00004.tar").write_bytes(whole)
    server.asked.clear()
    assert encode(source, out) == 0
    assert {name for name, _ in server.asked} == {"00004.tar"} and records(out)["problem"].to_pylist() == [""] * 150


@pytest.mark.slow
def test_images_in_tar_files_of_a_web_server_are_shown_by_their_ranges(tmp_path, server):
    assert encode(f"{server.url}/{{00000..00003}}.tar", tmp_path / "vectors") == 0
    command = ["check", str(tmp_path / "vectors"), "--out", str(tmp_path / "run"), "--shard", "0/1", "--quiet"]
    assert main(command) == 0
    images = Images(tmp_path / "run", tmp_path / "vectors")
    server.asked.clear()
    shown = np.asarray(Image.open(io.BytesIO(images.jpeg(50, "small"))).convert("RGB")).mean((0, 1))
    assert shown == pytest.approx(np.asarray(Image.open(io.BytesIO(picture(50)))).mean((0, 1)), abs=3)
    assert [name for name, bounds in server.asked if bounds] == ["00001.tar"]
    by_range, server.ranges = images.jpeg(50, "small"), False
    assert images.jpeg(50, "small") == by_range
    server.broken.add("00001.tar")
    assert images.jpeg(51, "small") is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("memory://nowhere/at/all", "found no file there that ends in .tar"),
        ("memory://nowhere/*.tar", "found no file there that ends in .tar"),
        ("teleport://host/x.tar", "cannot be opened: Protocol not known: teleport\n"),
        ("http://127.0.0.1:9/x.tar", "repeat the command, and it goes on from there"),
    ],
)
def test_what_cannot_be_reached_ends_in_one_line(tmp_path, capsys, source, reason):
    assert encode(source, tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert reason in error and source.rpartition("/")[0] in error and error.count("\n") == 1


def test_other_commands_say_what_to_do_with_urls(tmp_path, capsys):
    assert main(["check", "s3://bucket/pairs.csv", "--out", str(tmp_path / "run")]) == 2
    assert "s3://bucket/pairs.csv is not on this machine: copy it here" in capsys.readouterr().err
