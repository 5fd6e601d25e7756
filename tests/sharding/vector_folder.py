"""A folder of vectors, and a command with small shards in a process of its own."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SMALL = "import pairsift; from pairsift.detect import shards; shards.LEARNED = 300; "  # of a process of its own
COMMAND = SMALL + "import sys; from pairsift.cli.main import main; sys.exit(main(sys.argv[1:]))"


def vectors(folder, n=1800, per=3, noise=0.3, seed=0):
    """A folder of vectors in half precision, of which a share of the captions is moved; whose each caption is."""
    rng = np.random.default_rng(seed)
    image_of = np.repeat(np.arange(n // per), per)
    hidden = rng.normal(size=(n // per, 12))
    images = hidden @ rng.normal(size=(12, 24)) + 0.3 * rng.normal(size=(n // per, 24))
    own = hidden[image_of] @ rng.normal(size=(12, 16)) + 0.3 * rng.normal(size=(n, 16))
    source, moved = np.arange(n), rng.permutation(n)[: round(noise * n)]
    source[moved] = np.roll(moved, 1)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "image.npy", images[image_of].astype(np.float16))
    np.save(folder / "text.npy", own[source].astype(np.float16))
    words = [f"caption {row}" for row in source]
    table = pa.table({"image": [f"{row}.jpg" for row in image_of], "caption": words, "shop": ["a"] * n})
    pq.write_table(table, folder / "captions.parquet", row_group_size=500)
    return source
