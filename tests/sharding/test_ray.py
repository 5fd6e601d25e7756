"""The work on shards by workers of Ray, of which one is killed."""

import os
import signal

import pyarrow.parquet as pq
import pytest
from vector_folder import vectors

from pairsift.cli.main import main
from pairsift.detect import shards
from pairsift.runs import vector_check
from pairsift.sharding import engines
from shard_sources import write_shards


def dying(work, mark):
    """The work, whose process is killed once: as it puts the table of shard 1 into its place."""

    def run(number):
        replace = os.replace

        def put(part, path):
            if str(path).endswith("00001.parquet") and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            replace(part, path)

        os.replace = put
        try:
            work(number)
        finally:
            os.replace = replace

    return run


def files(folder):
    """The bytes of all parts, by name."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*[0-9].*"))}


@pytest.mark.slow
def test_a_killed_worker_costs_its_shard_and_all_parts_are_those_of_one_process(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.setattr(shards, "LEARNED", 300)
    monkeypatch.setattr(vector_check, "MANY", 1000)
    source, folder, new = write_shards(tmp_path / "shards", 4, 5), tmp_path / "vectors", tmp_path / "new"
    vectors(folder)
    vectors(new, n=900, seed=1)
    on_ray, marks = engines.run_on_ray, []

    def interrupted(work, numbers, address):
        marks.append(tmp_path / f"killed {len(marks)}")
        on_ray(dying(work, marks[-1]), numbers, address)

    monkeypatch.setattr(engines, "run_on_ray", interrupted)
    one, other = tmp_path / "one", tmp_path / "ray"
    try:
        for out, more in ((one, []), (other, ["--ray", "local"])):
            out.mkdir()
            for words in (
                ["encode", source, "--out", out / "encoded"],
                ["check", folder, "--out", out / "run", "--quiet"],
                ["score", out / "run", new, "--out", out / "scores.parquet"],
            ):
                assert main([*map(str, words), *more]) == 0
    finally:
        ray.shutdown()
    assert len(marks) == 3 and all(mark.exists() for mark in marks)
    assert files(one / "encoded") == files(other / "encoded") and len(files(one / "encoded")) == 12
    assert files(one / "run" / "shards") == files(other / "run" / "shards")
    for name in ("run/pairs.parquet", "scores.parquet"):
        assert pq.read_table(one / name).equals(pq.read_table(other / name)), name
