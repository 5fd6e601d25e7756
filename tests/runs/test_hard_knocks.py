"""Commands that are killed, refused by the disk, run at once or on a foreign cache end as if nothing had happened."""

import errno
import os
import random
import shutil
import signal
import tempfile

import pytest

import hard_knocks
from pairsift.files import only_writer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # whole checks in other processes, on slow cores


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("knocks")


@pytest.fixture(scope="module")
def verbs(base):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hard_knocks.ngrams, "MAX_DIM", 48)
        patch.setattr(hard_knocks, "EXPORTS", ("clean.csv", "clean-shards", "clean"))
        yield hard_knocks.make_verbs(base, 40, ("judging", "scoring", "export", "decisions"))


@pytest.mark.parametrize(("name", "kills"), [("judging", 2), ("scoring", 1), ("export", 9), ("decisions", 4)])
def test_a_killed_command_that_is_repeated_ends_as_one_that_was_not_killed(base, verbs, name, kills):
    row = hard_knocks.knocked(verbs[name], base, kills, seed=3)
    assert row["kills"] == row["same"] == kills and not row["left"], row["trouble"]


def refused(verb, place, at, number):
    """Run a command to which the system refuses files from an event on; return its exit code and what it says."""
    with tempfile.TemporaryFile("w+") as errors:
        child = hard_knocks.forked(verb.words(place), at=at, errors=errors.fileno(), refusal=number)
        code = hard_knocks.ended(child, fine=range(256))
        errors.seek(0)
        return code, errors.read()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("name", ["judging", "export", "decisions"])
def test_a_full_or_read_only_disk_is_one_line_and_costs_nothing(base, verbs, name, number):
    draw = random.Random(f"{name} {number}")
    kinds = verbs[name] if name == "export" else [verbs[name]]
    for one in kinds:
        for at in {0, draw.randrange(one.events)} if name != "judging" else {draw.randrange(one.events)}:
            place = base / "refused" / f"{one.name} {number} {at}"
            place.mkdir(parents=True)
            one.before(place)
            code, said = refused(one, place, at, number)
            if code != 0:  # a lock that is not given back, or a cache that keeps nothing, ends no command
                last = said.strip().splitlines()[-1]
                assert code == 2 and last.startswith("pairsift: ") and "Traceback" not in said, said
                assert os.strerror(number) in last, last
            code, said = hard_knocks.again(one, place)
            assert code == 0 and one.found(place) == one.wanted, said


def test_two_fits_on_one_cache_at_once_do_not_meet(base, verbs):
    one, cache = verbs["judging"], base / "both" / "cache"
    places = [base / "both" / name for name in "ab"]
    for place in places:
        place.mkdir(parents=True)
        (place / "cache").symlink_to(cache)
    cache.mkdir()
    children = [hard_knocks.forked(one.words(place)) for place in places]
    assert [hard_knocks.ended(child) for child in children] == [0, 0]
    assert all(one.found(place) | {"cache": 0} == one.wanted | {"cache": 0} for place in places)
    assert sorted(file.name for file in hard_knocks.files_of(cache)) == one.wanted["cache"]
    assert not hard_knocks.left_behind(base / "both")


@pytest.mark.parametrize("damage", ["journal of another version", "array of another kind", "judgement"])
def test_a_cache_of_another_version_is_made_anew(base, verbs, damage):
    one, place = verbs["judging"], base / "other" / damage
    shutil.copytree(base / "made" / "cache", place / "cache")
    for file in (place / "cache").iterdir():
        if damage == "journal of another version" and file.suffix == ".json":
            file.write_text('{"version": 9, "layout": {"rows": "many"}, "done": []}')
        elif damage == "array of another kind" and file.suffix == ".npy":
            file.write_bytes(b"PK\x03\x04" + file.read_bytes())
        elif damage == "judgement" and file.suffix == ".parquet":
            file.write_bytes(file.read_bytes()[:-9])
    assert hard_knocks.ended(hard_knocks.forked(one.words(place))) == 0
    found, wanted = one.found(place), one.wanted
    assert set(found.pop("cache")) >= set(wanted["cache"]) and found == {
        k: v for k, v in wanted.items() if k != "cache"
    }


def test_the_lease_of_a_killed_command_is_free_at_once_and_its_parts_go(base, verbs):
    one, place = verbs["judging"], base / "lease"
    place.mkdir()
    one.before(place)
    child = hard_knocks.forked(one.words(place), at=one.events // 2)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with only_writer(place / "run", wait=False):
        assert (place / "run" / ".lock").exists()
    assert not (place / "run" / ".lock").exists()
    for name in (".checkpoint.safetensors.01234567.part", "model/.network_0.safetensors.89abcdef.part"):
        (place / "run" / name).write_bytes(b"half")  # as a kill within a longer writing leaves it
    code, said = hard_knocks.again(one, place)
    assert code == 0 and one.found(place) == one.wanted, said
    assert not hard_knocks.left_behind(place / "run")


def test_a_folder_whose_marker_was_begun_is_free_for_the_same_command(base, verbs):
    one, place = verbs["judging"], base / "begun"
    (place / "run").mkdir(parents=True)
    one.before(place)
    (place / "run" / ".pairsift.json.01234567.part").write_text('{"kind"')
    code, said = hard_knocks.again(one, place)
    assert code == 0 and one.found(place) == one.wanted, said
    assert not hard_knocks.left_behind(place)
