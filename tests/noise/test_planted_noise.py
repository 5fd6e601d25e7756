from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pair_sources import noise_index, plain_pairs
from pairsift.errors import InputError
from pairsift.noise.planted import plant_in_all_splits, plant_noise, read_index


def published_procedure(n_images, n_captions, ratio, seed):
    """Section 1.2 of the notes in plain loops: image pointers of the first m shuffled captions change places."""
    np.random.seed(seed)
    pointers = [caption // n_captions for caption in range(n_images * n_captions)]
    order = list(range(len(pointers)))
    np.random.shuffle(order)
    chosen = order[: int(ratio * len(pointers))]
    values = [pointers[caption] for caption in chosen]
    np.random.shuffle(values)
    for caption, value in zip(chosen, values, strict=True):
        pointers[caption] = value
    return pointers


def naive_rate(pairs):
    train = [pair for pair, split in enumerate(pairs.split) if split == "train"]
    return sum(int(pairs.image_of[pair] != pairs.true_image_of[pair]) for pair in train) / len(train)


@pytest.mark.parametrize("ratio", [0.2, 0.4, 0.6])
def test_published_index_files(tmp_path, ratio):
    pairs = plain_pairs([5] * 600)
    pointers = published_procedure(600, 5, ratio, 96)
    np.save(tmp_path / "index.npy", np.array(pointers))
    noisy = read_index(pairs, tmp_path / "index.npy")
    assert noisy.image_of[:3000].tolist() == pointers
    assert noisy.noise.granularity == "caption"
    assert noisy.noise.seed == -1
    assert noisy.noise.ratio == noisy.noise.rate == naive_rate(noisy)
    assert ratio - 0.005 < noisy.noise.rate <= ratio


@pytest.mark.parametrize("ratio", [0.2, 0.4, 0.6])
def test_ours_has_the_published_procedures_distribution(ratio):
    pairs = plain_pairs([5] * 600)
    noisy = plant_noise(pairs, ratio, seed=3)
    assert noisy.noise.rate == naive_rate(noisy)
    assert ratio - 0.005 < noisy.noise.rate <= ratio
    wrong = Counter((noisy.true_image_of[noisy.mismatched()]).tolist())
    share_of_all_five = sum(count == 5 for count in wrong.values()) / 600
    assert abs(share_of_all_five - ratio**5) < 0.03  # binomial: captions are picked one by one


def test_rate_counts_neither_fixed_points_nor_siblings():
    pairs = plain_pairs([50, 50])
    noisy = plant_noise(pairs, 1.0, seed=0)
    assert noisy.noise.rate == naive_rate(noisy)
    assert 0.3 < noisy.noise.rate < 0.7


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    ratio=st.floats(0, 1),
    seed=st.integers(0, 2**32),
    granularity=st.sampled_from(["caption", "image"]),
)
def test_planted_noise_is_a_permutation_of_training_pointers(counts, ratio, seed, granularity):
    pairs = plain_pairs(counts)
    noisy = plant_noise(pairs, ratio, seed, granularity)
    n = sum(counts)
    assert noisy.image_of[n:].tolist() == pairs.image_of[n:].tolist()
    assert noisy.true_image_of.tolist() == pairs.image_of.tolist()
    assert noisy.captions == pairs.captions
    assert noisy.split.tolist() == pairs.split.tolist()
    assert noisy.noise.rate == naive_rate(noisy)
    assert noisy.hash() == pairs.hash()
    targets = {}
    for pair in range(n):
        targets.setdefault(int(pairs.image_of[pair]), []).append(int(noisy.image_of[pair]))
    if granularity == "caption":
        assert sorted(noisy.image_of.tolist()) == sorted(pairs.image_of.tolist())
        assert int(noisy.mismatched().sum()) <= int(ratio * n)
    else:
        assert all(len(set(to)) == 1 for to in targets.values())
        assert sorted(to[0] for to in targets.values()) == sorted(targets)
        assert sum(to[0] != image for image, to in targets.items()) <= int(ratio * len(counts))
    again = plant_noise(pairs, ratio, seed, granularity)
    assert again.noise == noisy.noise
    assert again.image_of.tolist() == noisy.image_of.tolist()


