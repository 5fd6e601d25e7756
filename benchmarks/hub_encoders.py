"""Images and captions a second of the hub models that one word names, on this machine's cores.

A network has the shape of its published configuration and random weights, which take the same time. Images are 224
pixels wide and decoded before, captions have 14 tokens, those of SigLIP 64, to which it fills them; batches are those
of the encoders on a CPU. Times are medians of the rounds. Beside them stand the products of two float32 matrices of
2,048 x 2,048 that the same process takes in a second.

    python benchmarks/hub_encoders.py --rounds 5
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pairsift  # noqa: F401  # before torch: it says how threads wait

# isort: split
import torch
import transformers

from pairsift.encode.hub_names import HUB_MODELS
from rows import Row, markdown, page, parser, versions, write_rows

IMAGES, TOKENS, CAPTION, FILLED, PRODUCT = 8, 1024, 14, 64, 2048
CONFIGS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "clip": transformers.CLIPConfig,
    "siglip2": transformers.SiglipConfig,
    "dinov2": lambda: transformers.Dinov2Config(patch_size=14),
    "e5": lambda: transformers.XLMRobertaConfig(vocab_size=250_002, max_position_embeddings=514, type_vocab_size=1),
    "multilingual": lambda: transformers.BertConfig(
        vocab_size=250_037, hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536
    ),
}


def main() -> None:
    options = parser(__doc__, "hub_encoders.json")
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    square = torch.rand(PRODUCT, PRODUCT)
    product = seconds(lambda: square @ square, chosen.rounds)
    rows: list[Row] = []
    for name, config in CONFIGS.items():
        row = measure(name, config(), chosen.rounds)
        rows.append({**row, "products": round(1 / product, 1), "versions": versions()})
        print({key: row[key] for key in ("model", "images", "captions")}, flush=True)
    write_rows(chosen.json, rows)
    chosen.json.with_suffix(".md").write_text(page(__doc__, table(rows)))


@torch.inference_mode()
def measure(name: str, config: transformers.PretrainedConfig, rounds: int) -> Row:
    """One row."""
    model = transformers.AutoModel.from_config(config).eval()
    both, reads = hasattr(model, "get_text_features"), HUB_MODELS[name].reads
    length = FILLED if name.startswith("siglip") else CAPTION
    ids = torch.randint(3, 1000, (TOKENS // length, length))
    pixels = torch.rand(IMAGES, 3, 224, 224)
    found: Row = {"model": name, "hub": HUB_MODELS[name].hub, "images": None, "captions": None}
    if reads != "captions":
        run = model.get_image_features if both else model
        found["images"] = round(IMAGES / seconds(lambda: run(pixel_values=pixels), rounds), 1)
    if reads != "images":
        run = model.get_text_features if both else model
        found["captions"] = round(len(ids) / seconds(lambda: run(input_ids=ids), rounds))
    return found


def seconds(call: Callable[[], object], rounds: int) -> float:
    """The median time of a call."""
    call()
    taken = []
    for _ in range(rounds):
        began = time.monotonic()
        call()
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def table(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        cells = ("" if row[name] is None else f"{row[name]:,}" for name in ("images", "captions", "products"))
        lines.append([row["model"], f"`{row['hub']}`", *cells])
    return markdown(["model", "hub", "images", "captions", "products"], lines)


if __name__ == "__main__":
    main()