@pytest.mark.parametrize("granularity", ["caption", "image"])
def test_index_files_round_trip(tmp_path, granularity):
    pairs = plain_pairs([3, 1, 2] * 20)
    noisy = plant_noise(pairs, 0.5, 7, granularity)
    np.save(tmp_path / "index.npy", noise_index(noisy))
    back = read_index(pairs, tmp_path / "index.npy")
    assert back.image_of.tolist() == noisy.image_of.tolist()
    assert back.noise.granularity == granularity
    assert back.noise.index_hash == noisy.noise.index_hash
    assert back.noise.rate == noisy.noise.rate


def test_index_of_images_goes_to_all_their_captions(tmp_path):
    pairs = plain_pairs([2, 3, 1])
    np.save(tmp_path / "index.npy", np.array([1, 2, 0]))
    noisy = read_index(pairs, tmp_path / "index.npy")
    assert noisy.image_of[:6].tolist() == [1, 1, 2, 2, 2, 0]
    assert noisy.noise.granularity == "image"
    assert noisy.noise.rate == 1.0


def test_index_counts_training_images_by_first_appearance(tmp_path):
    pairs = plain_pairs([1] * 4)
    pairs.image_of[:4] = [3, 5, 3, 1]
    np.save(tmp_path / "index.npy", np.array([1, 0, 0, 2]))
    noisy = read_index(pairs, tmp_path / "index.npy")
    assert noisy.image_of[:4].tolist() == [5, 3, 3, 1]
    assert noise_index(noisy) == [1, 0, 0, 2]


def refused(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_index_files_that_cannot_be_used(tmp_path):
    pairs = plain_pairs([2, 2])
    path = tmp_path / "index.npy"
    assert "cannot be read" in refused(read_index, pairs, path)
    for bad, part in [
        (np.arange(3), "holds 3 entries"),
        (np.array([0, 1, 2, 0]), "from 0 to 2"),
        (np.array([0, -1, 1, 0]), "from -1 to 1"),
        (np.zeros(4), "float64"),
        (np.zeros((2, 2), dtype=int), "(2, 2)"),
        (np.array([0, 1, None, 1], dtype=object), "no whole .npy file of numbers"),
    ]:
        np.save(path, bad, allow_pickle=True)
        assert part in refused(read_index, pairs, path)
    path.write_bytes(b"rubbish")
    assert ".npy" in refused(read_index, pairs, path)
    path.write_bytes(b"")
    assert ".npy" in refused(read_index, pairs, path)
    np.savez(tmp_path / "index.npz", np.arange(4))
    assert "archive" in refused(read_index, pairs, tmp_path / "index.npz")


def test_noise_is_planted_once():
    pairs = plain_pairs([2, 2])
    assert "already" in refused(plant_noise, plant_noise(pairs, 0.5, 0), 0.5, 0)


@pytest.mark.parametrize("ratio", [0.2, 0.6])
def test_noise_in_all_splits_keeps_captions_in_their_split(ratio):
    pairs = plain_pairs([5] * 30, n_dev=90, n_test=60)
    noisy = plant_in_all_splits(pairs, lambda part: plant_noise(part, ratio, seed=4))
    alone = plant_noise(pairs, ratio, seed=4)
    train = pairs.ids("train")
    assert np.array_equal(noisy.image_of[train], alone.image_of[train])
    assert noisy.noise.rate == alone.noise.rate and noisy.noise.splits == "all" and alone.noise.splits == "train"
    assert noisy.noise.index_hash != alone.noise.index_hash
    for name in ("train", "dev", "test"):
        ids = pairs.ids(name)
        assert sorted(noisy.image_of[ids].tolist()) == sorted(pairs.image_of[ids].tolist())  # a permutation
        share = noisy.mismatched()[ids].mean()
        assert ratio - 0.1 < share <= ratio, name
    assert np.array_equal(noisy.true_image_of, pairs.image_of) and noisy.hash() == pairs.hash()


def test_noise_in_all_splits_leaves_an_empty_split_alone():
    pairs = plain_pairs([5] * 20, n_dev=0, n_test=40)
    noisy = plant_in_all_splits(pairs, lambda part: plant_noise(part, 0.5, seed=0))
    assert {name for name in pairs.split[noisy.mismatched()]} == {"train", "test"}
